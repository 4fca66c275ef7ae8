//! Tests of what an operator objected to about batches and dialogs.

use cketerm_model::{
    batch::Paused, freeze::Freeze, policy::Policy, reboot::RebootStatus, stored::view::Switch, time::after,
};

use super::{
    batches,
    dialogs::refresh,
    world::{World, message, press, stored, wall},
};
use crate::{
    input::update,
    state::{
        App,
        event::{ActionOutcome, Event},
    },
    terminal::screen,
};

/// Returns the line of the batch with this cause.
fn line(app: &App, cause: &str) -> String {
    let text = screen::text(app);
    let line = text.lines().find(|line| line.contains(cause));
    line.unwrap_or_else(|| panic!("{cause}: {text}")).to_owned()
}

/// A batch that cannot start anything is not called running.
#[test]
fn the_state_of_a_batch_says_what_holds_it() {
    let console = |change: &dyn Fn(&mut World)| {
        let (mut world, _) = batches::world(false);
        change(&mut world);
        let mut app = world.console(120, 24);
        press(&mut app, "v");
        line(&app, "kernel 6.12")
    };
    let frozen = |world: &mut World| {
        let freeze = Freeze {
            until: after(wall(), 3600),
            reason: "night".into(),
            who: batches::who("carol"),
            unknown: serde_json::Map::new(),
        };
        let policy = Policy { freeze: Some(freeze), ..Policy::default() };
        world.store.policy = Some(stored("/cke/cketerm/policy", 6, policy));
    };
    let disabled =
        |world: &mut World| world.store.reboots.switch = Switch { raw: Some("true".into()), mod_revision: 50 };
    let nobody = |world: &mut World| {
        world.store.candidates.clear();
        world.engine.leading = None;
    };
    assert!(console(&|_| {}).contains(" running "));
    for (change, words) in
        [(&frozen as &dyn Fn(&mut World), "frozen"), (&disabled, "disabled"), (&nobody, "waits for a leader")]
    {
        let line = console(change);
        assert!(line.contains(words) && !line.contains("running"), "{words}: {line}");
    }
}

/// The warnings of an expired dialog were about the state before.
#[test]
fn an_expired_dialog_shows_nothing_stale() {
    let mut world = World::usual();
    let mut app = world.console(100, 36);
    press(&mut app, "F \"T-1\"");
    let open = screen::text(&app);
    world.entry(3, "10.0.0.14", RebootStatus::Rebooting, 0, 50);
    refresh(&mut app, &world);
    let text = screen::text(&app);
    for words in ["EXPIRED: reboots/3 changed meanwhile", "press the key again", "T-1"] {
        assert!(text.contains(words), "{words}: {text}");
    }
    let dialog = app.dialog.as_ref().unwrap();
    let stale = dialog.notes.iter().chain(&dialog.lines).filter(|line| line.starts_with('!'));
    for line in stale {
        let begin: String = line.chars().take(40).collect();
        assert!(open.contains(&begin) && !text.contains(&begin), "{line}: {text}");
    }
}

/// A pause and a cancel of a batch can be undone like those of an entry.
#[test]
fn a_pause_and_a_cancel_of_a_batch_can_be_undone() {
    let finished = |app: &mut App, response: &str| {
        update(app, Event::Done(Ok(ActionOutcome::from(response))));
    };
    let (mut world, [_, kernel, _]) = batches::world(false);
    let mut app = world.console(120, 24);
    app.session.operator_identity = Some(batches::who("alice"));
    press(&mut app, "v j H \"T-1\" enter enter");
    finished(&mut app, "paused");
    assert!(message(&app).ends_with(&format!("u resumes batch {kernel}")), "{}", message(&app));
    let mut paused = world.store.batches[&kernel].get().unwrap().clone();
    paused.paused = Some(Paused { who: batches::who("alice"), at: wall(), reason: None });
    world.store.batches.insert(kernel, stored("/cke/cketerm/batches/x", 61, paused));
    update(&mut app, Event::Seen(world.seen()));
    press(&mut app, "u");
    assert!(screen::text(&app).contains(&format!("Resume batch {kernel}?")), "{}", screen::text(&app));

    let (mut world, _) = batches::world(false);
    let mut app = world.console(120, 24);
    press(&mut app, "v j X \"T-1\" enter enter");
    finished(&mut app, "cancelled");
    assert!(message(&app).ends_with("u requeues the 2 that had not begun"), "{}", message(&app));
    for index in [3, 4, 5, 7] {
        world.store.reboots.entries.remove(&index);
    }
    update(&mut app, Event::Seen(world.seen()));
    press(&mut app, "u");
    let text = screen::text(&app);
    assert!(text.contains("Reboot 2 machines?") && text.contains("! without the 2 other entries"), "{text}");
}

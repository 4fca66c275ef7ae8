//! Tests of keys under a leader that would not honour them (I52).

use cketerm_model::{
    cketerm_records::{Identity, Stopped, Who},
    entry::QueueKind,
    stored::view::Candidate,
};
use cketerm_rules::{
    console_leads::{LeadAnswer, NotCampaigning},
    snapshot::Engine,
};

use super::world::{World, message, press, stored};
use crate::{
    input::update,
    state::{
        View,
        event::{Action, Effect, Event},
        settings::Change,
    },
    terminal::screen,
};

/// Lets CKE lead: its key is there without a registration.
fn cke_leads() -> World {
    let mut world = World::usual();
    world.store.engines.clear();
    world.engine = Engine { leading: None, lease: 0, ..world.engine };
    world
}

#[test]
fn i52_keys_that_cke_does_not_honour_are_refused_and_absent_from_the_footer() {
    let own_screen = screen::text(&World::usual().console_in(View::Reboots, 200, 24));
    assert!(own_screen.contains("H hold") && own_screen.contains("X cancel"), "{own_screen}");
    for (keys, word) in [("H", "`hold`"), ("F", "`force`"), (": \"freeze 2h move\" enter", "`freeze`")] {
        let mut app = cke_leads().console_in(View::Reboots, 200, 24);
        let footer = screen::text(&app);
        assert!(!footer.contains("H hold") && footer.contains("X cancel"), "{footer}");
        assert_eq!(press(&mut app, keys), []);
        let refusal =
            app.typing.line.as_ref().and_then(|line| line.error.clone()).unwrap_or_else(|| message(&app).to_owned());
        assert!(
            refusal.contains("CKE on admin1 leads") && refusal.contains(word) && app.dialog.is_none(),
            "{keys}: {refusal}"
        );
        assert!(refusal.contains("Instead:"), "{refusal}");
    }
    let mut app = cke_leads().console_in(View::Reboots, 100, 24);
    press(&mut app, "X");
    assert!(app.dialog.is_some(), "a cancel always works");
}

/// Three lines of 80 columns ended before the remedy, which named commands of a shell.
#[test]
fn a_refusal_shows_its_remedy_as_keys_at_80_columns() {
    for (keys, remedy) in [
        ("H", "X cancels the entry, E disables its queue, :stop disables both queues"),
        ("F", "X cancels the entry"),
        (": \"freeze 2h move\" enter", ":stop disables both queues, whoever leads"),
    ] {
        let mut world = cke_leads();
        let host = "control-plane-1.rack12.tokyo0.example.com".into();
        let candidate = Candidate { host, ..world.store.candidates[&20].clone() };
        world.store.candidates.insert(20, candidate);
        let mut app = world.console_in(View::Reboots, 80, 24);
        press(&mut app, keys);
        let text = screen::text(&app);
        let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(words.contains(remedy) && words.contains("nothing was written"), "{keys}: {text}");
    }
}

#[test]
fn both_queues_are_stopped_and_resumed_under_every_leader() {
    for mut world in [World::usual(), cke_leads()] {
        let mut app = world.console(100, 24);
        press(&mut app, ": \"stop -- power\" enter");
        let text = screen::text(&app);
        assert!(text.contains("Stop both queues") && text.contains("works under every leader"), "{text}");
        let effects = press(&mut app, "y");
        assert!(matches!(effects.as_slice(), [Effect::Act(Action::Stop { .. })]), "{effects:?}");

        let who = Who { user: "ann".into(), ..Who::default() };
        let record =
            Stopped { who, at: super::world::wall(), reason: Some("power".into()), queues: vec![QueueKind::Reboot] };
        world.store.stopped = Some(stored("/cke/cketerm/stopped", 70, record));
        let mut app = world.console(100, 24);
        assert!(screen::text(&app).contains("STOPPED by ann since"), "{}", screen::text(&app));
        press(&mut app, ": \"resume\" enter");
        let text = screen::text(&app);
        assert!(text.contains("will be enabled again: reboot queue"), "{text}");
    }
}

/// Nobody leads, and this console's engine waits for `why`.
fn nobody_leads(why: Option<NotCampaigning>) -> World {
    let mut world = World::usual();
    (world.store.candidates, world.store.engines) = (imbl::OrdMap::new(), imbl::OrdMap::new());
    let identity = Identity { uid: "uid-1".into(), confirmed_by: None, at: super::world::wall() };
    world.store.identity = Some(stored("/cke/cketerm/identity", 8, identity));
    let standing_back = why.as_ref().map(ToString::to_string);
    world.engine = Engine { leading: None, lease: 0, not_campaigning: why, standing_back, ..world.engine };
    world
}

#[test]
fn the_first_console_of_a_host_asks_once_whether_it_leads() {
    let unasked = nobody_leads(Some(NotCampaigning::Unasked));
    let mut app = unasked.console(80, 24);
    app.config.saves_settings = true;
    insta::assert_snapshot!("dialog_lead", screen::text(&app));
    assert_eq!(press(&mut app, "esc"), [], "Esc answers nothing");
    update(&mut app, Event::Seen(unasked.seen()));
    assert!(app.dialog.is_none(), "it asks once");
    for (keys, yes, answer) in [("y", true, LeadAnswer::Yes), ("enter", false, LeadAnswer::No)] {
        let mut app = unasked.console(80, 24);
        app.config.saves_settings = true;
        let kept = Effect::SaveSettings(Change::Lead("uid-1".into(), yes));
        assert_eq!(press(&mut app, keys), [kept, Effect::AnswerLead(answer)]);
    }
    // the next start answers by itself
    let mut app = World::without_data().console(80, 24);
    app.session.lead_answers.insert("uid-1".into(), true);
    let effects = update(&mut app, Event::Seen(unasked.seen()));
    assert!(effects.contains(&Effect::AnswerLead(LeadAnswer::Yes)), "{effects:?}");
    assert!(app.dialog.is_none());
    // it interrupts no typing
    let mut app = World::without_data().console(80, 24);
    press(&mut app, ":");
    update(&mut app, Event::Seen(unasked.seen()));
    assert!(app.dialog.is_none(), "{}", screen::text(&app));
    press(&mut app, "esc");
    update(&mut app, Event::Seen(unasked.seen()));
    assert!(app.dialog.is_some());
    // somebody else leads meanwhile: the engine needs no answer
    update(&mut app, Event::Seen(World::usual().seen()));
    assert!(app.dialog.as_ref().is_some_and(|dialog| dialog.expired.is_some()));
}

#[test]
fn a_console_leads_for_its_session_when_nobody_leads() {
    for why in [NotCampaigning::Declined, NotCampaigning::Daemon { host: "boot-1".into() }] {
        let mut app = nobody_leads(Some(why.clone())).console(80, 24);
        assert_eq!(press(&mut app, "T"), [], "{why:?}");
        assert!(screen::text(&app).contains("Let this console lead?"), "{}", screen::text(&app));
        assert_eq!(press(&mut app, "enter"), [], "Back");
        assert_eq!(press(&mut app, "T y"), [Effect::AnswerLead(LeadAnswer::ThisSession)], "{why:?}");
    }
    let mut standby = World::usual();
    (standby.engine.leading, standby.engine.lease) = (None, 78);
    for (world, refusal) in [
        (nobody_leads(Some(NotCampaigning::Policy)), "policy console_leads is `never`"),
        (nobody_leads(None), "start it without --observe"),
        (World::usual(), "this console leads already"),
        (standby, "cketerm on admin1 leads"),
        (cke_leads(), "CKE on admin1 leads"),
    ] {
        let mut app = world.console(80, 24);
        assert_eq!(press(&mut app, "T"), []);
        assert!(app.dialog.is_none() && message(&app).contains(refusal), "{refusal}: {}", message(&app));
    }
}

//! Tests of keys under a leader that would not honour them (I52).

use cketerm_model::{
    cketerm_records::{Stopped, Who},
    entry::QueueKind,
};
use cketerm_rules::snapshot::Engine;

use super::world::{World, message, press, stored};
use crate::{
    state::{
        View,
        event::{Action, Effect},
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
        assert!(refusal.contains("cketerm") && refusal.contains("Instead:"), "{refusal}");
    }
    let mut app = cke_leads().console_in(View::Reboots, 100, 24);
    press(&mut app, "X");
    assert!(app.dialog.is_some(), "a cancel always works");
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

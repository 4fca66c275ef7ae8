//! Tests of the preview in the dialogs of bulk actions.

use cketerm_actions::plan::Drains;
use cketerm_model::{
    entry::QueueKind,
    names::NodeName,
    reason::{Blocker, PodHold},
};
use insta::assert_snapshot;

use super::world::{World, press};
use crate::{
    input::update,
    state::{
        event::{Effect, Event},
        past::{ReadRequest, ReadResponse},
    },
    terminal::screen,
};

fn drains() -> Drains {
    let why = PodHold::Budget { budget: "db/pg".into(), healthy: 2, needed: 2, cause: None };
    Drains {
        nodes: 8,
        evict: 112,
        delete: 3,
        stay: 40,
        blocked: vec![(NodeName::new("worker-4"), vec![Blocker { pod: "db/pg-\u{1b}0".into(), why }])],
        unread: vec![(NodeName::new("worker-5"), "timeout".into())],
        more: 0,
        landing: None,
    }
}

#[test]
fn the_reboot_preview_shows_waves_at_once_and_pods_after_kubernetes_answers() {
    let mut app = World::usual().console(80, 24);
    let effects = press(&mut app, "2 * R");
    let [Effect::Ask(ReadRequest::Plan(number, QueueKind::Reboot, nodes))] = effects.as_slice() else {
        panic!("{effects:?}");
    };
    assert_eq!(nodes.len(), 8);
    let text = screen::text(&app);
    assert!(text.contains("3 waves of at most 1 at once, API servers last and alone"), "{text}");
    assert!(text.contains("pods on 8 nodes: asking Kubernetes ..."), "{text}");
    assert_eq!(press(&mut app, "tab"), vec![], "one request is enough");
    let other = ReadResponse::Plan(number + 1, Err("another dialog's".into()));
    update(&mut app, Event::ReadFinished(Box::new(other)));
    assert!(screen::text(&app).contains("asking Kubernetes"), "an answer for another dialog is discarded");
    update(&mut app, Event::ReadFinished(Box::new(ReadResponse::Plan(*number, Ok(drains())))));
    assert_snapshot!("plan_80x24", screen::text(&app));
}

#[test]
fn a_failed_preview_does_not_prevent_queueing() {
    let mut app = World::usual().console(80, 24);
    let effects = press(&mut app, "2 G R");
    let Some(Effect::Ask(ReadRequest::Plan(number, ..))) = effects.first() else { panic!("{effects:?}") };
    update(
        &mut app,
        Event::ReadFinished(Box::new(ReadResponse::Plan(*number, Err("no Kubernetes is configured".into())))),
    );
    assert!(screen::text(&app).contains("! pods not checked: no Kubernetes is configured"));
    let done = press(&mut app, "enter y");
    assert!(matches!(done.as_slice(), [Effect::Act(_)]), "{done:?}");
}

#[test]
fn cancelling_many_entries_shows_those_in_work_and_the_api_servers() {
    let mut app = World::usual().console(80, 24);
    press(&mut app, "* X");
    let text = screen::text(&app);
    assert!(text.contains("5 entries, 2 of them in work, 1 API server"), "{text}");
}

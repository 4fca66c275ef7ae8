//! Tests of the preview in the dialogs of bulk actions.

use insta::assert_snapshot;

use super::world::{World, press};
use crate::{
    actions::plan::Drains,
    console::{
        event::{Effect, Event},
        past::{Answer, Question},
        screen,
        update::update,
    },
    model::{
        entry::QueueKind,
        reason::{Blocker, PodHold},
    },
};

fn met() -> Drains {
    let why = PodHold::Budget { budget: "db/pg".into(), healthy: 2, needed: 2 };
    Drains {
        nodes: 8,
        evict: 112,
        delete: 3,
        stay: 40,
        blocked: vec![("worker-4".into(), vec![Blocker { pod: "db/pg-\u{1b}0".into(), why }])],
        unread: vec![("worker-5".into(), "timeout".into())],
        more: 0,
    }
}

#[test]
fn queueing_reboots_shows_waves_at_once_and_pods_and_blockers_when_kubernetes_has_answered() {
    let mut app = World::usual().console(80, 24);
    let asked = press(&mut app, "2 * R");
    let [Effect::Ask(Question::Plan(number, QueueKind::Reboot, nodes)), _] = asked.as_slice() else {
        panic!("{asked:?}");
    };
    assert_eq!(nodes.len(), 8);
    let text = screen::text(&app);
    assert!(text.contains("3 waves of at most 1 at once, API servers last and alone"), "{text}");
    assert!(text.contains("pods on 8 nodes: asking Kubernetes ..."), "{text}");
    assert_eq!(press(&mut app, "tab"), vec![], "it is asked once");
    let other = Answer::Plan(number + 1, Err("another dialog's".into()));
    update(&mut app, Event::Answered(Box::new(other)));
    assert!(screen::text(&app).contains("asking Kubernetes"), "an answer for another dialog is thrown away");
    update(&mut app, Event::Answered(Box::new(Answer::Plan(*number, Ok(met())))));
    assert_snapshot!("plan_80x24", screen::text(&app));
}

#[test]
fn a_preview_that_cannot_be_made_keeps_nobody_from_queueing() {
    let mut app = World::usual().console(80, 24);
    let asked = press(&mut app, "2 G R");
    let Some(Effect::Ask(Question::Plan(number, ..))) = asked.first() else { panic!("{asked:?}") };
    update(&mut app, Event::Answered(Box::new(Answer::Plan(*number, Err("no Kubernetes is configured".into())))));
    assert!(screen::text(&app).contains("! pods not checked: no Kubernetes is configured"));
    let done = press(&mut app, "enter y");
    assert!(matches!(done.as_slice(), [Effect::Act(_)]), "{done:?}");
}

#[test]
fn cancelling_many_says_how_many_are_in_work_and_how_many_api_servers_are_among_them() {
    let mut app = World::usual().console(80, 24);
    press(&mut app, "* X");
    let text = screen::text(&app);
    assert!(text.contains("5 entries, 2 of them in work, 1 API server"), "{text}");
}

//! Tests of the preview in the dialogs of bulk actions.

use cketerm_actions::{
    landing::{LandingPod, MutualNodes, MutualOutcome, NodeLanding, TooManyTogether},
    plan::{Drains, LandingCheck},
};
use cketerm_model::{
    entry::QueueKind,
    names::NodeName,
    reason::{Blocker, PodHold},
};
use cketerm_rules::landing::{LandingAnswer, PodAnswer, Tie};
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
        unexplained: 0,
        landing: LandingCheck::NotMade,
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

/// Returns the lines of the dialog after this answer of the landing check, on a high screen.
fn landing_lines(landing: LandingCheck) -> Vec<String> {
    lines(Drains { landing, ..drains() })
}

/// Returns the lines of the dialog after this answer, on a high screen.
fn lines(answer: Drains) -> Vec<String> {
    let mut app = World::usual().console(110, 50);
    let effects = press(&mut app, "2 * R");
    let Some(Effect::Ask(ReadRequest::Plan(number, ..))) = effects.first() else { panic!("{effects:?}") };
    let answer = ReadResponse::Plan(*number, Ok(answer));
    update(&mut app, Event::ReadFinished(Box::new(answer)));
    let text = screen::text(&app);
    let inner = |line: &str| line.split('\u{2502}').nth(1).map(|inner| inner.trim().to_owned());
    text.lines().filter_map(inner).collect()
}

/// The preview kept back what `rq plan` said: deadlocks, waves beyond the limit, and why there was no check.
#[test]
fn the_preview_shows_deadlocks_limits_and_errors_of_the_landing_check() {
    let pair = |outcome| MutualNodes { a: NodeName::new("worker-1"), b: NodeName::new("worker-2"), outcome };
    let stays = LandingPod {
        namespace: "db".into(),
        name: "pg-0".into(),
        controller: None,
        answer: PodAnswer::OnlyHere { tie: Tie::Volume("pv-7".into()) },
    };
    let all = NodeLanding { answer: LandingAnswer::Cannot, pending: 0, pods: vec![stays] };
    let mutual = vec![pair(MutualOutcome::Deadlock), pair(MutualOutcome::Pending)];
    let too_many = vec![TooManyTogether { nodes: ["worker-1", "worker-2"].map(NodeName::new).into(), pending: 3 }];
    let lines = landing_lines(LandingCheck::Made { all, mutual, too_many, unchecked: 2 });
    let text = lines.join(" ");
    for expected in [
        "! deadlock: pods of worker-1 fit only on worker-2, and pods of worker-2 only on worker-1: drain them one after \
         the other",
        "! pods of worker-1 fit only on worker-2, and pods of worker-2 only on worker-1: they stay Pending until one of \
         the nodes is back",
        "! at least 3 pods find no place while worker-1, worker-2 are drained at once: drain fewer at a time",
        "landing check: pods: 1 can return only here",
        "db/pg-0: returns only here: volume pv-7 is on no other node",
        "where the pods of 2 more waves can land was not checked",
    ] {
        assert!(text.contains(expected), "{expected}: {lines:#?}");
    }
    let failed = landing_lines(LandingCheck::Failed("pods is forbidden".into())).join(" ");
    assert!(failed.contains("! where pods can land was not checked: pods is forbidden"), "{failed}");
    let large = landing_lines(LandingCheck::TooLarge { most: 500 }).join(" ");
    assert!(large.contains("not checked here: over 500 Nodes; `cketerm rq plan` reads more"), "{large}");
}

#[test]
fn the_preview_says_how_many_budgets_it_did_not_look_into() {
    let lines = lines(Drains { unexplained: 3, ..drains() });
    assert!(lines.iter().any(|line| line == "the cause behind 3 more budgets was not looked up"), "{lines:#?}");
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

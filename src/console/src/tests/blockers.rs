//! Tests of the drain blockers: where their key is offered, and how they are written.

use cketerm_model::{
    entry::EntryId,
    reason::{Blocker, PodHold, Reason},
    time::after,
};

use super::world::{World, press, stored, wall};
use crate::{
    state::{App, View, blockers},
    terminal::screen,
};

/// Returns the lines of the hints.
fn footer(app: &App) -> String {
    let text = screen::text(app);
    text.lines().rev().take(2).collect::<Vec<_>>().join("\n")
}

#[test]
fn the_key_of_the_blockers_is_offered_while_something_blocks() {
    let blocked = World::usual;
    // worker-4 backs off because of a budget
    let backs_off = || {
        let mut world = World::usual();
        world.store.reboots.entries.remove(&3);
        world.reasons.remove(&EntryId::reboot(3));
        world
    };
    let free = || {
        let mut world = backs_off();
        world.store.reboots.entries.remove(&6);
        world.reasons.remove(&EntryId::reboot(6));
        world
    };
    for (columns, rows) in [(80, 24), (200, 50)] {
        for view in [View::Overview, View::Reboots, View::Nodes, View::Repairs] {
            for (world, offered) in [(blocked(), true), (backs_off(), true), (free(), false)] {
                let mut app = world.console_in(view, columns, rows);
                for keys in ["", "j", "enter"] {
                    press(&mut app, keys);
                    let shown = footer(&app);
                    assert_eq!(shown.contains("b blockers"), offered, "{columns} {view:?} {keys:?}: {shown}");
                }
                assert_eq!(!blockers::all(&app).is_empty(), offered);
            }
        }
    }
}

/// A budget that holds a drain and the same budget behind a backoff were two lines, in two forms.
#[test]
fn an_object_is_one_line_whether_it_blocks_a_drain_or_caused_a_backoff() {
    let mut world = World::usual();
    let pdb = || ("shop/web-1".to_owned(), "shop/web".to_owned());
    let until = after(wall(), 400);
    let backoff = |cause| Reason::Backoff { count: 2, until, cause: Some(Box::new(cause)), tried: None };
    let (pod, name) = pdb();
    world.reasons.insert(
        EntryId::reboot(6),
        backoff(Reason::BlockedByPdb { pod, pdb: name, healthy: 2, needed: 2, cause: None }),
    );
    let (pod, name) = pdb();
    world.reasons.insert(
        EntryId::reboot(5),
        backoff(Reason::PdbNeverAllows { pod, pdb: name, healthy: 2, needed: 2, pods: 2, cause: None }),
    );
    let app = world.console(120, 40);
    let all: Vec<(String, usize)> = blockers::all(&app).into_iter().map(|b| (b.what, b.nodes.len())).collect();
    let words = "pdb shop/web: 2 of 2 needed healthy, 0 may be disrupted".to_owned();
    assert_eq!(all, [(words, 3)]);

    // the same for Jobs, webhooks, several budgets and evictions that fail
    let holds = [
        (
            PodHold::Job { job: "shop/nightly".into() },
            Reason::BlockedByJob { pod: "shop/a".into(), job: "shop/nightly".into() },
        ),
        (
            PodHold::ManyBudgets { budgets: vec!["shop/a".into(), "shop/b".into()] },
            Reason::BlockedByManyPdbs { pod: "shop/a".into(), pdbs: vec!["shop/a".into(), "shop/b".into()] },
        ),
        (
            PodHold::Denied { webhook: "guard".into(), message: "no".into() },
            Reason::DeniedByWebhook { pod: "shop/a".into(), webhook: "guard".into(), message: "no".into() },
        ),
        (
            PodHold::Failing { answer: "500".into() },
            Reason::EvictionFailing { pod: "shop/a".into(), answer: "500".into() },
        ),
    ];
    for (why, reason) in holds {
        let mut world = World::usual();
        let id = EntryId::reboot(3);
        let mut progress = world.store.progress[&id].get().unwrap().clone();
        progress.blockers = vec![Blocker { pod: "shop/a".into(), why }];
        world.store.progress.insert(id, stored("p3", 41, progress));
        world.reasons.insert(id, reason.clone());
        world.reasons.insert(EntryId::reboot(6), backoff(reason.clone()));
        let app = world.console(120, 40);
        let all: Vec<(String, usize)> = blockers::all(&app).into_iter().map(|b| (b.what, b.nodes.len())).collect();
        assert!(matches!(all.as_slice(), [(_, 2)]), "{reason:?}: {all:?}");
    }
}

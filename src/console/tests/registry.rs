//! What is generated from sabakan's machines, on the screen and under the keys.

use std::sync::Arc;

use super::world::{World, press, stored, wall};
use crate::{
    console::{app::App, event::Event, screen, update::update},
    engine::{
        decide::Applying,
        registry::{Basis, Proposal, Proposed, Registry},
        snapshot::Seen,
    },
    sabakan::{
        Action, Plan,
        change::{Change, Gate},
    },
};

/// What an engine would have said of the registry.
fn seen(world: &World, outcome: Option<Result<Plan, String>>, applying: Applying) -> Arc<Seen> {
    let mut seen = Seen::clone(&world.seen());
    let outcome = outcome.map(|made| {
        made.map(|plan| Proposed {
            plan,
            change: Change::default(),
            gate: Gate::default(),
            digest: "d1".into(),
            json: String::new(),
        })
    });
    let proposal = outcome.map(|outcome| Arc::new(Proposal { basis: Basis::default(), asked: wall(), outcome }));
    seen.snapshot.registry = Arc::new(Registry { proposal, ..Registry::default() });
    let mut store = world.store.clone();
    store.registry.url = Some(stored("url", 5, "http://sabakan/graphql".to_owned()));
    seen.snapshot.store = Arc::new(store);
    seen.applying = Arc::new(applying);
    Arc::new(seen)
}

fn plan(changed: bool, warnings: &[&str]) -> Plan {
    Plan {
        action: if changed { Action::TaintNodes } else { Action::None },
        reason: if changed { "worker-1 is unhealthy" } else { "nothing is to do" }.into(),
        changed,
        cluster: None,
        nodes: Vec::new(),
        warnings: warnings.iter().map(|w| (*w).to_owned()).collect(),
    }
}

fn console(columns: u16, rows: u16, seen: Arc<Seen>) -> App {
    let mut app = World::usual().console(columns, rows);
    update(&mut app, Event::Seen(seen));
    press(&mut app, "5");
    app
}

fn shown(outcome: Option<Result<Plan, String>>, applying: Applying) -> String {
    screen::text(&console(100, 30, seen(&World::usual(), outcome, applying)))
}

const ALL_CLEAR: &str = "the definition is as template, constraints and machines want it";
const FEW: &str = "at least 51 healthy workers are wanted and 50 are there: no unused healthy machine of role ss";

/// The all-clear is a promise: where the plan has a warning, the warning stands in its place.
#[test]
fn an_unchanged_plan_with_a_warning_is_no_all_clear() {
    let text = shown(Some(Ok(plan(false, &[]))), Applying::Settled);
    assert!(text.contains(ALL_CLEAR) && text.contains("nothing would change"), "{text}");
    let app = console(100, 30, seen(&World::usual(), Some(Ok(plan(false, &[FEW]))), Applying::Settled));
    let text = screen::text(&app);
    assert!(!text.contains(ALL_CLEAR), "{text}");
    assert!(text.contains(&format!("! {FEW}")), "{text}");
    let lines = crate::console::views::registry_lines(&app, 100);
    let style = lines.iter().find(|(line, _)| line.contains(FEW)).map(|(_, style)| *style);
    assert_eq!(style, Some(app.looks.theme.trouble));
    assert!(lines.iter().all(|(_, style)| *style != app.looks.theme.good), "{lines:?}");
    // and those of a plan that changes something
    let text = shown(Some(Ok(plan(true, &[FEW]))), Applying::Applies);
    assert!(text.contains(FEW) && text.contains("worker-1 is unhealthy"), "{text}");
}

/// "nothing would change" is said of plans alone: without one it is said that there is none, and why.
#[test]
fn without_a_plan_the_empty_table_says_why_there_is_none() {
    for (outcome, applying, words) in [
        (None, Applying::Error("sabakan answered 500".into()), "sabakan answered 500"),
        (Some(Err("no template".into())), Applying::Error("no template".into()), "no template"),
        (None, Applying::Waits("sabakan's first answer".into()), "sabakan's first answer"),
        (None, Applying::Disabled("not set up: `cketerm sabakan set-url URL`".into()), "not set up"),
    ] {
        let text = shown(outcome, applying.clone());
        assert!(text.contains("there is no plan") && !text.contains("nothing would change"), "{applying:?}: {text}");
        assert_eq!(text.matches(words).count(), 2, "above the table and in it: {text}");
    }
}

/// A message that is cut says so, and stands in full where there is room for it.
#[test]
fn a_long_error_is_cut_with_a_mark_and_stands_in_full_below() {
    let why = format!("the definition cannot be read: {}the very end", "nodes[3] has no address, ".repeat(12));
    let app = console(80, 40, seen(&World::usual(), None, Applying::Error(why)));
    let lines = crate::console::views::registry_lines(&app, 80);
    assert!(lines[1].0.ends_with('~') && lines[1].0.len() <= 80, "{lines:?}");
    let text = screen::text(&app);
    assert_eq!(text.matches("the very end").count(), 1, "{text}");
    assert!(text.contains('~'), "{text}");
}

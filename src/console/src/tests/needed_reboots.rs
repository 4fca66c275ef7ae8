//! Nodes that need a reboot.

use cketerm_model::policy::{Policy, RebootNeeded};

use super::{
    needs_you::overview,
    world::{World, press, stored},
};
use crate::{
    keys::Command,
    state::{App, overview::OverviewRow, short_text},
    terminal::screen,
};

/// Marks nodes that need a reboot with cketerm's own annotation.
fn ask_for_reboots(world: &mut World, names: &[&str], cause: &str) {
    for name in names {
        let mut node = (*world.kube.by_name[*name]).clone();
        node.described.annotations = [("cketerm.io/reboot-needed".to_owned(), cause.to_owned())].into_iter().collect();
        (node.ready, node.boot_id) = (true, "first".to_owned());
        world.kube.put_node(node);
    }
}

#[test]
fn nodes_that_need_a_reboot_are_one_line_for_each_cause_and_its_key_queues_exactly_these() {
    let mut world = World::usual();
    world.store.reboots.entries.clear();
    world.store.progress.clear();
    world.reasons.clear();
    ask_for_reboots(&mut world, &["worker-1", "worker-4"], "kernel 6.12.60");
    ask_for_reboots(&mut world, &["worker-5"], "firmware");
    let mut app = overview(&world, 80, 24);
    let of_reboots = |app: &App| {
        let all = app.knowledge.needs_you.iter().filter(|line| line.what.contains("needs a reboot"));
        all.map(|line| (line.title(), line.what.clone())).collect::<Vec<_>>()
    };
    let expected = [("worker-1 +1", "needs a reboot: kernel 6.12.60"), ("worker-5", "needs a reboot: firmware")];
    assert_eq!(of_reboots(&app), expected.map(|(name, what)| (name.to_owned(), what.to_owned())));
    let text = screen::text(&app);
    assert!(text.contains("needs a reboot: kernel 6.12.60"), "{text}");
    let line = app.knowledge.needs_you.iter().find(|line| line.name == "worker-1").unwrap().clone();
    assert_eq!(line.keys(&app).first(), Some(&Command::Reboot), "{text}");
    app.lists.overview_rows.select_id(&OverviewRow::NeedsYou(line.object));
    press(&mut app, "R");
    let dialog = screen::text(&app);
    assert!(dialog.contains("worker-1") && dialog.contains("worker-4") && !dialog.contains("10.0.0.18"), "{dialog}");
    assert!(dialog.contains("reason (optional): kernel 6.12.60"), "{dialog}");
    // the state of each node says so too
    let (state, _) = short_text::node_state(&world.console(80, 24), "worker-4");
    assert_eq!(state, "Ready, needs a reboot: kernel 6.12.60");
    // what the leader queues by itself needs nobody
    world.store.policy = Some(stored("policy", 5, Policy { reboot_needed: RebootNeeded::Queue, ..Policy::default() }));
    assert_eq!(of_reboots(&overview(&world, 80, 24)), []);
}

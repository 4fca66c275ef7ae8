//! Tests of Metal3's hosts on the screen and under the keys.

use std::sync::Arc;

use cketerm_actions::{FencedNode, HostAction};
use cketerm_model::{
    boot_time::BootTime,
    host::{HostRow, Mode, RebootAnnotations},
    kube::{NodeRow, SourceState},
    names::{Address, NodeName},
    policy::FenceBy,
    reboot::RebootStatus,
    time::after,
};
use cketerm_rules::{metal3, seen::Seen};
use insta::assert_snapshot;

use super::world::{World, message, press, wall};
use crate::{
    input::update,
    state::{
        App, View,
        event::{Action, Effect, Event},
        object::Object,
        overview::OverviewRow,
    },
    terminal::screen,
};

fn asked(base: Option<&str>, keys: &[(&str, &str)]) -> RebootAnnotations {
    let keys = keys.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
    RebootAnnotations { base: base.map(str::to_owned), keys }
}

fn row(name: &str, address: &str, powered_on: bool, asked: RebootAnnotations) -> HostRow {
    HostRow {
        namespace: "metal3".into(),
        name: name.into(),
        uid: format!("uid-{name}"),
        online: true,
        provisioning: "provisioned".into(),
        powered_on: Some(powered_on),
        addresses: vec![Address::new(address)],
        bmc_address: format!("redfish://bmc-{name}/redfish/v1/Systems/1"),
        credentials: "bmc".into(),
        last_powered_on: Some(after(wall(), -86_400 * 9)),
        asked,
        ..HostRow::default()
    }
}

impl World {
    /// Five hosts: an API server that is on, one held by two clients, one that reboots, one with an error, one paused.
    pub(super) fn with_hosts() -> Self {
        let mut world = Self::usual();
        let own_value = r#"{"mode":"hard","by":"alice@admin1","since":"2026-11-21T09:40:00Z"}"#;
        let held = HostRow {
            pending_reboot_since: Some(after(wall(), -1500)),
            ..row("m2", "10.0.0.17", false, asked(None, &[("cketerm", own_value), ("remediation", "uid-7")]))
        };
        let reboots = HostRow {
            pending_reboot_since: Some(after(wall(), -20)),
            ..row("m3", "10.0.0.16", true, asked(Some(""), &[]))
        };
        let broken = HostRow {
            error_type: "power management error".into(),
            error: "BMC https://bmc-m4 does not answer GET /redfish/v1/".into(),
            ..row("m4", "10.9.9.9", true, RebootAnnotations::default())
        };
        let paused = HostRow { paused: true, ..row("m5", "10.0.0.18", true, asked(None, &[("x", "")])) };
        for host in [row("m1", "10.0.0.11", true, RebootAnnotations::default()), held, reboots, broken, paused] {
            world.kube.hosts.insert((host.namespace.clone(), host.name.clone()), Arc::new(host));
        }
        let state =
            SourceState { synced: true, last_seen: world.boot, fresh_as_of: world.boot, error: None, forbidden: false };
        world.kube.sources.insert("baremetalhosts".into(), state);
        world
    }
}

fn console(columns: u16, rows: u16, keys: &str) -> App {
    let mut app = World::with_hosts().console(columns, rows);
    press(&mut app, keys);
    app
}

fn shown(columns: u16, rows: u16, keys: &str) -> String {
    screen::text(&console(columns, rows, keys))
}

/// The Overview shows a dead BMC, a host held off and a node that is not Ready, although no queue does.
#[test]
fn the_overview_shows_nodes_and_hosts_in_trouble_without_an_entry() {
    let mut world = World::with_hosts();
    // held off: it is down on request
    let held = NodeRow { ready: false, ..(*world.kube.by_name["worker-4"]).clone() };
    world.kube.put_node(held);
    let mut app = world.console_in(View::Overview, 80, 24);
    let text = screen::text(&app);
    let has = |app: &App, name: &str| app.knowledge.needs_you.iter().any(|line| line.title() == name);
    assert!(has(&app, "m4") && has(&app, "m5") && has(&app, "m2"), "{:?}", app.knowledge.needs_you);
    assert!(has(&app, "worker-5") && text.contains("2 Nod 8!") && text.contains("6 Hos 5!"), "{text}");
    // a member without a Node, once Kubernetes has listed all Nodes
    let node = Arc::clone(&world.kube.by_name["worker-3"]);
    world.kube.remove_node(&NodeName::new("worker-3"));
    update(&mut app, Event::Seen(world.seen()));
    assert!(has(&app, "worker-5") && has(&app, "worker-3"), "{:?}", app.knowledge.needs_you);
    world.kube.put_node(Arc::unwrap_or_clone(node));
    update(&mut app, Event::Seen(world.seen()));
    while !matches!(&app.lists.overview_rows.cursor, Some(OverviewRow::NeedsYou(Object::Host(id))) if id.1 == "m4") {
        press(&mut app, "j");
    }
    press(&mut app, "enter");
    assert_eq!(
        (app.navigation.view, app.lists.hosts.cursor.as_ref().map(|id| id.1.as_str())),
        (View::Hosts, Some("m4"))
    );
    // a node whose command was run is down on request
    press(&mut app, "esc");
    world.entry(9, "10.0.0.18", RebootStatus::Rebooting, 5, 96);
    update(&mut app, Event::Seen(world.seen()));
    let text = screen::text(&app);
    assert!(!has(&app, "worker-5") && text.contains(" 2 Nod 8 "), "{text}");
}

#[test]
fn screens() {
    assert_snapshot!("hosts_80x24", shown(80, 24, "6 j"));
    assert_snapshot!("hosts_200x50", shown(200, 50, "6 j space"));
    assert_snapshot!("hosts_60x15", shown(60, 15, "6"));
    assert_snapshot!("host_held_80x24", shown(80, 24, "6 j enter"));
    assert_snapshot!("dialog_host_power", shown(80, 24, "6 W"));
    assert_snapshot!("dialog_host_power_chosen", shown(80, 24, "6 W right right tab right right"));
    assert_snapshot!("dialog_host_release", shown(80, 24, "6 j L"));
    assert_snapshot!("dialog_fence", shown(80, 24, "6 j j I"));
}

#[test]
fn without_metal3_the_hosts_tab_is_hidden_and_the_view_shows_the_reason() {
    let mut world = World::usual();
    let error = Some("it has no BareMetalHosts: Metal3's CRD is not installed".to_owned());
    world.kube.sources.insert(
        "baremetalhosts".into(),
        SourceState { synced: false, last_seen: BootTime::ZERO, fresh_as_of: BootTime::ZERO, error, forbidden: false },
    );
    let mut app = world.console(80, 24);
    assert!(!screen::text(&app).contains("6 Hosts"));
    press(&mut app, "6");
    let text = screen::text(&app);
    assert!(text.contains("6 Hosts 0") && text.contains("CRD is not installed"), "{text}");
}

#[test]
fn power_requires_action_mode_cluster_name_and_count() {
    let mut app = console(80, 24, "6 W");
    assert_eq!(press(&mut app, "enter enter enter enter"), [], "nothing is chosen yet");
    assert!(message(&app).contains("choose the action first"), "{}", message(&app));
    press(&mut app, "right tab");
    assert_eq!(press(&mut app, "enter enter enter"), []);
    assert!(message(&app).contains("choose the mode first"), "{}", message(&app));
    press(&mut app, "right right tab");
    let effects = press(&mut app, "\"fan 3\" tab \"tokyo0 1\" enter enter");
    let action = Action::Hosts {
        hosts: vec![("metal3/m1".into(), "uid-m1".into())],
        action: Some(HostAction::Reboot(Mode::Hard)),
        reason: Some("fan 3".into()),
    };
    assert_eq!(effects, [Effect::Act(action)]);
}

#[test]
fn i44_only_keys_of_cketerm_are_released_and_other_holders_are_named() {
    let mut app = console(80, 24, "6 j L");
    let text = screen::text(&app);
    assert!(text.contains("others still hold it off") && text.contains("cketerm  (the only one)"), "{text}");
    let effects = press(&mut app, "enter enter");
    let action = Action::Hosts {
        hosts: vec![("metal3/m2".into(), "uid-m2".into())],
        action: Some(HostAction::Release("cketerm".into())),
        reason: None,
    };
    assert_eq!(effects, [Effect::Act(action)]);
    let app = console(80, 24, "6 G L");
    assert!(message(&app).contains("metal3/m5 is not held off by cketerm; x holds it off"), "{}", message(&app));
}

#[test]
fn fencing_names_the_node_and_expires_when_host_or_node_changes() {
    let mut app = console(80, 24, "6 j j I");
    let text = screen::text(&app);
    assert!(text.contains("node worker-3 of host metal3/m3") && text.contains("its address"), "{text}");
    let mut world = World::with_hosts();
    let id = ("metal3".to_owned(), "m3".to_owned());
    let other = HostRow { asked: RebootAnnotations::default(), ..HostRow::clone(&world.kube.hosts[&id]) };
    world.kube.hosts.insert(id, Arc::new(other));
    update(&mut app, Event::Seen(world.seen()));
    let expired = app.dialog.as_ref().and_then(|d| d.expired.clone()).unwrap_or_default();
    assert!(expired.contains("host metal3/m3 changed meanwhile"), "{expired}");
    let effects = press(&mut console(80, 24, "6 j j I"), "\"dead\" tab \"tokyo0 1\" enter enter");
    let action = Action::Hosts {
        hosts: vec![("metal3/m3".into(), "uid-m3".into())],
        action: Some(HostAction::Fence(FencedNode {
            name: NodeName::new("worker-3"),
            uid: "uid-worker-3".into(),
            by: FenceBy::Delete,
        })),
        reason: Some("dead".into()),
    };
    assert_eq!(effects, [Effect::Act(action)]);
    for (keys, expected) in [("6 G I", "paused"), ("6 * I", "one host at a time"), ("2 I", "press 6")] {
        let app = console(80, 24, keys);
        assert!(message(&app).contains(expected), "{keys}: {}", message(&app));
    }
}

/// An expired dialog about hosts had to be opened, chosen and typed anew.
#[test]
fn an_expired_dialog_about_hosts_asks_again_with_what_was_typed() {
    for (keys, title) in [
        ("6 j j W right tab right tab \"fan 3\" tab \"tokyo0 1\"", "Power of 1 host?"),
        ("6 j j I \"dead\" tab \"tokyo0 1\"", "Fence node worker-3"),
    ] {
        let mut app = console(80, 30, keys);
        let before = app.dialog.clone().unwrap();
        let mut world = World::with_hosts();
        let id = ("metal3".to_owned(), "m3".to_owned());
        let other = HostRow { asked: RebootAnnotations::default(), ..HostRow::clone(&world.kube.hosts[&id]) };
        world.kube.hosts.insert(id.clone(), Arc::new(other));
        update(&mut app, Event::Seen(world.seen()));
        assert!(screen::text(&app).contains("Enter asks again"), "{title}: {}", screen::text(&app));
        let later = super::world::BOOT + cketerm_model::boot_time::Seconds::new(3.0);
        update(&mut app, Event::Tick(super::world::at(later)));
        assert_eq!(press(&mut app, "enter"), [], "it only asks");
        let again = app.dialog.clone().unwrap();
        assert_eq!((again.expired.is_none(), again.title.contains(title)), (true, true), "{}", again.title);
        assert_eq!((again.reason.value(), again.typed.value()), (before.reason.value(), before.typed.value()));
        let choice = |dialog: &crate::state::dialog::Dialog| {
            dialog.pick.as_ref().and_then(|pick| pick.chosen()).map(|(one, two)| (one.to_owned(), two.to_owned()))
        };
        assert_eq!(choice(&again), choice(&before));
        // another host of that name is not the one that was chosen
        let mut app = console(80, 30, keys);
        let other = HostRow { uid: "other".into(), ..HostRow::clone(&world.kube.hosts[&id]) };
        world.kube.hosts.insert(id, Arc::new(other));
        update(&mut app, Event::Seen(world.seen()));
        assert!(!screen::text(&app).contains("Enter asks again"), "{title}: {}", screen::text(&app));
    }
}

/// The choice of an expired dialog overrides neither the key nor another machine.
#[test]
fn a_kept_choice_never_replaces_the_choice_of_the_key() {
    let expired = || {
        let mut app = console(80, 24, "6 j j W right tab right \"T\"");
        let mut world = World::with_hosts();
        let id = ("metal3".to_owned(), "m3".to_owned());
        let other = HostRow { asked: RebootAnnotations::default(), ..HostRow::clone(&world.kube.hosts[&id]) };
        world.kube.hosts.insert(id, Arc::new(other));
        update(&mut app, Event::Seen(world.seen()));
        assert!(app.dialog.as_ref().is_some_and(|dialog| dialog.expired.is_some()));
        press(&mut app, "esc");
        app
    };
    let chosen = |app: &App| {
        let pick = app.dialog.as_ref().and_then(|dialog| dialog.pick.as_ref());
        pick.and_then(|pick| pick.machine_type()).map(str::to_owned)
    };
    let mut app = expired();
    press(&mut app, "W");
    assert_eq!(chosen(&app).as_deref(), Some("reboot"), "the same key for the same host");
    let mut app = expired();
    press(&mut app, "H");
    assert_ne!(chosen(&app).as_deref(), Some("reboot"), "{}", screen::text(&app));
    assert!(chosen(&app).is_some());
    let mut app = expired();
    press(&mut app, "k W");
    assert_eq!(chosen(&app), None, "another host");
}

#[test]
fn the_hosts_view_shows_why_the_controller_does_not_run() {
    let world = World::with_hosts();
    let mut seen = Seen::clone(&world.seen());
    let policy = cketerm_model::policy::Policy { metal3_controller: true, ..cketerm_model::policy::Policy::default() };
    let mut store = world.store.clone();
    store.policy = Some(super::world::stored("/cke/cketerm/policy", 7, policy));
    seen.snapshot.store = Arc::new(store);
    let barred = Some("the baremetal-operator runs (pod-1 holds Lease bmo/baremetal-operator)".to_owned());
    seen.snapshot.metal3 = Arc::new(metal3::Metal3 { barred, ..metal3::Metal3::default() });
    let mut app = world.console(80, 24);
    update(&mut app, Event::Seen(Arc::new(seen)));
    press(&mut app, "6");
    let text = screen::text(&app);
    assert!(text.contains("NOT processed by cketerm: the baremetal-operator runs"), "{text}");
}

#[test]
fn a_host_jumps_to_its_node_and_its_reboot_is_queued() {
    let app = console(80, 24, "6 o");
    assert_eq!(app.lists.nodes.cursor.as_deref(), Some("cp-1"));
    let effects = press(&mut console(80, 24, "6 j j j j R"), "enter y");
    let action = Action::AddReboots { addresses: vec![Address::new("10.0.0.18")], reason: None };
    assert_eq!(effects, [Effect::Act(action)], "R means the same in every view");
}

/// In Hosts, `unhold` takes hosts, not entries of a queue.
#[test]
fn a_host_is_released_by_its_own_name_or_its_nodes_name() {
    for name in ["m2", "metal3/m2", "worker-4"] {
        let app = console(80, 24, &format!("6 : \"unhold {name}\" enter"));
        assert!(screen::text(&app).contains("Release metal3/m2?"), "{name}: {}", screen::text(&app));
    }
    let app = console(80, 24, "6 : \"unhold w9\" enter");
    assert!(screen::text(&app).contains("w9 is not a host, nor the node of one"), "{}", screen::text(&app));
    let app = console(80, 24, "6 : \"hold m1\" enter");
    let text = screen::text(&app);
    assert!(text.contains("metal3/m1") && text.contains("Hold off 1 host"), "{text}");
    assert!(text.contains("tokyo0 1"), "power without a drain is confirmed by typing: {text}");
}

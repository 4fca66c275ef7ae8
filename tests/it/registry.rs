//! The machine registry from end to end in a sandbox on a paused clock: an engine applies sabakan's data, and ignores
//! it when it is not plausible.

use std::time::Duration;

use cketerm_actions::Operator;
use cketerm_engine::run::Handle;
use cketerm_model::{
    boot_time::Seconds,
    cketerm_records::EngineMode,
    entry::Stored,
    kube::NodeRow,
    names::Address,
    repair::RepairStatus,
    stored::{keys::SwitchName, view::StoreView},
};
use cketerm_rules::{decide::ApplyState, seen::Seen};
use cketerm_sandbox::sabakan::{InjectedFault, State};
use cketerm_scenario::{Options, Scenario, Stage};

/// A data centre of 100 machines, 3 of them control planes, and some spares, with an engine that leads.
struct Site {
    stage: Stage,
    engine: Handle,
    operator: Operator,
}

impl Site {
    async fn new(registry: &str) -> Self {
        let text = format!(
            "name: test\nabout: A test.\npopulation: {{nodes: 100, racks: 10, pods_per_node: 0, workloads: [], registry: {registry}}}\n"
        );
        let clock = cketerm_runtime::tokio_clock::starting_at("2026-08-01T12:00:00Z".parse().unwrap());
        let stage = Stage::set(Scenario::parse(&text).unwrap(), Options::default(), clock).await.unwrap();
        let engine = stage.backends("engine-host").start(EngineMode::Daemon, true, None);
        let operator = stage.operator("ann");
        Self { stage, engine, operator }
    }

    async fn enable(&self) {
        self.operator.set_switch(SwitchName::Sabakan, true, None).await.unwrap();
    }

    async fn view(&self) -> StoreView {
        self.operator.store.read_view().await.unwrap()
    }

    /// Waits until the condition holds. The clock is paused, so this takes no time.
    async fn until(&self, what: &str, mut good: impl FnMut(&Seen) -> bool) -> std::sync::Arc<Seen> {
        let mut seen = self.engine.seen();
        let found = tokio::time::timeout(Duration::from_mins(20), seen.wait_for(|s| good(s))).await;
        match found {
            Ok(Ok(seen)) => seen.clone(),
            _ => panic!(
                "timed out: {what}; {:?} {:?}",
                self.engine.seen().borrow().applying,
                self.engine.seen().borrow().auto_repair
            ),
        }
    }

    fn state(&self, serial: &str, state: State) -> String {
        let record = self.stage.sandbox.sabakan.set_state(serial, state).unwrap();
        record.ipv4[0].clone()
    }
}

fn control_plane_addresses(seen: &Seen) -> Vec<Address> {
    let definition = seen.snapshot.store.definition().unwrap();
    definition.members.control_planes(&definition.cluster).map(|n| n.address.clone()).collect()
}

fn members(seen: &Seen) -> usize {
    seen.snapshot.store.definition().map_or(0, |d| d.cluster.nodes.len())
}

fn tainted(node: Option<&std::sync::Arc<NodeRow>>, value: &str) -> bool {
    node.is_some_and(|n| n.described.taints.iter().any(|t| t.key == "cke.cybozu.com/state" && t.value == value))
}

#[tokio::test(start_paused = true)]
async fn enabling_creates_the_definition_and_the_machines_join() {
    let site = Site::new("{bare: true, spares: 0, minimum_workers: 60, roles: [cs, cs, ss]}").await;
    site.until("an engine leads", |s| s.snapshot.engine.leading.is_some()).await;
    assert!(site.view().await.cluster.is_none());
    site.enable().await;
    let seen = site.until("a definition", |s| members(s) >= 63).await;
    assert_eq!(control_plane_addresses(&seen).len(), 3);
    let view = site.view().await;
    assert_eq!(
        view.registry.cluster_revision.unwrap().get().unwrap().parse(),
        Ok(view.registry.template.unwrap().mod_revision)
    );
    let roles = |role: &str| {
        let nodes = &seen.snapshot.store.definition().unwrap().cluster.nodes;
        nodes
            .iter()
            .filter(|n| !n.control_plane && n.labels.as_ref().is_some_and(|l| l["cke.cybozu.com/role"] == role))
            .count()
    };
    assert_eq!((roles("cs"), roles("ss")), (40, 20), "workers must be divided by the weights 2 : 1");
    site.until("all machines have joined", |s| s.snapshot.kube.nodes.values().filter(|n| n.ready).count() >= 63).await;
    site.until("the definition is settled", |s| *s.applying == ApplyState::Settled).await;
}

/// The scenario `registry` of the sandbox, at its own size and at another: a rack vanishes and is replaced.
#[tokio::test(start_paused = true)]
async fn the_registry_scenario_runs_to_its_end() {
    for nodes in [None, Some(100)] {
        let clock = cketerm_runtime::tokio_clock::starting_at("2026-08-01T12:00:00Z".parse().unwrap());
        let options = Options { nodes, ..Options::default() };
        let stage = Stage::set(Scenario::named("registry").unwrap(), options, clock).await.unwrap();
        let engine = stage.backends("engine-host").start(EngineMode::Daemon, true, None);
        let operator = stage.operator("ann");
        let site = Site { stage, engine, operator };
        site.stage.play().await;
        // changes above the gate need approval; an operator approves each
        let approve = async {
            loop {
                let waits = site.engine.seen().borrow().applying.as_ref().clone();
                if let ApplyState::Approval(digest, _) = waits {
                    let _ = site.operator.approve(&digest, None).await;
                }
                tokio::time::sleep(Duration::from_secs(5)).await;
            }
        };
        let end = async {
            tokio::time::sleep(Duration::from_mins(5)).await;
            site.until("the definition is settled without the rack", |s| *s.applying == ApplyState::Settled).await
        };
        let seen = tokio::select! { seen = end => seen, () = approve => unreachable!() };
        let plan = seen.snapshot.registry.proposal.clone().unwrap();
        assert_eq!(plan.outcome.as_ref().unwrap().plan.warnings, Vec::<String>::new(), "{nodes:?}");
        let least = seen.snapshot.store.constraints().minimum_workers.unwrap();
        assert!(i64::try_from(members(&seen)).unwrap() >= least + 3, "{nodes:?}: {} of {least}", members(&seen));
    }
}

#[tokio::test(start_paused = true)]
async fn an_unhealthy_machine_is_tainted_repaired_and_untainted() {
    let site = Site::new("{enabled: true, spares: 6, repairs: 2}").await;
    site.until("the definition is settled", |s| *s.applying == ApplyState::Settled).await;
    let address = site.state("w50", State::Unhealthy);
    site.until("the machine is tainted", |s| tainted(s.snapshot.node_of(&Address::new(address.clone())), "unhealthy"))
        .await;
    site.until("a repair is queued", |s| {
        s.snapshot.store.repairs.entries.values().any(|e| e.get().unwrap().address == address.as_str())
    })
    .await;
    site.until("the repair has succeeded", |s| {
        let mut entries = s.snapshot.store.repairs.entries.values().filter_map(Stored::get);
        entries.any(|e| e.address == address.as_str() && e.status == RepairStatus::Succeeded)
    })
    .await;
    site.until("the taint is removed", |s| !tainted(s.snapshot.node_of(&Address::new(address.clone())), "unhealthy"))
        .await;
    assert_eq!(site.stage.sandbox.sabakan.by_address(&address).unwrap().state, State::Healthy);
}

#[tokio::test(start_paused = true)]
async fn i42_above_the_cap_no_repair_is_added_and_the_plan_reports_it() {
    let site = Site::new("{enabled: true, repairs: 2}").await;
    site.until("the definition is settled", |s| *s.applying == ApplyState::Settled).await;
    for serial in ["w10", "w20", "w30"] {
        site.state(serial, State::Unhealthy);
    }
    let seen = site.until("the plan reports the cap", |s| s.auto_repair.plan.capped.is_some()).await;
    assert!(seen.auto_repair.plan.capped.as_ref().unwrap().contains("maximum-repair-queue-entries 2"));
    tokio::time::sleep(Duration::from_mins(2)).await;
    assert!(site.view().await.repairs.entries.is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_retired_control_plane_is_replaced_after_approval_of_exactly_that_change() {
    let site = Site::new("{enabled: true}").await;
    let seen = site.until("the definition is settled", |s| *s.applying == ApplyState::Settled).await;
    let before = control_plane_addresses(&seen);
    let address = site.state("cp2", State::Retiring);
    let seen = site.until("the change waits for approval", |s| matches!(*s.applying, ApplyState::Approval(..))).await;
    let ApplyState::Approval(digest, why) = &*seen.applying else { unreachable!() };
    assert!(why.contains(&address), "{why}");
    tokio::time::sleep(Duration::from_mins(5)).await;
    let seen =
        site.until("the change still waits for approval", |s| matches!(*s.applying, ApplyState::Approval(..))).await;
    assert_eq!(control_plane_addresses(&seen), before, "nothing may change without approval");
    site.operator.approve(digest, None).await.unwrap();
    let seen = site
        .until("the control plane is replaced", |s| {
            control_plane_addresses(s).len() == 3
                && !control_plane_addresses(s).contains(&Address::new(address.clone()))
        })
        .await;
    assert!(
        control_plane_addresses(&seen).iter().filter(|p| before.contains(p)).count() == 2,
        "only one control plane may be replaced"
    );
    let view = site.view().await;
    let generated = view.registry.generated.unwrap();
    let generated = generated.get().unwrap();
    assert_eq!(
        (generated.action.as_str(), generated.approved_by.as_ref().map(|w| w.user.as_str())),
        ("replace-control-plane", Some("ann"))
    );
    assert!(view.registry.approvals.is_empty(), "the approval must be used up");
}

#[tokio::test(start_paused = true)]
async fn with_approval_never_control_planes_are_replaced_one_at_a_time() {
    let site = Site::new("{enabled: true}").await;
    let seen = site.until("the definition is settled", |s| *s.applying == ApplyState::Settled).await;
    let before = control_plane_addresses(&seen);
    site.operator.set_policy("approval", "never", None).await.unwrap();
    let gone = [site.state("cp1", State::Retiring), site.state("cp2", State::Retiring)];
    let mut most = 0;
    site.until("both control planes are replaced", |s| {
        let now = control_plane_addresses(s);
        let answering = now.iter().filter(|a| before.contains(a) || s.snapshot.node_of(a).is_some_and(|n| n.ready));
        most = most.max(now.len() - answering.count());
        now.len() == 3 && gone.iter().all(|g| !now.contains(&Address::new(g.clone())))
    })
    .await;
    assert!(most <= 1, "{most} control planes were joining at once");
}

#[tokio::test(start_paused = true)]
async fn a_vanished_rack_is_replaced_after_an_operators_approval() {
    let site = Site::new("{enabled: true, spares: 30}").await;
    site.until("the definition is settled", |s| *s.applying == ApplyState::Settled).await;
    // two racks without a control plane: more than 10 % of the nodes vanish with them
    for rack in [7, 8] {
        site.stage.sandbox.sabakan.rack_gone(rack, &site.stage.sandbox.machines);
    }
    let seen = site.until("the change waits for approval", |s| matches!(*s.applying, ApplyState::Approval(..))).await;
    let ApplyState::Approval(digest, why) = &*seen.applying else { unreachable!() };
    assert!(why.contains("lacks 20 of 100"), "{why}");
    site.operator.approve(digest, Some("moved")).await.unwrap();
    site.until("the definition has all members again", |s| members(s) >= 100 && *s.applying == ApplyState::Settled)
        .await;
    site.until("all Nodes are Ready", |s| s.snapshot.kube.nodes.values().filter(|n| n.ready).count() >= 100).await;
}

#[tokio::test(start_paused = true)]
async fn a_rebooting_machine_that_looks_unreachable_is_not_tainted() {
    let site = Site::new("{enabled: true, notices: 0.5}").await;
    site.until("the definition is settled", |s| *s.applying == ApplyState::Settled).await;
    let address = site.stage.sandbox.machines.address_of("w60").unwrap();
    let late = cketerm_sandbox::machines::Behaviour { late_seconds: Seconds::new(60.0), ..Default::default() };
    site.stage.sandbox.machines.behave(&address, late);
    site.operator.add_reboots(std::slice::from_ref(&Address::new(address.clone())), None).await.unwrap();
    let mut tainted_once = false;
    let mut unreachable = false;
    site.until("the machine is rebooted", |s| {
        tainted_once |= s
            .snapshot
            .node_of(&Address::new(address.clone()))
            .is_some_and(|n| n.described.taints.iter().any(|t| t.key == "cke.cybozu.com/state"));
        let list = s.snapshot.registry.members.good.as_ref().map(|g| &g.machines.list);
        unreachable |= list.is_some_and(|l| {
            l.iter().any(|m| m.address == address.as_str() && m.state == cketerm_sabakan::State::Unreachable)
        });
        unreachable && s.snapshot.store.reboots.entries.is_empty()
    })
    .await;
    assert!(!tainted_once);
}

#[tokio::test(start_paused = true)]
async fn bad_sabakan_answers_are_reported_and_the_definition_stays() {
    let site = Site::new("{enabled: true}").await;
    site.until("the definition is settled", |s| *s.applying == ApplyState::Settled).await;
    let before = site.view().await.cluster.unwrap().mod_revision;
    let sabakan = &site.stage.sandbox.sabakan;
    for (how, words) in [
        (InjectedFault::Says(500, "oops".to_owned()), "500"),
        (InjectedFault::Says(200, r#"{"errors":[{"message":"no leader"}],"data":null}"#.to_owned()), "no leader"),
        (
            InjectedFault::Says(200, r#"{"data":{"searchMachines":[]},"errors":[{"message":"half"}]}"#.to_owned()),
            "half",
        ),
        (InjectedFault::Half, "not a valid answer of sabakan"),
        (InjectedFault::Silent, "no answer in 60 s"),
    ] {
        sabakan.inject_fault(how.clone());
        let reported = |s: &Seen| matches!(&*s.applying, ApplyState::Error(why) if why.contains(words));
        let seen = site.until(words, reported).await;
        assert!(seen.snapshot.registry.members.good.is_some(), "the last good answer must be kept");
        sabakan.inject_fault(InjectedFault::None);
        site.until("the definition is settled again", |s| *s.applying == ApplyState::Settled).await;
    }
    // one machine that cannot be parsed invalidates the whole answer
    let good = sabakan.get("w10").unwrap();
    for (bad, words) in [
        (cketerm_sandbox::sabakan::Record { odd_state: Some("BROKEN".to_owned()), ..good.clone() }, "BROKEN"),
        (cketerm_sandbox::sabakan::Record { retire_date: "soon".to_owned(), ..good.clone() }, "soon"),
        (cketerm_sandbox::sabakan::Record { ipv4: sabakan.get("w11").unwrap().ipv4, ..good.clone() }, "w11"),
    ] {
        sabakan.put(bad);
        site.until(
            words,
            |s| matches!(&*s.applying, ApplyState::Error(why) if why.contains(words) && why.contains("w10")),
        )
        .await;
        sabakan.put(good.clone());
        site.until("the definition is settled again", |s| *s.applying == ApplyState::Settled).await;
    }
    assert_eq!(site.view().await.cluster.unwrap().mod_revision, before);
}

#[tokio::test(start_paused = true)]
async fn a_hold_stops_all_changes_until_it_is_removed() {
    let site = Site::new("{enabled: true, repairs: 0, minimum_workers: 90}").await;
    site.until("the definition is settled", |s| *s.applying == ApplyState::Settled).await;
    site.operator.hold_registry(true, Some(0), Some("audit")).await.unwrap();
    let address = site.state("w50", State::Unhealthy);
    let held = |s: &Seen| matches!(&*s.applying, ApplyState::Waits(why) if why.contains("on hold by ann") && why.contains("audit"));
    site.until("changes are on hold", held).await;
    assert!(site.operator.approve("0000", None).await.unwrap_err().text.contains("on hold"));
    // removing a hold fails if the hold has changed since it was shown
    let old = site.operator.hold_registry(false, Some(1), None).await.unwrap_err();
    assert!(old.text.contains("meanwhile"), "{}", old.text);
    site.operator.hold_registry(false, None, None).await.unwrap();
    site.until("the machine is tainted", |s| tainted(s.snapshot.node_of(&Address::new(address.clone())), "unhealthy"))
        .await;
}

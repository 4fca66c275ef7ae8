//! The machine registry from end to end in a sandbox on a paused clock: an engine applies sabakan's data, and ignores
//! it when it is not plausible.

use std::time::Duration;

use cketerm::{
    actions::Operator,
    clock::Clock,
    engine::{decide::Applying, run::Handle, snapshot::Seen},
    model::{entry::Stored, kube::NodeRow, repair::RepairStatus},
    sandbox::sabakan::{Misbehaviour, State},
    scenario::{Options, Scenario, Stage},
    store::{keys::SwitchName, view::StoreView},
};

/// A data centre of 100 machines, 3 of them control planes, and some spares, with an engine that leads.
struct Place {
    stage: Stage,
    engine: Handle,
    operator: Operator,
}

impl Place {
    async fn new(registry: &str) -> Self {
        let text = format!(
            "name: test\nabout: A test.\npopulation: {{nodes: 100, racks: 10, pods_per_node: 0, workloads: [], registry: {registry}}}\n"
        );
        let clock = Clock::tokio("2026-08-01T12:00:00Z".parse().unwrap());
        let stage = Stage::set(Scenario::parse(&text).unwrap(), Options::default(), clock).await.unwrap();
        let engine = stage.backends("engine-host").start("daemon", true, None);
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
                "never: {what}; {:?} {:?}",
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

fn planes(seen: &Seen) -> Vec<String> {
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
    let place = Place::new("{bare: true, spares: 0, minimum_workers: 60, roles: [cs, cs, ss]}").await;
    place.until("an engine leads", |s| s.snapshot.engine.leading.is_some()).await;
    assert!(place.view().await.cluster.is_none());
    place.enable().await;
    let seen = place.until("a definition", |s| members(s) >= 63).await;
    assert_eq!(planes(&seen).len(), 3);
    let view = place.view().await;
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
    assert_eq!((roles("cs"), roles("ss")), (40, 20), "as the weights 2 : 1 say");
    place.until("all have joined", |s| s.snapshot.kube.nodes.values().filter(|n| n.ready).count() >= 63).await;
    place.until("and it is settled", |s| *s.applying == Applying::Settled).await;
}

/// The scenario `registry` of the sandbox, at its own size and at another: a rack vanishes and is replaced.
#[tokio::test(start_paused = true)]
async fn the_scenario_registry_plays_to_its_end() {
    for nodes in [None, Some(100)] {
        let clock = Clock::tokio("2026-08-01T12:00:00Z".parse().unwrap());
        let options = Options { nodes, ..Options::default() };
        let stage = Stage::set(Scenario::named("registry").unwrap(), options, clock).await.unwrap();
        let engine = stage.backends("engine-host").start("daemon", true, None);
        let operator = stage.operator("ann");
        let place = Place { stage, engine, operator };
        place.stage.play().await;
        // changes above the gate need approval; an operator approves each
        let approve = async {
            loop {
                let waits = place.engine.seen().borrow().applying.as_ref().clone();
                if let Applying::Approval(digest, _) = waits {
                    let _ = place.operator.approve(&digest, None).await;
                }
                tokio::time::sleep(Duration::from_secs(5)).await;
            }
        };
        let end = async {
            tokio::time::sleep(Duration::from_mins(5)).await;
            place.until("settled without the rack", |s| *s.applying == Applying::Settled).await
        };
        let seen = tokio::select! { seen = end => seen, () = approve => unreachable!() };
        let plan = seen.snapshot.registry.proposal.clone().unwrap();
        assert_eq!(plan.outcome.as_ref().unwrap().plan.warnings, Vec::<String>::new(), "{nodes:?}");
        let least = seen.snapshot.store.constraints().minimum_workers.unwrap();
        assert!(i64::try_from(members(&seen)).unwrap() >= least + 3, "{nodes:?}: {} of {least}", members(&seen));
    }
}

#[tokio::test(start_paused = true)]
async fn an_unhealthy_machine_is_tainted_and_repaired_and_its_taint_goes() {
    let place = Place::new("{enabled: true, spares: 6, repairs: 2}").await;
    place.until("settled", |s| *s.applying == Applying::Settled).await;
    let address = place.state("w50", State::Unhealthy);
    place.until("tainted", |s| tainted(s.snapshot.node_of(&address), "unhealthy")).await;
    place
        .until("queued", |s| s.snapshot.store.repairs.entries.values().any(|e| e.get().unwrap().address == address))
        .await;
    place
        .until("repaired", |s| {
            let mut entries = s.snapshot.store.repairs.entries.values().filter_map(Stored::get);
            entries.any(|e| e.address == address && e.status == RepairStatus::Succeeded)
        })
        .await;
    place.until("no taint", |s| !tainted(s.snapshot.node_of(&address), "unhealthy")).await;
    assert_eq!(place.stage.sandbox.sabakan.by_address(&address).unwrap().state, State::Healthy);
}

#[tokio::test(start_paused = true)]
async fn i42_above_the_cap_nothing_is_added_and_it_is_said() {
    let place = Place::new("{enabled: true, repairs: 2}").await;
    place.until("settled", |s| *s.applying == Applying::Settled).await;
    for serial in ["w10", "w20", "w30"] {
        place.state(serial, State::Unhealthy);
    }
    let seen = place.until("said", |s| s.auto_repair.plan.capped.is_some()).await;
    assert!(seen.auto_repair.plan.capped.as_ref().unwrap().contains("maximum-repair-queue-entries 2"));
    tokio::time::sleep(Duration::from_mins(2)).await;
    assert!(place.view().await.repairs.entries.is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_retired_control_plane_is_replaced_after_an_approval_of_just_that() {
    let place = Place::new("{enabled: true}").await;
    let seen = place.until("settled", |s| *s.applying == Applying::Settled).await;
    let before = planes(&seen);
    let address = place.state("cp2", State::Retiring);
    let seen = place.until("waits", |s| matches!(*s.applying, Applying::Approval(..))).await;
    let Applying::Approval(digest, why) = &*seen.applying else { unreachable!() };
    assert!(why.contains(&address), "{why}");
    tokio::time::sleep(Duration::from_mins(5)).await;
    let seen = place.until("still waits", |s| matches!(*s.applying, Applying::Approval(..))).await;
    assert_eq!(planes(&seen), before, "nothing without a person");
    place.operator.approve(digest, None).await.unwrap();
    let seen = place.until("replaced", |s| planes(s).len() == 3 && !planes(s).contains(&address)).await;
    assert!(planes(&seen).iter().filter(|p| before.contains(p)).count() == 2, "one at a time");
    let view = place.view().await;
    let generated = view.registry.generated.unwrap();
    let generated = generated.get().unwrap();
    assert_eq!(
        (generated.action.as_str(), generated.approved_by.as_ref().map(|w| w.user.as_str())),
        ("replace-control-plane", Some("ann"))
    );
    assert!(view.registry.approvals.is_empty(), "it is used up");
}

#[tokio::test(start_paused = true)]
async fn with_approval_never_control_planes_are_replaced_one_after_another() {
    let place = Place::new("{enabled: true}").await;
    let seen = place.until("settled", |s| *s.applying == Applying::Settled).await;
    let before = planes(&seen);
    place.operator.set_policy("approval", "never", None).await.unwrap();
    let gone = [place.state("cp1", State::Retiring), place.state("cp2", State::Retiring)];
    let mut most = 0;
    place
        .until("both are replaced", |s| {
            let now = planes(s);
            let answering = now.iter().filter(|a| before.contains(a) || s.snapshot.node_of(a).is_some_and(|n| n.ready));
            most = most.max(now.len() - answering.count());
            now.len() == 3 && gone.iter().all(|g| !now.contains(g))
        })
        .await;
    assert!(most <= 1, "{most} control planes were joining at once");
}

#[tokio::test(start_paused = true)]
async fn a_rack_that_goes_away_is_refilled_after_a_person_said_yes() {
    let place = Place::new("{enabled: true, spares: 30}").await;
    place.until("settled", |s| *s.applying == Applying::Settled).await;
    // a rack without a control plane: with it and another one, more than 10 % of the nodes vanish
    for rack in [7, 8] {
        place.stage.sandbox.sabakan.rack_gone(rack, &place.stage.sandbox.machines);
    }
    let seen = place.until("waits", |s| matches!(*s.applying, Applying::Approval(..))).await;
    let Applying::Approval(digest, why) = &*seen.applying else { unreachable!() };
    assert!(why.contains("lost 20 of 100"), "{why}");
    place.operator.approve(digest, Some("moved")).await.unwrap();
    place.until("refilled", |s| members(s) >= 100 && *s.applying == Applying::Settled).await;
    place.until("all run", |s| s.snapshot.kube.nodes.values().filter(|n| n.ready).count() >= 100).await;
}

#[tokio::test(start_paused = true)]
async fn a_rebooting_machine_that_looks_unreachable_is_not_tainted() {
    let place = Place::new("{enabled: true, notices: 0.5}").await;
    place.until("settled", |s| *s.applying == Applying::Settled).await;
    let address = place.stage.sandbox.machines.address_of("w60").unwrap();
    let late = cketerm::sandbox::machines::Behaviour { late_seconds: 60.0, ..Default::default() };
    place.stage.sandbox.machines.behave(&address, late);
    place.operator.add_reboots(std::slice::from_ref(&address), None).await.unwrap();
    let mut tainted_once = false;
    let mut unreachable = false;
    place
        .until("rebooted", |s| {
            tainted_once |= s
                .snapshot
                .node_of(&address)
                .is_some_and(|n| n.described.taints.iter().any(|t| t.key == "cke.cybozu.com/state"));
            let list = s.snapshot.registry.members.good.as_ref().map(|g| &g.machines.list);
            unreachable |= list.is_some_and(|l| {
                l.iter().any(|m| m.address == address && m.state == cketerm::sabakan::State::Unreachable)
            });
            unreachable && s.snapshot.store.reboots.entries.is_empty()
        })
        .await;
    assert!(!tainted_once);
}

#[tokio::test(start_paused = true)]
async fn bad_answers_are_told_and_the_definition_in_force_stays() {
    let place = Place::new("{enabled: true}").await;
    place.until("settled", |s| *s.applying == Applying::Settled).await;
    let before = place.view().await.cluster.unwrap().mod_revision;
    let sabakan = &place.stage.sandbox.sabakan;
    for (how, words) in [
        (Misbehaviour::Says(500, "oops".to_owned()), "500"),
        (Misbehaviour::Says(200, r#"{"errors":[{"message":"no leader"}],"data":null}"#.to_owned()), "no leader"),
        (Misbehaviour::Says(200, r#"{"data":{"searchMachines":[]},"errors":[{"message":"half"}]}"#.to_owned()), "half"),
        (Misbehaviour::Half, "not a valid answer of sabakan"),
        (Misbehaviour::Silent, "no answer in 60 s"),
    ] {
        sabakan.misbehave(how.clone());
        let told = |s: &Seen| matches!(&*s.applying, Applying::Error(why) if why.contains(words));
        let seen = place.until(words, told).await;
        assert!(seen.snapshot.registry.members.good.is_some(), "the last good answer is kept");
        sabakan.misbehave(Misbehaviour::None);
        place.until("well again", |s| *s.applying == Applying::Settled).await;
    }
    // one machine that cannot be parsed invalidates the whole answer
    let good = sabakan.get("w10").unwrap();
    for (bad, words) in [
        (cketerm::sandbox::sabakan::Record { odd_state: Some("BROKEN".to_owned()), ..good.clone() }, "BROKEN"),
        (cketerm::sandbox::sabakan::Record { retire_date: "soon".to_owned(), ..good.clone() }, "soon"),
        (cketerm::sandbox::sabakan::Record { ipv4: sabakan.get("w11").unwrap().ipv4, ..good.clone() }, "w11"),
    ] {
        sabakan.put(bad);
        place
            .until(
                words,
                |s| matches!(&*s.applying, Applying::Error(why) if why.contains(words) && why.contains("w10")),
            )
            .await;
        sabakan.put(good.clone());
        place.until("well again", |s| *s.applying == Applying::Settled).await;
    }
    assert_eq!(place.view().await.cluster.unwrap().mod_revision, before);
}

#[tokio::test(start_paused = true)]
async fn a_hold_stops_all_applying_until_it_is_taken_back() {
    let place = Place::new("{enabled: true, repairs: 0, minimum_workers: 90}").await;
    place.until("settled", |s| *s.applying == Applying::Settled).await;
    place.operator.hold_registry(true, Some(0), Some("audit")).await.unwrap();
    let address = place.state("w50", State::Unhealthy);
    let held = |s: &Seen| matches!(&*s.applying, Applying::Waits(why) if why.contains("on hold by ann") && why.contains("audit"));
    place.until("held", held).await;
    assert!(place.operator.approve("0000", None).await.unwrap_err().text.contains("on hold"));
    // bound to the hold that was shown
    let old = place.operator.hold_registry(false, Some(1), None).await.unwrap_err();
    assert!(old.text.contains("meanwhile"), "{}", old.text);
    place.operator.hold_registry(false, None, None).await.unwrap();
    place.until("tainted", |s| tainted(s.snapshot.node_of(&address), "unhealthy")).await;
}

//! Model of the site: carries out effects, and causes events by itself.

use std::{collections::BTreeMap, collections::BTreeSet};

use cketerm_model::{
    attempt::{Attempt, CheckAnswer, Ended, Outcome},
    boot_time::{BootTime, Seconds},
    cketerm_records::Who,
    clock::Now,
    drain::{Answer, Finding, Preview, Verdict},
    entry::EntryId,
    freeze::Freeze,
    kube::PodRow,
    names::Address,
    policy::Policy,
    reboot::RebootStatus,
    time::seconds_between,
};
use jiff::tz::TimeZone;

use super::{FROZEN, LIMIT, OUTAGE, SimEvent, Weeks, allowed, at, stored};
use crate::{
    decide::{Effect, Planned},
    memory::remember,
    snapshot::{EffectOutcome, FreshRead, InFlight},
};

impl Weeks {
    pub(super) fn execute(&mut self, planned: Planned, now: Now) {
        let Planned { machine, entry: id, guard, effect } = planned;
        assert!(guard.until.is_none_or(|until| self.wall < until), "I8: decided for a time after its window");
        let id = id.unwrap_or(EntryId::reboot(u64::MAX));
        let mut result = EffectOutcome::Done;
        match &effect {
            Effect::StartDrain { entry, .. } => {
                assert!(allowed(self.wall), "I8: {id} starts to drain at {}", self.wall);
                self.totals.drains += 1;
                let local = self.wall.to_zoned(TimeZone::get("Africa/Casablanca").unwrap());
                self.totals.nights.insert(local.strftime("%F").to_string());
                let stuck_now = self.dead.iter().any(|a| !self.snap.kube.nodes[a.as_str()].ready);
                self.totals.beside_the_stuck += u32::from(stuck_now && self.wall >= at(OUTAGE[0]));
                self.put(&entry.draining(self.wall));
            }
            Effect::Unwind { entry, .. } => {
                assert!(!allowed(self.wall), "I8: {id} is unwound in its window");
                self.totals.unwound += 1;
                self.put(&entry.unwound(self.wall));
            }
            Effect::BackOff { entry, .. } => {
                let count = entry.backoff_count() + 1;
                self.put(&entry.backed_off(count, 300, self.wall));
            }
            Effect::Stamp { owner, cordon, mark, .. } => self.node(&machine, |node| {
                node.owner = Some(Ok(owner.clone()));
                node.unschedulable |= cordon;
                node.cke_mark = *mark;
            }),
            Effect::Preview { pods, .. } => {
                let passed = pods.iter().map(|(pod, _)| pod.uid.clone()).collect();
                result = EffectOutcome::Previewed(Preview { passed, finding: Finding::Clean });
            }
            Effect::Evict { evict, .. } => {
                let answer = |pod: &PodRow| {
                    let answer = Answer {
                        verdict: Verdict::Accepted,
                        at: BootTime::ZERO,
                        budgets: BTreeMap::new(),
                        undecided: 0,
                    };
                    (pod.uid.clone(), answer)
                };
                result = EffectOutcome::Answers(evict.iter().map(|(pod, _)| answer(pod)).collect());
                for (pod, _) in evict {
                    let leaves = Seconds::new(60.0 + 520.0 * self.rng.f64());
                    self.schedule(leaves, SimEvent::Left(machine.clone(), pod.uid.clone()));
                }
            }
            Effect::Power { entry, attempt, .. } => {
                assert!(allowed(self.wall), "I8: {id} is powered at {}", self.wall);
                *self.totals.powers.entry(id).or_default() += 1;
                self.put(&entry.commanded(self.wall));
                let attempt = Attempt { start: self.wall, ..attempt.clone() };
                let number = attempt.number;
                let flight = InFlight {
                    what: "rebooting".to_owned(),
                    entry: Some(id),
                    starts: false,
                    patches_node: false,
                    upkeep: None,
                    evictions: std::collections::BTreeMap::new(),
                    attempt: Some(attempt.id.clone()),
                    since: self.boot(),
                };
                self.snap.in_flight.insert(machine.clone(), flight);
                self.store().attempts.insert((id, number), stored("attempt", 1, attempt));
                self.node(&machine, |node| node.ready = false);
                self.schedule(Seconds::new(5.0), SimEvent::CommandEnds(id, number));
                let gone = self.dead.contains(&machine) && self.wall >= at(OUTAGE[0]) && self.wall < at(OUTAGE[1]);
                if !gone {
                    let boots = Seconds::new(120.0 + 240.0 * self.rng.f64());
                    self.schedule(boots, SimEvent::Boots(machine.clone()));
                }
                return;
            }
            Effect::BootCheck { .. } => {
                // A slow check: a pass for each second of a boot would be most of the run time.
                let flight = InFlight {
                    what: "checking boot".to_owned(),
                    entry: Some(id),
                    starts: false,
                    patches_node: false,
                    upkeep: None,
                    evictions: std::collections::BTreeMap::new(),
                    attempt: None,
                    since: self.boot(),
                };
                self.snap.in_flight.insert(machine.clone(), flight);
                let up = self.snap.kube.nodes[machine.as_str()].ready;
                let stuck = self.dead.contains(&machine);
                let answers = if up {
                    1.0
                } else if stuck {
                    3600.0
                } else {
                    30.0
                };
                self.schedule(Seconds::new(answers), SimEvent::Checked(id, machine.clone()));
                return;
            }
            Effect::Remove { .. } => {
                self.totals.ended_outside += u32::from(!allowed(self.wall));
                let store = self.store();
                store.reboots.entries.remove(&id.index);
                let keys: Vec<_> = store.attempts.range((id, 0)..=(id, u32::MAX)).map(|(key, _)| *key).collect();
                for key in keys {
                    store.attempts.remove(&key);
                }
            }
            Effect::Release { uncordon, .. } => {
                self.node(&machine, |node| {
                    node.unschedulable &= !uncordon;
                    (node.owner, node.cke_mark) = (None, false);
                });
                if self.snap.kube.pods[machine.as_str()].pods.is_empty() {
                    self.pod(&machine);
                }
            }
            Effect::Recheck { node, .. } => {
                let pods = self.snap.kube.pods.get(node).map(|p| p.pods.values().cloned().collect());
                let node = self.snap.kube.by_name.get(node).cloned();
                result = EffectOutcome::Rechecked(FreshRead { at: self.boot(), node, pods });
            }
            Effect::Settle { .. } => {}
            other => panic!("unexpected effect {}", other.as_str()),
        }
        remember(&mut self.snap.work, id, &effect, &result, now);
    }

    /// Asserts the limits from the persisted state, and one rack at a time except for stuck ones.
    pub(super) fn judge(&self) {
        let rack_of = |address: &str| {
            let definition = self.snap.store.definition().unwrap();
            let node = definition.members.by_address(&definition.cluster, &Address::new(address)).unwrap();
            (node.control_plane, node.labels.as_ref().unwrap()["cke.cybozu.com/rack"].clone())
        };
        let entries = self.snap.store.reboots.entries.values().filter_map(|s| s.get());
        let busy: Vec<_> =
            entries.filter(|e| matches!(e.status, RebootStatus::Draining | RebootStatus::Rebooting)).collect();
        assert!(busy.len() <= LIMIT, "I3: {} in progress at {}", busy.len(), self.wall);
        let planes = busy.iter().filter(|e| rack_of(&e.node).0).count();
        assert!(
            planes == 0 || busy.len() == 1,
            "I1, I2: {planes} API servers of {} in progress at {}",
            busy.len(),
            self.wall
        );
        let moving = busy.iter().filter(|e| {
            let age = seconds_between(e.last_transition_time.unwrap(), self.wall);
            e.status == RebootStatus::Draining || age < Seconds::new(1800.0)
        });
        let racks: BTreeSet<String> = moving.map(|e| rack_of(&e.node).1).collect();
        // A stuck machine that recovers is in progress together with the next rack's machines.
        assert!(racks.len() <= 1 || self.wall >= at(OUTAGE[1]), "racks {racks:?} in progress at {}", self.wall);
    }

    pub(super) fn handle_event(&mut self, what: SimEvent) {
        let now = Now { boot: self.boot(), wall: self.wall };
        match what {
            SimEvent::Left(node, uid) => {
                self.kube().pods.get_mut(node.as_str()).unwrap().pods.remove(&uid);
                // An uncordoned node gets another pod.
                if !self.snap.kube.nodes[node.as_str()].unschedulable {
                    self.pod(&node);
                }
            }
            SimEvent::CommandEnds(id, number) => {
                let end = Ended::Exit(0);
                let outcome = Outcome { end, at: self.wall, stdout: String::new(), stderr: String::new() };
                let attempt = self.snap.store.attempts[&(id, number)].get().unwrap().clone();
                let machine = attempt.node.clone().unwrap();
                let closed = Attempt { outcome: Some(outcome.clone()), ..attempt };
                let effect = Effect::Settle { entry: id };
                remember(&mut self.snap.work, id, &effect, &EffectOutcome::Command(outcome), now);
                self.store().attempts.insert((id, number), stored("attempt", 2, closed));
                self.snap.in_flight.remove(machine.as_str());
            }
            SimEvent::Boots(node) => {
                let boot_id = format!("b{}", self.numbers);
                self.node(&node, |node| (node.ready, node.boot_id) = (true, boot_id));
            }
            SimEvent::Checked(id, machine) => {
                let up = self.snap.kube.nodes[machine.as_str()].ready;
                let answer = if up { CheckAnswer::Yes } else { CheckAnswer::No("false".to_owned()) };
                let effect = Effect::BootCheck { argv: Vec::new(), bound: 60 };
                remember(&mut self.snap.work, id, &effect, &EffectOutcome::Check(answer), now);
                self.snap.in_flight.remove(&machine);
            }
            SimEvent::Freeze => {
                let mut policy = Policy::clone(&self.snap.store.policy());
                policy.freeze = Some(Freeze {
                    until: at(FROZEN[1]),
                    reason: "quarter end".to_owned(),
                    who: Who::default(),
                    unknown: serde_json::Map::new(),
                });
                self.store().policy = Some(stored("policy", 3, policy));
            }
            SimEvent::Recovered => {
                let dead: Vec<String> =
                    self.dead.iter().filter(|a| !self.snap.kube.nodes[(*a).as_str()].ready).cloned().collect();
                for node in dead {
                    self.schedule(Seconds::new(60.0), SimEvent::Boots(node));
                }
            }
            SimEvent::Nothing => {}
        }
    }
}

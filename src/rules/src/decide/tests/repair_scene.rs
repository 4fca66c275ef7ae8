//! Repairs in the small cluster: machine type `t`, four operations, and 10.0.0.99 outside the cluster.

use std::sync::Arc;

use cketerm_model::{
    attempt::{Attempt, CheckAnswer, Ended, Outcome},
    boot_time::Seconds,
    cketerm_records::{Order, Verb, Who},
    entry::EntryId,
    kube::Owner,
    names::Address,
    reason::Reason,
    repair::{RepairEntry, RepairStatus, StepStatus},
    stored::view::Switch,
    time::after,
};
use serde_json::json;

use super::scene::{BOOT, LEASE, Scene, now, stored};
use crate::{
    decide::{Effect, End},
    snapshot::Work,
};

/// Last number of the address outside the cluster.
pub(super) const OUTSIDE: u8 = 99;

pub(super) fn no() -> CheckAnswer {
    CheckAnswer::No("false".to_owned())
}

impl Scene {
    /// Adds the operations. `two`: two steps, the second drains and has a retry. `drain`: one step that drains.
    /// `success`: one step and a success command. `plain`: one step, watched for 30 s.
    pub(super) fn repairing(workers: u8) -> Self {
        Self::new(workers).with(|s| {
            let section = json!({"repair_procedures": [{"machine_types": ["t"], "repair_operations": [
                {"operation": "two", "health_check_command": ["health"], "repair_steps": [
                    {"repair_command": ["fix", "a"], "watch_seconds": 60},
                    {"repair_command": ["fix", "b"], "need_drain": true, "watch_seconds": 120,
                     "command_retries": 1, "command_interval": 5, "command_timeout_seconds": 7}]},
                {"operation": "drain", "health_check_command": ["health"], "repair_steps": [
                    {"repair_command": ["swap"], "need_drain": true, "watch_seconds": 30}]},
                {"operation": "success", "health_check_command": ["health"], "success_command": ["done", "well"],
                 "success_command_timeout": 9, "repair_steps": [{"repair_command": ["fix"]}]},
                {"operation": "plain", "health_check_command": ["health", "-v"], "command_timeout_seconds": 3,
                 "repair_steps": [{"repair_command": ["fix"], "watch_seconds": 30}]}]}]});
            s.cluster.repair = serde_json::from_value(section).unwrap();
        })
    }

    /// A queued entry whose machine was found unhealthy.
    pub(super) fn repair(self, index: u64, last: u8, operation: &str) -> Self {
        let mut entry = RepairEntry::queued(index, &Address::new(Self::address(last)), "t", operation, None);
        entry.index = index;
        self.put_repair(entry).health(index, no())
    }

    fn put_repair(mut self, entry: RepairEntry) -> Self {
        let (key, index) = (format!("/cke/repairs/data/{:016x}", entry.index), entry.index);
        self.store.repairs.entries.insert(index, stored(&key, 10, entry));
        self
    }

    pub(super) fn change_repair(self, index: u64, how: impl FnOnce(&mut RepairEntry)) -> Self {
        let mut entry = self.store.repairs.entries[&index].get().unwrap().clone();
        how(&mut entry);
        self.put_repair(entry)
    }

    /// In `processing` at this step since `age` seconds ago.
    pub(super) fn at_step(self, index: u64, step: i64, step_status: StepStatus, age: i64) -> Self {
        self.change_repair(index, |e| {
            (e.status, e.step, e.step_status) = (RepairStatus::Processing, step, step_status);
            e.last_transition_time = Some(after(now(), -age));
        })
    }

    /// Draining, with cketerm's record on the Node.
    pub(super) fn repair_drains(self, index: u64, last: u8, step: i64, age: i64) -> Self {
        self.at_step(index, step, StepStatus::Draining, age).cordoned_for(last, index)
    }

    /// Watching since a command that ended `age` seconds ago; with `None` the command is open.
    pub(super) fn watching(self, index: u64, step: i64, age: i64, end: Option<Ended>) -> Self {
        self.at_step(index, step, StepStatus::Watching, age + 1).tried(index, 1, step, LEASE, age, end)
    }

    /// An attempt of a step.
    pub(super) fn tried(self, index: u64, number: u32, step: i64, lease: i64, age: i64, end: Option<Ended>) -> Self {
        self.attempted(index, number, lease, age, end, |a| a.step = Some(step))
    }

    /// An attempt of the success command.
    pub(super) fn success(self, index: u64, number: u32, lease: i64, end: Option<Ended>) -> Self {
        self.attempted(index, number, lease, 5, end, |a| (a.step, a.success) = (Some(0), true))
    }

    fn attempted(
        mut self,
        index: u64,
        number: u32,
        lease: i64,
        age: i64,
        end: Option<Ended>,
        how: impl FnOnce(&mut Attempt),
    ) -> Self {
        let id = EntryId::repair(index);
        let entry = self.store.repairs.entries[&index].get().unwrap().clone();
        let control_plane = self.cluster.nodes.iter().any(|n| n.address == entry.address && n.control_plane);
        let mut attempt = Attempt {
            id: format!("repairs-{index}-{number}"),
            entry: id,
            number,
            step: None,
            success: false,
            machine_type: Some(entry.machine_type.clone()),
            operation: Some(entry.operation.clone()),
            address: entry.address.clone(),
            node: None,
            control_plane,
            lease,
            host: "here".to_owned(),
            argv: vec!["fix".to_owned(), entry.address.to_string()],
            bound_seconds: 30,
            boot_id: None,
            not_ready: false,
            node_uid: None,
            start: after(now(), -age - 1),
            drain_start: None,
            forced: false,
            ordered_by: None,
            done_by: None,
            folded: 0,
            outcome: end.map(|end| Outcome {
                end,
                at: after(now(), -age),
                stdout: String::new(),
                stderr: "oops".to_owned(),
            }),
        };
        how(&mut attempt);
        self.store.attempts.insert((id, number), stored("attempt", 11, attempt));
        self
    }

    pub(super) fn cordoned_for(self, last: u8, repair: u64) -> Self {
        self.node(last, |n| {
            (n.unschedulable, n.cke_mark) = (true, true);
            n.owner = Some(Ok(Owner {
                lease: LEASE,
                entry: EntryId::repair(repair),
                schedulable_before: true,
                uid: n.uid.clone(),
                boot_id: "before".to_owned(),
                taken_over_rebooting: false,
                called_done: false,
                since: None,
                recordoned: 0,
            }));
        })
    }

    /// The answer that the health check just gave.
    pub(super) fn health(mut self, index: u64, answer: CheckAnswer) -> Self {
        let healthy = answer == CheckAnswer::Yes;
        let work: &mut Work = self.snap.work.entry(EntryId::repair(index)).or_default();
        work.check = Some((BOOT, answer));
        work.recovered_since = healthy.then_some(BOOT - Seconds::new(1000.0));
        self
    }

    pub(super) fn repair_work(mut self, index: u64, how: impl FnOnce(&mut Work)) -> Self {
        how(self.snap.work.entry(EntryId::repair(index)).or_default());
        self
    }

    pub(super) fn order_repair(mut self, index: u64, verb: Verb, revision: i64) -> Self {
        let order = Order {
            verb,
            who: Who { user: "ann".to_owned(), host: "h".to_owned(), ssh_client: None },
            at: now(),
            reason: Some("T-1".to_owned()),
            entry_revision: revision,
        };
        self.store.orders.insert(EntryId::repair(index), stored("order", 12, order));
        self
    }

    pub(super) fn repairs_disabled(mut self) -> Self {
        self.store.repairs.switch = Switch { raw: Some("true".to_owned()), mod_revision: 3 };
        self
    }

    pub(super) fn repairs_at_once(self, limit: i64) -> Self {
        self.with(|s| s.cluster.repair.max_concurrent_repairs = Some(limit))
    }

    pub(super) fn repair_reason(&self, index: u64) -> Reason {
        let reasons = self.decide().reasons;
        reasons.get(&EntryId::repair(index)).cloned().unwrap_or_else(|| panic!("repair {index} has no reason (I32)"))
    }

    /// Returns the repairs that start, in their order.
    pub(super) fn repair_starts(&self) -> Vec<u64> {
        let effects = self.decide().effects;
        let starts = effects.iter().filter(|p| p.effect.starts()).filter_map(|p| p.entry);
        starts.filter(|e| *e == EntryId::repair(e.index)).map(|e| e.index).collect()
    }

    /// Returns the effect for a repair, except its health check.
    pub(super) fn repairs(&self, index: u64) -> Option<Effect> {
        let of = |p: &crate::decide::Planned| {
            p.entry == Some(EntryId::repair(index)) && !matches!(p.effect, Effect::HealthCheck { .. })
        };
        self.decide().effects.into_iter().find(of).map(|p| p.effect)
    }

    /// Returns the end of a repair, if it ends.
    pub(super) fn repair_ends(&self, index: u64) -> Option<End> {
        match self.repairs(index) {
            Some(Effect::Finish { end, .. } | Effect::Remove { end, .. }) => Some(end),
            _ => None,
        }
    }

    /// Returns the repairs whose health check is sent now.
    pub(super) fn asked(&self) -> Vec<u64> {
        let effects = self.decide().effects;
        let checks = effects.iter().filter(|p| matches!(p.effect, Effect::HealthCheck { .. }));
        checks.filter_map(|p| Some(p.entry?.index)).collect()
    }

    /// An entry in the store that cannot be read.
    pub(super) fn broken_repair(mut self, index: u64) -> Self {
        let entry = RepairEntry::queued(index, &Address::new("x"), "t", "plain", None);
        let mut broken = stored("/cke/repairs/data/x", 10, entry);
        broken.value = Err("not JSON".to_owned());
        self.store.repairs.entries.insert(index, broken);
        self
    }

    /// Returns the attempt that this decision writes for the entry.
    pub(super) fn command_of(&self, index: u64) -> Option<Arc<Attempt>> {
        match self.repairs(index) {
            Some(Effect::Power { attempt, .. } | Effect::RunAgain { attempt, .. }) => Some(Arc::new(attempt)),
            _ => None,
        }
    }
}

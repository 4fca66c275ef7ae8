//! The power command: fresh checks, the attempt written first, the command, its outcome (spec/safety.md, The right
//! node, Attempts, Commands; I16, I25, I26).

use std::time::Duration;

use super::{Actor, Stop};
use crate::{
    engine::{
        command::{CommandLine, Purpose, check_answer, outcome},
        decide::{Guard, PodVerdict, judge},
        snapshot::Came,
    },
    kubernetes::KubeError,
    model::{
        attempt::{Attempt, Ended, Outcome},
        drain::Verdict,
        entry::{EntryId, Stored},
        kube::{NodeRow, PodRow},
        ours::Order,
        reboot::{RebootEntry, RebootStatus},
        time::whole_seconds,
    },
    store::commit::{Change, CommitError, Put},
};

/// How often the outcome of a command is tried to be recorded, once a second.
const RECORD_TRIES: u32 = 30;

fn unreachable(e: &KubeError) -> Stop {
    Stop(Came::Failed(e.to_string()))
}

impl Actor {
    /// `draining` → `rebooting`: the node is asked once more, the attempt is written with the transition, the command
    /// runs, and its outcome is recorded.
    #[allow(clippy::too_many_arguments)] // each is one thing that was decided
    pub(super) async fn power(
        &self,
        guard: &Guard,
        decided: Duration,
        entry: &RebootEntry,
        node: &NodeRow,
        force: Option<&Stored<Order>>,
        on_delete: &[String],
        attempt: Attempt,
    ) -> Result<Came, Stop> {
        self.permit(guard, decided)?;
        let fresh = self.still_the_node(entry, node).await?;
        let pods = self.still_empty(guard, &fresh, force.is_some()).await?;
        self.delete_on_delete(guard, &pods, on_delete).await?;
        let now = self.steady.now();
        let id = EntryId::reboot(entry.index);
        let next = entry.moved_to(RebootStatus::Rebooting, now.wall);
        let attempt = Attempt { start: now.wall, boot_id: Some(fresh.boot_id).filter(|b| !b.is_empty()), ..attempt };
        let keys = self.store.keys();
        let mut compares = self.compares(guard);
        let attempt_key = keys.attempt(id, attempt.number);
        compares.push((attempt_key.clone(), 0));
        let mut change = Change {
            compares,
            puts: vec![Put::json(keys.entry(id), &next), Put::json(attempt_key, &attempt)],
            deletes: Vec::new(),
        };
        let forced = force.and_then(Stored::get);
        if let (Some(stored), Some(order)) = (force, forced) {
            change.compares.push((stored.key.clone(), stored.mod_revision));
            change.deletes.push(stored.key.clone());
            let why = order.reason.clone().unwrap_or_default();
            let reason = format!("pods and volumes skipped by order of {}: {why}", order.who);
            change.puts.push(self.audit("power", &id.to_string(), Some(reason), &attempt.argv.join(" ")));
        } else {
            change.puts.push(self.audit("power", &id.to_string(), None, &attempt.argv.join(" ")));
        }
        let permit = self.permit(guard, now.boot)?;
        let revision = self.commit(&permit, change).await?;
        self.run_recorded(&Guard::of_entry(id, revision), attempt, revision).await
    }

    /// One more command for an entry that is rebooting already.
    pub(super) async fn run_again(
        &self,
        guard: &Guard,
        decided: Duration,
        entry: &RebootEntry,
        before: Option<&Stored<Attempt>>,
        order: Option<&Stored<Order>>,
        attempt: Attempt,
    ) -> Result<Came, Stop> {
        self.permit(guard, decided)?;
        let id = EntryId::reboot(entry.index);
        let (keys, now) = (self.store.keys(), self.steady.now());
        let attempt = Attempt { start: now.wall, ..attempt };
        let attempt_key = keys.attempt(id, attempt.number);
        let mut change = Change { compares: self.compares(guard), puts: Vec::new(), deletes: Vec::new() };
        change.compares.push((attempt_key.clone(), 0));
        change.puts.push(Put::json(attempt_key, &attempt));
        if let Some((stored, last)) = before.and_then(|s| s.get().map(|a| (s, a))) {
            change.compares.push((stored.key.clone(), stored.mod_revision));
            if last.open() {
                let end = Ended::Unknown("a person ordered another try".to_owned());
                let closed = Outcome { end, at: now.wall, stdout: String::new(), stderr: String::new() };
                change.puts.push(Put::json(stored.key.clone(), &Attempt { outcome: Some(closed), ..last.clone() }));
            }
        }
        if let Some(stored) = order {
            change.compares.push((stored.key.clone(), stored.mod_revision));
            change.deletes.push(stored.key.clone());
            let mut next = entry.clone();
            next.last_transition_time = Some(whole_seconds(now.wall));
            change.puts.push(Put::json(keys.entry(id), &next));
        }
        change.puts.push(self.audit("power", &id.to_string(), attempt.ordered_by.clone(), &attempt.argv.join(" ")));
        let permit = self.permit(guard, now.boot)?;
        let revision = self.commit(&permit, change).await?;
        let guard = if order.is_some() { Guard::of_entry(id, revision) } else { guard.clone() };
        self.run_recorded(&guard, attempt, revision).await
    }

    /// The Node is the one that was meant, and ours: address, UID, cordon and record, asked afresh.
    async fn still_the_node(&self, entry: &RebootEntry, node: &NodeRow) -> Result<NodeRow, Stop> {
        let fresh = self.kube.node(&node.name).await.map_err(|e| unreachable(&e))?;
        let Some(fresh) = fresh else { return Err(Stop(Came::Stale)) };
        let id = EntryId::reboot(entry.index);
        let ours = fresh.owner().is_some_and(|o| o.entry == id && o.lease == self.fence.lease() && o.uid == fresh.uid);
        let same = fresh.uid == node.uid && fresh.addresses.contains(&entry.node);
        if same && ours && fresh.unschedulable { Ok(fresh) } else { Err(Stop(Came::Stale)) }
    }

    /// A list made after the cordon shows no pod that has to leave, and the node no volume in use (I16).
    async fn still_empty(&self, guard: &Guard, node: &NodeRow, forced: bool) -> Result<Vec<PodRow>, Stop> {
        let pods = self.kube.pods_on(&node.name).await.map_err(|e| unreachable(&e))?;
        let view = self.live.borrow();
        let Some(definition) = view.definition() else { return Err(Stop(Came::Stale)) };
        let kube = self.kube_live.borrow();
        let left = pods.iter().find(|p| judge(p, &definition.cluster.reboot, &kube) != PodVerdict::Ignore);
        if forced || (left.is_none() && node.volumes_in_use.is_empty()) {
            self.permit(guard, self.steady.now().boot)?;
            return Ok(pods);
        }
        let what = left.map_or_else(|| "volumes in use".to_owned(), PodRow::full_name);
        tracing::info!(node = node.name, what, "not empty after all");
        Err(Stop(Came::Stale))
    }

    /// Pods of DaemonSets with the `OnDelete` strategy, once and after everything else (I19).
    async fn delete_on_delete(&self, guard: &Guard, pods: &[PodRow], daemon_sets: &[String]) -> Result<(), Stop> {
        let theirs = pods.iter().filter(|p| {
            p.terminating_since.is_none()
                && p.controlled_by("DaemonSet").is_some_and(|owner| daemon_sets.contains(&owner.uid))
        });
        for pod in theirs {
            let permit = self.permit(guard, self.steady.now().boot)?;
            match self.kube.delete_pod(&permit, pod).await {
                Verdict::Accepted | Verdict::Gone | Verdict::Held { .. } => {
                    self.record("reboot-delete-daemonset-pod", &pod.node, "", self.steady.now().wall);
                }
                Verdict::Failed(why) | Verdict::NoAnswer(why) => {
                    return Err(Stop(Came::Failed(format!("deletion of {}: {why}", pod.full_name()))));
                }
            }
        }
        Ok(())
    }

    /// Runs the command of an attempt that is written already, and records how it ended. `guard` is what must hold
    /// right before the start: a cancel that came in between is honoured.
    async fn run_recorded(&self, guard: &Guard, attempt: Attempt, revision: i64) -> Result<Came, Stop> {
        let ended = if self.permit(guard, self.steady.now().boot).is_ok() {
            tracing::info!(attempt = attempt.id, argv = attempt.argv.join(" "), "command starts");
            let line = CommandLine {
                argv: attempt.argv.clone(),
                bound: attempt.bound_seconds,
                purpose: Purpose::Power,
                entry: attempt.entry.to_string(),
                attempt: attempt.id.clone(),
            };
            self.spawner.run(&line).await
        } else {
            let why = "the entry changed, or the lease ran out, before it could start".to_owned();
            (Ended::NotStarted(why), String::new(), String::new())
        };
        let outcome = outcome(self.steady.now().wall, ended);
        tracing::info!(attempt = attempt.id, end = %outcome.end, "command ended");
        let error = if outcome.end == Ended::Exit(0) { String::new() } else { outcome.end.to_string() };
        self.record("reboot-reboot", &attempt.address, &error, attempt.start);
        let key = self.store.keys().attempt(attempt.entry, attempt.number);
        let recorded = Attempt { outcome: Some(outcome.clone()), ..attempt };
        for _ in 0..RECORD_TRIES {
            let Ok(permit) = self.fence.permit_record() else { return Ok(Came::Lost) };
            let change = Change {
                compares: vec![(key.clone(), revision)],
                puts: vec![Put::json(key.clone(), &recorded)],
                deletes: Vec::new(),
            };
            match self.store.commit(&permit, change).await {
                Ok(done) => {
                    self.shown(done).await;
                    return Ok(Came::Command(outcome));
                }
                Err(CommitError::LostLeadership) => return Ok(Came::Lost),
                // Somebody else settled it, or an earlier try of ours went through.
                Err(CommitError::Conflict { .. }) => return Ok(Came::Command(outcome)),
                Err(e) => {
                    tracing::warn!(attempt = recorded.id, error = %e, "outcome not recorded yet");
                    tokio::time::sleep(Duration::from_secs(1)).await;
                }
            }
        }
        Ok(Came::Failed(format!("the outcome of {} could not be recorded", recorded.id)))
    }

    /// Asks the boot check.
    pub(super) async fn boot_check(
        &self,
        guard: &Guard,
        entry: Option<EntryId>,
        argv: Vec<String>,
        bound: u64,
    ) -> Result<Came, Stop> {
        self.permit(guard, self.steady.now().boot)?;
        let line = CommandLine {
            argv,
            bound,
            purpose: Purpose::Check,
            entry: entry.map_or_else(String::new, |e| e.to_string()),
            attempt: String::new(),
        };
        Ok(Came::Check(check_answer(self.spawner.run(&line).await)))
    }
}

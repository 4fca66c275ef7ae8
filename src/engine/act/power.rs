//! The power command: fresh checks, the attempt written first, the command, its outcome (spec/safety.md, The right
//! node, Attempts, Commands; I16, I25, I26).

use std::time::Duration;

use super::{Actor, Stop, told::named};
use crate::{
    engine::{
        command::{CommandLine, Purpose, check_answer, outcome},
        decide::{Guard, PodVerdict, judge},
        snapshot::Came,
    },
    kubernetes::KubeError,
    model::{
        any::AnyEntry,
        attempt::{Attempt, Ended, Outcome},
        drain::Verdict,
        entry::{EntryId, QueueKind, Stored},
        kube::{NodeRow, PodRow},
        ours::{Order, Verb},
    },
    mutation::{Mutation, on},
    store::commit::{Change, CommitError, Put},
};

/// The buffer of [`Mutation::SharedArguments`].
static SHARED: std::sync::Mutex<String> = std::sync::Mutex::new(String::new());

pub(super) fn unreachable(e: &KubeError) -> Stop {
    Stop(Came::Failed(e.to_string()))
}

/// What a command is for: the entry, and its Node where the machine has one.
#[derive(Clone, Copy)]
pub(super) struct Target<'a> {
    pub entry: &'a AnyEntry,
    pub node: Option<&'a NodeRow>,
    /// The Node was drained for this command: it must still be ours and empty.
    pub drained: bool,
}

/// What a command is called in the audit.
fn word(attempt: &Attempt) -> &'static str {
    match attempt.entry.queue {
        QueueKind::Reboot => "power",
        QueueKind::Repair if attempt.success => "success command",
        QueueKind::Repair => "repair command",
    }
}

/// The Kubernetes Event that says that it starts: its reason, and what is at work.
fn event(attempt: &Attempt) -> (&'static str, &'static str) {
    match attempt.entry.queue {
        QueueKind::Reboot => ("RebootOrdered", "Reboot"),
        QueueKind::Repair if attempt.success => ("RepairSuccessCommand", "Repair"),
        QueueKind::Repair => ("RepairStep", "Repair"),
    }
}

impl Actor {
    /// Into `rebooting` or `watching`: the node is asked once more, the attempt is written with the transition, the command
    /// runs, and its outcome is recorded.
    pub(super) async fn power(
        &self,
        guard: &Guard,
        decided: Duration,
        target: Target<'_>,
        force: Option<&Stored<Order>>,
        on_delete: &[String],
        attempt: Attempt,
    ) -> Result<Came, Stop> {
        self.permit(guard, decided)?;
        let fresh = self.still_the_node(target).await?;
        let pods = self.still_empty(guard, decided, target, fresh.as_ref(), force.is_some()).await?;
        let now = self.steady.now();
        let id = target.entry.id();
        let next = target.entry.commanded(now.wall);
        let attempt = Attempt { start: now.wall, ..attempt }.met(fresh.as_ref());
        let keys = self.store.keys();
        let mut compares = self.compares(guard);
        let attempt_key = keys.attempt(id, attempt.number);
        compares.push((attempt_key.clone(), 0));
        let mut change = Change {
            compares,
            puts: vec![Put::json(keys.entry(id), &next), Put::json(attempt_key, &attempt)],
            deletes: Vec::new(),
        };
        self.not_held(id, force, &mut change)?;
        let forced = force.and_then(Stored::get);
        if let (Some(stored), Some(order)) = (force, forced) {
            change.compares.push((stored.key.clone(), stored.mod_revision));
            change.deletes.push(stored.key.clone());
            let why = order.reason.clone().unwrap_or_default();
            let reason = format!("pods and volumes skipped by order of {}: {why}", order.who);
            change.puts.push(self.audit(word(&attempt), &id.to_string(), Some(reason), &attempt.command()));
        } else {
            change.puts.push(self.audit(word(&attempt), &id.to_string(), None, &attempt.command()));
        }
        // Within TTL/12 of the decision: what was asked above may have taken long.
        let permit = self.permit(guard, decided)?;
        let revision = self.commit(&permit, change).await?;
        self.delete_on_delete(&pods, on_delete).await;
        self.run_recorded(guard, (id, revision), attempt, revision).await
    }

    /// A hold that comes in between is honoured: the transaction compares the order that lies there, or that none does.
    fn not_held(&self, id: EntryId, force: Option<&Stored<Order>>, change: &mut Change) -> Result<(), Stop> {
        let view = self.live.borrow();
        let order = view.orders.get(&id);
        if order.and_then(Stored::get).is_some_and(|o| o.verb == Verb::Hold) {
            return Err(Stop(Came::Stale));
        }
        if force.is_none() {
            let revision = order.map_or(0, |stored| stored.mod_revision);
            change.compares.push((self.store.keys().order(id), revision));
        }
        Ok(())
    }

    /// One more command for an entry that is rebooting or watching already, or a success command; the node is asked once
    /// more before it, too.
    pub(super) async fn run_again(
        &self,
        guard: &Guard,
        decided: Duration,
        target: Target<'_>,
        before: Option<&Stored<Attempt>>,
        order: Option<&Stored<Order>>,
        attempt: Attempt,
    ) -> Result<Came, Stop> {
        self.permit(guard, decided)?;
        let mut attempt = attempt;
        if !attempt.success {
            let fresh = self.still_the_node(target).await?;
            attempt = attempt.met(fresh.as_ref());
            self.still_empty(guard, decided, target, fresh.as_ref(), attempt.forced).await?;
        }
        let id = target.entry.id();
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
            change.puts.push(Put::json(keys.entry(id), &target.entry.since(now.wall)));
        }
        change.puts.push(self.audit(word(&attempt), &id.to_string(), attempt.ordered_by.clone(), &attempt.command()));
        let permit = self.permit(guard, decided)?;
        let revision = self.commit(&permit, change).await?;
        let entry_revision = match guard.entry {
            Some((_, unchanged)) if order.is_none() => unchanged,
            _ => revision,
        };
        self.run_recorded(guard, (id, entry_revision), attempt, revision).await
    }

    /// The Node is the one that was meant – address and UID, asked afresh –, and ours where it was drained: cordon and
    /// record. None = the machine has no Node.
    async fn still_the_node(&self, target: Target<'_>) -> Result<Option<NodeRow>, Stop> {
        let Some(node) = target.node else { return Ok(None) };
        let fresh = self.kube.node(&node.name).await.map_err(|e| unreachable(&e))?;
        let Some(fresh) = fresh else { return Err(Stop(Came::Stale)) };
        let id = target.entry.id();
        let record =
            |o: &crate::model::kube::Owner| o.entry == id && o.lease == self.fence.lease() && o.uid == fresh.uid;
        let cordoned = fresh.unschedulable || on(Mutation::UncordonUnseen);
        let ours = !target.drained || (cordoned && fresh.owner().is_some_and(record));
        let same = fresh.uid == node.uid && fresh.addresses.iter().any(|a| a == target.entry.address());
        if same && ours { Ok(Some(fresh)) } else { Err(Stop(Came::Stale)) }
    }

    /// A list made after the cordon shows no pod that has to leave, and the node no volume in use (I16).
    async fn still_empty(
        &self,
        guard: &Guard,
        decided: Duration,
        target: Target<'_>,
        node: Option<&NodeRow>,
        forced: bool,
    ) -> Result<Vec<PodRow>, Stop> {
        let Some(node) = node.filter(|_| target.drained) else { return Ok(Vec::new()) };
        let pods = self.kube.pods_on(&node.name).await.map_err(|e| unreachable(&e))?;
        let view = self.live.borrow();
        let Some(definition) = view.definition() else { return Err(Stop(Came::Stale)) };
        let kube = self.kube_live.borrow();
        let rules = definition.cluster.eviction(target.entry.queue());
        let left = pods.iter().find(|p| judge(p, rules, &kube) != PodVerdict::Ignore);
        let detached = node.volumes_in_use.is_empty() || on(Mutation::VolumesForgotten);
        if forced || (left.is_none() && detached) {
            self.permit(guard, decided)?;
            return Ok(pods);
        }
        let what = left.map_or_else(|| "volumes in use".to_owned(), PodRow::full_name);
        Err(Stop(Came::Failed(format!("node {} is not empty after all: {what}", node.name))))
    }

    /// Pods of DaemonSets with the `OnDelete` strategy, after everything else and at most once (I19): the entry is
    /// `rebooting` already, so that nothing brings this drain here again. One that cannot be deleted stays as it is.
    async fn delete_on_delete(&self, pods: &[PodRow], daemon_sets: &[String]) {
        let theirs = || {
            pods.iter().filter(|p| {
                p.terminating_since.is_none()
                    && p.controlled_by("DaemonSet").is_some_and(|owner| daemon_sets.contains(&owner.uid))
            })
        };
        let Some(first) = theirs().next() else { return };
        let Ok(permit) = self.permit(&Guard::default(), self.steady.now().boot) else { return };
        let (on, names) = (format!("node {}", first.node), named(theirs().map(PodRow::full_name)));
        let Ok(told) = self.tell(&permit, "delete pods of OnDelete", &on, Some(names)).await else { return };
        self.came_of(told, "asked".to_owned());
        for pod in theirs() {
            let Ok(permit) = self.permit(&Guard::default(), self.steady.now().boot) else { return };
            match self.kube.delete_pod(&permit, pod).await {
                Verdict::Accepted | Verdict::Gone | Verdict::Held { .. } => {
                    self.record("reboot-delete-daemonset-pod", &pod.node, "", self.steady.now().wall);
                }
                Verdict::Failed(why) | Verdict::Undecided { answer: why, .. } => {
                    tracing::warn!(pod = pod.full_name(), why, "the pod of an OnDelete DaemonSet was not deleted");
                    self.record("reboot-delete-daemonset-pod", &pod.node, &why, self.steady.now().wall);
                }
            }
        }
    }

    /// Runs the command of an attempt that is written already, and records how it ended. Right before the start etcd is
    /// asked whether the entry is still as it was: a cancel that came in between is honoured, shown or not (I27). So is
    /// what was decided from: after a lost reply the switch may be off, a freeze on, or the window over (I6, I8).
    async fn run_recorded(
        &self,
        guard: &Guard,
        (id, entry_revision): (EntryId, i64),
        attempt: Attempt,
        revision: i64,
    ) -> Result<Came, Stop> {
        let before = self.fence.start_before();
        if on(Mutation::SharedArguments)
            && let Ok(mut shared) = SHARED.lock()
        {
            shared.clone_from(&attempt.address);
        }
        let ended = if let Err(why) = self.last_look(guard, id, entry_revision).await {
            (Ended::Withheld(why), String::new(), String::new())
        } else {
            tracing::info!(entry = %id, attempt = attempt.id, argv = attempt.command(), "command starts");
            let (reason, action) = event(&attempt);
            let note = format!("{id}: {} runs, attempt {}", attempt.what(), attempt.number);
            self.say_on(&attempt.address, (reason, action), false, note);
            let mut argv = attempt.argv.clone();
            if on(Mutation::SharedArguments)
                && let (Ok(shared), Some(last)) = (SHARED.lock(), argv.last_mut())
            {
                last.clone_from(&shared);
            }
            let line = CommandLine {
                argv,
                bound: attempt.bound_seconds,
                purpose: Purpose::Power,
                start_before: Some(before).filter(|_| !on(Mutation::LateEffect)),
                entry: attempt.entry.to_string(),
                attempt: attempt.id.clone(),
                input: None,
            };
            self.spawner.run(&line).await
        };
        let outcome = outcome(self.steady.now().wall, ended);
        tracing::info!(entry = %id, attempt = attempt.id, end = %outcome.end, "command ended");
        if outcome.end.failed() {
            let said = outcome.stderr.trim_end().lines().last().map(|l| format!(": {l}")).unwrap_or_default();
            let note = format!("{id}: {}, attempt {}: {}{said}", attempt.what(), attempt.number, outcome.end);
            self.say_on(&attempt.address, ("CommandFailed", event(&attempt).1), true, note);
        }
        let error = if outcome.end == Ended::Exit(0) { String::new() } else { outcome.end.to_string() };
        let operation = if id.queue == QueueKind::Reboot { "reboot-reboot" } else { "repair-execute" };
        // A success command is part of `repair-finish`.
        if !attempt.success {
            self.record(operation, &attempt.address, &error, attempt.start);
        }
        let key = self.store.keys().attempt(attempt.entry, attempt.number);
        let recorded = Attempt { outcome: Some(outcome.clone()), ..attempt };
        // For as long as we lead: the transaction is fenced, so it needs no margin.
        while let Ok(permit) = self.fence.permit_record() {
            let change = Change {
                compares: vec![(key.clone(), revision)],
                puts: vec![Put::json(key.clone(), &recorded)],
                deletes: Vec::new(),
            };
            match self.store.commit(&permit, change).await {
                Ok(done) => {
                    self.shown(done).await?;
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
        Ok(Came::Lost)
    }

    /// Whether the command of an attempt that is written may still begin; else why not.
    async fn last_look(&self, guard: &Guard, id: EntryId, entry_revision: i64) -> Result<(), String> {
        match self.store.raw(&self.store.keys().entry(id)).await {
            Ok(Some(raw)) if raw.mod_revision == entry_revision => {}
            Ok(Some(_)) => return Err("the entry was changed meanwhile".to_owned()),
            Ok(None) => return Err("the entry is gone".to_owned()),
            Err(e) => return Err(format!("etcd does not say whether the entry is as it was: {e}")),
        }
        // the entry's own revision is that of the attempt's transaction by now
        let allowed = Guard { start: guard.start, until: guard.until, ..Guard::default() };
        match self.no_longer(&allowed) {
            Some(why) => Err(why),
            None => self.fence.permit(self.steady.now().boot).map(|_| ()).map_err(|no| no.to_string()),
        }
    }

    /// Asks a boot or health check.
    pub(super) async fn check(
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
            start_before: None,
            entry: entry.map_or_else(String::new, |e| e.to_string()),
            attempt: String::new(),
            input: None,
        };
        Ok(Came::Check(check_answer(self.spawner.run(&line).await)))
    }
}

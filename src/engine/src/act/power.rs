//! The power command: a fresh read, the attempt written first, the command, and its outcome (SAF-14 to SAF-18; I16,
//! I25, I26).

use std::{sync::Arc, time::Duration};

use cketerm_clients::{kubernetes::KubeError, store::commit::CommitError};
use cketerm_model::{
    any::QueueEntry,
    attempt::{Attempt, Ended},
    boot_time::BootTime,
    cketerm_records::{Audit, Order},
    drain::Verdict,
    entry::{EntryId, QueueKind, Stored},
    fault,
    kube::PodRow,
    names::NodeName,
    output::OutputTails,
    result::ResultLabel,
    stored::transaction::{Change, Put},
};
use cketerm_rules::{
    decide::Guard,
    snapshot::{EffectOutcome, FreshRead, StaleCause},
    transition::PreviousAttempts,
};
use tokio::sync::watch;

use super::{Actor, Stop, audit_intent::named};
use crate::command::{CommandLine, Purpose, check_answer, outcome};

pub(super) fn unreachable(e: &KubeError) -> Stop {
    Stop(EffectOutcome::Failed(e.to_string()))
}

/// Names of an attempt's command in records.
struct CommandNames {
    /// Name in the audit.
    audit: &'static str,
    /// Reason and action of the Kubernetes Event for its start.
    event: (&'static str, &'static str),
}

/// Returns the names of an attempt's command.
fn names(attempt: &Attempt) -> CommandNames {
    match attempt.entry.queue {
        QueueKind::Reboot => CommandNames { audit: Audit::REBOOT_COMMAND, event: ("RebootOrdered", "Reboot") },
        QueueKind::Repair if attempt.success => {
            CommandNames { audit: Audit::SUCCESS_COMMAND, event: ("RepairSuccessCommand", "Repair") }
        }
        QueueKind::Repair | QueueKind::Maintenance => {
            CommandNames { audit: Audit::REPAIR_COMMAND, event: ("RepairStep", "Repair") }
        }
    }
}

impl Actor {
    /// Reads the Node and its pods from the API server at the same time. The next pass judges the answers. The command
    /// must begin within TTL/12 of them (SAF-17).
    pub(super) async fn recheck(
        &self,
        guard: &Guard,
        decided: BootTime,
        node: &NodeName,
        pods: bool,
    ) -> Result<EffectOutcome, Stop> {
        self.permit(guard, decided)?;
        let pods = async {
            if !pods {
                return Ok(None);
            }
            let listed = self.kube.pods_on(node).await?;
            Ok(Some(listed.into_iter().map(Arc::new).collect()))
        };
        let (node, pods) = tokio::join!(self.kube.node(node), pods);
        let (node, pods) = (node.map_err(|e| unreachable(&e))?, pods.map_err(|e: KubeError| unreachable(&e))?);
        Ok(EffectOutcome::Rechecked(FreshRead { at: self.steady.now().boot, node: node.map(Arc::new), pods }))
    }

    /// Moves the entry to `rebooting` or `watching`. Writes the attempt in the same transaction, runs the command, and
    /// records its outcome. `fresh` is the read that the decision was made from.
    #[allow(clippy::too_many_arguments)] // each is a part of the effect
    pub(super) async fn power(
        &self,
        guard: &Guard,
        decided: BootTime,
        entry: &QueueEntry,
        fresh: Option<&FreshRead>,
        force: Option<&Stored<Order>>,
        on_delete: &[String],
        attempt: Attempt,
    ) -> Result<EffectOutcome, Stop> {
        let now = self.steady.now();
        let id = entry.id();
        let attempt = Attempt { start: now.wall, ..attempt };
        let view = self.live.borrow();
        let Some(mut change) = self.transition_at(&view, now.wall).command(guard, entry, force, &attempt) else {
            let why = "an operator put the entry on hold meanwhile".to_owned();
            return Err(Stop(EffectOutcome::Stale(StaleCause::Changed(why))));
        };
        if let Some(order) = force.and_then(Stored::get) {
            let why = order.reason.clone().unwrap_or_default();
            let reason = format!("pods and volumes skipped, ordered by {}: {why}", order.who);
            change.puts.push(self.audit(names(&attempt).audit, &id.to_string(), Some(reason), &attempt.command()));
        } else {
            change.puts.push(self.audit_again(names(&attempt).audit, id, None, &attempt.command()));
        }
        let permit = self.permit(guard, decided)?;
        let revision = self.commit(&permit, change).await?;
        let pods = fresh.and_then(|fresh| fresh.pods.as_deref()).unwrap_or_default();
        self.delete_on_delete_pods(pods, on_delete).await;
        self.run_recorded(guard, (id, revision), attempt, revision).await
    }

    /// Runs one more command for an entry that is already rebooting or watching, or a success command.
    pub(super) async fn run_again(
        &self,
        guard: &Guard,
        decided: BootTime,
        entry: &QueueEntry,
        previous: PreviousAttempts<'_>,
        order: Option<&Stored<Order>>,
        attempt: Attempt,
    ) -> Result<EffectOutcome, Stop> {
        let id = entry.id();
        let now = self.steady.now();
        let attempt = Attempt { start: now.wall, ..attempt };
        let view = self.live.borrow();
        let mut change = self.transition_at(&view, now.wall).command_again(guard, entry, previous, order, &attempt);
        let (by, command) = (attempt.ordered_by.clone(), attempt.command());
        if order.is_some() {
            // An operator's order has an audit record of its own.
            change.puts.push(self.audit(names(&attempt).audit, &id.to_string(), by, &command));
        } else {
            change.puts.push(self.audit_again(names(&attempt).audit, id, by, &command));
        }
        let permit = self.permit(guard, decided)?;
        let revision = self.commit(&permit, change).await?;
        let entry_revision = match guard.entry {
            Some((_, unchanged)) if order.is_none() => unchanged,
            _ => revision,
        };
        self.run_recorded(guard, (id, entry_revision), attempt, revision).await
    }

    /// Deletes the pods of DaemonSets with the `OnDelete` strategy, after everything else and at most once (I19). The
    /// entry is `rebooting` already, so this drain does not come here again. A pod that cannot be deleted stays.
    async fn delete_on_delete_pods(&self, pods: &[Arc<PodRow>], daemon_sets: &[String]) {
        let on_delete_pods = || {
            pods.iter().filter(|p| {
                p.terminating_since.is_none()
                    && p.controlled_by("DaemonSet").is_some_and(|owner| daemon_sets.contains(&owner.uid))
            })
        };
        let Some(first) = on_delete_pods().next() else { return };
        let Ok(permit) = self.permit(&Guard::default(), self.steady.now().boot) else { return };
        let (on, names) = (format!("node {}", first.node), named(on_delete_pods().map(|pod| pod.full_name())));
        let Ok(intent) = self.record_intent(&permit, "delete pods of OnDelete", &on, Some(names)).await else { return };
        self.record_outcome(intent, Ok("requested".to_owned()));
        for pod in on_delete_pods() {
            // These records name the Node.
            let Ok(permit) = self.permit(&Guard::default(), self.steady.now().boot) else { return };
            match self.kube.delete_pod(&permit, pod).await {
                Verdict::Accepted | Verdict::Gone | Verdict::Held { .. } => {
                    self.write_cke_record("reboot-delete-daemonset-pod", &pod.node, "", self.steady.now().wall);
                }
                Verdict::Failed(why) | Verdict::Undecided { answer: why, .. } => {
                    tracing::warn!(pod = pod.full_name(), why, "the pod of an OnDelete DaemonSet was not deleted");
                    self.write_cke_record("reboot-delete-daemonset-pod", &pod.node, &why, self.steady.now().wall);
                }
            }
        }
    }

    /// Runs the command of an attempt that is already written, and records its outcome. Right before the start it reads
    /// the entry from etcd. A cancel that came in between is honoured, whether the live copy shows it or not (I27). The
    /// other inputs are checked again too: after a lost reply the switch may be off, a freeze on, or the window over
    /// (I6, I8; SAF-18).
    async fn run_recorded(
        &self,
        guard: &Guard,
        (id, entry_revision): (EntryId, i64),
        attempt: Attempt,
        revision: i64,
    ) -> Result<EffectOutcome, Stop> {
        let start_before = Some(self.fence.start_before());
        fault!(LateEffect => start_before = None);
        let printed = watch::Sender::new(OutputTails::default());
        let ended = if let Err(why) = self.final_check(guard, id, entry_revision).await {
            (Ended::Withheld(why), String::new(), String::new())
        } else {
            tracing::info!(entry = %id, attempt = attempt.id, argv = attempt.command(), "command started");
            let (reason, action) = names(&attempt).event;
            let note = format!("{id}: {} started, attempt {}", attempt.what(), attempt.number);
            self.record_event_on(&attempt.address, (reason, action), false, note);
            let argv = attempt.argv.clone();
            fault!(SharedArguments => argv = {
                // The address of the attempt that was written last.
                let view = self.live.borrow();
                let open = view.attempts.values().filter(|stored| stored.get().is_some_and(Attempt::open));
                let last = open.max_by_key(|stored| stored.mod_revision).and_then(Stored::get).unwrap_or(&attempt);
                [&argv[..argv.len() - 1], &[last.address.to_string()]].concat()
            });
            let line = CommandLine {
                argv,
                bound: attempt.bound_seconds,
                purpose: Purpose::Power,
                start_before,
                entry: attempt.entry.to_string(),
                attempt: attempt.id.clone(),
                input: None,
                label: self.label(&attempt),
                output: Some(printed.clone()),
            };
            // The command's end wins, whatever a write to etcd waits for.
            tokio::select! {
                biased;
                ended = self.spawner.run(&line) => ended,
                never = self.publish_output(&attempt, revision, printed.subscribe()) => never,
            }
        };
        let printed = printed.borrow().clone();
        let outcome = outcome(self.steady.now().wall, ended);
        tracing::info!(entry = %id, attempt = attempt.id, end = %outcome.end, "command ended");
        if outcome.end.failed() {
            let last_line = outcome.stderr.trim_end().lines().last().map(|l| format!(": {l}")).unwrap_or_default();
            let note = format!("{id}: {}, attempt {}: {}{last_line}", attempt.what(), attempt.number, outcome.end);
            self.record_event_on(&attempt.address, ("CommandFailed", names(&attempt).event.1), true, note);
        }
        let error = if outcome.end == Ended::Exit(0) { String::new() } else { outcome.end.to_string() };
        let operation = if id.queue == QueueKind::Reboot { "reboot-reboot" } else { "repair-execute" };
        // A success command is part of `repair-finish`.
        if !attempt.success {
            self.write_cke_record(operation, &attempt.address, &error, attempt.start);
        }
        let key = self.store.keys().attempt(attempt.entry, attempt.number);
        let mut recorded = Attempt { outcome: Some(outcome.clone()), ..attempt };
        // Retried as long as this engine leads. The transaction is fenced, so it needs no margin of the lease.
        while let Ok(permit) = self.fence.permit_record() {
            let change = Change {
                compares: vec![(key.clone(), revision)],
                puts: vec![Put::json(key.clone(), &recorded)],
                deletes: self.output_keys(&recorded, &printed),
            };
            match self.store.commit(&permit, change).await {
                Ok(done) => {
                    self.forget_result(&recorded);
                    self.shown(done).await?;
                    return Ok(EffectOutcome::Command(outcome));
                }
                Err(CommitError::LostLeadership) => return Ok(EffectOutcome::Lost),
                // Another writer settled the attempt, or an earlier try of this write went through.
                Err(CommitError::Conflict { .. }) => {
                    self.forget_result(&recorded);
                    self.forget_output(&recorded, &printed).await;
                    return Ok(EffectOutcome::Command(outcome));
                }
                Err(e) => {
                    tracing::warn!(attempt = recorded.id, error = %e, "command outcome not recorded yet");
                    if let CommitError::TooLarge(size) = &e
                        && let Some(smaller) = outcome.without_outputs(&size.to_string())
                    {
                        recorded.outcome = Some(smaller);
                    }
                    tokio::time::sleep(Duration::from_secs(1)).await;
                }
            }
        }
        Ok(EffectOutcome::Lost)
    }

    /// Returns the label under which the command's result is stored until its outcome is recorded.
    fn label(&self, attempt: &Attempt) -> Option<ResultLabel> {
        let view = self.live.borrow();
        let identity = view.identity.as_ref().and_then(Stored::get)?;
        Some(attempt.label(&identity.uid))
    }

    fn forget_result(&self, attempt: &Attempt) {
        if let Some(label) = self.label(attempt) {
            self.spawner.forget_result(&label);
        }
    }

    /// Reports whether the command of a written attempt may still begin, or the reason why not.
    pub(super) async fn final_check(&self, guard: &Guard, id: EntryId, entry_revision: i64) -> Result<(), String> {
        match self.store.raw(&self.store.keys().entry(id)).await {
            Ok(Some(raw)) if raw.mod_revision == entry_revision => {}
            Ok(Some(_)) => return Err("the entry has changed meanwhile".to_owned()),
            Ok(None) => return Err("the entry is gone".to_owned()),
            Err(e) => return Err(format!("etcd cannot confirm that the entry is unchanged: {e}")),
        }
        // The entry's own revision is by now that of the attempt's transaction, so it is not compared here.
        let quorum = guard.quorum.clone();
        let allowed = Guard { start: guard.start, until: guard.until, quorum, ..Guard::default() };
        match self.start_blocker(&allowed) {
            Some(why) => Err(why),
            None => self.fence.permit(self.steady.now().boot).map(|_| ()).map_err(|no| no.to_string()),
        }
    }

    /// Runs a boot or health check.
    pub(super) async fn check(
        &self,
        guard: &Guard,
        entry: Option<EntryId>,
        argv: Vec<String>,
        bound: u64,
    ) -> Result<EffectOutcome, Stop> {
        self.permit(guard, self.steady.now().boot)?;
        let line = CommandLine {
            argv,
            bound,
            purpose: Purpose::Check,
            start_before: None,
            entry: entry.map_or_else(String::new, |e| e.to_string()),
            attempt: String::new(),
            input: None,
            label: None,
            output: None,
        };
        Ok(EffectOutcome::Check(check_answer(self.spawner.run(&line).await)))
    }
}

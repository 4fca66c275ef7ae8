//! Hooks of the site: the record first, then the command or the request, then the outcome (I38, I64).

use std::time::Duration;

use cketerm_clients::{notices::post_to, store::commit::CommitError};
use cketerm_model::{
    attempt::Ended,
    boot_time::BootTime,
    cketerm_records::{Ending, Order, Verb},
    entry::{EntryId, Stored},
    entry_ref::EntryRef,
    hook::{Hook, HookAction, HookRequest},
    hook_runs::{HookEnd, HookOutcome, HookPoint, HookRun, HookRuns},
    secret,
    stored::transaction::{Change, Put},
    text::tail,
};
use cketerm_rules::{decide::Guard, snapshot::EffectOutcome};

use super::{Actor, Stop};
use crate::command::{CommandLine, Purpose};

/// Number of bytes kept of a hook's output or answer.
const KEPT: usize = 1024;

/// Time between two looks at whether a running hook is still wanted.
const LOOK_AGAIN: Duration = Duration::from_millis(500);

impl Actor {
    /// Writes the record of a run, runs the hook, and records its outcome. A hook that nobody wants any more is stopped.
    pub(super) async fn run_hook(
        &self,
        guard: &Guard,
        decided: BootTime,
        id: EntryId,
        stored: &Stored<HookRuns>,
        (hook, run): (&Hook, HookRun),
        order: Option<&Stored<Order>>,
    ) -> Result<EffectOutcome, Stop> {
        let Some(record) = stored.get() else { return Ok(EffectOutcome::Done) };
        let run = HookRun { start: self.steady.now().wall.max(run.start), ..run };
        let begun = record.with(&run);
        let mut compares = self.compares(guard);
        compares.push((stored.key.clone(), stored.mod_revision));
        let what = format!("hook {}", hook.name);
        let audit = self.audit_again(&what, id, Some(run.at.to_string()), &run.target);
        let puts = vec![Put::json(stored.key.clone(), &begun), audit];
        let mut change = Change { compares, puts, deletes: Vec::new() };
        if let Some(order) = order {
            change.compares.push((order.key.clone(), order.mod_revision));
            change.deletes.push(order.key.clone());
        }
        let permit = self.permit(guard, decided)?;
        let revision = self.commit(&permit, change).await?;
        let name = hook.name.as_str();
        let start_before = self.fence.start_before();
        let (end, output) = if let Err(why) = self.hook_check(guard, id).await {
            (HookEnd::Command(Ended::Withheld(why)), String::new())
        } else {
            tracing::info!(entry = %id, hook = name, at = %run.at, tries = run.tries, "hook started");
            tokio::select! {
                biased;
                ended = self.carry_out(id, record, hook, &run, start_before) => ended,
                why = self.unwanted(guard, id, hook) => (HookEnd::Command(Ended::Unknown(why)), String::new()),
            }
        };
        let outcome = HookOutcome { end, at: self.steady.now().wall.max(run.start), output };
        tracing::info!(entry = %id, hook = name, end = %outcome.end, "hook ended");
        if !outcome.end.succeeded() && !outcome.end.is_void() {
            let note = format!("{id}: hook {name} failed {}: {}", run.at, outcome.end);
            self.record_event_on(&record.address, ("HookFailed", "Hook"), true, note);
        }
        let result = format!("{}: {}", run.target, outcome.end);
        let failed = !outcome.end.succeeded();
        let ended = begun.with(&HookRun { outcome: Some(outcome), ..run });
        self.record_hook(stored, revision, &ended, self.audited_end(&what, id, result, failed)).await
    }

    /// Records the outcome of a run. Retried as long as this engine leads, as for commands.
    async fn record_hook(
        &self,
        stored: &Stored<HookRuns>,
        revision: i64,
        ended: &HookRuns,
        audit: Option<Put>,
    ) -> Result<EffectOutcome, Stop> {
        while let Ok(permit) = self.fence.permit_record() {
            let change = Change {
                compares: vec![(stored.key.clone(), revision)],
                puts: [Put::json(stored.key.clone(), ended)].into_iter().chain(audit.clone()).collect(),
                deletes: Vec::new(),
            };
            match self.store.commit(&permit, change).await {
                Ok(done) => {
                    self.shown(done).await?;
                    return Ok(EffectOutcome::Done);
                }
                Err(CommitError::LostLeadership) => return Ok(EffectOutcome::Lost),
                // An earlier try of this write went through, or somebody removed the record. The next pass has to see it.
                Err(CommitError::Conflict { .. }) => {
                    if let Ok(now) = self.store.current_revision().await {
                        self.shown(now).await?;
                    }
                    return Ok(EffectOutcome::Done);
                }
                Err(e) => {
                    tracing::warn!(key = stored.key, error = %e, "hook outcome not recorded yet");
                    tokio::time::sleep(Duration::from_secs(1)).await;
                }
            }
        }
        Ok(EffectOutcome::Lost)
    }

    /// Reports whether a recorded hook may still begin: the entry that it is for is unchanged in etcd, so no cancel came
    /// in between.
    async fn hook_check(&self, guard: &Guard, id: EntryId) -> Result<(), String> {
        match guard.entry {
            Some((_, revision)) => self.final_check(guard, id, revision).await,
            None => self.fence.permit(self.steady.now().boot).map(|_| ()).map_err(|no| no.to_string()),
        }
    }

    /// Returns once nobody wants the running hook any more, with the reason: its entry has changed, an operator ordered
    /// otherwise, the policy no longer has it, or this engine shuts down.
    async fn unwanted(&self, guard: &Guard, id: EntryId, hook: &Hook) -> String {
        loop {
            tokio::time::sleep(LOOK_AGAIN).await;
            // The members of etcd matter for a start only.
            if let Some(why) = self.start_blocker(&Guard { quorum: None, ..guard.clone() }) {
                return why;
            }
            let view = self.live.borrow();
            if !view.policy().hooks.iter().any(|other| other == hook) {
                return "the policy no longer has the hook".to_owned();
            }
            let ends = |verb| match hook.at {
                HookPoint::BeforeDrain | HookPoint::AfterDrain => verb == Verb::Hold,
                HookPoint::BeforeUncordon => matches!(verb, Verb::Done | Verb::Uncordon),
                HookPoint::AfterUncordon => false,
            };
            if let Some(order) = view.orders.get(&id).and_then(Stored::get).filter(|order| ends(order.verb)) {
                return format!("{} ordered {}", order.who, order.verb);
            }
        }
    }

    /// Runs the command or sends the request. Returns the end, and the output without secrets.
    async fn carry_out(
        &self,
        id: EntryId,
        record: &HookRuns,
        hook: &Hook,
        run: &HookRun,
        start_before: BootTime,
    ) -> (HookEnd, String) {
        let entry = id.to_string();
        let cluster = self.live.borrow().definition().map_or_else(String::new, |d| d.cluster.name.clone());
        let request = HookRequest {
            hook: &hook.name,
            at: hook.at.as_str(),
            tries: run.tries,
            entry: entry.clone(),
            cluster: &cluster,
            node: record.node.as_str(),
            address: record.address.as_str(),
        };
        let body = serde_json::to_string(&request).unwrap_or_default();
        match &hook.action {
            HookAction::Command(argv) => {
                let line = CommandLine {
                    argv: argv.iter().cloned().chain([record.address.to_string()]).collect(),
                    bound: run.bound_seconds,
                    // It ends with the engine; the next leader runs it again.
                    purpose: Purpose::Check,
                    start_before: Some(start_before),
                    entry,
                    attempt: run.id(id),
                    input: Some(body),
                    label: None,
                    output: None,
                };
                let (end, stdout, stderr) = self.spawner.run(&line).await;
                let outputs = [stdout.trim(), stderr.trim()].into_iter().filter(|text| !text.is_empty());
                let output = outputs.collect::<Vec<_>>().join("\n");
                (HookEnd::Command(end), tail(secret::masked(&output).as_bytes(), KEPT))
            }
            HookAction::Post { url, header_file } => {
                let limit = Duration::from_secs(run.bound_seconds);
                let request = match post_to(url, header_file.as_deref(), &body) {
                    Ok(request) => request,
                    Err(why) => return (HookEnd::NoAnswer(why), String::new()),
                };
                // After a pause of this process, another leader may have sent it.
                if self.steady.now().boot >= start_before {
                    let why = "its start deadline had passed".to_owned();
                    return (HookEnd::Command(Ended::Withheld(why)), String::new());
                }
                match tokio::time::timeout(limit, self.webhooks.send(request)).await {
                    Ok(Ok(answer)) => {
                        let beginning = secret::beginning(answer.body().trim_ascii(), KEPT);
                        (HookEnd::Status(answer.status().as_u16()), beginning)
                    }
                    Ok(Err(e)) => (HookEnd::NoAnswer(e.to_string()), String::new()),
                    Err(_) => (HookEnd::NoAnswer(format!("none in {} s", limit.as_secs())), String::new()),
                }
            }
        }
    }

    /// Deletes the record of an entry's hooks. If the entry has ended, its history gets them.
    pub(super) async fn end_hooks(
        &self,
        decided: BootTime,
        id: EntryId,
        stored: &Stored<HookRuns>,
    ) -> Result<EffectOutcome, Stop> {
        let keys = self.store.keys();
        // A finished repair stays in its queue, and has its history already.
        let ended = {
            let view = self.live.borrow();
            view.entry(id).map_or_else(|| !view.has_entry(id), EntryRef::finished)
        };
        let runs = stored.get().map(|record| record.runs.clone()).unwrap_or_default();
        let mut change = Change {
            compares: vec![(stored.key.clone(), stored.mod_revision)],
            puts: Vec::new(),
            deletes: vec![stored.key.clone()],
        };
        if ended && !runs.is_empty() {
            let before = self.store.raw(&keys.history_of(id)).await;
            let before = before.map_err(|e| Stop(EffectOutcome::Failed(e.to_string())))?;
            if let Some(raw) = before
                && let Ok(mut ending) = serde_json::from_str::<Ending>(&raw.text)
            {
                ending.hooks = runs;
                change.compares.push((keys.history_of(id), raw.mod_revision));
                change.puts.push(Put::json(keys.history_of(id), &ending.bounded()));
            }
        }
        let permit = self.permit(&Guard::default(), decided)?;
        self.commit(&permit, change).await?;
        Ok(EffectOutcome::Done)
    }
}

//! Hooks of the site: the record first, then the command or the request, then the outcome (I38, I62).

use std::time::Duration;

use cketerm_clients::{
    notices::{Channel, SecretUrl, UrlSource, post_request},
    store::commit::CommitError,
};
use cketerm_model::{
    attempt::Ended,
    boot_time::BootTime,
    cketerm_records::Ending,
    entry::{EntryId, Stored},
    hook::{Hook, HookAction, HookRequest},
    hook_runs::{HookEnd, HookOutcome, HookRun, HookRuns},
    secret,
    stored::transaction::{Change, Put},
    text::tail,
};
use cketerm_rules::{decide::Guard, snapshot::EffectOutcome};

use super::{Actor, Stop};
use crate::command::{CommandLine, Purpose};

/// Number of bytes kept of a hook's output or answer.
const KEPT: usize = 1024;

impl Actor {
    /// Writes the record of a run, runs the hook, and records its outcome.
    pub(super) async fn run_hook(
        &self,
        guard: &Guard,
        decided: BootTime,
        id: EntryId,
        stored: &Stored<HookRuns>,
        hook: &Hook,
        run: HookRun,
    ) -> Result<EffectOutcome, Stop> {
        let Some(record) = stored.get() else { return Ok(EffectOutcome::Done) };
        let run = HookRun { start: self.steady.now().wall, ..run };
        let begun = record.with(run.clone());
        let mut compares = self.compares(guard);
        compares.push((stored.key.clone(), stored.mod_revision));
        let audit = self.audit_again(&format!("hook {}", hook.name), id, Some(run.at.to_string()), &run.target);
        let change = Change { compares, puts: vec![Put::json(stored.key.clone(), &begun), audit], deletes: Vec::new() };
        let permit = self.permit(guard, decided)?;
        let revision = self.commit(&permit, change).await?;
        let name = hook.name.as_str();
        let end = match self.hook_check(guard, id).await {
            Err(why) => (HookEnd::Command(Ended::Withheld(why)), String::new()),
            Ok(()) => {
                tracing::info!(entry = %id, hook = name, at = %run.at, tries = run.tries, "hook started");
                self.carry_out(id, record, hook, &run).await
            }
        };
        let outcome = HookOutcome { end: end.0, at: self.steady.now().wall, output: end.1 };
        tracing::info!(entry = %id, hook = name, end = %outcome.end, "hook ended");
        if !outcome.end.succeeded() && !outcome.end.withheld() {
            let note = format!("{id}: hook {name} failed {}: {}", run.at, outcome.end);
            self.record_event_on(&record.address, ("HookFailed", "Hook"), true, note);
        }
        let ended = begun.with(HookRun { outcome: Some(outcome), ..run });
        // Retried as long as this engine leads, as for commands.
        while let Ok(permit) = self.fence.permit_record() {
            let change = Change {
                compares: vec![(stored.key.clone(), revision)],
                puts: vec![Put::json(stored.key.clone(), &ended)],
                deletes: Vec::new(),
            };
            match self.store.commit(&permit, change).await {
                Ok(done) => {
                    self.shown(done).await?;
                    return Ok(EffectOutcome::Done);
                }
                Err(CommitError::LostLeadership) => return Ok(EffectOutcome::Lost),
                // An earlier try of this write went through, or somebody removed the record.
                Err(CommitError::Conflict { .. }) => return Ok(EffectOutcome::Done),
                Err(e) => {
                    tracing::warn!(entry = %id, hook = name, error = %e, "hook outcome not recorded yet");
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

    /// Runs the command or sends the request. Returns the end, and the output without secrets.
    async fn carry_out(&self, id: EntryId, record: &HookRuns, hook: &Hook, run: &HookRun) -> (HookEnd, String) {
        let entry = id.to_string();
        let request = HookRequest {
            hook: &hook.name,
            at: hook.at.as_str(),
            tries: run.tries,
            entry: entry.clone(),
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
                    start_before: Some(self.fence.start_before()),
                    entry,
                    attempt: run.id(id),
                    input: Some(body),
                    label: None,
                    output: None,
                };
                let (end, stdout, stderr) = self.spawner.run(&line).await;
                let output = if stderr.trim().is_empty() { stdout } else { stderr };
                (HookEnd::Command(end), tail(secret::masked(output.trim()).as_bytes(), KEPT))
            }
            HookAction::Post { url, header_file } => {
                let limit = Duration::from_secs(run.bound_seconds);
                match self.post(url, header_file.as_deref(), &body, limit).await {
                    Ok((status, answer)) => (HookEnd::Status(status), answer),
                    Err(why) => (HookEnd::NoAnswer(why), String::new()),
                }
            }
        }
    }

    /// Sends a POST. Returns the HTTP status and the beginning of the answer. Redirects are not followed.
    async fn post(
        &self,
        url: &str,
        header_file: Option<&str>,
        body: &str,
        limit: Duration,
    ) -> Result<(u16, String), String> {
        let url = UrlSource::Inline(SecretUrl::parse(url).map_err(|why| format!("the URL {why}"))?);
        let channel = Channel::Webhook { url, headers: header_file.map(Into::into) };
        let request = post_request(&channel, body)?.ok_or_else(|| "not a webhook".to_owned())?;
        match tokio::time::timeout(limit, self.webhooks.send(request)).await {
            Ok(Ok(answer)) => Ok((answer.status().as_u16(), secret::beginning(answer.body().trim_ascii(), KEPT))),
            Ok(Err(e)) => Err(e.to_string()),
            Err(_) => Err(format!("none in {} s", limit.as_secs())),
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
        let ended = !self.live.borrow().has_entry(id);
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

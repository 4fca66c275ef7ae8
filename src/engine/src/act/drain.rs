//! Steps of a drain on Kubernetes: cordon, preview, evict, release, endpoints.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use cketerm_clients::kubernetes::{ObjectEvent, Release, WriteError};
use cketerm_model::{
    boot_time::BootTime,
    drain::{Answer, EvictionAdmission, Verdict},
    entry::EntryId,
    kube::{BudgetRow, EndpointsRow, NodeRow, Owner, PodRow},
    names::Address,
};
use cketerm_rules::{
    decide::{Budgeted, Guard, dry_runs, preview_result, saves_dry_runs},
    snapshot::{EffectOutcome, StaleCause},
};
use futures::{StreamExt, stream};

use super::{
    Actor, SHOWN_WITHIN, Stop,
    audit_intent::{AuditIntent, named, write_result},
    pod_events::SentRequests,
};

/// Number of pods of one Node that are deleted at once.
const DELETIONS_AT_ONCE: usize = 16;

impl Actor {
    /// Cordons the Node, or writes the owner annotation again: one patch, conditioned on `resourceVersion` (I9).
    pub(super) async fn stamp(
        &self,
        guard: &Guard,
        decided: BootTime,
        node: &NodeRow,
        owner: &Owner,
        cordon: bool,
        mark: bool,
    ) -> Result<EffectOutcome, Stop> {
        let what = if cordon { "cordon" } else { "stamp" };
        let permit = self.permit(guard, decided)?;
        let (on, why) = (format!("node {}", node.name), format!("for {}", owner.entry));
        let intent = self.record_intent_for(&permit, Some(owner.entry), (what, &on), Some(why)).await?;
        let permit = self.permit(guard, decided)?;
        let written = self.kube.stamp(&permit, node, owner, cordon, mark).await;
        self.node_written(node, written, what, intent, Some(owner.entry)).await
    }

    /// Removes cketerm's annotations, and uncordons the Node if the cordon is cketerm's. Then settles the attempts that
    /// the entry left.
    pub(super) async fn release(
        &self,
        decided: BootTime,
        node: &NodeRow,
        uncordon: bool,
        drop_keep: bool,
        settle: Option<EntryId>,
    ) -> Result<EffectOutcome, Stop> {
        let what = if uncordon { "uncordon" } else { "release" };
        let permit = self.permit(&Guard::default(), decided)?;
        let after = settle.map(|entry| format!("after {entry}"));
        let intent = self.record_intent_for(&permit, settle, (what, &format!("node {}", node.name)), after).await?;
        let permit = self.permit(&Guard::default(), decided)?;
        let written = self.kube.release(&permit, node, Release { uncordon, drop_keep }).await;
        let outcome = self.node_written(node, written, what, intent, node.owner().map(|o| o.entry)).await?;
        if outcome == EffectOutcome::Done && uncordon {
            let named = || Address::new(node.name.as_str());
            let address = node.addresses.first().cloned().unwrap_or_else(named);
            self.write_cke_record("reboot-uncordon", &address, "", self.steady.now().wall);
            let after = settle.map(|entry| format!(" after {entry}")).unwrap_or_default();
            self.events.emit(ObjectEvent::on(node, ("Uncordoned", "Uncordon"), format!("uncordoned{after}")));
        }
        match (settle, &outcome) {
            (Some(entry), EffectOutcome::Done) => self.settle(self.steady.now().boot, entry).await,
            _ => Ok(outcome),
        }
    }

    /// Removes the taint of a Node that cketerm took out of service, and its record. The patch fails if the Node has
    /// changed since it was seen with another boot.
    pub(super) async fn return_to_service(&self, decided: BootTime, node: &NodeRow) -> Result<EffectOutcome, Stop> {
        let permit = self.permit(&Guard::default(), decided)?;
        let why = Some(format!("boot {}", node.boot_id));
        let intent = self.record_intent(&permit, "return to service", &format!("node {}", node.name), why).await?;
        let permit = self.permit(&Guard::default(), decided)?;
        let written = self.kube.describe(&permit, node, &node.return_to_service()).await;
        let outcome = self.node_written(node, written, "return to service", intent, None).await?;
        if outcome == EffectOutcome::Done {
            let text = "it has booted again: the taint node.kubernetes.io/out-of-service is removed".to_owned();
            self.events.emit(ObjectEvent::on(node, ("ReturnedToService", "ReturnToService"), text));
        }
        Ok(outcome)
    }

    /// Completes the audit record of a patch, and waits until the live copy shows it.
    pub(super) async fn node_written(
        &self,
        before: &NodeRow,
        written: Result<NodeRow, WriteError>,
        what: &str,
        intent: AuditIntent,
        of: Option<EntryId>,
    ) -> Result<EffectOutcome, Stop> {
        self.record_outcome(intent, write_result(&written));
        match written {
            Ok(_) => {
                let entry = of.map(|of| of.to_string());
                tracing::info!(entry, node = before.name.as_str(), "{what}");
                let changed = |view: &Arc<cketerm_model::kube::KubeView>| {
                    view.nodes.get(&before.name).is_none_or(|n| n.resource_version != before.resource_version)
                };
                self.kube_live.wait_for_view(SHOWN_WITHIN, changed).await;
                Ok(EffectOutcome::Done)
            }
            Err(WriteError::Conflict | WriteError::NotFound) => {
                Ok(EffectOutcome::Stale(StaleCause::Object(format!("node {}", before.name))))
            }
            Err(e) => Ok(EffectOutcome::Failed(format!("{what} of node {}: {e}", before.name))),
        }
    }

    /// Sends evictions as dry runs to learn their answers (I15).
    pub(super) async fn preview(
        &self,
        guard: &Guard,
        decided: BootTime,
        machine: &str,
        pods: Vec<Budgeted>,
        unprotected: &BTreeSet<String>,
    ) -> Result<EffectOutcome, Stop> {
        let admission =
            if saves_dry_runs(&pods) { self.eviction_admission().await } else { EvictionAdmission::EachPod };
        let asked = dry_runs(&pods, unprotected, admission);
        let mut answers = self.send_evictions(guard, decided, &asked, true).await?;
        self.attach_causes(&pods, unprotected, &mut answers).await;
        let entry = guard.entry.map(|(id, _)| id);
        let of = pods.iter().map(|(pod, _)| pod.as_ref());
        self.record_pod_events(entry, SentRequests::Evictions { dry_run: true }, unprotected, of, &answers);
        let preview = preview_result(&pods, unprotected, admission, &answers);
        Ok(EffectOutcome::Previewed(self.with_landing_check(preview, machine, unprotected).await))
    }

    /// Sends all evictions and deletions together; returns once all have answered.
    pub(super) async fn evict(
        &self,
        guard: &Guard,
        decided: BootTime,
        machine: &str,
        evict: Vec<Budgeted>,
        delete: Vec<Arc<PodRow>>,
        unprotected: &BTreeSet<String>,
    ) -> Result<EffectOutcome, Stop> {
        let permit = self.permit(guard, decided)?;
        let evicted = evict.iter().map(|(pod, _)| pod.full_name());
        let pods = named(evicted.chain(delete.iter().map(|pod| format!("{} (deleted)", pod.full_name()))));
        let (on, entry) = (format!("node {machine}"), guard.entry.map(|(id, _)| id));
        let intent = self.record_intent_for(&permit, entry, ("evict", &on), Some(pods)).await?;
        let deletions = async {
            let each = delete.iter().map(|pod| async move {
                let permit = self.permit(guard, decided)?;
                Ok::<_, Stop>((pod.uid.clone(), self.answer_of(self.kube.delete_pod(&permit, pod).await, &[])))
            });
            // collected first: a stream of borrowing closures is not `Send`
            let each: Vec<_> = each.collect();
            stream::iter(each).buffer_unordered(DELETIONS_AT_ONCE).collect::<Vec<_>>().await
        };
        let (evicted, deleted) = futures::join!(self.send_evictions(guard, decided, &evict, false), deletions);
        let mut answers = match evicted {
            Ok(answers) => answers,
            // Nothing was sent.
            Err(stop) if delete.is_empty() => {
                self.record_outcome(intent, Err("nothing was sent".to_owned()));
                return Err(stop);
            }
            Err(_) => BTreeMap::new(),
        };
        self.attach_causes(&evict, unprotected, &mut answers).await;
        let evicted = evict.iter().map(|(pod, _)| pod.as_ref());
        self.record_pod_events(entry, SentRequests::Evictions { dry_run: false }, unprotected, evicted, &answers);
        answers.extend(deleted.into_iter().filter_map(Result::ok));
        let of = delete.iter().map(AsRef::as_ref);
        self.record_pod_events(entry, SentRequests::Deletions, unprotected, of, &answers);
        let accepted = answers.values().filter(|a| a.verdict.accepts() || a.verdict == Verdict::Gone).count();
        self.record_outcome(intent, Ok(format!("{accepted} of {} accepted", answers.len())));
        Ok(EffectOutcome::Answers(answers))
    }

    /// Sends one eviction for each pod, as many at once as the pace allows. A pod that the live copy no longer shows with
    /// this UID is left out: an eviction with a wrong UID still uses up the budget (REB-29, I17).
    async fn send_evictions(
        &self,
        guard: &Guard,
        decided: BootTime,
        pods: &[Budgeted],
        dry_run: bool,
    ) -> Result<BTreeMap<String, Answer>, Stop> {
        let still_exists = |pod: &PodRow| {
            let view = self.kube_live.borrow();
            view.pods.get(&pod.node).is_some_and(|on| on.pods.contains_key(&pod.uid))
        };
        let each = pods.iter().map(|(pod, budgets)| async move {
            let turn = self.eviction_pace.turn().await;
            if !still_exists(pod) {
                return Ok(None);
            }
            let permit = self.permit(guard, decided)?;
            let named: Vec<&BudgetRow> = budgets.iter().map(AsRef::as_ref).collect();
            let request = self.kube.evict(&permit, pod, &named, dry_run);
            let verdict = turn.send(|| self.steady.now().boot, request).await;
            Ok::<_, Stop>(Some((pod.uid.clone(), self.answer_of(verdict, budgets))))
        });
        let mut answers = BTreeMap::new();
        let mut stopped = None;
        for result in futures::future::join_all(each).await {
            match result {
                Ok(answer) => answers.extend(answer),
                Err(stop) => stopped = Some(stop),
            }
        }
        match stopped {
            Some(stop) if answers.is_empty() => Err(stop),
            _ => Ok(answers),
        }
    }

    fn answer_of(&self, verdict: Verdict, budgets: &[Arc<BudgetRow>]) -> Answer {
        Answer {
            verdict,
            at: self.steady.now().boot,
            budgets: budgets.iter().map(|b| (b.full_name(), b.resource_version.clone())).collect(),
            undecided: 0,
        }
    }

    pub(super) async fn set_endpoints(
        &self,
        decided: BootTime,
        row: &EndpointsRow,
        addresses: &[Address],
    ) -> Result<EffectOutcome, Stop> {
        let name = format!("{} {}/{}", row.kind, row.namespace, row.name);
        let permit = self.permit(&Guard::default(), decided)?;
        let intent = self.record_intent(&permit, "endpoints", &name, Some(addresses.join(", "))).await?;
        let permit = self.permit(&Guard::default(), decided)?;
        let written = self.kube.set_endpoints(&permit, row, addresses).await;
        self.record_outcome(intent, write_result(&written));
        match written {
            Ok(()) => {
                tracing::info!(name, addresses = addresses.join(","), "endpoints set");
                let changed = |view: &Arc<cketerm_model::kube::KubeView>| !view.endpoints.contains(row);
                self.kube_live.wait_for_view(SHOWN_WITHIN, changed).await;
                Ok(EffectOutcome::Done)
            }
            Err(WriteError::Conflict | WriteError::NotFound) => Ok(EffectOutcome::Stale(StaleCause::Object(name))),
            Err(e) => Ok(EffectOutcome::Failed(format!("{name}: {e}"))),
        }
    }
}

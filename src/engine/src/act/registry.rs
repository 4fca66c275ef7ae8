//! Writes of the registry module: the generated definition, repair entries, and the Nodes' labels, annotations and
//! taints.

use std::sync::Arc;

use cketerm_clients::{kubernetes::WriteError, store::commit::CommitError};
use cketerm_model::{
    batch::{Batch, BatchId},
    boot_time::BootTime,
    cketerm_records::{Request, Who},
    entry::{EntryId, QueueKind},
    kube::{KubeView, MetadataPatch, NodeRow},
    policy::Membership,
    stored::{
        keys::SwitchName,
        transaction::{Change, Put, Ranged},
    },
};
use cketerm_rules::{
    decide::{Apply, Guard, RegistryEffect, auto_repair_plan, compares, machines_held_by_hosts, unwritten},
    registry::{descriptions::own_member, sync},
    snapshot::{EffectOutcome, StaleCause},
};

use super::{Actor, SHOWN_WITHIN, Stop, audit_intent::write_result};

/// Number of repair entries in one transaction: etcd takes 128 operations.
const REPAIRS_AT_ONCE: usize = 60;
/// Number of approvals that one transaction deletes.
const APPROVALS_AT_ONCE: usize = 50;

impl Actor {
    pub(super) async fn register(&self, decided: BootTime, what: RegistryEffect) -> Result<EffectOutcome, Stop> {
        match what {
            RegistryEffect::Apply(apply) => self.apply(decided, *apply).await,
            RegistryEffect::RecordAbsences { absences, revision } => {
                let permit = self.permit(&Guard::default(), decided)?;
                let key = self.store.keys().absent();
                let change = Change {
                    compares: vec![(key.clone(), revision)],
                    puts: vec![Put::json(key, &absences)],
                    deletes: Vec::new(),
                };
                self.commit(&permit, change).await.map(|_| EffectOutcome::Done)
            }
            RegistryEffect::DropApprovals(outdated) => {
                // The next pass deletes the others.
                let outdated = &outdated[..outdated.len().min(APPROVALS_AT_ONCE)];
                let permit = self.permit(&Guard::default(), decided)?;
                let keys = self.store.keys();
                let compares: Vec<_> =
                    outdated.iter().map(|(digest, revision)| (keys.approval(digest), *revision)).collect();
                let digests: Vec<&str> = outdated.iter().map(|(digest, _)| digest.as_str()).collect();
                let change = Change {
                    deletes: compares.iter().map(|(key, _)| key.clone()).collect(),
                    puts: vec![self.audit(
                        "approval ends",
                        &digests.join(" "),
                        None,
                        "the plan has changed, or an hour has passed",
                    )],
                    compares,
                };
                self.commit(&permit, change).await.map(|_| EffectOutcome::Done)
            }
            RegistryEffect::AddRepairs => self.add_repairs(decided).await,
            RegistryEffect::Describe { node, description } => self.describe(decided, &node, &description).await,
        }
    }

    /// Writes the definition, its template's revision and `cketerm/generated` in one fenced transaction (SAB-72).
    async fn apply(&self, decided: BootTime, apply: Apply) -> Result<EffectOutcome, Stop> {
        let permit = self.permit(&Guard::default(), decided)?;
        let view = self.live.borrow();
        if let Some(what) = apply.changed_input(&view, &self.kube_live.borrow()) {
            return Ok(changed(what));
        }
        let keys = self.store.keys();
        let plain = |key: String, value: String| Put { key, value, leased: false };
        let bytes = apply.json.len();
        let result = format!("{}; {bytes} bytes", apply.generated.action);
        let mut puts = vec![
            plain(keys.cluster(), apply.json.clone()),
            Put::json(keys.generated(), &apply.generated),
            self.audit("generate", "cluster", Some(apply.generated.reason.clone()), &result),
        ];
        if view.policy().membership != Membership::Nodes {
            puts.push(plain(keys.cluster_revision(), apply.basis.template.to_string()));
        }
        let change = Change {
            compares: compares(&apply, keys, view.sabakan.mod_revision),
            puts,
            deletes: apply.approval.iter().map(|(digest, _)| keys.approval(digest)).collect(),
        };
        let ranged = Ranged { change, unwritten: unwritten(&apply, keys), cleared: Vec::new() };
        let revision = match self.store.commit(&permit, ranged.clone()).await {
            Err(CommitError::TooLarge(size)) => return Ok(EffectOutcome::TooLarge(size)),
            Err(CommitError::LostLeadership) => return Err(Stop(EffectOutcome::Lost)),
            Err(CommitError::Conflict { keys }) => {
                tracing::info!(keys = keys.join(", "), "definition not applied: keys changed meanwhile; retrying");
                return Ok(EffectOutcome::Stale(StaleCause::Conflict { keys }));
            }
            Err(CommitError::Refused(why)) => return Ok(EffectOutcome::Failed(why)),
            Err(CommitError::Unknown(why)) => {
                self.read_again(self.proof(&ranged).as_ref()).await?.ok_or(Stop(EffectOutcome::Failed(why)))?
            }
            Ok(revision) => revision,
        };
        self.shown(revision).await?;
        tracing::info!(action = apply.generated.action, reason = apply.generated.reason, bytes, "definition generated");
        Ok(EffectOutcome::Done)
    }

    /// Adds repair entries, all or none below the cap (I42). The plan is made again from a fresh read, in one
    /// transaction with the write index.
    async fn add_repairs(&self, decided: BootTime) -> Result<EffectOutcome, Stop> {
        let permit = self.permit(&Guard::default(), decided)?;
        let Some(good) = self.registry.borrow().broken.good.clone() else {
            return Ok(changed("the input of the repair plan"));
        };
        let failed = |e: cketerm_clients::store::StoreError| Stop(EffectOutcome::Failed(e.to_string()));
        let keys = self.store.keys();
        let index_key = keys.write_index(QueueKind::Repair);
        // The index is read first. Any entry added after this read makes the transaction fail.
        let index = self.store.raw(&index_key).await.map_err(failed)?.map_or(0, |raw| raw.mod_revision);
        let view = self.store.read_view().await.map_err(failed)?;
        let kube = self.kube_live.borrow();
        let kept = machines_held_by_hosts(&kube, self.steady.now().boot);
        let Ok(plan) = kept.and_then(|kept| auto_repair_plan(&view, &good, kept, &kube)) else {
            return Ok(changed("the input of the repair plan"));
        };
        let entries: Vec<_> = plan.entries.into_iter().take(REPAIRS_AT_ONCE).collect();
        let Some(last) = entries.last().filter(|_| view.auto_repair.enabled()) else {
            return Ok(changed("the input of the repair plan"));
        };
        let now = self.steady.now().wall;
        // An id that another batch has taken makes the transaction fail, and the next pass has another time.
        let who = Who { user: "automatic repair".to_owned(), ..self.who.clone() };
        let (batch_id, count) = (BatchId::at(now), entries.len() as u64);
        let cause = Some("automatic repair".to_owned());
        let batch = Batch { added: count, ..Batch::new(QueueKind::Repair, who.clone(), now, cause, count) };
        let mut absent = vec![(keys.batch(batch_id), 0)];
        let mut puts = vec![Put { key: index_key.clone(), value: (last.index + 1).to_string(), leased: false }];
        for entry in &entries {
            let id = EntryId::repair(entry.index);
            let reason = Some(format!("sabakan: {}", entry.operation));
            let node_uid = self
                .kube_live
                .borrow()
                .by_address
                .get(&entry.address)
                .and_then(|name| self.kube_live.borrow().by_name.get(name).map(|n| n.uid.clone()));
            absent.push((keys.entry(id), 0));
            puts.push(Put::json(keys.entry(id), entry));
            puts.push(Put::json(
                keys.request(id),
                &Request { who: who.clone(), at: now, reason, node_uid, batch: Some(batch_id) },
            ));
        }
        puts.push(Put::json(keys.batch(batch_id), &batch));
        let names: Vec<String> = entries.iter().map(|e| format!("{} {}", e.operation, e.address)).collect();
        puts.push(self.audit("repair add", &format!("repairs {}", last.index), None, &names.join(", ")));
        let revision = |stored: Option<i64>| stored.unwrap_or(0);
        let mut compares = vec![
            (index_key, index),
            (keys.switch(SwitchName::AutoRepair), view.auto_repair.mod_revision),
            (keys.constraints(), revision(view.constraints.as_ref().map(|c| c.mod_revision))),
            (keys.cluster(), revision(view.cluster.as_ref().map(|c| c.mod_revision))),
        ];
        compares.extend(absent);
        self.commit(&permit, Change { compares, puts, deletes: Vec::new() }).await?;
        tracing::info!(entries = names.join(", "), "automatic repair queued entries");
        Ok(EffectOutcome::Done)
    }

    async fn describe(
        &self,
        decided: BootTime,
        node: &Arc<NodeRow>,
        description: &MetadataPatch,
    ) -> Result<EffectOutcome, Stop> {
        // Compares with the current definition, which may have changed since the decision.
        let (view, kube) = (self.live.borrow(), self.kube_live.borrow());
        let current = kube.by_name.get(&node.name).filter(|n| n.resource_version == node.resource_version);
        let current_change = view
            .definition()
            .zip(current)
            .and_then(|(definition, row)| sync::description(own_member(definition, &kube, row)?, &row.described));
        if current_change.as_ref() != Some(description) || !view.sabakan.enabled() {
            return Ok(changed("the Node or its definition"));
        }
        let permit = self.permit(&Guard::default(), decided)?;
        let intent = self.record_intent(&permit, "describe", &node.name, Some(description.to_string())).await?;
        let permit = self.permit(&Guard::default(), decided)?;
        let written = self.kube.describe(&permit, node, description).await;
        self.record_outcome(intent, write_result(&written));
        match written {
            Ok(row) => {
                let shown = |view: &Arc<KubeView>| {
                    view.by_name.get(&row.name).is_none_or(|n| n.resource_version != node.resource_version)
                };
                self.kube_live.wait_for_view(SHOWN_WITHIN, shown).await;
                Ok(EffectOutcome::Done)
            }
            Err(WriteError::Conflict | WriteError::NotFound) => {
                Ok(EffectOutcome::Stale(StaleCause::Object(format!("node {}", node.name))))
            }
            Err(e) => Ok(EffectOutcome::Failed(format!("{}: {e}", node.name))),
        }
    }
}

/// Returns the outcome for inputs that changed after the decision.
fn changed(what: &str) -> EffectOutcome {
    EffectOutcome::Stale(StaleCause::Changed(format!("{what} has changed meanwhile")))
}

//! Conditions and a taint on Nodes that tell others of the work.

use cketerm_model::{
    boot_time::BootTime,
    entry::EntryId,
    fence::Permit,
    kube::{ConditionChange, MetadataPatch, NodeRow, is_planned_taint, planned_taint},
};
use cketerm_rules::{
    decide::Guard,
    snapshot::{EffectOutcome, StaleCause},
};

use super::{Actor, Stop, audit_intent::AuditIntent};

impl Actor {
    /// Changes conditions and the taint of a Node: one patch each, conditioned on `resourceVersion`, so that nothing of
    /// another program is overwritten. If the conditions are refused, the taint is changed nevertheless.
    pub(super) async fn set_node_signs(
        &self,
        guard: &Guard,
        decided: BootTime,
        node: &NodeRow,
        conditions: &[ConditionChange],
        taint: Option<bool>,
    ) -> Result<EffectOutcome, Stop> {
        let live = self.kube_live.borrow().by_name.get(&node.name).map(|row| row.resource_version.clone());
        if live.as_ref() != Some(&node.resource_version) {
            return Ok(EffectOutcome::Stale(StaleCause::Object(format!("node {}", node.name))));
        }
        let entry = guard.entry.map(|(id, _)| id);
        let (after, first) = if conditions.is_empty() {
            (None, EffectOutcome::Done)
        } else {
            self.set_conditions(guard, decided, node, conditions, entry).await?
        };
        let goes_on = matches!(first, EffectOutcome::Done | EffectOutcome::Failed(_));
        let Some(is_set) = taint.filter(|_| goes_on) else { return Ok(first) };
        let second = self.set_planned_taint(guard, decided, after.as_ref().unwrap_or(node), is_set, entry).await?;
        Ok(if first == EffectOutcome::Done { second } else { first })
    }

    async fn set_conditions(
        &self,
        guard: &Guard,
        decided: BootTime,
        node: &NodeRow,
        changes: &[ConditionChange],
        entry: Option<EntryId>,
    ) -> Result<(Option<NodeRow>, EffectOutcome), Stop> {
        let what = "conditions";
        let permit = self.permit(guard, decided)?;
        let named = changes.iter().map(|change| {
            let state = if change.content.is_some() { "set" } else { "removed" };
            format!("{} {state}", change.condition)
        });
        let named = named.collect::<Vec<_>>().join(", ");
        let intent = self.record_sign(&permit, what, node, named, entry).await?;
        let permit = self.permit(guard, decided)?;
        let written = self.kube.set_conditions(&permit, node, changes, self.steady.now().wall).await;
        let after = written.as_ref().ok().cloned();
        Ok((after, self.node_written(node, written, what, intent, entry).await?))
    }

    async fn set_planned_taint(
        &self,
        guard: &Guard,
        decided: BootTime,
        node: &NodeRow,
        is_set: bool,
        entry: Option<EntryId>,
    ) -> Result<EffectOutcome, Stop> {
        let what = "taint";
        let permit = self.permit(guard, decided)?;
        let others = node.described.taints.iter().filter(|taint| !is_planned_taint(taint)).cloned();
        let taints = Some(others.chain(is_set.then(planned_taint)).collect());
        let named = format!("{} {}", planned_taint().key, if is_set { "set" } else { "removed" });
        let intent = self.record_sign(&permit, what, node, named, entry).await?;
        let permit = self.permit(guard, decided)?;
        let written = self.kube.describe(&permit, node, &MetadataPatch { taints, ..MetadataPatch::default() }).await;
        self.node_written(node, written, what, intent, entry).await
    }

    /// Records what is about to change. Each change has a record of its own: as repetitions of one step of the entry, they
    /// would become one record that shows only the last change.
    async fn record_sign(
        &self,
        permit: &Permit,
        what: &str,
        node: &NodeRow,
        change: String,
        entry: Option<EntryId>,
    ) -> Result<AuditIntent, Stop> {
        let change = entry.map_or_else(|| change.clone(), |id| format!("{change}, for {id}"));
        self.record_intent_for(permit, None, (what, &format!("node {}", node.name)), Some(change)).await
    }
}

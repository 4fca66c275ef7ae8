//! Applying the definition that is generated from the machine registry: gates, approvals, and the description of Nodes
//! (SAB-64 to SAB-76).
//!
//! A `Proposal` is the result of planning from one answer of sabakan: a `Proposed` (the plan, its `change` against the
//! present definition, and whether it needs approval), or the reason why there is no plan. [`Apply`] writes it.

use std::{collections::BTreeSet, sync::Arc};

use cketerm_model::{
    acceptance::LeaderKind,
    boot_time::Seconds,
    cketerm_records::{Absences, Approval, Generated},
    cluster::Cluster,
    entry::{EntryId, QueueKind, Stored},
    fault,
    kube::{KubeView, MetadataPatch, NodeRow},
    names::Address,
    policy::{Approval as ApprovalPolicy, Membership},
    reason::{Reason, TooLarge},
    stored::{
        keys::{Keys, prefix_end},
        limits::{MAX_VALUE_BYTES, check_size},
        transaction::Span,
        view::StoreView,
    },
    time::whole_seconds,
};
use cketerm_sabakan::change::Change;
use serde::Serialize;

use super::{Effect, Guard, Pass};
use crate::{
    membership,
    registry::{self, Basis, Proposal, Proposed, descriptions::own_member, sync},
    snapshot::NodeUpkeep,
};

/// Key among the effects: at most one change of the definition is under way.
pub(crate) const DEFINITION: &str = "the cluster definition";
const APPROVALS: &str = "the approvals";
/// State while the settings have changed since the plan was made.
const OUTDATED: &str = "the plan is being updated after a change";
/// Maximum number of waiting entries that are compared one by one. A transaction takes 128 comparisons.
const MAX_COMPARED_ENTRIES: usize = 64;
/// Maximum age of a control plane's good probe.
const PROBE_MAX_AGE: Seconds = Seconds::new(60.0);

/// Action for the machine registry.
#[derive(Clone, Debug, Serialize)]
pub enum RegistryEffect {
    /// Writes the generated definition, in one transaction with the revision of its template.
    Apply(Box<Apply>),
    /// Records which members have no Node, and since when, if the definition follows the Nodes.
    RecordAbsences {
        /// The new record.
        absences: Absences,
        /// `ModRevision` of the present record; 0 if there is none.
        revision: i64,
    },
    /// Deletes approvals that can no longer be used, with the `ModRevision` of each.
    DropApprovals(Vec<(String, i64)>),
    /// Adds unhealthy and unreachable machines to the repair queue.
    AddRepairs,
    /// Writes the definition's labels, annotations and taints to a Node.
    Describe {
        /// The Node before the patch.
        node: Arc<NodeRow>,
        /// The changes.
        description: MetadataPatch,
    },
}

impl RegistryEffect {
    /// Returns the name of the action for screens, logs and metrics.
    pub fn as_str(&self) -> &'static str {
        match self {
            Self::Apply(_) => "applying",
            Self::RecordAbsences { .. } => "recording absences",
            Self::DropApprovals(_) => "forgetting approvals",
            Self::AddRepairs => "adding repairs",
            Self::Describe { .. } => "describing",
        }
    }
}

/// A definition to write.
#[derive(Clone, Debug, Serialize)]
pub struct Apply {
    /// The definition in CKE's form. It is too long to print.
    #[serde(skip)]
    pub json: String,
    /// Revisions and machines that the definition was made from.
    pub basis: Basis,
    /// Entries that must not start meanwhile: those of API servers and of the machines that the change touches or adds,
    /// with the `ModRevision` of each. None of them may have started in between.
    pub waiting: Vec<(EntryId, i64)>,
    /// Revision of etcd at the decision.
    pub revision: i64,
    /// The approval that the change uses up: digest and ModRevision.
    pub approval: Option<(String, i64)>,
    /// The record of the change.
    pub generated: Generated,
    /// The differences, for a check just before the write.
    #[serde(skip)]
    pub change: Change,
    /// Digest of the plan.
    pub digest: String,
}

/// State of applying the definition.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case", tag = "state", content = "why")]
pub enum ApplyState {
    /// Nothing to generate from, or the integration is disabled.
    #[default]
    Off,
    /// Disabled, with the reason.
    Disabled(String),
    /// The definition matches the plan.
    Settled,
    /// An error. The present definition stays.
    Error(String),
    /// Waits until this condition ends.
    Waits(String),
    /// Waits for an approval: digest and reason.
    Approval(String, String),
    /// The definition is being applied.
    Applies,
}

impl Pass<'_> {
    /// Applies the proposal if the gates allow it, and writes the definition's labels, annotations and taints to Nodes.
    pub(super) fn plan_registry(&mut self) {
        let apply_state = self.apply_state();
        if let (ApplyState::Applies, Some(apply)) = (&apply_state, self.apply()) {
            self.plan(DEFINITION, None, Guard::default(), Effect::Registry(RegistryEffect::Apply(Box::new(apply))));
        }
        self.out.registry = apply_state;
        if self.leading() {
            self.record_absences();
            self.drop_obsolete_approvals();
            self.describe_nodes();
        }
    }

    fn proposed(&self) -> Option<&Proposed> {
        self.snap.registry.proposal.as_ref()?.outcome.as_ref().ok()
    }

    fn apply_state(&self) -> ApplyState {
        match self.policy.membership {
            Membership::Auto | Membership::Sabakan => self.state_of_sabakan(),
            Membership::Nodes => self.state_of_nodes(),
            Membership::Manual => {
                ApplyState::Disabled("the policy `membership` is manual: operators set the definition".to_owned())
            }
        }
    }

    /// State of the definition that follows the Nodes.
    fn state_of_nodes(&self) -> ApplyState {
        let Some(proposal) = &self.snap.registry.proposal else {
            return ApplyState::Waits("the Nodes have not been compared with the definition yet".to_owned());
        };
        match &proposal.outcome {
            Err(why) => ApplyState::Error(why.clone()),
            Ok(_) if !self.is_current(proposal) => ApplyState::Waits(OUTDATED.to_owned()),
            Ok(proposed) if !proposed.plan.changed => ApplyState::Settled,
            Ok(proposed) => match membership::returned(&proposed.change, &self.snap.store, &self.snap.kube) {
                Some(address) => ApplyState::Waits(format!("{address} has its Node again: {OUTDATED}")),
                None => self.state_of_change(proposed),
            },
        }
    }

    /// Reports whether a proposal was made from the present settings. Nothing is applied from a proposal without a
    /// change, or on an observer: there, machines that start or end work (`busy`) do not make it outdated.
    fn is_current(&self, proposal: &Proposal) -> bool {
        let basis = Basis::of(&self.snap.store);
        let settled = proposal.outcome.as_ref().is_ok_and(|p| !p.plan.changed);
        let ignore_busy = settled || !self.leading();
        proposal.basis == basis || (ignore_busy && proposal.basis.equals_ignoring_busy(&basis))
    }

    fn state_of_sabakan(&self) -> ApplyState {
        let (store, registry) = (&self.snap.store, &self.snap.registry);
        let settings = &store.registry;
        if settings.url.is_none() || settings.template.is_none() {
            let lacks = if settings.url.is_none() { "set-url URL" } else { "set-template FILE" };
            return ApplyState::Disabled(format!("not set up: `cketerm sabakan {lacks}`"));
        }
        if !store.sabakan.enabled() {
            return ApplyState::Disabled("disabled: `cketerm sabakan enable`".to_owned());
        }
        // A failed or an old answer is never applied (SAB-65).
        if let Some(why) = &registry.members.error {
            return ApplyState::Error(why.clone());
        }
        let Some(proposal) = &registry.proposal else {
            return ApplyState::Waits("sabakan has not answered yet".to_owned());
        };
        if !self.is_current(proposal) {
            return ApplyState::Waits(OUTDATED.to_owned());
        }
        let Some(good) = &registry.members.good else {
            return ApplyState::Waits("sabakan has not answered yet".to_owned());
        };
        let age = self.monotonic_now() - good.at;
        let max_age = Seconds::from(self.policy.sabakan_poll_seconds) * 3.0 + Seconds::new(60.0);
        if age > max_age {
            return ApplyState::Waits(format!("sabakan's last answer is {age:.0} old"));
        }
        match &proposal.outcome {
            Err(why) => ApplyState::Error(why.clone()),
            Ok(proposed) if !proposed.plan.changed => ApplyState::Settled,
            Ok(proposed) => self.state_of_change(proposed),
        }
    }

    fn state_of_change(&self, proposed: &Proposed) -> ApplyState {
        if let Some((_, why)) = self.snap.registry_refused.as_ref().filter(|(d, _)| *d == proposed.digest) {
            return ApplyState::Error(why.clone());
        }
        if let Err(size) = check_size("cluster", &proposed.json) {
            let nodes = proposed.plan.nodes.len();
            return ApplyState::Error(format!(
                "the definition of {nodes} nodes needs {} bytes, and cketerm writes at most {MAX_VALUE_BYTES} as one \
                 value: use fewer machines (`constraints set maximum-workers`, `sabakan set-variables`), or fewer labels and \
                 annotations in the template",
                size.bytes
            ));
        }
        self.check_change(proposed)
    }

    /// Checks the gates between a plan and its application (SAB-67 to SAB-69).
    fn check_change(&self, proposed: &Proposed) -> ApplyState {
        let settings = &self.snap.store.registry;
        // CKE does not know holds and applies the definition anyway, which is reported below.
        if let Some(hold) = settings.hold.as_ref().filter(|_| self.snap.store.leadership().lead != LeaderKind::Cke) {
            let (who, why) = match hold.get() {
                Some(hold) => (hold.who.to_string(), hold.reason.clone()),
                None => ("a record that cannot be read".to_owned(), None),
            };
            let source = match self.policy.membership {
                Membership::Nodes => "membership",
                Membership::Auto | Membership::Manual | Membership::Sabakan => "sabakan",
            };
            return ApplyState::Waits(format!("{}; `cketerm {source} unhold`", Reason::OnHold { who, why }));
        }
        // No API server may be in progress.
        if let Some((address, id)) = self.claims.api_servers.iter().chain(&self.claims.api_repairs).next() {
            return ApplyState::Waits(format!("API server {address} is in work ({id})"));
        }
        // Changes that touch machines in progress wait.
        let touched = proposed.change.disturbed().find(|n| self.claims.machines.contains_key(&n.address));
        fault!(MemberInWorkLeaves => touched = None);
        if let Some(node) = touched {
            return ApplyState::Waits(format!("{} is in work ({})", node.address, self.claims.machines[&node.address]));
        }
        if let Some(why) = self.joining(proposed) {
            return ApplyState::Waits(why);
        }
        if let Some(why) = proposed.gate.why.as_ref().filter(|_| self.needs_approval(proposed))
            && self.approval(&proposed.digest).is_none()
        {
            return ApplyState::Approval(proposed.digest.clone(), why.clone());
        }
        // Only the leader applies, and Ready is not judged from a stale copy of the Nodes.
        match self.leadership_blocker().or_else(|| self.stale()) {
            Some(reason) => ApplyState::Waits(reason.to_string()),
            None => ApplyState::Applies,
        }
    }

    /// Reports whether a change above the gate needs an approval. With `approval never` only one kind does: half of the
    /// control planes or more leave at once, for example after `control-plane-count` was reduced (SAB-69).
    fn needs_approval(&self, proposed: &Proposed) -> bool {
        let control_planes =
            |c: &Cluster| c.nodes.iter().filter(|n| n.control_plane).map(|n| n.address.clone()).collect();
        let before: BTreeSet<Address> = self.definition.map(|d| control_planes(&d.cluster)).unwrap_or_default();
        let after: BTreeSet<Address> = proposed.plan.cluster.as_ref().map(control_planes).unwrap_or_default();
        let retained = before.intersection(&after).count();
        // Exactly one control plane was exchanged, and their number has not shrunk.
        let replaced_one = after.len() >= before.len() && retained + 1 == before.len();
        fault!(ControlPlaneLeavesUnasked => return false);
        self.policy.approval == ApprovalPolicy::Gate
            || (self.policy.membership == Membership::Nodes && !proposed.gate.control_planes.is_empty())
            || (!replaced_one && retained * 2 <= before.len() && !before.is_empty())
    }

    /// Returns the unexpired approval of this digest.
    fn approval(&self, digest: &str) -> Option<&Stored<Approval>> {
        let stored = self.snap.store.registry.approvals.get(digest)?;
        stored.get().filter(|a| self.now.wall < a.until)?;
        Some(stored)
    }

    /// Returns a reason until the control planes that the last change added are Ready with a good probe. One that
    /// turned bad or leaves does not count (SAB-67).
    fn joining(&self, proposed: &Proposed) -> Option<String> {
        if self.control_planes_joined() {
            return None;
        }
        let generated = self.snap.store.registry.generated.as_ref().and_then(Stored::get)?;
        let definition = self.definition?;
        let machines = self.snap.registry.members.good.as_ref().map(|g| &g.machines.list);
        let next = proposed.plan.cluster.as_ref();
        for address in &generated.joining {
            let member = definition.members.by_address(&definition.cluster, address).is_some_and(|n| n.control_plane);
            let bad = machines.and_then(|m| m.iter().find(|m| m.address == *address)).is_none_or(|m| !m.healthy());
            let stays = next.is_none_or(|c| c.nodes.iter().any(|n| n.address == *address && n.control_plane));
            if !member || bad || !stays {
                continue;
            }
            let Some(node) = self.snap.node_of(address) else {
                return Some(format!("{} as a control plane", Reason::WaitingForJoin { node: address.clone() }));
            };
            if !node.ready {
                return Some(format!("{} is not Ready: the last change made it a control plane", node.name));
            }
            let probe = self.snap.probes.get(address);
            let good = self.control_planes_by_node()
                || probe
                    .and_then(|p| p.good_since.and(p.last_good))
                    .is_some_and(|at| self.monotonic_now() - at <= PROBE_MAX_AGE);
            if !good {
                let why = probe
                    .and_then(|p| p.error.clone().or_else(|| p.not_known.clone()))
                    .unwrap_or_else(|| "not answered yet".to_owned());
                return Some(format!("no good probe of {}: {why}; the last change made it a control plane", node.name));
            }
        }
        None
    }

    fn apply(&self) -> Option<Apply> {
        if self.leadership_blocker().is_some() || !self.etcd_copy_is_fresh() {
            return None;
        }
        let (proposal, proposed) = (self.snap.registry.proposal.as_ref()?, self.proposed()?);
        let store = &self.snap.store;
        // Neither the machines that the change touches or adds nor any API server may start in between.
        let mut must_not_start: BTreeSet<&str> = proposed.change.disturbed().map(|n| n.address.as_str()).collect();
        if let Some(definition) = self.definition {
            let control_planes = definition.cluster.nodes.iter().filter(|n| n.control_plane);
            must_not_start.extend(control_planes.map(|n| n.address.as_str()));
        }
        let reboots = store
            .reboots
            .entries
            .iter()
            .filter(|(_, s)| s.get().is_some_and(|e| must_not_start.contains(e.node.as_str())));
        let reboots = reboots.map(|(i, s)| (EntryId::reboot(*i), s.mod_revision));
        let repairs = store
            .repairs
            .entries
            .iter()
            .filter(|(_, s)| s.get().is_some_and(|e| must_not_start.contains(e.address.as_str())));
        let repairs = repairs.map(|(i, s)| (EntryId::repair(*i), s.mod_revision));
        let needs = proposed.gate.why.is_some() && self.needs_approval(proposed);
        let approval = if needs { Some(self.approval(&proposed.digest)?) } else { None };
        Some(Apply {
            json: proposed.json.clone(),
            basis: proposal.basis.clone(),
            waiting: reboots.chain(repairs).collect(),
            revision: store.revision,
            approval: approval.map(|a| (proposed.digest.clone(), a.mod_revision)),
            generated: Generated {
                at: whole_seconds(self.now.wall),
                action: proposed.plan.action.to_string(),
                reason: proposed.plan.reason.clone(),
                joining: proposed.change.new_control_planes(),
                approved_by: approval.and_then(Stored::get).map(|a| a.who.clone()),
            },
            change: proposed.change.clone(),
            digest: proposed.digest.clone(),
        })
    }

    /// Deletes approvals that expired after an hour, and approvals that a plan from a later answer replaced (SAB-71).
    fn drop_obsolete_approvals(&mut self) {
        let proposal = self.snap.registry.proposal.as_ref();
        let is_obsolete = |digest: &str, stored: &Stored<Approval>| match stored.get() {
            None => true,
            Some(a) if a.until <= self.now.wall => true,
            Some(a) => proposal.is_some_and(|p| {
                p.asked > a.at && p.outcome.as_ref().map_or(true, |p| p.digest != digest || !p.plan.changed)
            }),
        };
        let approvals = &self.snap.store.registry.approvals;
        let obsolete: Vec<(String, i64)> =
            approvals.iter().filter(|(d, s)| is_obsolete(d, s)).map(|(d, s)| (d.clone(), s.mod_revision)).collect();
        if !obsolete.is_empty() {
            self.plan(APPROVALS, None, Guard::default(), Effect::Registry(RegistryEffect::DropApprovals(obsolete)));
        }
    }

    fn describe_nodes(&mut self) {
        let in_use = registry::in_use(&self.snap.store);
        let Some(definition) = self.definition.filter(|_| in_use && self.etcd_copy_is_fresh()) else { return };
        if self.leadership_blocker().is_some() {
            return;
        }
        let free = self.free_upkeep(NodeUpkeep::Description, NodeUpkeep::Description.most_at_once());
        fault!(DescriptionsUnlimited => free = usize::MAX);
        let mut descriptions = Vec::new();
        for name in &self.snap.undescribed.0 {
            if descriptions.len() >= free {
                break;
            }
            let Some(node) = self.snap.kube.by_name.get(name) else { continue };
            let key = NodeUpkeep::Description.key(name);
            let is_busy = |key: &str| self.snap.in_flight.contains_key(key);
            if is_busy(&key) || is_busy(name.as_str()) || self.is_about_to_change(name) {
                continue;
            }
            let member = own_member(definition, &self.snap.kube, node);
            if let Some(description) = member.and_then(|member| sync::description(member, &node.described)) {
                descriptions.push((Arc::clone(node), description));
            }
        }
        for (node, description) in descriptions {
            let key = NodeUpkeep::Description.key(&node.name);
            let effect = Effect::Registry(RegistryEffect::Describe { node, description });
            self.plan(&key, None, Guard::default(), effect);
        }
    }
}

impl Apply {
    /// Reports whether waiting entries are compared one by one. Above a limit they are compared as ranges.
    fn compares_each(&self) -> bool {
        self.waiting.len() <= MAX_COMPARED_ENTRIES
    }

    /// Returns the input that has changed since the decision; `None` if the definition may be written.
    pub fn changed_input(&self, store: &StoreView, kube: &KubeView) -> Option<&'static str> {
        // The basis contains the policy, and with it the source of the members.
        let follows_nodes = store.policy().membership == Membership::Nodes;
        let is_enabled = follows_nodes || store.sabakan.enabled();
        if !is_enabled || store.registry.hold.is_some() || Basis::of(store) != self.basis {
            return Some("the input of the definition");
        }
        let returned = follows_nodes && membership::returned(&self.change, store, kube).is_some();
        returned.then_some("the Nodes")
    }

    /// Returns the message for a definition that is too large for etcd.
    pub fn too_large(&self, size: TooLarge) -> String {
        format!(
            "etcd refuses the definition of {} bytes ({size}): raise its --max-request-bytes (1.5 MiB by default), or use fewer \
             machines (`constraints set maximum-workers`, `sabakan set-variables`)",
            self.json.len()
        )
    }
}

/// Returns ranges in which no key may have changed since the decision, if there are too many entries to compare them
/// one by one. In each queue the range reaches from the first to the last of the entries; one more covers all attempts.
/// An entry that started in between was written. If it started, ran its command and was removed, its attempt was
/// written.
pub fn unwritten(apply: &Apply, keys: &Keys) -> Vec<(Span, i64)> {
    if apply.compares_each() {
        return Vec::new();
    }
    let of = |queue: QueueKind| {
        let indexes = || apply.waiting.iter().filter(|(id, _)| id.queue == queue).map(|(id, _)| id.index);
        let (first, last) = (indexes().min()?, indexes().max()?);
        let key = |index: u64| keys.entry(EntryId { queue, index });
        Some(Span { from: key(first), to: prefix_end(key(last).as_bytes()) })
    };
    let queues = QueueKind::QUEUES.into_iter().filter_map(of);
    queues.chain([keys.all_attempts()]).map(|span| (span, apply.revision)).collect()
}

/// Returns the keys that the transaction compares in addition to the keys that the plan was made from.
pub fn compares(apply: &Apply, keys: &Keys, switch: i64) -> Vec<(String, i64)> {
    let mut all = apply.basis.compares(keys);
    all.push((keys.switch(cketerm_model::stored::keys::SwitchName::Sabakan), switch));
    all.push((keys.hold(), 0));
    if apply.compares_each() {
        all.extend(apply.waiting.iter().map(|(id, revision)| (keys.entry(*id), *revision)));
    }
    all.extend(apply.approval.iter().map(|(digest, revision)| (keys.approval(digest), *revision)));
    all
}

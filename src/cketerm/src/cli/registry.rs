//! Queries of sabakan for the definition: one read of all sources, and the plans.

use std::{collections::BTreeMap, sync::Arc};

use cketerm_actions::ActionError;
use cketerm_clients::{kubernetes::Kube, net::Http, sabakan as client, sabakan::Question, store::Store};
use cketerm_model::{
    clock::Now,
    cluster::Taint,
    entry::Stored,
    kube::{HOSTS_SOURCE, KubeView, NodeRow, SourceState},
    names::{Address, NodeName},
    policy::Strategy,
    stored::view::StoreView,
};
use cketerm_rules::{
    decide::{ApplyState, auto_repair_plan, machines_held_by_hosts},
    explain,
    registry::{GoodAnswer, Proposal, Proposed, propose, with_input},
};
use cketerm_sabakan::variables;

use super::Context;

/// One read of all sources: etcd, sabakan, and Kubernetes if it is configured.
pub struct RegistryView {
    /// Client of etcd.
    pub store: Store,
    /// State that was read from etcd.
    pub view: StoreView,
    /// Sabakan's answer.
    pub good: GoodAnswer,
    /// Nodes, if Kubernetes is configured and answers.
    pub nodes: Option<Vec<NodeRow>>,
}

/// Reads etcd and queries sabakan; writes nothing. Errors are sentences with a remedy.
pub async fn look(context: &Context, question: Question) -> Result<RegistryView, ActionError> {
    let store = context.store().await?;
    let view = store.read_view().await?;
    let settings = &view.registry;
    let url = settings
        .url
        .as_ref()
        .ok_or_else(|| ActionError::failed("no sabakan URL is stored: set it with `cketerm sabakan set-url URL`"))?;
    let stored = match question {
        Question::Members => settings.variables.as_ref(),
        Question::Broken => settings.repair_variables.as_ref(),
    };
    let with = (url.mod_revision, stored.map_or(0, |s| s.mod_revision));
    let parsed = stored.and_then(Stored::get).map_or_else(|| Ok(serde_json::Map::new()), |text| variables::parse(text));
    let parsed = parsed.map_err(|e| ActionError::failed(format!("{e}; set them again with `set-variables FILE`")))?;
    let http = Http::verified(client::TIMEOUT, client::MOST_BYTES);
    let asked = store.clock().wall();
    let url = url.get().cloned().unwrap_or_default();
    let machines = client::ask(&http, &url, question, &parsed).await;
    let machines = machines.map_err(|e| ActionError::failed(e.to_string()))?;
    for warning in &machines.warnings {
        context.print_message(&format!("warning: {warning}"));
    }
    let (at, wall) = (store.clock().boot(), store.clock().wall());
    let good = GoodAnswer { machines: Arc::new(machines), at, wall, asked, with };
    Ok(RegistryView { nodes: nodes(context).await, store, view, good })
}

/// Returns the Nodes. If Kubernetes does not answer, it prints a warning and goes on.
async fn nodes(context: &Context) -> Option<Vec<NodeRow>> {
    if context.settings.kube.is_none() {
        return None;
    }
    let kube = Kube::connect(&context.settings.kube, cketerm_model::clock::Clock::host()).await;
    let rows = match kube {
        Ok(kube) => kube.nodes().await.map_err(|e| e.to_string()),
        Err(e) => Err(e.to_string()),
    };
    rows.map_err(|e| context.print_message(&format!("warning: continuing without Kubernetes: {e}"))).ok()
}

impl RegistryView {
    /// Returns the plan and its changes.
    pub fn proposed(&self) -> Result<Proposed, ActionError> {
        self.proposal()?.outcome.map_err(ActionError::failed)
    }

    fn proposal(&self) -> Result<Proposal, ActionError> {
        let taints = self.taints()?;
        Ok(propose(&self.view, &self.good, taints.as_ref(), self.store.clock().wall()))
    }

    /// Returns the plan, its changes, and the state of applying, as far as this read shows it.
    pub fn proposed_with_state(&self) -> Result<(Proposed, ApplyState), ActionError> {
        let proposal = self.proposal()?;
        let proposed = proposal.outcome.clone().map_err(ActionError::failed)?;
        let now = Now { boot: self.store.clock().boot(), wall: self.store.clock().wall() };
        Ok((proposed, explain::applying_state(&self.view, &self.good, proposal, self.nodes.as_deref(), now)))
    }

    fn taints(&self) -> Result<Option<BTreeMap<NodeName, Vec<Taint>>>, ActionError> {
        let taints: Option<BTreeMap<NodeName, Vec<Taint>>> = self
            .nodes
            .as_ref()
            .map(|nodes| nodes.iter().map(|n| (n.name.clone(), n.described.taints.clone())).collect());
        if taints.is_none() && self.view.policy().strategy == Strategy::AllHealthy {
            return Err(ActionError::failed(
                "strategy all-healthy needs the taints of Nodes, but Kubernetes is not configured or does not answer: \
                 give --kubeconfig FILE",
            ));
        }
        Ok(taints)
    }
}

/// `sabakan plan` without files: prints the plan from the servers' data.
pub async fn plan(context: &Context) -> Result<(), ActionError> {
    let look = look(context, Question::Members).await?;
    let (taints, now) = (look.taints()?, look.store.clock().wall());
    let machines = &look.good.machines;
    with_input(&look.view, machines, taints.as_ref(), now, |input| {
        super::plan::show_plan(input, cketerm_sabakan::plan(input), machines, context)
    })
    .map_err(ActionError::failed)?
}

/// `auto-repair plan` without files: prints the plan from the servers' data.
pub async fn repairs(context: &Context) -> Result<(), ActionError> {
    let look = look(context, Question::Broken).await?;
    let mut kube = KubeView::default();
    for node in look.nodes.as_deref().unwrap_or_default() {
        kube.put_node(node.clone());
    }
    let kept = kept(context, &mut kube).await?;
    let made = auto_repair_plan(&look.view, &look.good, kept, &kube).map_err(ActionError::failed)?;
    super::plan::show_repairs(&made, &look.good.machines, context)
}

/// Returns the machines whose state their BareMetalHosts explain, by address. The leading engine does the same query,
/// and adds no repair while it gets no answer.
async fn kept(context: &Context, view: &mut KubeView) -> Result<BTreeMap<Address, String>, ActionError> {
    if context.settings.kube.is_none() {
        context
            .print_message("warning: continuing without Kubernetes: machines held off by BareMetalHosts are unknown");
        return Ok(BTreeMap::new());
    }
    let clock = cketerm_model::clock::Clock::host();
    let last_seen = clock.boot();
    let hosts = match Kube::connect(&context.settings.kube, clock).await {
        Ok(kube) => kube.hosts_if_served().await,
        Err(e) => Err(e),
    };
    let error = hosts.as_ref().err().map(ToString::to_string);
    view.sources.insert(
        HOSTS_SOURCE.to_owned(),
        SourceState { synced: hosts.is_ok(), last_seen, fresh_as_of: last_seen, error, forbidden: false },
    );
    for host in hosts.unwrap_or_default() {
        view.hosts.insert((host.namespace.clone(), host.name.clone()), Arc::new(host));
    }
    machines_held_by_hosts(view, last_seen).map_err(ActionError::failed)
}

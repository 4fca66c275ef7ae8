//! Conversion of objects into rows. An unusual field becomes a text that names it.

use std::sync::Arc;

use cketerm_model::{
    names::NodeName,
    placement::{
        ClaimUse, HostPort, InitRequests, NodeRequirement, NodeRules, NodeSelector, NodeTaint, NodeTerm, NodeTest,
        PartRequests, PlacementClaim, PlacementNode, PlacementPod, PlacementSpec, PlacementVolume, PodPhase, PodTerm,
        Preemption, Priority, Protocol, Quantity, ResourceName, Resources, SpreadConstraint, SpreadPolicy, TaintEffect,
        Toleration, Unscheduled,
    },
};

use super::wire;

/// Label with the host name of a node.
const HOST_NAME: &str = "kubernetes.io/hostname";
/// Annotation of a claim whose binding is complete.
const BOUND: &str = "pv.kubernetes.io/bind-completed";

/// Field that cannot be understood.
type Odd = Box<str>;

/// Converts a pod.
pub(super) fn pod(object: wire::Pod) -> PlacementPod {
    let wire::Pod { metadata: mut meta, spec, status } = object;
    let mut pod = PlacementPod {
        terminating: meta.deleting(),
        mirror: meta.mirror(),
        controller: meta.take_controller(),
        namespace: meta.namespace,
        name: meta.name,
        uid: meta.uid,
        labels: Arc::new(meta.labels),
        ..PlacementPod::default()
    };
    match status.usual() {
        Some(status) => {
            pod.phase = phase(&status.phase);
            let unscheduled = status.conditions.into_iter().find(|c| c.r#type == "PodScheduled" && c.status == "False");
            pod.unscheduled = unscheduled.map(|c| Unscheduled { reason: c.reason, message: c.message });
        }
        None => pod.unreadable = Some("status".into()),
    }
    let Some(spec) = spec.usual() else {
        pod.unreadable = Some("spec".into());
        return pod;
    };
    pod.node = wire::Pod::node(&spec);
    pod.gated = !spec.scheduling_gates.is_empty();
    pod.claims = spec.volumes.iter().filter_map(|volume| claim_use(&pod.name, volume)).collect();
    match placement_spec(&pod, spec) {
        Ok(spec) => pod.spec = Arc::new(spec),
        Err(odd) => pod.unreadable = Some(odd),
    }
    pod
}

fn phase(name: &str) -> PodPhase {
    match name {
        "Pending" | "" => PodPhase::Pending,
        "Running" => PodPhase::Running,
        "Succeeded" => PodPhase::Succeeded,
        "Failed" => PodPhase::Failed,
        _ => PodPhase::Unknown,
    }
}

fn claim_use(pod: &str, volume: &wire::PodVolume) -> Option<ClaimUse> {
    if volume.ephemeral.is_some() {
        return Some(ClaimUse { name: format!("{pod}-{}", volume.name), ephemeral: true });
    }
    let source = volume.persistent_volume_claim.as_ref()?;
    Some(ClaimUse { name: source.claim_name.clone(), ephemeral: false })
}

fn placement_spec(pod: &PlacementPod, spec: wire::PodSpec) -> Result<PlacementSpec, Odd> {
    let (affinity, has_containers) = (spec.affinity.unwrap_or_default(), !spec.containers.is_empty());
    let mut host_ports = Vec::new();
    let sidecars = spec.init_containers.iter().filter(|container| restartable(container));
    for port in spec.containers.iter().chain(sidecars).flat_map(|container| &container.ports) {
        host_ports.extend(host_port(port)?);
    }
    let mut parts = PartRequests { overhead: resources("overhead", &spec.overhead)?, ..PartRequests::default() };
    for container in &spec.containers {
        parts.containers.push(resources("containers.resources.requests", &container.resources.requests)?);
    }
    for container in &spec.init_containers {
        let requests = resources("initContainers.resources.requests", &container.resources.requests)?;
        parts.init.push(InitRequests { requests, restartable: restartable(container) });
    }
    if let Some(pod_level) = &spec.resources {
        parts.pod = resources("resources.requests", &pod_level.requests)?;
    }
    let terms = |terms: Vec<wire::Term>| terms.into_iter().map(|term| pod_term(&pod.namespace, term)).collect();
    let mut row = PlacementSpec {
        requests: parts.effective(),
        anti_affinity: terms(affinity.apart.required),
        host_ports,
        priority: Priority(spec.priority.unwrap_or(0)),
        preemption: match spec.preemption_policy.as_deref() {
            None | Some("PreemptLowerPriority" | "") => Preemption::LowerPriority,
            Some("Never") => Preemption::Never,
            Some(other) => return Err(format!("preemptionPolicy {other:?}").into()),
        },
        scheduler: spec.scheduler_name.into(),
        dynamic_resources: !spec.resource_claims.is_empty(),
        ..PlacementSpec::default()
    };
    // Pods of a DaemonSet are bound to one node each, so their rules would be different for every node.
    if !pod.belongs_to_node() {
        row.affinity = terms(affinity.to_pods.required);
        row.node_rules = NodeRules {
            selector: spec.node_selector,
            affinity: affinity.to_nodes.required.map(node_selector).transpose()?,
            tolerations: spec.tolerations.into_iter().map(toleration).collect::<Result<_, Odd>>()?,
        };
        let hard = spec.topology_spread_constraints.into_iter().filter(|c| c.when_unsatisfiable != "ScheduleAnyway");
        row.spread = hard.map(spread).collect::<Result<_, Odd>>()?;
    }
    if has_containers { Ok(row) } else { Err("containers".into()) }
}

fn restartable(container: &wire::Container) -> bool {
    container.restart_policy.as_deref() == Some("Always")
}

/// Converts quantities. A negative one is refused.
fn resources(field: &str, quantities: &wire::Quantities) -> Result<Resources, Odd> {
    let amount = |(name, text): (&String, &wire::WireQuantity)| {
        let quantity: Quantity = text.to_string().parse().map_err(|error| format!("{field}.{name}: {error}"))?;
        let name = ResourceName::new(name);
        let amount = name.amount(quantity);
        if amount.0 < 0 { Err(format!("{field}.{name}: {text} is negative").into()) } else { Ok((name, amount)) }
    };
    quantities.iter().map(amount).collect()
}

fn host_port(port: &wire::Port) -> Result<Option<HostPort>, Odd> {
    let protocol = match port.protocol.as_str() {
        "TCP" | "" => Protocol::Tcp,
        "UDP" => Protocol::Udp,
        "SCTP" => Protocol::Sctp,
        other => return Err(format!("protocol {other:?}").into()),
    };
    let all = matches!(port.address.as_str(), "" | "0.0.0.0");
    let address = (!all).then(|| port.address.as_str().into());
    Ok((port.on_host > 0).then_some(HostPort { port: port.on_host, protocol, address }))
}

fn effect(name: &str) -> Result<TaintEffect, Odd> {
    TaintEffect::named(name).ok_or_else(|| format!("taint effect {name:?}").into())
}

fn toleration(toleration: wire::Toleration) -> Result<Toleration, Odd> {
    let value = match toleration.operator.as_str() {
        "Equal" | "" => Some(toleration.value),
        "Exists" => None,
        other => return Err(format!("toleration operator {other:?}").into()),
    };
    let effect = if toleration.effect.is_empty() { None } else { Some(effect(&toleration.effect)?) };
    Ok(Toleration { key: (!toleration.key.is_empty()).then_some(toleration.key), value, effect })
}

fn node_selector(selector: wire::NodeSelector) -> Result<NodeSelector, Odd> {
    let all = |requirements: Vec<wire::NodeRequirement>| {
        requirements.into_iter().map(node_requirement).collect::<Result<Vec<_>, Odd>>()
    };
    let term = |term: wire::NodeTerm| {
        let (labels, names) = (all(term.match_expressions)?, all(term.match_fields)?);
        Ok::<_, Odd>(NodeTerm { labels, names })
    };
    Ok(NodeSelector { terms: selector.node_selector_terms.into_iter().map(term).collect::<Result<_, Odd>>()? })
}

fn node_requirement(requirement: wire::NodeRequirement) -> Result<NodeRequirement, Odd> {
    let wire::NodeRequirement { key, operator, values } = requirement;
    let number = || match values.as_slice() {
        [value] => value.parse::<i64>().map_err(|_| Odd::from(format!("node affinity {key}: {value:?} is no integer"))),
        _ => Err(format!("node affinity {key}: {operator} takes one value").into()),
    };
    let test = match operator.as_str() {
        "In" => NodeTest::In(values),
        "NotIn" => NodeTest::NotIn(values),
        "Exists" => NodeTest::Exists,
        "DoesNotExist" => NodeTest::DoesNotExist,
        "Gt" => NodeTest::Gt(number()?),
        "Lt" => NodeTest::Lt(number()?),
        other => return Err(format!("node affinity operator {other:?}").into()),
    };
    Ok(NodeRequirement { key, test })
}

fn pod_term(own: &str, term: wire::Term) -> PodTerm {
    let wire::Term { topology_key, label_selector: selector, mut namespaces, namespace_selector } = term;
    if namespaces.is_empty() && namespace_selector.is_none() {
        namespaces.push(own.to_owned());
    }
    PodTerm { topology_key, selector, namespaces, namespace_selector }
}

fn spread(constraint: wire::Spread) -> Result<SpreadConstraint, Odd> {
    let policy = |name: Option<&str>, default| match name {
        None => Ok(default),
        Some("Honor") => Ok(SpreadPolicy::Honor),
        Some("Ignore") => Ok(SpreadPolicy::Ignore),
        Some(other) => Err(Odd::from(format!("spread policy {other:?}"))),
    };
    Ok(SpreadConstraint {
        node_affinity: policy(constraint.node_affinity_policy.as_deref(), SpreadPolicy::Honor)?,
        node_taints: policy(constraint.node_taints_policy.as_deref(), SpreadPolicy::Ignore)?,
        topology_key: constraint.topology_key,
        max_skew: constraint.max_skew.max(1),
        min_domains: constraint.min_domains.unwrap_or(1),
        selector: constraint.label_selector,
        match_label_keys: constraint.match_label_keys,
    })
}

/// Converts a node.
pub(super) fn node(object: wire::Node) -> PlacementNode {
    let wire::Node { metadata: meta, spec, status } = object;
    let mut node = PlacementNode { name: NodeName::new(meta.name), labels: meta.labels, ..PlacementNode::default() };
    match spec.usual() {
        Some(spec) => {
            node.unschedulable = spec.unschedulable;
            // The scheduler ignores other effects.
            let known = |taint: wire::Taint| {
                let effect = TaintEffect::named(&taint.effect)?;
                Some(NodeTaint { key: taint.key, value: taint.value, effect })
            };
            node.taints = spec.taints.into_iter().filter_map(known).collect();
        }
        None => node.unreadable = Some("spec".into()),
    }
    let Some(status) = status.usual() else {
        node.unreadable = Some("status".into());
        return node;
    };
    node.ready = status.conditions.iter().any(|c| c.r#type == "Ready" && c.status == "True");
    match resources("status.allocatable", &status.allocatable) {
        Ok(allocatable) => node.allocatable = allocatable,
        Err(odd) => node.unreadable = Some(odd),
    }
    node
}

/// Converts a claim, with its namespace and name.
pub(super) fn claim(object: wire::Claim) -> ((String, String), PlacementClaim) {
    let wire::Claim { metadata: meta, spec, status } = object;
    let bound = meta.annotations.contains_key(BOUND) || status.usual().is_some_and(|status| status.phase == "Bound");
    let volume = spec.usual().map(|spec| spec.volume_name).filter(|name| bound && !name.is_empty());
    let terminating = meta.deleting();
    ((meta.namespace, meta.name), PlacementClaim { volume, terminating })
}

/// Converts a volume, with its name.
pub(super) fn volume(object: wire::Volume) -> (String, PlacementVolume) {
    let wire::Volume { metadata: meta, spec } = object;
    let mut row = PlacementVolume::default();
    let Some(spec) = spec.usual() else {
        row.unreadable = Some("spec".into());
        return (meta.name, row);
    };
    match spec.node_affinity.required.map(node_selector).transpose() {
        Ok(affinity) => row.affinity = affinity,
        Err(odd) => row.unreadable = Some(odd),
    }
    let one_host = row.affinity.as_ref().is_some_and(on_one_host);
    row.local = one_host || spec.local.is_some() || spec.host_path.is_some();
    (meta.name, row)
}

/// Reports whether an affinity allows one host name only.
fn on_one_host(affinity: &NodeSelector) -> bool {
    let [term] = affinity.terms.as_slice() else { return false };
    let is_one = |requirement: &NodeRequirement| match &requirement.test {
        NodeTest::In(values) => requirement.key == HOST_NAME && values.len() == 1,
        NodeTest::NotIn(_) | NodeTest::Exists | NodeTest::DoesNotExist | NodeTest::Gt(_) | NodeTest::Lt(_) => false,
    };
    term.labels.iter().any(is_one)
}

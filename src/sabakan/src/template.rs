//! The template: a cluster definition whose nodes stand for kinds of machines (SAB-13 to SAB-19).

use std::collections::{BTreeMap, HashMap};

use cketerm_model::cluster::{self, Cluster, Node};
use serde_json::Value;

use super::{gotext::GoText, state_taint::STATE_TAINT};

/// Label with the role of the machines that a node template is for.
pub const ROLE_LABEL: &str = "cke.cybozu.com/role";
/// Label with the node template's share among the workers.
pub const WEIGHT_LABEL: &str = "cke.cybozu.com/weight";

/// A validated template.
#[derive(Clone, Debug, PartialEq)]
pub struct Template {
    /// Everything but the nodes.
    pub cluster: Cluster,
    /// Node template of the control planes.
    pub control_plane: Kind,
    /// Node templates of the workers, in the template's order. At least one.
    pub workers: Vec<Kind>,
    /// Warnings for the operator.
    pub warnings: Vec<String>,
}

/// One node template.
#[derive(Clone, Debug, PartialEq)]
pub struct Kind {
    /// The node as it is written in the template.
    pub node: Node,
    /// The role of its machines. `None`: any.
    pub role: Option<String>,
    /// Its share among the workers. Positive.
    pub weight: f64,
    /// Labels with the same value for every machine.
    pub fixed_labels: BTreeMap<String, String>,
    /// Labels whose values depend on the machine.
    pub dynamic_labels: Vec<DynamicLabel>,
}

/// A label whose value is a Go template.
#[derive(Clone, Debug, PartialEq)]
pub struct DynamicLabel {
    /// Its key.
    pub key: String,
    /// Its value.
    pub value: GoText,
}

/// Refusal of a template: all faults, each with its place.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the template is refused: {}", .0.join("; "))]
pub struct TemplateError(pub Vec<String>);

impl Kind {
    /// Returns true if machines of this role are of this kind.
    pub fn accepts_role(&self, role: &str) -> bool {
        self.role.as_deref().is_none_or(|own| own == role)
    }
}

impl Template {
    /// Parses the JSON that is stored in etcd.
    pub fn stored(text: &str) -> Result<Self, TemplateError> {
        let again = |e: String| format!("{e}; set it again with `cketerm sabakan set-template FILE`");
        let value = cluster::stored(text).map_err(|e| TemplateError(vec![again(e)]))?;
        Self::parse_value(&value)
    }

    /// Parses YAML or JSON, as `sabakan set-template` accepts it.
    pub fn read(text: &str) -> Result<Self, TemplateError> {
        let value = cluster::parse(text).map_err(|e| TemplateError(vec![e]))?;
        Self::parse_value(&value)
    }

    /// Validates a parsed template.
    pub fn parse_value(value: &Value) -> Result<Self, TemplateError> {
        let checked = cluster::check_template(value);
        let mut faults: Vec<String> = checked.faults.iter().map(ToString::to_string).collect();
        let cluster: Option<Cluster> = serde_json::from_value(value.clone()).ok();
        let Some(mut cluster) = cluster else {
            if faults.is_empty() {
                faults.push("cannot be read".to_owned());
            }
            return Err(TemplateError(faults));
        };
        let nodes = std::mem::take(&mut cluster.nodes);
        let mut planes = Vec::new();
        let mut workers = Vec::new();
        for (i, node) in nodes.into_iter().enumerate() {
            let plane = node.control_plane;
            match Kind::of(node, &format!("nodes[{i}]"), &mut faults) {
                Some(kind) if plane => planes.push((i, kind)),
                Some(kind) => workers.push((i, kind)),
                None => {}
            }
        }
        if faults.is_empty() {
            count(&planes, &workers, &mut faults);
        }
        match planes.into_iter().next() {
            Some((_, control_plane)) if faults.is_empty() => Ok(Self {
                cluster,
                control_plane,
                workers: workers.into_iter().map(|(_, kind)| kind).collect(),
                warnings: checked.warnings.iter().map(ToString::to_string).collect(),
            }),
            _ => Err(TemplateError(faults)),
        }
    }

    /// Returns the index of the worker template for a role: the only one, or the one with that role.
    pub fn worker_kind(&self, role: &str) -> Option<usize> {
        match self.workers.as_slice() {
            // CKE makes a worker of any machine with a single template. Only new machines must have its role.
            [_] => Some(0),
            several => several.iter().position(|k| k.role.as_deref() == Some(role)),
        }
    }
}

/// Checks the number of node templates of each kind, and that each role has one template.
fn count(planes: &[(usize, Kind)], workers: &[(usize, Kind)], faults: &mut Vec<String>) {
    let listed =
        |found: &[(usize, Kind)]| found.iter().map(|(i, _)| format!("nodes[{i}]")).collect::<Vec<_>>().join(", ");
    match planes.len() {
        0 => faults.push("nodes have no template for control planes: exactly one needs control_plane: true".to_owned()),
        1 => {}
        n => faults.push(format!(
            "nodes have {n} templates for control planes ({}), exactly one may have control_plane: true",
            listed(planes)
        )),
    }
    if workers.is_empty() {
        faults.push("nodes have no template for workers: at least one needs control_plane: false".to_owned());
    }
    if workers.len() < 2 {
        return;
    }
    let mut roles: HashMap<&str, usize> = HashMap::new();
    for (i, kind) in workers {
        match kind.role.as_deref() {
            None => faults.push(format!(
                "nodes[{i}].labels[{ROLE_LABEL}] is missing: of several templates for workers ({}) each must name its role",
                listed(workers)
            )),
            Some(role) => {
                if let Some(first) = roles.insert(role, *i) {
                    faults.push(format!("nodes[{i}].labels[{ROLE_LABEL}] is {role}, and so is nodes[{first}]'s"));
                }
            }
        }
    }
}

impl Kind {
    fn of(node: Node, at: &str, faults: &mut Vec<String>) -> Option<Self> {
        let before = faults.len();
        let mut kind = Self {
            role: None,
            weight: 1.0,
            fixed_labels: BTreeMap::new(),
            dynamic_labels: Vec::new(),
            node: Node::default(),
        };
        for (key, value) in node.labels.iter().flatten() {
            let place = format!("{at}.labels[{key}]");
            match key.as_str() {
                ROLE_LABEL if value.is_empty() || GoText::is_dynamic(value) => {
                    faults.push(format!("{place} must be the name of a role, is {value:?}"));
                }
                ROLE_LABEL => kind.role = Some(value.clone()),
                WEIGHT_LABEL => match value.trim().parse::<f64>() {
                    Ok(weight) if weight.is_finite() && weight > 0.0 => kind.weight = weight,
                    _ => faults.push(format!("{place} must be a positive number such as \"2.5\", is {value:?}")),
                },
                _ => {}
            }
            if !GoText::is_dynamic(value) {
                kind.fixed_labels.insert(key.clone(), value.clone());
                continue;
            }
            match GoText::parse(value) {
                Ok(value) => kind.dynamic_labels.push(DynamicLabel { key: key.clone(), value }),
                Err(e) => faults.push(format!("{place} ({value:?}) {e}")),
            }
        }
        for (j, taint) in node.taints.iter().flatten().enumerate() {
            if taint.key == STATE_TAINT {
                let what = "is set from the machine's state and cannot be in a template";
                faults.push(format!("{at}.taints[{j}].key {STATE_TAINT} {what}"));
            }
        }
        kind.node = node;
        (faults.len() == before).then_some(kind)
    }
}

#[cfg(test)]
#[path = "tests/template.rs"]
mod tests;

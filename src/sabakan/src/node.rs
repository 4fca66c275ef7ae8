//! A machine as a node of the definition: labels, annotations, taints (SAB-59 to SAB-62).

use cketerm_model::{
    cluster::{Node, Taint, is_label_key, is_label_value},
    policy::Strategy,
};

use super::{machine::Machine, template::Kind};

/// Prefix of labels made from a machine's own labels.
pub const LABEL_PREFIX: &str = "sabakan.cke.cybozu.com/";

/// Creates the node of a machine. The error names machine and label. A label of the machine that Kubernetes would
/// refuse is left out with a warning (SAB-60).
pub fn node(
    machine: &Machine,
    kind: &Kind,
    taint: Option<Taint>,
    strategy: Strategy,
    warnings: &mut Vec<String>,
) -> Result<Node, String> {
    // Collected in one go and not one by one, because a pass makes 20,000 of these. Of equal keys the last one counts.
    let mut labels: Vec<(String, String)> = Vec::with_capacity(12 + kind.fixed_labels.len() + machine.labels.len());
    let role = machine.role.as_str();
    for (name, value) in &machine.labels {
        let key = format!("{LABEL_PREFIX}{name}");
        if !is_label_key(&key) || !is_label_value(value) {
            let serial = &machine.serial;
            warnings.push(format!(
                "machine {serial}: label {name}={value:?} left out, because it is not valid in Kubernetes"
            ));
        } else {
            labels.push((key, value.clone()));
        }
    }
    // the template's labels follow the machine's
    labels.extend(kind.fixed_labels.iter().map(|(key, value)| (key.clone(), value.clone())));
    for label in &kind.dynamic_labels {
        let place =
            || format!("machine {}: the template's label {} ({:?})", machine.serial, label.key, label.value.text());
        let value = label.value.render(machine).map_err(|e| format!("{} {e}", place()))?;
        if !is_label_value(&value) {
            return Err(format!("{} gives {value:?}, which is not a valid Kubernetes label value", place()));
        }
        labels.push((label.key.clone(), value));
    }
    labels.push(("cke.cybozu.com/rack".to_owned(), machine.rack.to_string()));
    labels.push(("cke.cybozu.com/index-in-rack".to_owned(), machine.index_in_rack.to_string()));
    labels.push(("cke.cybozu.com/role".to_owned(), role.to_owned()));
    if strategy == Strategy::AllHealthy {
        labels.push(("topology.kubernetes.io/zone".to_owned(), format!("rack{}", machine.rack)));
        labels.push((format!("node-role.kubernetes.io/{role}"), "true".to_owned()));
        labels.push(("cke.cybozu.com/register-month".to_owned(), machine.register_date.month()));
        labels.push(("cke.cybozu.com/retire-month".to_owned(), machine.retire_date.month()));
        labels.push(("cke.cybozu.com/retire-year".to_owned(), machine.retire_date.year()));
        if kind.node.control_plane {
            labels.push(("node-role.kubernetes.io/master".to_owned(), "true".to_owned()));
            labels.push(("node-role.kubernetes.io/control-plane".to_owned(), "true".to_owned()));
        }
    }
    let own = kind.node.annotations.iter().flatten().map(|(key, value)| (key.clone(), value.clone()));
    let mut annotations: Vec<(String, String)> = own.collect();
    annotations.push(("cke.cybozu.com/serial".to_owned(), machine.serial.clone()));
    annotations.push(("cke.cybozu.com/register-date".to_owned(), machine.register_date.to_string()));
    annotations.push(("cke.cybozu.com/retire-date".to_owned(), machine.retire_date.to_string()));
    let mut taints = kind.node.taints.clone().unwrap_or_default();
    taints.extend(taint);
    Ok(Node {
        address: machine.address.clone(),
        user: kind.node.user.clone(),
        control_plane: kind.node.control_plane,
        annotations: Some(annotations.into_iter().collect()),
        labels: Some(labels.into_iter().collect()),
        taints: (!taints.is_empty()).then_some(taints),
        ..Node::default()
    })
}

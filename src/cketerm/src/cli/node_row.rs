//! Address and role of a Node that is not a member of the definition.

use cketerm_actions::ActionError;
use cketerm_model::{kube::NodeRow, names::Address};
use serde_json::{Value, json};

/// Returns the first address that is an IP address.
pub fn internal_address(row: &NodeRow) -> Address {
    row.addresses.iter().find(|a| a.parse::<std::net::IpAddr>().is_ok()).cloned().unwrap_or_default()
}

/// Reports whether the Node's role label marks a control plane.
pub fn control_plane(row: &NodeRow) -> bool {
    let role = |key: &str| key.strip_prefix("node-role.kubernetes.io/").map(str::to_owned);
    row.shown_labels.iter().filter_map(|(key, _)| role(key)).any(|r| matches!(r.as_str(), "control-plane" | "master"))
}

/// Returns the member that a first definition has for this Node.
pub fn as_member(row: &NodeRow) -> Result<Value, ActionError> {
    let address = internal_address(row);
    if address.is_empty() {
        return Err(ActionError::failed(format!(
            "node {}: no InternalIP, so no definition can contain it; wait until its kubelet reports one",
            row.name
        )));
    }
    let mut member = json!({"address": address});
    if *row.name != *address {
        member["hostname"] = json!(row.name);
    }
    member["user"] = json!("root");
    if control_plane(row) {
        member["control_plane"] = json!(true);
    }
    Ok(member)
}

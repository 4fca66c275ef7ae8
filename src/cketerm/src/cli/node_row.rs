//! Address and role of a Node that is not a member of the definition.

use cketerm_model::{kube::NodeRow, names::Address};

/// Returns the first address that is an IP address.
pub fn internal_address(row: &NodeRow) -> Address {
    row.addresses.iter().find(|a| a.parse::<std::net::IpAddr>().is_ok()).cloned().unwrap_or_default()
}

/// Reports whether the Node's role label marks a control plane.
pub fn control_plane(row: &NodeRow) -> bool {
    let role = |key: &str| key.strip_prefix("node-role.kubernetes.io/").map(str::to_owned);
    row.shown_labels.iter().filter_map(|(key, _)| role(key)).any(|r| matches!(r.as_str(), "control-plane" | "master"))
}

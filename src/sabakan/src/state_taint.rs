//! The taint with a machine's state (SAB-63).

use cketerm_model::{
    cluster::{Node, Taint},
    policy::Strategy,
};

use super::machine::State;

/// Key of the taint with a machine's state.
pub const STATE_TAINT: &str = "cke.cybozu.com/state";

/// Returns the taint of a state. `all-healthy` has none for unhealthy machines (SAB-63).
pub fn state_taint(state: State, strategy: Strategy) -> Option<Taint> {
    let effect = match state {
        State::Unhealthy if strategy == Strategy::AllHealthy => return None,
        State::Unhealthy | State::Unreachable => "NoSchedule",
        State::Retiring | State::Retired => "NoExecute",
        State::Uninitialized | State::Healthy | State::Updating => return None,
    };
    Some(Taint {
        key: STATE_TAINT.to_owned(),
        value: state.as_str().to_owned(),
        effect: effect.to_owned(),
        ..Taint::default()
    })
}

/// Returns the state taints of a node of the definition.
pub fn state_taints(node: &Node) -> impl Iterator<Item = &Taint> {
    node.taints.iter().flatten().filter(|t| t.key == STATE_TAINT)
}

/// Reports whether a node has exactly this state taint.
pub fn taint_is_right(node: &Node, wanted: Option<&Taint>) -> bool {
    let mut found = state_taints(node);
    found.next() == wanted && found.next().is_none()
}

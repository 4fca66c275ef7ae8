//! Check of the site's gates for new reboots (policy `start_gates`). Prometheus is asked once, from this host.

use std::collections::BTreeMap;

use cketerm_clients::prometheus::Prometheus;
use cketerm_model::{policy::Policy, start_gates::GateState};
use cketerm_rules::doctor::{Checks, Subject};
use futures::StreamExt;

/// Adds the answer of each gate.
pub(super) async fn add(policy: &Policy, prometheus: &Prometheus, found: &mut Checks) {
    const SUBJECT: Subject = Subject::StartGates;
    let Some(settings) = policy.start_gates.as_deref() else { return };
    // Answers come in any order.
    let answers: BTreeMap<String, GateState> = prometheus.ask(settings).collect().await;
    let mut open = Vec::new();
    for (gate, state) in answers {
        match state {
            GateState::Open => open.push(gate),
            GateState::Closed(why) => found.warning(
                SUBJECT,
                format!("gate {gate} is closed: {why}; while cketerm leads, no reboot and no maintenance starts"),
                "resolve it, or change policy start_gates if it should not hold reboots",
            ),
            GateState::Failed(why) => found.failed(
                SUBJECT,
                format!(
                    "gate {gate} has no usable answer: {why}; while cketerm leads, no reboot and no maintenance starts"
                ),
                "let Prometheus answer this host, or correct policy start_gates (`cketerm policy show`)",
            ),
        }
    }
    if !open.is_empty() {
        found.good(SUBJECT, format!("open at {}: {}", settings.shown_url(), open.join(", ")));
    }
}

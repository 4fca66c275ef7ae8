//! Gates of the site for new reboots (policy `start_gates`; REB-63 to REB-66, I72).
//!
//! Pure: [`StartGateView`] holds the answers of Prometheus; `src/engine/src/start_gates.rs` requests them.

use cketerm_model::{
    boot_time::BootTime,
    fault,
    reason::Reason,
    start_gates::{ALL_GATES, GateState, StartGateView, StartGates},
};
use serde::Serialize;

use super::Pass;

/// Condition on the site's gates for the start of one reboot. It is stored with the effect, and
/// [`StartGateCondition::closed`] checks it again right before the effect.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct StartGateCondition {
    settings: StartGates,
    /// Start of the leadership. Earlier answers do not count.
    leading_since: BootTime,
}

impl StartGateCondition {
    /// Returns a reason unless every gate is open by an answer that counts. `boot`: the present boot time. In this
    /// order:
    ///
    /// 1. A gate is closed by its newest answer.
    /// 2. A gate gave no usable answer.
    /// 3. A gate has no answer by these settings from this leadership, or an answer that is too old.
    pub fn closed(&self, view: &StartGateView, boot: BootTime) -> Option<Reason> {
        fault!(StartGateForgotten => return None);
        let gates = self.settings.gates();
        let is_current = view.settings.as_ref() == Some(&self.settings);
        let answer = |gate: &str| {
            let answer = view.answers.get(gate).filter(|_| is_current)?;
            (answer.asked >= self.leading_since).then_some(answer)
        };
        let reason = |gate: &str, why: &str, failed| {
            Some(Reason::StartGateClosed { gate: gate.to_owned(), why: why.to_owned(), failed })
        };
        let closed = gates.iter().find_map(|(gate, _)| match &answer(gate)?.state {
            GateState::Closed(why) => reason(gate, why, false),
            GateState::Open | GateState::Failed(_) => None,
        });
        let failed = || {
            gates.iter().find_map(|(gate, _)| match &answer(gate)?.state {
                GateState::Failed(why) => reason(gate, why, true),
                GateState::Open | GateState::Closed(_) => None,
            })
        };
        let unknown = || {
            let answers: Option<Vec<_>> = gates.iter().map(|(gate, _)| answer(gate)).collect();
            let Some(answers) = answers else {
                return reason(ALL_GATES, &format!("{} has not answered yet", self.settings.shown_url()), true);
            };
            let max_age = self.settings.max_age();
            let is_old = answers.iter().any(|answer| boot - answer.asked > max_age);
            let why = || format!("the last answer of {} is older than {max_age}", self.settings.shown_url());
            if is_old { reason(ALL_GATES, &why(), true) } else { None }
        };
        closed.or_else(failed).or_else(unknown)
    }
}

impl Pass<'_> {
    /// Returns the condition on the site's gates, or `None` if there are no gates. An engine that does not lead asks
    /// nobody, and shows the reason that the leader published.
    pub(super) fn start_gates(&self) -> Option<StartGateCondition> {
        let leading_since = self.leading_since().filter(|_| self.asks_prometheus())?;
        let settings = self.policy.start_gates.as_deref()?.clone();
        Some(StartGateCondition { settings, leading_since })
    }

    /// Returns a reason while a gate of the site is closed, or its state is not known.
    pub(super) fn start_gate_closed(&self) -> Option<Reason> {
        self.start_gates()?.closed(&self.snap.start_gates, self.monotonic_now())
    }
}

//! Durations of everything that takes time in the sandbox.

use std::time::Duration;

use fastrand::Rng;
use serde::{Deserialize, Serialize};

/// A random duration: at least `seconds`, and up to `jitter` seconds more.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RandomDuration {
    /// Minimum in seconds.
    pub seconds: f64,
    /// Maximum addition in seconds.
    #[serde(default)]
    pub jitter: f64,
}

impl RandomDuration {
    /// Returns a span without jitter.
    pub const fn exactly(seconds: f64) -> Self {
        Self { seconds, jitter: 0.0 }
    }

    /// Returns the span from `seconds` to `upto`.
    pub const fn between(seconds: f64, upto: f64) -> Self {
        Self { seconds, jitter: upto - seconds }
    }

    /// Draws one duration.
    pub fn draw(self, rng: &mut Rng) -> Duration {
        duration_from_secs(self.seconds + self.jitter * rng.f64())
    }
}

/// Converts seconds to a duration. Returns zero for a negative number and for NaN.
pub fn duration_from_secs(seconds: f64) -> Duration {
    Duration::try_from_secs_f64(seconds).unwrap_or_default()
}

/// Every duration of the data centre. When deserialized, a missing field has its value of `demo`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Durations {
    /// Time from a machine's power cycle until its operating system runs.
    pub boot: RandomDuration,
    /// Time from the start of a power command until the machine goes down.
    pub command: RandomDuration,
    /// Time that a check takes.
    pub check: RandomDuration,
    /// Time from a boot until the kubelet's first report.
    pub kubelet_start: RandomDuration,
    /// Time from the kubelet's first report until the Node is Ready.
    pub node_ready: RandomDuration,
    /// Seconds from a control plane's boot until its API server answers 200.
    pub api_settle: f64,
    /// Seconds without a kubelet report until the Node's conditions become Unknown.
    pub node_monitor_grace: f64,
    /// Time from a pod's binding (or its node's boot) until the pod is Ready.
    pub pod_start: RandomDuration,
    /// Time that a pod takes to stop, if its grace period allows it.
    pub pod_stop: RandomDuration,
    /// Seconds from a change until a controller (the scheduler, for example) has acted on it.
    pub lag: f64,
    /// Seconds from a change until the status of a budget is updated.
    pub budget_lag: f64,
    /// Seconds for which a budget counts an evicted pod as gone although it still exists.
    pub disruption_timeout: f64,
    /// Seconds from a Node's deletion until its pods are deleted.
    pub orphan_grace: f64,
}

impl Default for Durations {
    fn default() -> Self {
        Self::demo()
    }
}

impl Durations {
    /// Returns durations for people who watch: a worker is back within half a minute.
    pub const fn demo() -> Self {
        Self {
            boot: RandomDuration::between(6.0, 12.0),
            command: RandomDuration::between(0.8, 1.6),
            check: RandomDuration::between(0.05, 0.2),
            kubelet_start: RandomDuration::between(0.3, 0.8),
            node_ready: RandomDuration::between(0.5, 1.5),
            api_settle: 2.0,
            node_monitor_grace: 2.0,
            pod_start: RandomDuration::between(0.8, 2.5),
            pod_stop: RandomDuration::between(0.5, 3.0),
            lag: 0.1,
            budget_lag: 0.2,
            disruption_timeout: 120.0,
            orphan_grace: 5.0,
        }
    }

    /// Returns the same durations divided by `times`.
    #[must_use]
    pub fn divided_by(&self, times: f64) -> Self {
        let span = |s: RandomDuration| RandomDuration { seconds: s.seconds / times, jitter: s.jitter / times };
        Self {
            boot: span(self.boot),
            command: span(self.command),
            check: span(self.check),
            kubelet_start: span(self.kubelet_start),
            node_ready: span(self.node_ready),
            api_settle: self.api_settle / times,
            node_monitor_grace: self.node_monitor_grace / times,
            pod_start: span(self.pod_start),
            pod_stop: span(self.pod_stop),
            lag: self.lag / times,
            budget_lag: self.budget_lag / times,
            disruption_timeout: self.disruption_timeout / times,
            orphan_grace: self.orphan_grace / times,
        }
    }

    /// Returns durations as in a data centre, for simulations on a paused clock.
    pub const fn real() -> Self {
        Self {
            boot: RandomDuration::between(240.0, 480.0),
            command: RandomDuration::between(2.0, 5.0),
            check: RandomDuration::between(0.2, 1.0),
            kubelet_start: RandomDuration::between(10.0, 20.0),
            node_ready: RandomDuration::between(5.0, 20.0),
            api_settle: 30.0,
            node_monitor_grace: 40.0,
            pod_start: RandomDuration::between(3.0, 20.0),
            pod_stop: RandomDuration::between(1.0, 25.0),
            lag: 0.1,
            budget_lag: 0.3,
            disruption_timeout: 120.0,
            orphan_grace: 40.0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_random_span_stays_within_its_bounds_and_invalid_seconds_are_zero() {
        let mut rng = Rng::with_seed(1);
        let drawn: Vec<_> = (0..100).map(|_| RandomDuration::between(6.0, 12.0).draw(&mut rng).as_secs_f64()).collect();
        assert!(drawn.iter().all(|s| (6.0..=12.0).contains(s)) && drawn[0].to_bits() != drawn[1].to_bits());
        assert_eq!((duration_from_secs(-1.0), duration_from_secs(f64::NAN)), (Duration::ZERO, Duration::ZERO));
    }

    #[test]
    fn missing_durations_are_defaults_and_unknown_fields_are_rejected() {
        let durations: Durations = serde_yaml::from_str("{boot: {seconds: 2}, lag: 0}").unwrap();
        assert_eq!(durations, Durations { boot: RandomDuration::exactly(2.0), lag: 0.0, ..Durations::demo() });
        assert!(serde_yaml::from_str::<Durations>("{boots: {seconds: 2}}").is_err());
    }
}

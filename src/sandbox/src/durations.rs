//! Durations of everything that takes time in the sandbox.

use std::time::Duration;

use cketerm_model::boot_time::Seconds;
use fastrand::Rng;
use serde::{Deserialize, Serialize};

/// A random duration: at least `seconds`, and up to `jitter` seconds more.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RandomDuration {
    /// Minimum.
    pub seconds: Seconds,
    /// Maximum addition.
    #[serde(default)]
    pub jitter: Seconds,
}

impl RandomDuration {
    /// Returns a span without jitter.
    pub const fn exactly(seconds: f64) -> Self {
        Self { seconds: Seconds::new(seconds), jitter: Seconds::ZERO }
    }

    /// Returns the span from `seconds` to `upto`.
    pub const fn between(seconds: f64, upto: f64) -> Self {
        Self { seconds: Seconds::new(seconds), jitter: Seconds::new(upto - seconds) }
    }

    /// Draws one duration.
    pub fn draw(self, rng: &mut Rng) -> Duration {
        duration_from_secs(self.seconds + self.jitter * rng.f64())
    }
}

/// Converts a span to a duration. Returns zero for a negative span, for NaN, and for one that is too long.
pub fn duration_from_secs(span: Seconds) -> Duration {
    Duration::try_from_secs_f64(span.get()).unwrap_or_default()
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
    /// Time from a control plane's boot until its API server answers 200.
    pub api_settle: Seconds,
    /// Time without a kubelet report until the Node's conditions become Unknown.
    pub node_monitor_grace: Seconds,
    /// Time from a pod's binding (or its node's boot) until the pod is Ready.
    pub pod_start: RandomDuration,
    /// Time that a pod takes to stop, if its grace period allows it.
    pub pod_stop: RandomDuration,
    /// Time from a change until a controller (the scheduler, for example) has acted on it.
    pub lag: Seconds,
    /// Time from a change until the status of a budget is updated.
    pub budget_lag: Seconds,
    /// Time for which a budget counts an evicted pod as gone although it still exists.
    pub disruption_timeout: Seconds,
    /// Time from a Node's deletion until its pods are deleted.
    pub orphan_grace: Seconds,
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
            api_settle: Seconds::new(2.0),
            node_monitor_grace: Seconds::new(2.0),
            pod_start: RandomDuration::between(0.8, 2.5),
            pod_stop: RandomDuration::between(0.5, 3.0),
            lag: Seconds::new(0.1),
            budget_lag: Seconds::new(0.2),
            disruption_timeout: Seconds::new(120.0),
            orphan_grace: Seconds::new(5.0),
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
            api_settle: Seconds::new(30.0),
            node_monitor_grace: Seconds::new(40.0),
            pod_start: RandomDuration::between(3.0, 20.0),
            pod_stop: RandomDuration::between(1.0, 25.0),
            lag: Seconds::new(0.1),
            budget_lag: Seconds::new(0.3),
            disruption_timeout: Seconds::new(120.0),
            orphan_grace: Seconds::new(40.0),
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
        assert_eq!(
            (duration_from_secs(Seconds::new(-1.0)), duration_from_secs(Seconds::new(f64::NAN))),
            (Duration::ZERO, Duration::ZERO)
        );
    }

    #[test]
    fn missing_durations_are_defaults_and_unknown_fields_are_rejected() {
        let durations: Durations = serde_yaml::from_str("{boot: {seconds: 2}, lag: 0}").unwrap();
        assert_eq!(
            durations,
            Durations { boot: RandomDuration::exactly(2.0), lag: Seconds::new(0.0), ..Durations::demo() }
        );
        assert!(serde_yaml::from_str::<Durations>("{boots: {seconds: 2}}").is_err());
    }
}

//! Counters of an engine since its start: passes, and effects by outcome. They are for metrics only; no decision reads
//! them.

use std::time::Duration;

use cketerm_rules::snapshot::EffectOutcome;
use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{counter::Counter, family::Family, histogram::Histogram},
    registry::Registry,
};

/// Upper bounds of the histogram's buckets, in seconds.
const PASS_SECONDS: [f64; 8] = [0.0002, 0.0005, 0.001, 0.002, 0.005, 0.02, 0.1, 1.0];

/// Name, labels and description of every counter, for `docs/metrics.md`.
pub const COUNTERS: &[(&str, &[&str], &str)] = &[
    ("cketerm_effects_total", &["what", "outcome"], "Completed actions of the engine by outcome"),
    ("cketerm_notices_total", &["receiver", "outcome"], "Deliveries of notices: delivered, failed (retried), given up"),
    ("cketerm_pass_seconds", &["le"], "Seconds of one decision pass of the engine (histogram)"),
];

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct EffectLabels {
    what: String,
    outcome: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct DeliveryLabels {
    receiver: String,
    outcome: String,
}

/// The counters.
#[derive(Debug)]
pub struct Counters {
    passes: Histogram,
    effects: Family<EffectLabels, Counter>,
    notices: Family<DeliveryLabels, Counter>,
}

impl Default for Counters {
    fn default() -> Self {
        Self { passes: Histogram::new(PASS_SECONDS), effects: Family::default(), notices: Family::default() }
    }
}

impl Counters {
    /// Registers the counters.
    pub fn register(&self, registry: &mut Registry) {
        let [effects, notices, passes] = COUNTERS else { return };
        // OpenMetrics adds `_total` itself.
        registry.register(effects.0.trim_end_matches("_total"), effects.2, self.effects.clone());
        registry.register(notices.0.trim_end_matches("_total"), notices.2, self.notices.clone());
        registry.register(passes.0, passes.2, self.passes.clone());
    }

    pub(super) fn pass(&self, took: Duration) {
        self.passes.observe(took.as_secs_f64());
    }

    pub(super) fn notice(&self, receiver: &str, outcome: &str) {
        let labels = DeliveryLabels { receiver: receiver.to_owned(), outcome: outcome.to_owned() };
        self.notices.get_or_create(&labels).inc();
    }

    pub(super) fn ended(&self, what: &str, effect_outcome: &EffectOutcome) {
        let outcome = match effect_outcome {
            EffectOutcome::Failed(_) | EffectOutcome::TooLarge(_) => "failed",
            EffectOutcome::Stale(_) => "stale",
            EffectOutcome::Lost => "lost",
            EffectOutcome::Done
            | EffectOutcome::Rechecked(_)
            | EffectOutcome::Previewed(_)
            | EffectOutcome::Explained(_)
            | EffectOutcome::Answers(_)
            | EffectOutcome::Check(_)
            | EffectOutcome::Command(_) => "done",
        };
        self.effects.get_or_create(&EffectLabels { what: what.to_owned(), outcome: outcome.to_owned() }).inc();
    }
}

//! `/metrics`: the gauges of the table and the engine's counters, as `OpenMetrics` text.

use std::{fmt, sync::Arc};

use axum::{
    Router,
    http::{StatusCode, header},
    response::{IntoResponse, Response},
    routing::get,
};
use cketerm_engine::Counters;
use cketerm_rules::seen::Seen;
use prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, EncodeMetric, text::encode},
    metrics::{MetricType, gauge::ConstGauge},
    registry::Registry,
};
use tokio::sync::watch;

use super::gauges::GAUGES;

const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Collector of the gauges, which are read at every scrape.
struct Gauges(watch::Receiver<Arc<Seen>>);

impl fmt::Debug for Gauges {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Gauges")
    }
}

impl Collector for Gauges {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let seen = self.0.borrow().clone();
        for gauge in GAUGES {
            let mut family = encoder.encode_descriptor(gauge.name, gauge.help, None, MetricType::Gauge)?;
            if gauge.labels.is_empty() {
                let mut unlabelled = None;
                gauge.read(&seen, &mut |_, number| unlabelled = Some(number));
                if let Some(number) = unlabelled {
                    ConstGauge::new(number).encode(family)?;
                }
                continue;
            }
            let mut result = Ok(());
            gauge.read(&seen, &mut |values, number| {
                let labels: Vec<(&str, &str)> = gauge.labels.iter().copied().zip(values.iter().copied()).collect();
                let wrote = family.encode_family(&labels).and_then(|family| ConstGauge::new(number).encode(family));
                if wrote.is_err() {
                    result = wrote;
                }
            });
            result?;
        }
        Ok(())
    }
}

/// Returns the route of the page.
pub(super) fn route(seen: watch::Receiver<Arc<Seen>>, counters: &Counters) -> Router {
    let registry = Arc::new(registry(seen, counters));
    Router::new().route(
        "/metrics",
        get(move || {
            let registry = Arc::clone(&registry);
            async move { page(&registry) }
        }),
    )
}

pub(super) fn registry(seen: watch::Receiver<Arc<Seen>>, counters: &Counters) -> Registry {
    let mut registry = Registry::default();
    registry.register_collector(Box::new(Gauges(seen)));
    counters.register(&mut registry);
    registry
}

fn page(registry: &Registry) -> Response {
    let mut text = String::new();
    match encode(&mut text, registry) {
        Ok(()) => ([(header::CONTENT_TYPE, OPEN_METRICS)], text).into_response(),
        Err(e) => (StatusCode::INTERNAL_SERVER_ERROR, format!("the metrics cannot be written: {e}\n")).into_response(),
    }
}

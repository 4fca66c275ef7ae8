//! Kubernetes Events on Nodes and Pods about the engine's actions. Recording is best effort and never delays work: a bounded
//! queue drops what does not fit, each leadership has one task, and repeated events form a series. If the right to
//! create Events is missing, one warning is logged.

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use cketerm_clients::kubernetes::{Kube, ObjectEvent, WriteError};
use cketerm_model::{
    boot_time::{BootTime, Seconds},
    clock::Steady,
    fence::Fence,
};
use tokio::sync::mpsc;

/// Number of events that may wait to be written.
const QUEUE: usize = 512;
/// Time within which a repeated event belongs to the same series.
const SERIES: Seconds = Seconds::new(1800.0);
/// Time between two writes of a series, at least.
const SERIES_WRITE_INTERVAL: Seconds = Seconds::new(60.0);
/// Time without any write after the right was found missing.
const FORBIDDEN_PAUSE: Seconds = Seconds::new(600.0);
/// Number of series that are remembered.
const REMEMBERED: usize = 2000;

/// Queue of events to write. It is cheap to clone; its task ends with the last clone.
#[derive(Clone)]
pub(super) struct EventRecorder {
    queue: mpsc::Sender<ObjectEvent>,
    full: Arc<AtomicBool>,
}

impl EventRecorder {
    /// Starts the task of one leadership, which reports as `host`.
    pub fn start(kube: Kube, fence: Fence, steady: Steady, host: String) -> Self {
        let (queue, events) = mpsc::channel(QUEUE);
        let writer = Writer { kube, fence, steady, host, series_table: SeriesTable::default(), paused_until: None };
        cketerm_runtime::tasks::spawn(writer.run(events));
        Self { queue, full: Arc::default() }
    }

    /// Queues the event, if there is room.
    pub fn emit(&self, event: ObjectEvent) {
        if let Err(mpsc::error::TrySendError::Full(event)) = self.queue.try_send(event)
            && !self.full.swap(true, Ordering::Relaxed)
        {
            tracing::warn!(object = event.object(), "Kubernetes accepts Events too slowly; some are dropped");
        }
    }
}

struct Writer {
    kube: Kube,
    fence: Fence,
    steady: Steady,
    host: String,
    series_table: SeriesTable,
    /// Boot time until which nothing is written, because the right is missing; none = it was never missing.
    paused_until: Option<BootTime>,
}

impl Writer {
    async fn run(mut self, mut events: mpsc::Receiver<ObjectEvent>) {
        while let Some(event) = events.recv().await {
            self.write(&event).await;
        }
    }

    async fn write(&mut self, event: &ObjectEvent) {
        let now = self.steady.now();
        let boot = now.boot;
        if self.paused_until.is_some_and(|until| boot < until) {
            return;
        }
        let Ok(permit) = self.fence.permit(now.boot) else { return };
        let mark = now.wall.as_nanosecond();
        let written = match self.series_table.add(event, boot, mark) {
            EventWrite::New(name) => self.kube.create_event(&permit, &name, event, &self.host, now.wall).await,
            EventWrite::Again(name, count) => self.kube.repeat_event(&permit, &name, event, count, now.wall).await,
            EventWrite::Counted => return,
        };
        match written {
            Ok(()) => {}
            Err(WriteError::Refused { code: 403, message }) => {
                if self.paused_until.is_none() {
                    tracing::warn!(why = message, "no right to write Events; all else continues");
                }
                self.paused_until = Some(boot + FORBIDDEN_PAUSE);
            }
            Err(WriteError::NotFound) => self.series_table.forget(event),
            Err(e) => {
                tracing::debug!(object = event.object(), reason = event.reason, error = %e, "Event not written");
                self.series_table.forget(event);
                // A server that does not answer gets no immediate request for each waiting event.
                tokio::time::sleep(Duration::from_millis(200)).await;
            }
        }
    }
}

/// Write that an event needs.
#[derive(Debug, PartialEq, Eq)]
enum EventWrite {
    /// A new Event with this name.
    New(String),
    /// An update of the series with this name and the new count.
    Again(String, u32),
    /// None: the series was written a moment ago, and the next write includes this one.
    Counted,
}

struct Series {
    name: String,
    count: u32,
    last: BootTime,
    written: BootTime,
}

/// Events written so far, so that a repetition becomes a series.
#[derive(Default)]
struct SeriesTable(BTreeMap<ObjectEvent, Series>);

impl SeriesTable {
    /// Adds the event; `mark` makes the names of new Events unique.
    fn add(&mut self, event: &ObjectEvent, now: BootTime, mark: i128) -> EventWrite {
        if self.0.len() >= REMEMBERED {
            self.0.retain(|_, series| now - series.last < SERIES);
        }
        if self.0.len() >= REMEMBERED {
            self.0.clear();
        }
        if let Some(series) = self.0.get_mut(event).filter(|series| now - series.last < SERIES) {
            series.count = series.count.saturating_add(1);
            series.last = now;
            if now - series.written < SERIES_WRITE_INTERVAL {
                return EventWrite::Counted;
            }
            series.written = now;
            return EventWrite::Again(series.name.clone(), series.count);
        }
        let name = event.event_name(&format!("{mark:x}"));
        self.0.insert(event.clone(), Series { name: name.clone(), count: 1, last: now, written: now });
        EventWrite::New(name)
    }

    /// Forgets the event, because it does not exist or its state is unknown.
    fn forget(&mut self, event: &ObjectEvent) {
        self.0.remove(event);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cketerm_model::{kube::NodeRow, names::NodeName};

    fn at(second: f64) -> BootTime {
        BootTime::new(second)
    }

    fn event(note: &str) -> ObjectEvent {
        let row = NodeRow { name: NodeName::new("w1"), uid: "u".to_owned(), ..NodeRow::default() };
        ObjectEvent { warning: true, ..ObjectEvent::on(&row, ("DrainBackedOff", "Drain"), note.to_owned()) }
    }

    #[test]
    fn repeated_events_form_a_series_with_rate_limited_writes() {
        let mut series_table = SeriesTable::default();
        let name = |mark: &str| format!("w1.{mark}");
        assert_eq!(series_table.add(&event("a"), at(0.0), 16), EventWrite::New(name("10")));
        assert_eq!(series_table.add(&event("b"), at(0.0), 17), EventWrite::New(name("11")));
        for second in 1..60 {
            assert_eq!(series_table.add(&event("a"), at(second.into()), 18), EventWrite::Counted);
        }
        assert_eq!(series_table.add(&event("a"), at(60.0), 19), EventWrite::Again(name("10"), 61));
        assert_eq!(series_table.add(&event("a"), at(61.0), 20), EventWrite::Counted);
        // After a long time, it is a new event.
        assert_eq!(series_table.add(&event("a"), at(61.0) + SERIES, 32), EventWrite::New(name("20")));
        series_table.forget(&event("a"));
        assert_eq!(series_table.add(&event("a"), at(3000.0), 33), EventWrite::New(name("21")));
    }

    #[test]
    fn the_series_table_is_bounded() {
        let mut series_table = SeriesTable::default();
        for n in 0..10_000_i32 {
            series_table.add(&event(&n.to_string()), at(0.0), i128::from(n));
            assert!(series_table.0.len() <= REMEMBERED);
        }
    }
}

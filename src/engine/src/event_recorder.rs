//! Kubernetes Events on Nodes and Pods about the engine's actions. Recording is best effort and never delays work: a bounded
//! queue drops what does not fit, each leadership has one task, and repeated events form a series. If the right to
//! create Events is missing, one warning is logged.

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
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

/// Number of events that may wait to be written, of each kind of object.
const QUEUE: usize = 512;
/// Time within which a repeated event belongs to the same series.
const SERIES: Seconds = Seconds::new(1800.0);
/// Time between two writes of a series, at least.
const SERIES_WRITE_INTERVAL: Seconds = Seconds::new(60.0);
/// Time without any write to a namespace that refused one.
const REFUSED_PAUSE: Seconds = Seconds::new(600.0);
/// Number of namespaces whose refusals are remembered.
const MAX_REFUSING: usize = 1000;
/// Number of series that are remembered.
const REMEMBERED: usize = 2000;
/// Time between two warnings about dropped events.
const DROPPED_INTERVAL: Seconds = Seconds::new(600.0);

/// Queues of events to write. They are cheap to clone; their task ends with the last clone. Events on pods have a queue of
/// their own: a drain of a hundred pods crowds out none on Nodes.
#[derive(Clone)]
pub(super) struct EventRecorder {
    on_nodes: mpsc::Sender<ObjectEvent>,
    on_pods: mpsc::Sender<ObjectEvent>,
    dropped: Arc<AtomicU64>,
}

impl EventRecorder {
    /// Starts the task of one leadership, which reports as `host`.
    pub fn start(kube: Kube, fence: Fence, steady: Steady, host: String) -> Self {
        let (on_nodes, node_events) = mpsc::channel(QUEUE);
        let (on_pods, pod_events) = mpsc::channel(QUEUE);
        let dropped = Arc::<AtomicU64>::default();
        let writer = Writer {
            kube,
            fence,
            steady,
            host,
            series_table: SeriesTable::default(),
            refusals: Refusals::default(),
            dropped: Arc::clone(&dropped),
            next_warning: BootTime::ZERO,
        };
        cketerm_runtime::tasks::spawn(writer.run(node_events, pod_events));
        Self { on_nodes, on_pods, dropped }
    }

    /// Queues the event, if there is room.
    pub fn emit(&self, event: ObjectEvent) {
        let queue = if event.is_about_pod() { &self.on_pods } else { &self.on_nodes };
        if let Err(mpsc::error::TrySendError::Full(_)) = queue.try_send(event) {
            self.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }
}

struct Writer {
    kube: Kube,
    fence: Fence,
    steady: Steady,
    host: String,
    series_table: SeriesTable,
    refusals: Refusals,
    /// Number of events that were dropped since the last warning.
    dropped: Arc<AtomicU64>,
    next_warning: BootTime,
}

impl Writer {
    async fn run(mut self, mut on_nodes: mpsc::Receiver<ObjectEvent>, mut on_pods: mpsc::Receiver<ObjectEvent>) {
        loop {
            let next = tokio::select! {
                biased;
                event = on_nodes.recv() => event,
                event = on_pods.recv() => event,
            };
            let Some(event) = next else { return };
            self.write(&event).await;
            self.warn_of_dropped();
        }
    }

    fn warn_of_dropped(&mut self) {
        let now = self.steady.now().boot;
        if now < self.next_warning {
            return;
        }
        let dropped = self.dropped.swap(0, Ordering::Relaxed);
        if dropped > 0 {
            self.next_warning = now + DROPPED_INTERVAL;
            tracing::warn!(dropped, "Kubernetes accepts Events too slowly; some were dropped");
        }
    }

    async fn write(&mut self, event: &ObjectEvent) {
        let now = self.steady.now();
        let boot = now.boot;
        if self.refusals.is_refusing(event.namespace(), boot) {
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
            // The right may be missing everywhere, or this namespace is terminating or has a quota or a webhook.
            Err(WriteError::Refused { code: 403, message }) => {
                self.series_table.forget(event);
                if self.refusals.note(event.namespace(), boot) {
                    let (namespace, object) = (event.namespace(), event.object());
                    tracing::warn!(
                        namespace,
                        object,
                        why = message,
                        "Events in this namespace are refused; all else continues"
                    );
                }
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

/// Namespaces that refused an Event, with the boot time until which nothing is written to each.
#[derive(Default)]
struct Refusals(BTreeMap<String, BootTime>);

impl Refusals {
    fn is_refusing(&self, namespace: &str, now: BootTime) -> bool {
        self.0.get(namespace).is_some_and(|until| now < *until)
    }

    /// Notes that the namespace refused an Event; reports whether that is new. A refusal that does not fit any more is
    /// not noted.
    fn note(&mut self, namespace: &str, now: BootTime) -> bool {
        if self.0.len() >= MAX_REFUSING {
            self.0.retain(|_, until| now < *until);
        }
        if self.0.len() >= MAX_REFUSING {
            return false;
        }
        self.0.insert(namespace.to_owned(), now + REFUSED_PAUSE).is_none()
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
        let key = series_of(event);
        if let Some(series) = self.0.get_mut(&key).filter(|series| now - series.last < SERIES) {
            series.count = series.count.saturating_add(1);
            series.last = now;
            if now - series.written < SERIES_WRITE_INTERVAL {
                return EventWrite::Counted;
            }
            series.written = now;
            return EventWrite::Again(series.name.clone(), series.count);
        }
        self.drop_expired(now);
        let name = event.event_name(&format!("{mark:x}"));
        self.0.insert(key, Series { name: name.clone(), count: 1, last: now, written: now });
        EventWrite::New(name)
    }

    /// Forgets series that are over, or else the one that was repeated least recently.
    fn drop_expired(&mut self, now: BootTime) {
        if self.0.len() < REMEMBERED {
            return;
        }
        self.0.retain(|_, series| now - series.last < SERIES);
        if self.0.len() >= REMEMBERED
            && let Some(oldest) = self.0.iter().min_by_key(|(_, series)| series.last).map(|(key, _)| key.clone())
        {
            self.0.remove(&oldest);
        }
    }

    /// Forgets the event, because it does not exist or its state is unknown.
    fn forget(&mut self, event: &ObjectEvent) {
        self.0.remove(&series_of(event));
    }
}

/// Returns what the events of one series have in common. The note of a pod's event may hold counts or a webhook's message,
/// which differ at each repetition.
fn series_of(event: &ObjectEvent) -> ObjectEvent {
    let note = if event.is_about_pod() { String::new() } else { event.note.clone() };
    ObjectEvent { note, ..event.clone() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cketerm_model::{
        kube::{NodeRow, PodRow},
        names::NodeName,
    };

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
    fn a_pod_has_one_series_of_each_reason_whatever_the_note() {
        let pod = PodRow { namespace: "shop".to_owned(), name: "web".to_owned(), ..PodRow::default() };
        let blocked = |note: &str| ObjectEvent::on_pod(&pod, ("EvictionBlocked", "Drain"), note.to_owned());
        let mut series_table = SeriesTable::default();
        assert!(matches!(series_table.add(&blocked("healthy 2"), at(0.0), 1), EventWrite::New(_)));
        assert_eq!(series_table.add(&blocked("healthy 1"), at(1.0), 2), EventWrite::Counted);
        let leaves = ObjectEvent::on_pod(&pod, ("Evicting", "Drain"), "healthy 2".to_owned());
        assert!(matches!(series_table.add(&leaves, at(1.0), 3), EventWrite::New(_)));
    }

    #[test]
    fn a_full_series_table_forgets_the_oldest_series_alone() {
        let mut series_table = SeriesTable::default();
        let remembered = i32::try_from(REMEMBERED).unwrap();
        for n in 0..=remembered {
            series_table.add(&event(&n.to_string()), at(0.1 * f64::from(n)), i128::from(n));
        }
        let last = at(0.1 * f64::from(remembered));
        assert_eq!(series_table.add(&event("1"), last, 0), EventWrite::Again("w1.1".to_owned(), 2));
        assert!(matches!(series_table.add(&event("0"), last, 7), EventWrite::New(_)));
    }

    #[test]
    fn a_refusing_namespace_gets_no_events_for_a_while_and_is_reported_once() {
        let mut refusals = Refusals::default();
        assert!(refusals.note("shop", at(0.0)));
        assert!(!refusals.note("shop", at(1.0)));
        assert!(refusals.is_refusing("shop", at(600.0)));
        assert!(!refusals.is_refusing("shop", at(601.0)));
        assert!(!refusals.is_refusing("bank", at(1.0)));
    }

    #[test]
    fn expired_refusals_are_dropped_when_the_table_is_full() {
        let mut refusals = Refusals::default();
        for n in 0..MAX_REFUSING {
            assert!(refusals.note(&n.to_string(), at(1.0)));
        }
        assert!(!refusals.note("shop", at(2.0)));
        assert!(!refusals.is_refusing("shop", at(2.0)));
        assert_eq!(refusals.0.len(), MAX_REFUSING);
        assert!(refusals.note("shop", at(1.0) + REFUSED_PAUSE));
        assert_eq!(refusals.0.len(), 1);
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

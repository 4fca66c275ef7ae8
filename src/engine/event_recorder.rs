//! Kubernetes Events on Nodes about the engine's actions. Recording is best effort and never delays work: a bounded
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

use tokio::sync::mpsc;

use super::{act::Actor, snapshot::secs};
use crate::{
    clock::Steady,
    fence::Fence,
    kubernetes::{Kube, NodeEvent, WriteError, event_name},
    model::{
        cluster::Node,
        entry::{EntryId, Stored},
        kube::NodeRow,
    },
};

/// Number of events that may wait to be written.
const QUEUE: usize = 512;
/// Seconds within which a repeated event belongs to the same series.
const SERIES: f64 = 1800.0;
/// Seconds between two writes of a series, at least.
const OFTEN: f64 = 60.0;
/// Seconds without any write after the right was found missing.
const WITHOUT: f64 = 600.0;
/// Number of series that are remembered.
const REMEMBERED: usize = 2000;

/// Queue of events to write. It is cheap to clone; its task ends with the last clone.
#[derive(Clone)]
pub(super) struct EventRecorder {
    queue: mpsc::Sender<NodeEvent>,
    full: Arc<AtomicBool>,
}

impl EventRecorder {
    /// Starts the task of one leadership, which reports as `host`.
    pub fn start(kube: Kube, fence: Fence, steady: Steady, host: String) -> Self {
        let (queue, events) = mpsc::channel(QUEUE);
        let writer = Writer { kube, fence, steady, host, book: SeriesTable::default(), silent_until: 0.0 };
        crate::tasks::spawn(writer.run(events));
        Self { queue, full: Arc::default() }
    }

    /// Queues the event, if there is room.
    pub fn say(&self, event: NodeEvent) {
        if let Err(mpsc::error::TrySendError::Full(event)) = self.queue.try_send(event)
            && !self.full.swap(true, Ordering::Relaxed)
        {
            tracing::warn!(node = event.node, "Kubernetes accepts Events too slowly; some are dropped");
        }
    }
}

impl Actor {
    /// Records an event on the Node of this machine, if it has one.
    pub(super) fn say_on(&self, address: &str, what: (&'static str, &'static str), warning: bool, note: String) {
        if let Some(node) = self.node_at(address) {
            self.recorder.say(NodeEvent { warning, ..NodeEvent::on(&node, what, note) });
        }
    }

    /// Returns who requested an entry, as a part of a sentence.
    pub(super) fn asked_by(&self, id: EntryId) -> String {
        let view = self.live.borrow();
        let Some(request) = view.requests.get(&id).and_then(Stored::get) else { return String::new() };
        let why = request.reason.as_ref().map(|why| format!(" ({why})")).unwrap_or_default();
        format!(", requested by {}{why}", request.who)
    }

    fn node_at(&self, address: &str) -> Option<Arc<NodeRow>> {
        let (store, kube) = (self.live.borrow(), self.kube_live.borrow());
        let member = store.definition().and_then(|d| d.members.by_address(&d.cluster, address)).map(Node::node_name);
        let name = member.or_else(|| kube.by_address.get(address).map(String::as_str))?;
        kube.by_name.get(name).map(Arc::clone)
    }
}

struct Writer {
    kube: Kube,
    fence: Fence,
    steady: Steady,
    host: String,
    book: SeriesTable,
    /// Boot-time seconds until which nothing is written, because the right is missing.
    silent_until: f64,
}

impl Writer {
    async fn run(mut self, mut events: mpsc::Receiver<NodeEvent>) {
        while let Some(event) = events.recv().await {
            self.write(&event).await;
        }
    }

    async fn write(&mut self, event: &NodeEvent) {
        let now = self.steady.now();
        let boot = secs(now.boot);
        if boot < self.silent_until {
            return;
        }
        let Ok(permit) = self.fence.permit(now.boot) else { return };
        let mark = now.wall.as_nanosecond();
        let written = match self.book.entered(event, boot, mark) {
            Entered::New(name) => self.kube.create_event(&permit, &name, event, &self.host, now.wall).await,
            Entered::Again(name, count) => self.kube.repeat_event(&permit, &name, count, now.wall).await,
            Entered::Counted => return,
        };
        match written {
            Ok(()) => {}
            Err(WriteError::Refused { code: 403, message }) => {
                if self.silent_until == 0.0 {
                    tracing::warn!(why = message, "no right to write Events on Nodes; all else continues");
                }
                self.silent_until = boot + WITHOUT;
            }
            Err(WriteError::NotFound) => self.book.forget(event),
            Err(e) => {
                tracing::debug!(node = event.node, reason = event.reason, error = %e, "Event not written");
                self.book.forget(event);
                // A server that does not answer gets no immediate request for each waiting event.
                tokio::time::sleep(Duration::from_millis(200)).await;
            }
        }
    }
}

/// Write that an event needs.
#[derive(Debug, PartialEq, Eq)]
enum Entered {
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
    last: f64,
    written: f64,
}

/// Events written so far, so that a repetition becomes a series.
#[derive(Default)]
struct SeriesTable(BTreeMap<NodeEvent, Series>);

impl SeriesTable {
    /// Adds the event; `mark` makes the names of new Events unique.
    fn entered(&mut self, event: &NodeEvent, now: f64, mark: i128) -> Entered {
        if self.0.len() >= REMEMBERED {
            self.0.retain(|_, line| now - line.last < SERIES);
        }
        if self.0.len() >= REMEMBERED {
            self.0.clear();
        }
        if let Some(line) = self.0.get_mut(event).filter(|line| now - line.last < SERIES) {
            line.count = line.count.saturating_add(1);
            line.last = now;
            if now - line.written < OFTEN {
                return Entered::Counted;
            }
            line.written = now;
            return Entered::Again(line.name.clone(), line.count);
        }
        let name = event_name(&event.node, &format!("{mark:x}"));
        self.0.insert(event.clone(), Series { name: name.clone(), count: 1, last: now, written: now });
        Entered::New(name)
    }

    /// Forgets the event, because it does not exist or its state is unknown.
    fn forget(&mut self, event: &NodeEvent) {
        self.0.remove(event);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(note: &str) -> NodeEvent {
        NodeEvent {
            node: "w1".to_owned(),
            uid: "u".to_owned(),
            warning: true,
            reason: "DrainBackedOff",
            action: "Drain",
            note: note.to_owned(),
        }
    }

    #[test]
    fn the_same_again_is_a_series_and_a_flood_is_counted() {
        let mut book = SeriesTable::default();
        let name = |mark: &str| format!("w1.{mark}");
        assert_eq!(book.entered(&event("a"), 0.0, 16), Entered::New(name("10")));
        assert_eq!(book.entered(&event("b"), 0.0, 17), Entered::New(name("11")));
        for second in 1..60 {
            assert_eq!(book.entered(&event("a"), f64::from(second), 18), Entered::Counted);
        }
        assert_eq!(book.entered(&event("a"), 60.0, 19), Entered::Again(name("10"), 61));
        assert_eq!(book.entered(&event("a"), 61.0, 20), Entered::Counted);
        // Long afterwards, it is a new event.
        assert_eq!(book.entered(&event("a"), 61.0 + SERIES, 32), Entered::New(name("20")));
        book.forget(&event("a"));
        assert_eq!(book.entered(&event("a"), 3000.0, 33), Entered::New(name("21")));
    }

    #[test]
    fn what_is_remembered_is_bounded() {
        let mut book = SeriesTable::default();
        for n in 0..10_000_i32 {
            book.entered(&event(&n.to_string()), 0.0, i128::from(n));
            assert!(book.0.len() <= REMEMBERED);
        }
    }
}

//! How late things may be, and who may be asked when: the bounds that observers allow.

use jiff::Timestamp;
use serde_json::Value;

use super::{
    super::record::{Record, Said},
    Node, Pod, PodState, View, is_engine, shift,
};

/// Seconds that a request to etcd or the start of a command may come late on the way.
const ON_THE_WAY: f64 = 3.0;
/// Seconds until a client of Kubernetes gives a request up, and those it may come late then.
const CALL: f64 = 12.5;
/// Seconds after which a copy of etcd or Kubernetes is too old to start anything from, with what it may be behind then.
const STALE: f64 = 15.0;

impl View<'_> {
    /// The TTL of leases in seconds.
    pub fn ttl(&self) -> f64 {
        if self.record.ttl_seconds == 0 { 10.0 } else { f64::from(self.record.ttl_seconds) }
    }

    /// Seconds by which the start of a command, or a write to etcd, may come after what it was decided from.
    pub fn late(&self) -> f64 {
        self.ttl() / 12.0 + ON_THE_WAY
    }

    /// Seconds by which a write to Kubernetes may come after what it was decided from.
    pub fn kube_late(&self) -> f64 {
        self.ttl() / 12.0 + CALL
    }

    /// Seconds by which a copy of Kubernetes that something is started from may be behind.
    pub fn lag(&self) -> f64 {
        self.ttl() / 12.0 + STALE
    }

    /// So many seconds before `at`, not counting those in which this process stood still.
    pub fn back(&self, by: &str, at: Timestamp, seconds: f64) -> Timestamp {
        let mut from = shift(at, -seconds);
        for (_, begin, end) in self.record.frozen.iter().rev().filter(|(who, ..)| who == by) {
            let end = (*end).min(at);
            if end > from && *begin < end {
                from = shift(from, -end.duration_since(*begin).as_secs_f64());
            }
        }
        from
    }

    /// Since when what an engine decided and wrote in this revision may have been seen so in Kubernetes.
    pub fn seen_since(&self, revision: i64, at: Timestamp) -> Timestamp {
        self.back(self.txn(revision).map_or("", |t| &t.by), at, self.lag())
    }

    /// What engines said that led and were alive to say it: neither standing still, nor just waking up.
    pub fn leading(&self) -> impl Iterator<Item = &Said> {
        self.leading.iter().copied()
    }

    /// The lease under which this process stood for election at this time.
    pub fn session(&self, by: &str, at: Timestamp) -> Option<String> {
        let known = self.candidates.iter().any(|c| c.by.is_some());
        let mut stood = self.candidates.iter().rev().filter(|c| c.from <= at);
        stood.find(|c| !known || c.by.as_deref() == Some(by)).map(|c| c.lease.clone())
    }

    /// An engine of ours has led all the time from here to the end of the record.
    pub fn led_to_the_end(&self, from: Timestamp) -> bool {
        let last = self.record.keys.last().map_or(0, |k| k.revision);
        self.leader(last).is_some_and(|c| c.ours && c.from <= from && self.led(&c.lease, from, from))
    }

    /// The audit record that was put in this revision.
    pub fn audit_at(&self, revision: i64) -> Option<Value> {
        let put = self.changed(revision).iter().find(|c| c.key.starts_with("cketerm/audit/"))?;
        serde_json::from_slice(put.value.as_ref()?).ok()
    }

    /// Whether this process is an engine that was known to lead at some moment of this time; none = nobody knows.
    pub fn led_by(&self, by: &str, from: Timestamp, to: Timestamp) -> Option<bool> {
        let mut own = self.candidates.iter().filter(|c| is_engine(by) && c.by.as_deref() == Some(by)).peekable();
        own.peek()?;
        Some(own.any(|c| self.led(&c.lease, from, to)))
    }

    /// Somebody else than an engine made this Node schedulable, took our record off, or deleted it, in this time.
    pub fn released_by_hand(&self, name: &str, from: Timestamp, to: Timestamp) -> bool {
        let Some(line) = self.nodes.get(name) else { return true };
        line.steps().windows(2).filter(|w| w[1].at >= from && w[1].at <= to).any(|w| {
            let held = |n: Option<&Node>| n.is_some_and(|n| n.unschedulable && n.owner().is_some());
            held(w[0].value.as_ref())
                && !held(w[1].value.as_ref())
                && !self.made_by_engines.contains(&(name.to_owned(), w[1].revision))
        })
    }

    /// Pods of which this was so on that Node from `from` to `to`, without a break.
    pub fn pods_on(&self, node: &str, from: Timestamp, to: Timestamp, so: impl Fn(&PodState) -> bool) -> Vec<&Pod> {
        let bound = self.pods_on.get(node).into_iter().flatten().filter_map(|uid| self.pods.get(uid));
        bound.filter(|pod| pod.states.throughout(from, to, |s| s.is_some_and(|s| s.node == node && so(s)))).collect()
    }
}

/// See [`View::leading`].
pub(super) fn leading(record: &Record) -> Vec<&Said> {
    let still: Vec<_> = record.frozen.iter().map(|(by, from, to)| (by, *from, shift(*to, 2.0))).collect();
    let awake = |s: &&Said| !still.iter().any(|(by, from, to)| s.at >= *from && s.at <= *to && **by == s.by);
    record.said.iter().filter(|s| s.leads).filter(awake).collect()
}

//! Bounds that observers allow: how late things may be, and which engine's report counts when.

use jiff::Timestamp;
use serde_json::Value;

use super::{
    super::record::{EngineReport, Record},
    Node, Pod, PodState, View, is_engine, shift,
};

/// Seconds by which a request to etcd or the start of a command may be delayed on the way.
const REQUEST_DELAY: f64 = 3.0;
/// Seconds until a Kubernetes client gives up a request, plus its possible delay on the way.
const CALL_TIMEOUT: f64 = 12.5;
/// Seconds after which a copy of etcd or Kubernetes is too old to start anything from, plus its possible lag at that
/// time.
const STALE_AFTER: f64 = 15.0;

impl View<'_> {
    /// TTL of leases in seconds.
    pub fn ttl(&self) -> f64 {
        if self.record.ttl_seconds == 0 { 10.0 } else { f64::from(self.record.ttl_seconds) }
    }

    /// Seconds between a decision's data and the start of its command, or its write to etcd, at most.
    pub fn late(&self) -> f64 {
        self.ttl() / 12.0 + REQUEST_DELAY
    }

    /// Seconds between a decision's data and its write to Kubernetes, at most.
    pub fn max_kube_delay(&self) -> f64 {
        self.ttl() / 12.0 + CALL_TIMEOUT
    }

    /// Seconds by which a copy of Kubernetes that a start is based on may be behind.
    pub fn lag(&self) -> f64 {
        self.ttl() / 12.0 + STALE_AFTER
    }

    /// Returns the time this many seconds before `at`, not counting those in which this process was paused.
    pub fn back(&self, by: &str, at: Timestamp, seconds: f64) -> Timestamp {
        let mut from = shift(at, -seconds);
        for (_, begin, end) in self.record.paused.iter().rev().filter(|(who, ..)| who == by) {
            let end = (*end).min(at);
            if end > from && *begin < end {
                from = shift(from, -end.duration_since(*begin).as_secs_f64());
            }
        }
        from
    }

    /// Earliest time of the Kubernetes state from which an engine may have decided its write of this revision.
    pub fn seen_since(&self, revision: i64, at: Timestamp) -> Timestamp {
        self.back(self.txn(revision).map_or("", |t| &t.by), at, self.lag())
    }

    /// Reports of engines that led and were running: neither paused nor just resumed.
    pub fn leading(&self) -> impl Iterator<Item = &EngineReport> {
        self.leading.iter().copied()
    }

    /// Lease under which this process was a candidate at this time.
    pub fn session(&self, by: &str, at: Timestamp) -> Option<String> {
        let known = self.candidates.iter().any(|c| c.by.is_some());
        let mut earlier = self.candidates.iter().rev().filter(|c| c.from <= at);
        earlier.find(|c| !known || c.by.as_deref() == Some(by)).map(|c| c.lease.clone())
    }

    /// Reports whether an engine of cketerm led all the time from here to the end of the record.
    pub fn led_until_end(&self, from: Timestamp) -> bool {
        let last = self.record.keys.last().map_or(0, |k| k.revision);
        self.leader(last).is_some_and(|c| c.registered && c.from <= from && self.led(&c.lease, from, from))
    }

    /// Audit record that was written in this revision.
    pub fn audit_at(&self, revision: i64) -> Option<Value> {
        let put = self.changed(revision).iter().find(|c| c.key.starts_with("cketerm/audit/"))?;
        serde_json::from_slice(put.value.as_ref()?).ok()
    }

    /// Reports whether this process is an engine that was known to lead at some moment of this time. None if that is
    /// unknown.
    pub fn led_by(&self, by: &str, from: Timestamp, to: Timestamp) -> Option<bool> {
        let mut own = self.candidates.iter().filter(|c| is_engine(by) && c.by.as_deref() == Some(by)).peekable();
        own.peek()?;
        Some(own.any(|c| self.led(&c.lease, from, to)))
    }

    /// Reports whether, in this time, another program than an engine made this Node schedulable, removed the owner
    /// record, or deleted the Node.
    pub fn released_manually(&self, name: &str, from: Timestamp, to: Timestamp) -> bool {
        let Some(line) = self.nodes.get(name) else { return true };
        line.steps().windows(2).filter(|w| w[1].at >= from && w[1].at <= to).any(|w| {
            let held = |n: Option<&Node>| n.is_some_and(|n| n.unschedulable && n.owner().is_some());
            held(w[0].value.as_ref())
                && !held(w[1].value.as_ref())
                && !self.made_by_engines.contains(&(name.to_owned(), w[1].revision))
        })
    }

    /// Pods for which the condition held on that Node from `from` to `to`, without a break.
    pub fn pods_on(
        &self,
        node: &str,
        from: Timestamp,
        to: Timestamp,
        condition: impl Fn(&PodState) -> bool,
    ) -> Vec<&Pod> {
        let bound = self.pods_on.get(node).into_iter().flatten().filter_map(|uid| self.pods.get(uid));
        bound
            .filter(|pod| pod.states.throughout(from, to, |s| s.is_some_and(|s| s.node == node && condition(s))))
            .collect()
    }
}

/// Computes [`View::leading`].
pub(super) fn leading(record: &Record) -> Vec<&EngineReport> {
    let pauses: Vec<_> = record.paused.iter().map(|(by, from, to)| (by, *from, shift(*to, 2.0))).collect();
    let running = |s: &&EngineReport| !pauses.iter().any(|(by, from, to)| s.at >= *from && s.at <= *to && **by == s.by);
    record.reports.iter().filter(|s| s.leads).filter(running).collect()
}

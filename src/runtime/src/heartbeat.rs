//! Heartbeat of the engine's main loop (SAF-6). A task of its own keeps the lease alive, so a stuck loop would hold the
//! lock for ever. A watcher detects a loop that makes no turn for [`Heartbeat::limit`]. The lease is then revoked, and
//! the process exits.
//!
//! Silence is counted in looks of the watcher, not by a clock. While a process is stopped or a laptop sleeps, neither
//! loop nor watcher runs, so the loop is not missing. The loop awaits no network, so a slow server never costs a beat.

use std::{
    sync::{
        Arc, Weak,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use cketerm_model::fault;
use tokio::{
    sync::watch,
    time::{sleep, timeout},
};

/// Interval between two looks of the watcher.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);
/// Lower bound of the limit, for any TTL.
const MIN_LIMIT: Duration = Duration::from_secs(10);
/// Time that the process waits for etcd to revoke the lease before it exits.
const REVOKE_TIMEOUT: Duration = Duration::from_secs(3);
/// Time that the thread of [`Heartbeat::guard`] waits longer than the watcher.
const GUARD_MARGIN: Duration = Duration::from_secs(10);

/// Heartbeat of one engine. All clones share one state.
#[derive(Clone, Debug)]
pub struct Heartbeat(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    limit: Duration,
    beats: AtomicU64,
    /// Number of looks of the watcher, which serves as the watcher's own heartbeat.
    checks: AtomicU64,
    state: watch::Sender<State>,
    /// The lease that depends on this heartbeat.
    lease: watch::Sender<Lease>,
}

/// State of the newest lease under a heartbeat.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Lease {
    /// There is none, or it is gone.
    None,
    /// A task keeps it alive.
    Kept(i64),
    /// It was not revoked, but no task keeps it alive any more, so it will expire.
    Expiring(i64),
    /// It was revoked because the loop is missing.
    Revoked,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Watched,
    Missing,
    Ended,
}

/// A lease that is kept alive under this heartbeat. When it is dropped, the lease expires, unless its revocation was
/// reported before.
#[derive(Debug)]
pub struct LeaseInUse {
    heartbeat: Heartbeat,
    lease: i64,
}

impl LeaseInUse {
    /// Reports that the loop is missing and that etcd has revoked the lease.
    pub fn mark_revoked(self) {
        self.set_lease(Lease::Revoked);
    }

    /// Reports that the lease has expired or that etcd does not know it.
    pub fn gone(self) {
        self.set_lease(Lease::None);
    }

    fn set_lease(&self, what: Lease) {
        self.heartbeat.0.lease.send_modify(|lease| {
            if *lease == Lease::Kept(self.lease) {
                *lease = what;
            }
        });
    }
}

impl Drop for LeaseInUse {
    fn drop(&mut self) {
        self.set_lease(Lease::Expiring(self.lease));
    }
}

impl Heartbeat {
    /// Creates the heartbeat of an engine whose lease has this TTL. It has no effect until [`Heartbeat::watch`] runs.
    pub fn new(ttl: Duration) -> Self {
        Self(Arc::new(Inner {
            limit: MIN_LIMIT.max(ttl / 2),
            beats: AtomicU64::new(0),
            checks: AtomicU64::new(0),
            state: watch::Sender::new(State::Watched),
            lease: watch::Sender::new(Lease::None),
        }))
    }

    /// Returns the longest allowed silence of the loop: half the TTL, at least 10 s.
    pub fn limit(&self) -> Duration {
        self.0.limit
    }

    /// Records one turn of the loop.
    pub fn beat(&self) {
        self.0.beats.fetch_add(1, Ordering::Relaxed);
    }

    /// Returns the number of turns so far.
    pub fn beats(&self) -> u64 {
        self.0.beats.load(Ordering::Relaxed)
    }

    /// Ends the watch, because the loop has ended regularly or its owner has dropped it.
    pub fn end(&self) {
        self.0.state.send_if_modified(|state| {
            let watched = *state == State::Watched;
            if watched {
                *state = State::Ended;
            }
            watched
        });
    }

    /// Watches the loop until it ends or goes missing.
    pub async fn watch(self) {
        let (mut seen, mut silent) = (self.beats(), Duration::ZERO);
        while *self.0.state.borrow() == State::Watched {
            sleep(CHECK_INTERVAL).await;
            self.0.checks.fetch_add(1, Ordering::Relaxed);
            let beats = self.beats();
            silent = if beats == seen { silent + CHECK_INTERVAL } else { Duration::ZERO };
            seen = beats;
            fault!(HeartbeatIgnored => continue);
            if silent < self.0.limit {
                continue;
            }
            self.0.state.send_if_modified(|state| {
                let watched = *state == State::Watched;
                if watched {
                    tracing::error!(
                        silent_seconds = silent.as_secs(),
                        "the engine's main loop is stuck; releasing the lock"
                    );
                    *state = State::Missing;
                }
                watched
            });
        }
    }

    /// Resolves once the loop is missing, and never otherwise.
    pub fn missing(&self) -> impl Future<Output = ()> + Send + 'static {
        let mut state = self.0.state.subscribe();
        async move {
            let missing = state.wait_for(|state| *state == State::Missing).await.is_ok();
            if !missing {
                std::future::pending::<()>().await;
            }
        }
    }

    /// Resolves once the loop is missing and its lease is revoked, or etcd took too long. The process must exit with
    /// this message, which reports the state of the lease.
    pub fn stuck(&self) -> impl Future<Output = String> + Send + 'static {
        let (missing, limit) = (self.missing(), self.0.limit.as_secs());
        let mut lease = self.0.lease.subscribe();
        async move {
            missing.await;
            // without an answer the lease expires by itself, since no task keeps it alive
            let _ = timeout(REVOKE_TIMEOUT, lease.wait_for(|lease| !matches!(lease, Lease::Kept(_)))).await;
            let lock = match *lease.borrow() {
                Lease::Revoked => "the lock was released",
                Lease::Kept(_) | Lease::Expiring(_) => "its lease was not revoked, so the lock expires with it",
                Lease::None => "it held no lock",
            };
            format!("the engine's main loop was stuck for {limit} s; {lock}; start cketerm again")
        }
    }

    /// Registers a lease that is kept alive only while this heartbeat beats. An engine has one at a time.
    pub fn lease(&self, lease: i64) -> LeaseInUse {
        self.0.lease.send_replace(Lease::Kept(lease));
        LeaseInUse { heartbeat: self.clone(), lease }
    }

    /// Records that this lease was revoked, by any caller.
    pub fn revoked(&self, lease: i64) {
        self.0.lease.send_modify(|newest| {
            if [Lease::Kept(lease), Lease::Expiring(lease)].contains(newest) {
                *newest = Lease::None;
            }
        });
    }

    /// Message of a process that [`Self::guard`] ends.
    pub fn exit_message(&self) -> String {
        let limit = (self.0.limit + GUARD_MARGIN).as_secs();
        format!(
            "the engine did not run for {limit} s, or could not end: the host is overloaded, or a task blocks; the \
             process exits so that another engine can lead; start cketerm again"
        )
    }

    /// Ends the process with status 1 from a thread of its own, where no task can. A stuck loop may block the runtime's
    /// only thread, or the process may not exit although it was notified. `before` restores the terminal and gets one
    /// second.
    pub fn guard(&self, before: impl FnOnce() + Send + 'static) -> std::io::Result<()> {
        let (inner, limit) = (Arc::downgrade(&self.0), self.0.limit + GUARD_MARGIN);
        let thread = || std::thread::Builder::new().name("heartbeat".to_owned());
        let guard = move || {
            if !must_exit(&inner, limit, GUARD_MARGIN) {
                return;
            }
            tracing::error!("the process is stuck; exiting");
            // a terminal that blocks must not delay the exit
            let _ = thread().spawn(before);
            std::thread::sleep(CHECK_INTERVAL);
            std::process::exit(1);
        };
        thread().spawn(guard).map(drop)
    }
}

/// Waits until the watcher has not looked for `starved`, or the loop has been missing for `missing`. Returns false if
/// the engine ended before.
fn must_exit(inner: &Weak<Inner>, starved: Duration, missing: Duration) -> bool {
    let (mut seen, mut silent) = (0, Duration::ZERO);
    loop {
        std::thread::sleep(CHECK_INTERVAL);
        let Some(inner) = inner.upgrade() else { return false };
        let limit = match *inner.state.borrow() {
            State::Watched => starved,
            State::Missing => missing,
            State::Ended => return false,
        };
        let checks = inner.checks.load(Ordering::Relaxed);
        silent = if checks == seen { silent + CHECK_INTERVAL } else { Duration::ZERO };
        seen = checks;
        if silent >= limit {
            return true;
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::Instant;

    use super::*;

    fn watched(ttl: u64) -> Heartbeat {
        let heartbeat = Heartbeat::new(Duration::from_secs(ttl));
        tokio::spawn(heartbeat.clone().watch());
        heartbeat
    }

    #[tokio::test(start_paused = true)]
    async fn a_loop_is_missing_once_it_stops_beating_for_the_limit() {
        for (ttl, limit) in [(5, 10), (20, 10), (60, 30), (120, 60)] {
            let heartbeat = watched(ttl);
            let missing = heartbeat.missing();
            tokio::pin!(missing);
            // an iteration just below the limit does not count as missing
            for _ in 0..20 {
                heartbeat.beat();
                assert!(timeout(Duration::from_secs(limit - 2), &mut missing).await.is_err(), "TTL {ttl}");
            }
            heartbeat.beat();
            let began = Instant::now();
            missing.await;
            let took = began.elapsed().as_secs();
            assert!((limit..=limit + 2).contains(&took), "TTL {ttl}: {took} s");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn an_engine_that_has_ended_is_not_missing() {
        let heartbeat = watched(5);
        heartbeat.end();
        assert!(timeout(Duration::from_mins(10), heartbeat.missing()).await.is_err());
    }

    #[tokio::test(start_paused = true)]
    async fn a_suspended_process_is_not_missing() {
        let gate = crate::tasks::Gate::default();
        let heartbeat = Heartbeat::new(Duration::from_mins(1));
        let beating = heartbeat.clone();
        tokio::spawn(gate.hold(async move {
            crate::tasks::spawn(beating.clone().watch());
            loop {
                beating.beat();
                sleep(CHECK_INTERVAL).await;
            }
        }));
        for _ in 0..5 {
            sleep(Duration::from_secs(5)).await;
            gate.freeze();
            sleep(Duration::from_hours(8)).await;
            gate.thaw();
        }
        assert!(timeout(Duration::from_mins(5), heartbeat.missing()).await.is_err());
    }

    #[tokio::test(start_paused = true)]
    async fn a_stuck_process_waits_a_limited_time_for_the_revocation() {
        let heartbeat = watched(5);
        let lease = heartbeat.lease(7);
        let (missing, stuck) = (heartbeat.missing(), tokio::spawn(heartbeat.stuck()));
        missing.await;
        sleep(Duration::from_secs(1)).await;
        assert!(!stuck.is_finished());
        lease.mark_revoked();
        assert!(stuck.await.unwrap().contains("the lock was released"));

        let heartbeat = watched(5);
        let _lease = heartbeat.lease(7);
        assert!(heartbeat.stuck().await.contains("was not revoked"));
    }

    /// The message reports the real state of the lease, not only that no task keeps it alive.
    #[tokio::test(start_paused = true)]
    async fn the_stuck_message_reports_the_state_of_the_lease() {
        let stuck_message = async |of: fn(&Heartbeat)| {
            let heartbeat = watched(5);
            of(&heartbeat);
            heartbeat.stuck().await
        };
        let none = "it held no lock";
        assert!(stuck_message(|_| {}).await.contains(none), "an engine that never campaigned");
        assert!(
            stuck_message(|heartbeat| drop(heartbeat.lease(7))).await.contains("was not revoked"),
            "the lease's keep-alive task was aborted"
        );
        assert!(stuck_message(|heartbeat| heartbeat.lease(7).gone()).await.contains(none), "the lease expired before");
        let resigned = stuck_message(|heartbeat| {
            drop(heartbeat.lease(7));
            heartbeat.revoked(7);
        });
        assert!(resigned.await.contains(none));
        let again = stuck_message(|heartbeat| {
            let before = heartbeat.lease(7);
            std::mem::forget(heartbeat.lease(8));
            drop(before);
            heartbeat.revoked(7);
        });
        assert!(again.await.contains("was not revoked"), "the newest lease counts");
    }

    #[test]
    fn the_guard_thread_detects_a_starved_watcher_and_ignores_an_ended_engine() {
        let heartbeat = Heartbeat::new(Duration::from_secs(5));
        let (inner, never) = (Arc::downgrade(&heartbeat.0), Duration::MAX);
        assert!(must_exit(&inner, CHECK_INTERVAL, never), "the watcher is starved");
        heartbeat.0.state.send_replace(State::Missing);
        assert!(must_exit(&inner, never, CHECK_INTERVAL), "the engine does not exit by itself");
        heartbeat.0.state.send_replace(State::Ended);
        assert!(!must_exit(&inner, CHECK_INTERVAL, CHECK_INTERVAL));
        assert!(!must_exit(&Weak::new(), CHECK_INTERVAL, CHECK_INTERVAL));
    }
}

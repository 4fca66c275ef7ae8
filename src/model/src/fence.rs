//! The fence. The engine starts no effect without a [`Permit`]. Only a [`Fence`] whose lease lives with enough margin
//! issues one (SAF-2, SAF-8; I23, I24).

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use crate::{
    boot_time::BootTime,
    cketerm_records::{AcceptedCancel, Who},
    clock::Clock,
    fault,
};

/// The leadership of this engine: the key that every write compares, and the rest of the lease.
#[derive(Clone, Debug)]
pub struct Fence {
    key: Arc<str>,
    create_revision: i64,
    lease: i64,
    life: Life,
}

/// Clock of the lease, shared with the task that keeps it alive.
#[derive(Clone, Debug)]
pub struct Life {
    clock: Clock,
    ttl: Duration,
    /// Boot time in milliseconds at which the last acknowledged keep-alive was *sent*.
    acknowledged: Arc<AtomicU64>,
    ended: Arc<AtomicBool>,
}

/// Permission to carry out one effect now. Only a [`Fence`] issues one. Deliberately not `Clone`: each effect requests
/// its own.
#[derive(Debug)]
pub struct Permit {
    leader_key: Arc<str>,
    create_revision: i64,
    lease: i64,
}

impl Permit {
    /// Returns the leader's key in `leader/`.
    pub fn leader_key(&self) -> &str {
        &self.leader_key
    }

    /// Returns the create revision of the key.
    pub fn create_revision(&self) -> i64 {
        self.create_revision
    }

    /// Returns the leader's lease.
    pub fn lease(&self) -> i64 {
        self.lease
    }
}

/// Proof that an operator requested a write. It is required for every write that uses the operator's rights and is not
/// fenced. The operator is a person or a script acting for one. The engine creates it only from the record of an
/// accepted cancel.
#[derive(Clone, Debug)]
pub struct Person(Who);

impl Person {
    /// Creates the proof for a request of this operator.
    pub fn asks(who: &Who) -> Self {
        Self(who.clone())
    }

    /// Creates the proof for a cancel that this operator asked for earlier, from its record.
    pub fn asked(cancel: &AcceptedCancel) -> Self {
        Self(cancel.who.clone())
    }

    /// Returns the operator, for the audit.
    pub fn who(&self) -> &Who {
        &self.0
    }
}

/// Reason why no effect may start.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum NoPermit {
    /// The lease is lost or about to expire.
    #[error("the leader's lease has {left_ms} ms left, an effect needs {need_ms} ms")]
    NoMargin {
        /// Milliseconds left of the lease.
        left_ms: u64,
        /// Milliseconds that an effect needs.
        need_ms: u64,
    },
    /// The decision is too old.
    #[error("the decision is {age_ms} ms old, the limit is {limit_ms} ms")]
    TooOld {
        /// Milliseconds since the decision.
        age_ms: u64,
        /// Milliseconds allowed.
        limit_ms: u64,
    },
}

impl Life {
    /// Creates the clock of a lease whose grant request was sent at boot time `sent`.
    pub fn new(clock: Clock, ttl: Duration, sent: BootTime) -> Self {
        Self {
            clock,
            ttl,
            acknowledged: Arc::new(AtomicU64::new(sent.millis())),
            ended: Arc::new(AtomicBool::new(false)),
        }
    }

    /// Records that the keep-alive sent at boot time `sent` was acknowledged.
    pub fn acknowledge(&self, sent: BootTime) {
        self.acknowledged.fetch_max(sent.millis(), Ordering::SeqCst);
    }

    /// Records that the lease is gone: revoked, expired or not found.
    pub fn end(&self) {
        self.ended.store(true, Ordering::SeqCst);
    }

    /// Returns the rest of the lease by the local clock.
    pub fn remaining(&self) -> Duration {
        fault!(LateEffect => return self.ttl);
        if self.ended.load(Ordering::SeqCst) {
            return Duration::ZERO;
        }
        let since = self.clock.boot().millis().saturating_sub(self.acknowledged.load(Ordering::SeqCst));
        self.ttl.saturating_sub(Duration::from_millis(since))
    }

    /// Returns the boot time at which the last acknowledged keep-alive was sent. The lease certainly lived then.
    pub fn acknowledged(&self) -> BootTime {
        Duration::from_millis(self.acknowledged.load(Ordering::SeqCst)).into()
    }

    /// Returns the TTL of the lease.
    pub fn ttl(&self) -> Duration {
        self.ttl
    }
}

impl Fence {
    /// Creates the fence of a leader that won with this key and create revision.
    pub fn new(key: &str, create_revision: i64, lease: i64, life: Life) -> Self {
        Self { key: key.into(), create_revision, lease, life }
    }

    /// Issues a permit for one effect that was decided at boot time `decided`: within TTL/12 of the decision, and with
    /// at least TTL/6 of the lease left.
    pub fn permit(&self, decided: BootTime) -> Result<Permit, NoPermit> {
        let (left, need) = (self.life.remaining(), self.life.ttl / 6);
        if left < need {
            return Err(NoPermit::NoMargin { left_ms: millis(left), need_ms: millis(need) });
        }
        let (age, limit) = (self.life.clock.boot().saturating_duration_since(decided), self.life.ttl / 12);
        if age > limit {
            return Err(NoPermit::TooOld { age_ms: millis(age), limit_ms: millis(limit) });
        }
        Ok(Permit { leader_key: Arc::clone(&self.key), create_revision: self.create_revision, lease: self.lease })
    }

    /// Issues a permit to record what has already happened, as long as the lease lives. The transaction still compares
    /// the leader key.
    pub fn permit_record(&self) -> Result<Permit, NoPermit> {
        if self.life.remaining().is_zero() {
            return Err(NoPermit::NoMargin { left_ms: 0, need_ms: 1 });
        }
        Ok(Permit { leader_key: Arc::clone(&self.key), create_revision: self.create_revision, lease: self.lease })
    }

    /// Returns the boot time by which a command that is decided now must have started.
    pub fn start_before(&self) -> BootTime {
        let (now, ttl) = (self.life.clock.boot(), self.life.ttl);
        now + (ttl / 12).min(self.life.remaining().saturating_sub(ttl / 6))
    }

    /// Returns the leader's key in `leader/`.
    pub fn key(&self) -> &str {
        &self.key
    }

    /// Returns the create revision of the key.
    pub fn create_revision(&self) -> i64 {
        self.create_revision
    }

    /// Returns the leader's lease.
    pub fn lease(&self) -> i64 {
        self.lease
    }

    /// Returns the clock of the lease.
    pub fn life(&self) -> &Life {
        &self.life
    }
}

fn millis(d: Duration) -> u64 {
    u64::try_from(d.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::{ManualClock, TimeSource as _};

    fn fence(ttl: u64) -> (Fence, ManualClock) {
        let manual = ManualClock::new(jiff::Timestamp::UNIX_EPOCH);
        let clock = Clock::new(manual.clone());
        let life = Life::new(clock.clone(), Duration::from_secs(ttl), clock.boot());
        (Fence::new("/cke/leader//1", 7, 1, life), manual)
    }

    #[test]
    fn i24_a_permit_needs_a_sixth_of_the_lease_left() {
        let (fence, clock) = fence(60);
        clock.advance(Duration::from_secs(50));
        assert!(fence.permit(clock.boot()).is_ok());
        clock.advance(Duration::from_secs(1));
        assert!(matches!(fence.permit(clock.boot()), Err(NoPermit::NoMargin { .. })));
        fence.life().acknowledge(clock.boot());
        assert!(fence.permit(clock.boot()).is_ok());
        fence.life().end();
        assert!(fence.permit(clock.boot()).is_err());
    }

    #[test]
    fn i24_a_permit_is_refused_a_twelfth_of_the_lease_after_the_decision() {
        let (fence, clock) = fence(60);
        let decided = clock.boot();
        clock.advance(Duration::from_millis(5001));
        assert!(matches!(fence.permit(decided), Err(NoPermit::TooOld { .. })));
    }
}

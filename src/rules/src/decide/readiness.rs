//! Conditions under which a machine counts as recovered: boot id, Ready and probe, and for API servers all of them for
//! `settle_seconds` (SAF-31, REB-39, REB-40; I14). Also the interval of the checks.

use std::sync::Arc;

use cketerm_model::{
    attempt::Attempt,
    boot_time::Seconds,
    clock::Now,
    entry::{EntryId, QueueKind, Stored},
    kube::NodeRow,
    names::Address,
    policy::WorkerCompletion,
    reason::Reason,
    time::{after, seconds_between},
};
use jiff::Timestamp;

use super::{Pass, entry_context::EntryContext};
use crate::snapshot::{Probe, Snapshot};

/// Time between checks in the first minute after the transition, and later.
const EARLY_CHECK_INTERVAL: Seconds = Seconds::new(1.0);
const LATE_CHECK_INTERVAL: Seconds = Seconds::new(5.0);
/// Time for which the shorter interval applies.
const EARLY_CHECK_PERIOD: Seconds = Seconds::new(60.0);
/// Maximum age of a control plane's good probe (SAF-29).
const PROBE_MAX_AGE: Seconds = Seconds::new(60.0);

/// State of a machine's recovery: booted, Ready and, for API servers, a good probe. It is more than the Node's Ready
/// condition.
pub(crate) struct Readiness {
    /// The missing condition; `None` if all hold.
    pub missing: Option<String>,
}

impl<'a> Pass<'a> {
    /// Returns a reason until the work on an API server may end. Its probe must have been good for `settle_seconds`,
    /// together with the check, the boot id where that counts, and Ready, without a break. `by_check`: the check
    /// reported the recovery, and not an operator.
    pub(super) fn settling(
        &mut self,
        ctx: EntryContext<'a>,
        node: Option<&Arc<NodeRow>>,
        by_check: bool,
    ) -> Option<Reason> {
        let name = ctx.machine.to_owned();
        let settle = Seconds::from(self.policy.settle_seconds);
        let since = if by_check {
            let Some(since) = self.snap.work.get(&ctx.id).and_then(|w| w.recovered_since) else {
                // whatever `settle_seconds` is: the machine has not recovered
                let missing = self.readiness(ctx, node).missing;
                let missing = missing.unwrap_or_else(|| "its probe must stay good".to_owned());
                return Some(Reason::Settling { node: name, until: None, missing });
            };
            since
        } else {
            // After `done` or with a new UID, check and boot id do not count. Ready and the probe do.
            let probe = || self.probe_fault(ctx.address);
            if let Some(missing) = not_ready(node).or_else(probe) {
                return Some(Reason::Settling { node: name, until: None, missing });
            }
            let good_since = self.snap.probes.get(ctx.address).and_then(|p| p.good_since);
            if self.control_planes_by_node() {
                self.monotonic_now() - settle
            } else {
                good_since.unwrap_or(self.monotonic_now())
            }
        };
        let until = since + settle;
        if self.monotonic_now() < until {
            self.wake_at(until);
            return Some(Reason::Settling {
                node: name,
                until: Some(after(self.now.wall, self.seconds_until(until))),
                missing: "its probe must stay good".to_owned(),
            });
        }
        None
    }

    /// Returns the state of recovery of an entry's machine ([`missing_condition`]).
    pub(super) fn readiness(&self, ctx: EntryContext<'_>, node: Option<&Arc<NodeRow>>) -> Readiness {
        let probe = || self.probe_fault(ctx.address);
        Readiness { missing: missing_condition(self.snap, ctx.id, ctx.control_plane(), node, probe) }
    }

    /// Reports whether a check is due: at most every second in the first minute, and every five seconds later (REB-38,
    /// REP-32).
    pub(super) fn check_is_due(&mut self, id: EntryId, since: Timestamp) -> bool {
        let interval = if seconds_between(since, self.now.wall) < EARLY_CHECK_PERIOD {
            EARLY_CHECK_INTERVAL
        } else {
            LATE_CHECK_INTERVAL
        };
        let last = self.snap.work.get(&id).and_then(|w| w.check.as_ref());
        let Some(due) = last.map(|(at, _)| *at + interval) else { return true };
        if self.monotonic_now() < due {
            self.wake_at(due);
        }
        self.monotonic_now() >= due
    }
}

/// Returns the state of recovery of a machine, by the policy that is stored ([`missing_condition`]).
pub(crate) fn readiness(
    snap: &Snapshot,
    id: EntryId,
    address: &Address,
    control_plane: bool,
    node: Option<&Arc<NodeRow>>,
    now: Now,
) -> Readiness {
    let probe = || {
        let required = snap.store.policy().control_plane_probe.url().is_some();
        required.then(|| probe_fault(snap, address, now)).flatten()
    };
    Readiness { missing: missing_condition(snap, id, control_plane, node, probe) }
}

/// Returns the condition that a machine still misses after it was rebooted or repaired. `probe`: fault of its probe.
///
/// * A reboot of an API server, or with policy `boot_id`: a new boot id (if the one before was recorded) and Ready.
/// * A repair of an API server: Ready; the health check takes the place of the boot id.
/// * Every API server: a good probe.
///
/// The boot check and the health check themselves are not part of it.
fn missing_condition(
    snap: &Snapshot,
    id: EntryId,
    control_plane: bool,
    node: Option<&Arc<NodeRow>>,
    probe: impl FnOnce() -> Option<String>,
) -> Option<String> {
    let policy = snap.store.policy();
    let missing = match id.queue {
        QueueKind::Reboot if control_plane || policy.worker_completion == WorkerCompletion::BootId => {
            missing_reboot_proof(snap, id, node)
        }
        QueueKind::Repair if control_plane => not_ready(node),
        QueueKind::Reboot | QueueKind::Repair | QueueKind::Maintenance => return None,
    };
    missing.or_else(|| control_plane.then(probe).flatten())
}

/// Returns why a Node is not Ready.
pub(super) fn not_ready(node: Option<&Arc<NodeRow>>) -> Option<String> {
    match node {
        None => Some("the Node is gone".to_owned()),
        Some(node) => (!node.ready).then(|| "the Node is not Ready".to_owned()),
    }
}

/// Returns the proof of a reboot that is missing for an entry: a new boot id (if the one before was recorded), or
/// Ready.
pub(super) fn missing_reboot_proof(snap: &Snapshot, id: EntryId, node: Option<&Arc<NodeRow>>) -> Option<String> {
    let recorded = node.and_then(|node| Some((recorded_boot_id(snap, id, node)?, node)));
    if recorded.is_some_and(|(before, node)| before == node.boot_id) {
        return Some("the Node still has its old boot id".to_owned());
    }
    not_ready(node)
}

/// Returns the proof that is missing after the entry is gone. The boot id must differ from the one before each command
/// that may have done something. A failed command may have rebooted the machine nevertheless, and the next one again
/// (I14).
pub(super) fn missing_proof_of_all_reboots(
    snap: &Snapshot,
    id: EntryId,
    node: Option<&Arc<NodeRow>>,
) -> Option<String> {
    if is_done_by_order(snap, id) {
        return not_ready(node);
    }
    let found = node.is_some_and(|node| began(snap, id).any(|a| a.boot_id.as_ref() == Some(&node.boot_id)));
    if found {
        return Some("the Node still has its boot id from before the last command".to_owned());
    }
    missing_reboot_proof(snap, id, node)
}

/// Reports whether the boot id before every command that may have done something was recorded while the Node was Ready.
/// For a repair, one recorded boot id is enough. A Node that was not Ready may have reported the boot id of an earlier
/// boot; an entry that still exists depends on its boot check in any case.
pub(super) fn is_boot_id_recorded(snap: &Snapshot, id: EntryId, node: &NodeRow) -> bool {
    if is_done_by_order(snap, id) {
        return true;
    }
    let known = |a: &Attempt| id.queue == QueueKind::Repair || (a.boot_id.is_some() && !a.not_ready);
    began(snap, id).all(known) && recorded_boot_id(snap, id, node).is_some()
}

/// Reports whether an operator ended the entry with `rq done`. Boot ids then do not count, but Ready does (REB-49,
/// SAF-35). The last attempt holds this for all attempts before it.
pub(super) fn is_done_by_order(snap: &Snapshot, id: EntryId) -> bool {
    began(snap, id).last().is_some_and(|a| a.done_by.is_some())
}

/// Returns the boot id from before the first command that may have done something, else the one recorded with the
/// cordon.
fn recorded_boot_id(snap: &Snapshot, id: EntryId, node: &NodeRow) -> Option<String> {
    let attempt = began(snap, id).next();
    attempt
        .and_then(|a| a.boot_id.clone())
        .or_else(|| node.owner().filter(|o| o.entry == id && !o.taken_over_rebooting).map(|o| o.boot_id.clone()))
        .filter(|b| !b.is_empty())
}

/// Returns the attempts of an entry that may have done something to its machine.
fn began(snap: &Snapshot, id: EntryId) -> impl Iterator<Item = &Attempt> {
    snap.store.attempts_of(id).filter_map(Stored::get).filter(|a| a.began() && !a.success)
}

/// Returns the fault of a control plane's probe, or `None` if it is good. Not asked if no probe is required.
pub(super) fn probe_fault(snap: &Snapshot, address: &Address, now: Now) -> Option<String> {
    match snap.probes.get(address) {
        None => Some("not probed yet".to_owned()),
        Some(Probe { not_known: Some(why), url, .. }) => {
            Some(format!("{url} does not show whether it is alive: {why}"))
        }
        Some(probe) => match (&probe.error, probe.last_good) {
            (Some(error), _) => Some(format!("{} answers {error}", probe.url)),
            (None, Some(at)) if now.boot - at <= PROBE_MAX_AGE => None,
            (None, _) => Some(format!("{} gave no good answer for 60 s", probe.url)),
        },
    }
}

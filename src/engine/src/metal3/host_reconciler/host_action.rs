//! One write to a BareMetalHost or one request to its BMC: audited first, fenced, and compared right before it is sent
//! (I23, I24, I38; MET-49, MET-50).

use std::{sync::Arc, time::Duration};

use cketerm_clients::{kubernetes::WriteError, power::PowerRequest};
use cketerm_model::{
    boot_time::{BootTime, Seconds},
    fence::Permit,
    host::{HostRow, Mode, Times},
    power_state::PowerState,
};
use cketerm_rules::{decide::Guard, metal3::controller::Step};
use serde_json::json;

use super::{FAILURE_RETRY, HostReconciler, Trouble};
use crate::act::{AuditIntent, write_result};

impl HostReconciler {
    /// Sends a power-off (with its mode) or power-on to the BMC. Right before that it reads the host again with a
    /// quorum read, because a client's key may have been added (I44).
    pub(super) async fn ask(
        &mut self,
        host: &HostRow,
        power: &PowerState,
        step: &Step,
        mode: Option<Mode>,
    ) -> Result<(), Trouble> {
        // Do not turn off a machine that cannot be turned on again.
        if let (Some(_), true, Some((_, found))) = (mode, host.online, &self.bmc) {
            found.driver.ready_for(PowerRequest::On).await?;
        }
        let fresh = self.shared.actor.kube.host(&host.namespace, &host.name).await;
        let fresh = fresh.map_err(|e| Trouble::Failed(e.to_string()))?.ok_or(Trouble::Stale)?;
        let same = fresh.uid == host.uid && fresh.pending_reboot_since == host.pending_reboot_since;
        if !same || self.decide(&fresh, power) != *step {
            return Err(Trouble::Stale);
        }
        self.order(host, &requested_by(&fresh), mode).await
    }

    /// Sends the power-off (with its mode) or power-on, and records it.
    pub(super) async fn order(&mut self, host: &HostRow, why: &str, mode: Option<Mode>) -> Result<(), Trouble> {
        let (Some((_, found)), Some(_)) = (&self.bmc, &self.last) else { return Err(Trouble::Stale) };
        let boot = self.shared.actor.steady.now().boot;
        let what = match mode {
            Some(mode) => format!("host off ({mode})"),
            None => "host on".to_owned(),
        };
        // The host is noted before the permit and until the request is over. So an ending engine sees this note, or
        // this task sees that the engine ends.
        let turns_off = mode.is_some() && host.pending();
        if turns_off {
            self.shared.note_power_cycle(host, true);
        }
        let intent = match self.record_intent(host, &what, why, boot).await {
            Ok((_permit, intent)) => intent,
            Err(trouble) => {
                self.note_cycle(host);
                return Err(trouble);
            }
        };
        if turns_off {
            self.ordered_off_for = host.pending_reboot_since;
        }
        self.show(host, what.clone(), None);
        let answer = found.driver.request(mode.map_or(PowerRequest::On, PowerRequest::Off)).await;
        let result = answer.as_ref().map(|kind| format!("{kind} sent")).map_err(ToString::to_string);
        self.shared.actor.record_outcome(intent, result);
        let (limits, now) = (self.limits(), self.shared.actor.steady.now().boot);
        let failed = answer.is_err();
        // A refused request is repeated soon. After a refused soft power-off, a hard one follows at once.
        let before = |span: Duration| (now - Seconds::from(span)).max(BootTime::ZERO);
        let at = |limit: Duration| if failed { before(limit.saturating_sub(FAILURE_RETRY)) } else { now };
        match mode {
            Some(Mode::Soft) => {
                self.sent_orders.soft = Some(if failed { before(limits.soft) } else { now });
            }
            Some(Mode::Hard) => self.sent_orders.hard = Some(at(limits.hard)),
            None => self.sent_orders.on = Some(at(limits.on)),
        }
        match answer {
            // A failed soft power-off is no error: a hard one follows.
            Err(e) if mode != Some(Mode::Soft) => Err(e.into()),
            _ => Ok(()),
        }
    }

    /// Writes the timestamps, and `poweredOn` if given, in one patch. If the server drops the timestamps, they go into
    /// cketerm's annotation first. A crash in between then repeats the second write, not the power cycle (MET-51).
    pub(super) async fn write_times(
        &mut self,
        host: &HostRow,
        what: &str,
        why: &str,
        times: Times,
        powered_on: Option<bool>,
        decided: BootTime,
    ) -> Result<(), Trouble> {
        let shared = Arc::clone(&self.shared);
        let now = shared.actor.steady.now().wall;
        let keeps = shared.keeps.get_or_try_init(|| shared.actor.kube.crd_keeps_times(host, now)).await;
        let keeps = *keeps.map_err(|e| trouble(&e))?;
        let mut status = powered_on.map_or_else(|| json!({}), |on| json!({"poweredOn": on}));
        let mut row = host.clone();
        if keeps {
            status["provisioning"] = json!(times);
        } else {
            tracing::warn!("the API server drops timestamps of BareMetalHosts; keeping them in an annotation");
            shared.show(|seen| seen.drops_times = true);
            let (permit, intent) = self.record_intent(host, what, why, decided).await?;
            row = self.record_outcome(intent, shared.actor.kube.annotate_times(&permit, host, times).await)?;
        }
        if keeps || powered_on.is_some() {
            self.write(&row, what, why, &status, decided).await?;
        }
        Ok(())
    }

    pub(super) async fn write(
        &mut self,
        host: &HostRow,
        what: &str,
        why: &str,
        status: &serde_json::Value,
        decided: BootTime,
    ) -> Result<(), Trouble> {
        let (permit, intent) = self.record_intent(host, what, why, decided).await?;
        let written = self.shared.actor.kube.set_host_status(&permit, host, status).await;
        self.record_outcome(intent, written)?;
        self.show(host, what.to_owned(), None);
        Ok(())
    }

    /// Writes the audit record of an action; the returned permit is for the action itself.
    pub(super) async fn record_intent(
        &self,
        host: &HostRow,
        what: &str,
        why: &str,
        decided: BootTime,
    ) -> Result<(Permit, AuditIntent), Trouble> {
        let permit = self.permit(host, decided)?;
        let on = format!("host {}", host.full_name());
        let intent = self.shared.actor.record_intent(&permit, what, &on, Some(why.to_owned())).await?;
        match self.permit(host, decided) {
            Ok(permit) => Ok((permit, intent)),
            Err(trouble) => {
                self.shared.actor.record_outcome(intent, Err("not done: it was too late".to_owned()));
                Err(trouble)
            }
        }
    }

    /// Returns a permit for one action. It needs leadership with enough of the lease left. The policy must still enable
    /// the role, or the action must end a cycle that has begun.
    fn permit(&self, host: &HostRow, decided: BootTime) -> Result<Permit, Trouble> {
        if !self.shared.is_shutting_down() {
            return Ok(self.shared.actor.permit(&Guard::default(), decided)?);
        }
        if !self.is_cycle_under_way(host) {
            return Err(Trouble::Stale);
        }
        Ok(self.shared.actor.permit_to_finish(decided)?)
    }

    pub(super) fn record_outcome(
        &self,
        intent: AuditIntent,
        written: Result<HostRow, WriteError>,
    ) -> Result<HostRow, Trouble> {
        self.shared.actor.record_outcome(intent, write_result(&written));
        written.map_err(|e| trouble(&e))
    }
}

fn trouble(e: &WriteError) -> Trouble {
    match e {
        // The host is read again before anything else.
        WriteError::Conflict | WriteError::NotFound | WriteError::NoAnswer(_) => Trouble::Stale,
        WriteError::Refused { .. } => Trouble::Failed(e.to_string()),
    }
}

/// Returns the annotations that requested the action, for the audit.
pub(super) fn requested_by(host: &HostRow) -> String {
    let base = host.asked.base.iter().map(|_| "reboot.metal3.io".to_owned());
    let names: Vec<String> = base.chain(host.asked.keys.keys().cloned()).collect();
    if names.is_empty() { "spec.online".to_owned() } else { format!("requested by {}", names.join(", ")) }
}

//! `cketerm stop` and `cketerm resume`: both queues are disabled at once, under any leader, and `cketerm/stopped`
//! records which of them were enabled.

use cketerm_model::{
    cketerm_records::Stopped,
    entry::QueueKind,
    fence::Person,
    stored::{keys::SwitchName, view::Switch},
};
use etcd_client::{Compare, CompareOp, GetOptions, TxnOp};

use super::{
    answer::found_key,
    connect::Store,
    error::StoreError,
    operator::{AuditNote, WriteOutcome, json},
    queue::MAX_CONFLICTS,
};

/// Effect of `stop` or `resume` on the two queues.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Turned {
    /// Queues that it switched.
    pub turned: Vec<QueueKind>,
    /// Queues that it left unchanged: disabled before the stop, or switched by somebody since.
    pub left: Vec<QueueKind>,
}

/// The two switches and the record of a stop, with the revisions to compare.
struct CurrentState {
    switches: [(QueueKind, Switch); 2],
    /// The record; it may be unreadable.
    record: Option<(Result<Stopped, String>, i64)>,
}

impl CurrentState {
    /// Reports whether the stop disabled this queue and nobody has switched it since. One transaction wrote both switch
    /// and record, so their revisions are equal.
    fn stopped(&self, queue: QueueKind, switch: &Switch) -> bool {
        match &self.record {
            Some((Ok(record), revision)) => {
                record.queues.contains(&queue) && !switch.enabled() && switch.mod_revision == *revision
            }
            Some((Err(_), _)) | None => false,
        }
    }
}

impl Store {
    /// Disables both queues in one transaction. Queues of an earlier stop that are still stopped stay in the record.
    pub async fn stop(&self, person: &Person, reason: Option<&str>) -> Result<Turned, StoreError> {
        let who = person.who();
        for _ in 0..MAX_CONFLICTS {
            let current = self.current().await?;
            let mut done = Turned::default();
            let mut queues = Vec::new();
            for (queue, switch) in &current.switches {
                let enabled = switch.enabled();
                if enabled || current.stopped(*queue, switch) {
                    queues.push(*queue);
                }
                if enabled { &mut done.turned } else { &mut done.left }.push(*queue);
            }
            let record =
                Stopped { who: who.clone(), at: self.clock().wall(), reason: reason.map(str::to_owned), queues };
            // All recorded switches are written again, so that record and switches keep one revision.
            let mut ops: Vec<TxnOp> = record.queues.iter().map(|q| self.switch_op(*q, false)).collect();
            if !record.queues.is_empty() {
                ops.push(TxnOp::put(self.keys().stopped(), json(&record), None));
            }
            let note = AuditNote { who, what: "stop", on: "both queues", reason };
            if let WriteOutcome::At(_) =
                self.write(note, &summary(&done, "disabled"), self.unchanged(&current), ops).await?
            {
                return Ok(done);
            }
        }
        Err(StoreError::Conflict { what: "the queues' switches".to_owned() })
    }

    /// Enables the queues that the last stop disabled and that nobody has switched since; returns none if nothing is
    /// stopped.
    pub async fn resume(&self, person: &Person, reason: Option<&str>) -> Result<Option<Turned>, StoreError> {
        let who = person.who();
        for _ in 0..MAX_CONFLICTS {
            let current = self.current().await?;
            let record = match &current.record {
                None => return Ok(None),
                Some((Ok(record), _)) => record,
                Some((Err(cause), _)) => {
                    let key = self.keys().stopped();
                    let remedy = format!("enable the queues by their own commands, then `etcdctl del {key}`");
                    return Err(StoreError::Broken { key, cause: cause.clone(), remedy });
                }
            };
            let mut done = Turned::default();
            for (queue, switch) in current.switches.iter().filter(|(queue, _)| record.queues.contains(queue)) {
                let was_stopped = current.stopped(*queue, switch);
                if was_stopped { &mut done.turned } else { &mut done.left }.push(*queue);
            }
            let mut ops: Vec<TxnOp> = done.turned.iter().map(|q| self.switch_op(*q, true)).collect();
            ops.push(TxnOp::delete(self.keys().stopped(), None));
            let note = AuditNote { who, what: "resume", on: "both queues", reason };
            if let WriteOutcome::At(_) =
                self.write(note, &summary(&done, "enabled"), self.unchanged(&current), ops).await?
            {
                return Ok(Some(done));
            }
        }
        Err(StoreError::Conflict { what: "the queues' switches".to_owned() })
    }

    fn switch_op(&self, queue: QueueKind, enabled: bool) -> TxnOp {
        TxnOp::put(self.keys().switch(queue.into()), if enabled { "false" } else { "true" }, None)
    }

    fn unchanged(&self, current: &CurrentState) -> Vec<Compare> {
        let record = current.record.as_ref().map_or(0, |(_, revision)| *revision);
        let mut compares = vec![Compare::mod_revision(self.keys().stopped(), CompareOp::Equal, record)];
        for (queue, switch) in &current.switches {
            let key = self.keys().switch(SwitchName::from(*queue));
            compares.push(Compare::mod_revision(key, CompareOp::Equal, switch.mod_revision));
        }
        compares
    }

    async fn current(&self) -> Result<CurrentState, StoreError> {
        let keys =
            QueueKind::QUEUES.map(|queue| self.keys().switch(queue.into())).into_iter().chain([self.keys().stopped()]);
        let answer = match self.get_all(keys.map(|key| (key, GetOptions::new())).collect()).await {
            Ok(answer) => answer,
            Err(failure) => return Err(self.store_error("read the queues' switches", failure).await),
        };
        let mut found = answer.op_responses().into_iter().map(found_key);
        let switches = QueueKind::QUEUES.map(|queue| {
            let kv = found.next().flatten();
            let switch = kv.map_or_else(Switch::default, |kv| Switch {
                raw: Some(String::from_utf8_lossy(kv.value()).into_owned()),
                mod_revision: kv.mod_revision(),
            });
            (queue, switch)
        });
        let record = found.next().flatten();
        let record =
            record.map(|kv| (serde_json::from_slice(kv.value()).map_err(|e| e.to_string()), kv.mod_revision()));
        Ok(CurrentState { switches, record })
    }
}

/// Returns the result for the audit.
fn summary(done: &Turned, how: &str) -> String {
    let names = |queues: &[QueueKind]| match queues {
        [] => "no queue".to_owned(),
        some => some.iter().map(ToString::to_string).collect::<Vec<_>>().join(" and "),
    };
    let left = if done.left.is_empty() { String::new() } else { format!("; left unchanged: {}", names(&done.left)) };
    format!("{how}: {}{left}", names(&done.turned))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_audit_names_the_queues_that_a_stop_switched_and_left() {
        let (reboots, repairs) = (QueueKind::Reboot, QueueKind::Repair);
        let both = Turned { turned: vec![reboots, repairs], left: Vec::new() };
        assert_eq!(summary(&both, "stopped"), format!("stopped: {reboots} and {repairs}"));
        let one = Turned { turned: vec![repairs], left: vec![reboots] };
        assert_eq!(summary(&one, "stopped"), format!("stopped: {repairs}; left unchanged: {reboots}"));
        assert_eq!(summary(&Turned { turned: Vec::new(), left: Vec::new() }, "stopped"), "stopped: no queue");
    }
}

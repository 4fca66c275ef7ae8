//! Audit records of effects on Kubernetes: written before the effect, completed with its result afterwards (I38).
//!
//! The record is one more fenced write right before the effect. A leader may be deposed without knowing it, because its
//! connection to etcd is silent. It cannot write the record then, and so does nothing (I24, SAF-11). The attempts of
//! power commands serve as their records.
//!
//! Repeated tries of a step share one record, which counts them. A machine that fails all week adds no more audit
//! records than one that fails once.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
};

use cketerm_clients::store::commit::CommitError;
use cketerm_model::{
    cketerm_records::Audit,
    entry::EntryId,
    fault,
    fence::Permit,
    stored::transaction::{Change, Put},
};
use cketerm_rules::snapshot::EffectOutcome;
use jiff::{SignedDuration, Timestamp};

use super::{Actor, Stop};

/// Result in a record whose effect has no outcome yet. It stays if the leader dies in between.
const RESULT_BEGUN: &str = "begun";
/// Time after which a repetition is no further try of the same step, but gets a record of its own.
const RETRY_PERIOD: SignedDuration = SignedDuration::from_hours(24);
/// Most steps that are remembered. Of so many, the older half is forgotten.
const MAX_STEPS: usize = 4096;

/// An effect whose record is written and that is under way.
pub(crate) struct AuditIntent {
    step: Step,
    known: Known,
}

/// Identity of a step: the same action on the same object, for the same purpose.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Step {
    what: String,
    on: String,
    of: Purpose,
}

/// Purpose of a step.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Purpose {
    /// A transition: the object is the entry itself.
    Itself,
    /// This entry. The reason names the pods of each try, which differ from try to try.
    Entry(EntryId),
    /// This reason.
    Reason(Option<String>),
}

impl Step {
    /// Returns the step of an entry's transition.
    pub(super) fn new(what: &str, on: &str) -> Self {
        Self { what: what.to_owned(), on: on.to_owned(), of: Purpose::Itself }
    }

    fn intent(what: &str, on: &str, entry: Option<EntryId>, reason: Option<&String>) -> Self {
        let of = entry.map_or_else(|| Purpose::Reason(reason.cloned()), Purpose::Entry);
        Self { of, ..Self::new(what, on) }
    }
}

/// The record of a step, as stored in etcd.
#[derive(Clone, Debug)]
pub(crate) struct Known {
    pub(super) key: String,
    pub(super) audit: Audit,
    revision: i64,
}

/// Records of this leadership that further tries are added to. Only the audit uses this memory, no decision does. The
/// next leader begins new records.
#[derive(Clone, Debug, Default)]
pub(crate) struct Repeated(Arc<Mutex<HashMap<Step, Known>>>);

impl Repeated {
    /// Returns the record that a try belongs to now, if there is one.
    pub(super) fn known(&self, step: &Step, now: Timestamp) -> Option<Known> {
        let known = self.0.lock().unwrap_or_else(PoisonError::into_inner).get(step).cloned()?;
        (now.duration_since(known.audit.last()) <= RETRY_PERIOD).then_some(known)
    }

    fn note(&self, step: Step, known: Known) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if all.len() >= MAX_STEPS {
            // The older half at once: thousands of entries may end together, and each would need a search.
            let mut times: Vec<Timestamp> = all.values().map(|known| known.audit.last()).collect();
            let (_, median, _) = times.select_nth_unstable(MAX_STEPS / 2);
            all.retain(|_, known| known.audit.last() > *median);
        }
        all.insert(step, known);
    }

    /// Notes that a transition was committed with this record.
    pub(super) fn committed(&self, record: Option<&Put>, revision: i64) {
        let Some((put, audit)) = record.and_then(|put| Some((put, serde_json::from_str::<Audit>(&put.value).ok()?)))
        else {
            return;
        };
        self.note(Step::new(&audit.what, &audit.on), Known { key: put.key.clone(), audit, revision });
    }
}

impl Actor {
    /// Writes the fenced record of an action on an object. The action may be sent only afterwards, with a permit of its
    /// own.
    pub(crate) async fn record_intent(
        &self,
        permit: &Permit,
        what: &str,
        on: &str,
        reason: Option<String>,
    ) -> Result<AuditIntent, Stop> {
        self.record_intent_for(permit, None, (what, on), reason).await
    }

    /// Writes the record of an action for an entry.
    pub(crate) async fn record_intent_for(
        &self,
        permit: &Permit,
        entry: Option<EntryId>,
        (what, on): (&str, &str),
        reason: Option<String>,
    ) -> Result<AuditIntent, Stop> {
        let (step, now) = (Step::intent(what, on, entry, reason.as_ref()), self.steady.now().wall);
        let (key, audit) = if let Some(known) = self.repeats.known(&step, now) {
            (known.key, known.audit.again(now, reason, RESULT_BEGUN))
        } else {
            let (key, audit) = self.audit_record(what, on, reason, RESULT_BEGUN);
            (key, Audit { entry, ..audit })
        };
        let mut known = Known { key, audit, revision: 0 };
        fault!(AuditForgotten => return Ok(AuditIntent { step, known }));
        let puts = vec![Put::json(known.key.clone(), &known.audit)];
        match self.store.commit(permit, Change { puts, ..Change::default() }).await {
            Ok(revision) => {
                known.revision = revision;
                self.repeats.note(step.clone(), known.clone());
                Ok(AuditIntent { step, known })
            }
            Err(CommitError::LostLeadership) => Err(Stop(EffectOutcome::Lost)),
            Err(CommitError::TooLarge(size)) => Err(Stop(EffectOutcome::TooLarge(size))),
            // Nothing was sent. The step is tried again, record first, when etcd answers.
            Err(e) => Err(Stop(EffectOutcome::Failed(format!("{what} of {on} not started: {e}")))),
        }
    }

    /// Adds the result in the background, so that the audit never delays the work. If another try was recorded
    /// meanwhile, that try's result counts. `Err` is the text of an action that failed.
    pub(crate) fn record_outcome(&self, intent: AuditIntent, result: Result<String, String>) {
        let actor = self.clone();
        cketerm_runtime::tasks::spawn(async move {
            let Ok(permit) = actor.fence.permit_record() else { return };
            let AuditIntent { step, known } = intent;
            let failed = result.is_err();
            let audit = Audit { result: result.unwrap_or_else(|why| why), failed, ..known.audit };
            let change = Change {
                compares: vec![(known.key.clone(), known.revision)],
                puts: vec![Put::json(known.key.clone(), &audit)],
                deletes: Vec::new(),
            };
            match actor.store.commit(&permit, change).await {
                Ok(revision) => actor.repeats.outcome(&step, Known { key: known.key, audit, revision }),
                Err(CommitError::Conflict { .. }) => {}
                Err(e) => tracing::debug!(error = %e, "the outcome was not recorded"),
            }
        });
    }
}

impl Repeated {
    /// Notes the result of a step, unless it was tried again since.
    fn outcome(&self, step: &Step, known: Known) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(before) = all.get_mut(step).filter(|before| before.revision < known.revision) {
            *before = known;
        }
    }
}

/// Returns the audit result of a write.
pub(crate) fn write_result<T, E: ToString>(written: &Result<T, E>) -> Result<String, String> {
    written.as_ref().map(|_| "done".to_owned()).map_err(ToString::to_string)
}

/// Joins names for a record: the first twenty, and the number of the others.
pub(crate) fn named<'a>(names: impl Iterator<Item = String> + 'a) -> String {
    let all: Vec<String> = names.collect();
    let shown = all.iter().take(20).cloned().collect::<Vec<_>>().join(", ");
    match all.len().saturating_sub(20) {
        0 => shown,
        more => format!("{shown} and {more} more"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(at: &str, what: &str) -> Audit {
        serde_json::from_value(serde_json::json!({
            "at": at, "who": {"user": "engine", "host": "boot-0"}, "what": what, "on": "node w1", "result": "begun",
        }))
        .unwrap()
    }

    #[test]
    fn i48_retries_within_a_day_share_one_audit_record() {
        let repeated = Repeated::default();
        let at = |text: &str| text.parse::<Timestamp>().unwrap();
        let pods = "shop/web-1".to_owned();
        let step = Step::intent("evict", "node w1", Some(EntryId::reboot(3)), Some(&pods));
        let first = Known { key: "a".to_owned(), audit: record("2026-01-01T00:00:00Z", "evict"), revision: 5 };
        repeated.note(step.clone(), first);
        let known = repeated.known(&step, at("2026-01-01T23:00:00Z")).unwrap();
        let again = known.audit.again(at("2026-01-01T23:00:00Z"), None, "begun");
        assert_eq!(
            (again.count(), again.at, again.last()),
            (2, at("2026-01-01T00:00:00Z"), at("2026-01-01T23:00:00Z"))
        );
        let text = serde_json::to_value(&again).unwrap();
        assert_eq!((&text["count"], &text["last"]), (&2.into(), &"2026-01-01T23:00:00Z".into()));
        assert_eq!(serde_json::from_value::<Audit>(text).unwrap(), again);
        repeated.note(step.clone(), Known { audit: again, ..known });
        assert!(repeated.known(&step, at("2026-01-02T22:00:00Z")).is_some(), "counted from the last try");
        assert!(repeated.known(&step, at("2026-01-03T00:00:00Z")).is_none());
        let other = Step::intent("evict", "node w1", Some(EntryId::reboot(4)), Some(&pods));
        assert!(
            repeated.known(&other, at("2026-01-01T23:00:00Z")).is_none(),
            "an action for another entry is another step"
        );
        let others = Step::intent("evict", "node w1", Some(EntryId::reboot(3)), Some(&"shop/web-2".to_owned()));
        assert!(
            repeated.known(&others, at("2026-01-01T23:00:00Z")).is_some(),
            "other pods of the same entry are the same step"
        );
        let node = Step::intent("evict", "node w2", Some(EntryId::reboot(3)), Some(&pods));
        assert!(repeated.known(&node, at("2026-01-01T23:00:00Z")).is_none(), "another node is another step");
        let why = |why: &str| Step::intent("endpoints", "Endpoints default/etcd", None, Some(&why.to_owned()));
        assert!(why("10.0.0.1") != why("10.0.0.2"), "without an entry the reason distinguishes the steps");
    }

    #[test]
    fn the_outcome_of_an_earlier_try_does_not_overwrite_a_newer_one() {
        let repeated = Repeated::default();
        let now = "2026-01-01T00:00:01Z".parse().unwrap();
        let step = Step::intent("cordon", "node w1", None, None);
        let audit = record("2026-01-01T00:00:00Z", "cordon");
        repeated.note(step.clone(), Known { key: "a".to_owned(), audit: audit.clone(), revision: 8 });
        let late = Audit { result: "refused".to_owned(), ..audit };
        repeated.outcome(&step, Known { key: "a".to_owned(), audit: late.clone(), revision: 7 });
        assert_eq!(repeated.known(&step, now).unwrap().audit.result, "begun");
        repeated.outcome(&step, Known { key: "a".to_owned(), audit: late, revision: 9 });
        assert_eq!(repeated.known(&step, now).unwrap().audit.result, "refused");
    }

    #[test]
    fn the_number_of_remembered_steps_is_bounded() {
        let repeated = Repeated::default();
        for i in 0..MAX_STEPS + 10 {
            let second = i % 60;
            let at = format!("2026-01-01T{:02}:{:02}:{second:02}Z", i / 3600, i / 60 % 60);
            let known = Known { key: i.to_string(), audit: record(&at, "cordon"), revision: 1 };
            repeated.note(Step::new("cordon", &i.to_string()), known);
        }
        let all = repeated.0.lock().unwrap();
        let half = MAX_STEPS / 2;
        assert_eq!(all.len(), half - 1 + 10);
        let remembers = |i: usize| all.contains_key(&Step::new("cordon", &i.to_string()));
        assert!(!remembers(half) && remembers(half + 1) && remembers(MAX_STEPS + 9));
    }
}

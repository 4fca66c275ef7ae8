//! Memory of the leader.

use super::*;
use cketerm_model::kube::PodRow;
use jiff::Timestamp;

fn after_evicting(unprotected: bool, verdict: Verdict) -> Work {
    let pod = Arc::new(PodRow { uid: "u".to_owned(), ..PodRow::default() });
    let effect = Effect::Evict {
        evict: vec![(pod, Vec::new())],
        delete: Vec::new(),
        unprotected: unprotected.then(|| "u".to_owned()).into_iter().collect(),
    };
    let answer = Answer { verdict, at: BootTime::new(1.0), budgets: BTreeMap::new(), undecided: 0 };
    let now = Now { boot: BootTime::new(1.0), wall: Timestamp::UNIX_EPOCH };
    let id = EntryId::reboot(0);
    let mut work = BTreeMap::new();
    remember(&mut work, id, &effect, &EffectOutcome::Answers([("u".to_owned(), answer)].into()), now);
    work.remove(&id).unwrap()
}

fn refused_by_budget() -> Verdict {
    let hold = PodHold::Budget { budget: "a/b".to_owned(), healthy: 1, needed: 1, cause: None };
    Verdict::Held { hold, retry_after: None }
}

#[test]
fn a_refusal_in_a_protected_namespace_counts_once_and_is_retried() {
    let work = after_evicting(false, refused_by_budget());
    assert_eq!((work.drain.refusals, work.drain.answers.len()), (1, 0));
}

#[test]
fn i18_a_refusal_in_an_unprotected_namespace_leads_to_deletion_not_backoff() {
    let work = after_evicting(true, refused_by_budget());
    assert_eq!((work.drain.refusals, work.drain.answers.len()), (0, 1));
}

#[test]
fn retry_after_and_a_replaced_pod_do_not_count_as_refusals() {
    let lag = Verdict::Held { hold: PodHold::BudgetLag { budget: "a/b".to_owned() }, retry_after: Some(10) };
    assert_eq!(after_evicting(false, lag).drain.refusals, 0);
    let replaced = Verdict::Held { hold: PodHold::Replaced, retry_after: None };
    assert_eq!(after_evicting(false, replaced).drain.refusals, 0);
}

#[test]
fn i18_an_unprotected_pod_with_two_budgets_is_kept_for_deletion() {
    let many = || Verdict::Held { hold: PodHold::ManyBudgets { budgets: vec![] }, retry_after: None };
    let (free, kept) = (after_evicting(true, many()), after_evicting(false, many()));
    assert_eq!((free.drain.refusals, free.drain.answers.len()), (0, 1));
    assert_eq!((kept.drain.refusals, kept.drain.answers.len()), (1, 0));
}

#[test]
fn a_deferred_eviction_counts_as_accepted_and_an_undecided_one_does_not() {
    let hold = PodHold::Deferred { webhook: "w".to_owned(), message: "m".to_owned() };
    let deferred = after_evicting(false, Verdict::Held { hold, retry_after: None });
    assert_eq!((deferred.drain.refusals, deferred.drain.accepted), (0, true));
    let undecided =
        Verdict::Undecided { by: cketerm_model::drain::Undecided::Server, answer: String::new(), retry_after: None };
    let undecided = after_evicting(false, undecided);
    assert_eq!((undecided.drain.refusals, undecided.drain.accepted), (0, false));
    assert_eq!(undecided.drain.answers["u"].undecided, 1);
}

#[test]
fn a_preview_counts_undecided_rounds_and_remembers_passed_pods() {
    let mut work = Work::default();
    let reason = || Reason::EvictionFailing { pod: "a/b".to_owned(), answer: "503".to_owned() };
    let round = |uid: &str, finding| Preview { passed: [uid.to_owned()].into(), finding };
    for times in 1..=3 {
        let finding = Finding::Undecided { reason: reason(), retry_after: None };
        previewed(&mut work, &round(&format!("p{times}"), finding), BootTime::new(times.into()));
        assert_eq!(work.drain.undecided.as_ref().map(|u| u.times), Some(u32::try_from(times).unwrap()));
    }
    assert_eq!((work.drain.passed.len(), work.drain.previewed, work.drain.refusals), (3, false, 0));
    previewed(&mut work, &round("p4", Finding::Clean), BootTime::new(9.0));
    assert_eq!((work.drain.passed.len(), work.drain.previewed, work.drain.undecided), (0, true, None));
}

#[test]
fn i41_a_health_check_begun_before_the_command_ended_is_discarded() {
    let (id, mut work) = (EntryId::repair(0), BTreeMap::new());
    let now = |at| Now { boot: BootTime::new(at), wall: Timestamp::UNIX_EPOCH };
    let check = |asked: f64| Effect::HealthCheck { argv: Vec::new(), bound: 3, asked: BootTime::new(asked) };
    let answer = |answer_text: &str| EffectOutcome::Check(CheckAnswer::No(answer_text.to_owned()));
    remember(&mut work, id, &check(1.0), &answer("before"), now(2.0));
    assert!(work[&id].check.is_some());
    let end = cketerm_model::attempt::Ended::Exit(0);
    let (stdout, stderr) = (String::new(), String::new());
    let outcome = cketerm_model::attempt::Outcome { end, at: Timestamp::UNIX_EPOCH, stdout, stderr };
    remember(&mut work, id, &check(1.0), &EffectOutcome::Command(outcome), now(5.0));
    remember(&mut work, id, &check(4.0), &EffectOutcome::Check(CheckAnswer::Yes), now(6.0));
    assert_eq!(work[&id].check, None);
    remember(&mut work, id, &check(6.0), &answer("after"), now(7.0));
    assert_eq!(work[&id].check, Some((BootTime::new(7.0), CheckAnswer::No("after".to_owned()))));
}

#[test]
fn the_last_health_answer_of_a_repair_survives_a_drain() {
    let (id, mut work) = (EntryId::repair(0), BTreeMap::new());
    let now = Now { boot: BootTime::new(2.0), wall: Timestamp::UNIX_EPOCH };
    let entry = cketerm_model::repair::RepairEntry::queued(0, &Address::new("10.0.0.1"), "t", "o", None);
    let entry = cketerm_model::any::QueueEntry::Repair(entry);
    let check = Effect::HealthCheck { argv: Vec::new(), bound: 3, asked: BootTime::new(1.0) };
    remember(&mut work, id, &check, &EffectOutcome::Check(CheckAnswer::No("false".to_owned())), now);
    let start = Effect::StartDrain { entry: entry.clone(), node_uid: None, hooks: None };
    for effect in [start, Effect::BackOff { entry, cause: Reason::QueueDisabled }] {
        remember(&mut work, id, &effect, &EffectOutcome::Done, now);
        assert!(work[&id].check.is_some(), "{}", effect.as_str());
    }
    assert!(work[&id].backoff_cause.is_some());
}

/// The request that begins a drain may reach etcd twice. The second one is refused, and the leader finds its own write.
#[test]
fn a_drain_counts_as_taken_over_only_if_it_began_before_the_win() {
    let leading = |create_revision| Leading {
        key: "leader/7".to_owned(),
        create_revision,
        since: BootTime::ZERO,
        acknowledged: BootTime::ZERO,
    };
    assert!(drain_seen_first(&leading(20), 19).drain.taken_over);
    assert!(!drain_seen_first(&leading(20), 21).drain.taken_over);
}

//! Meaning of a round of dry runs (REB-26, REB-27, I15).

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use cketerm_model::{
    drain::{Answer, EvictionAdmission, Finding, Preview, Verdict},
    fault,
    kube::{BudgetRow, PodRow},
    reason::{PodHold, Reason},
};

use super::{
    budget_room::{BudgetUse, counting},
    pods::pod_hold_reason,
};

/// A pod and the budgets that select it.
pub type Budgeted = (Arc<PodRow>, Vec<Arc<BudgetRow>>);

/// Returns the pods of a preview that a round asks about. If nothing but budgets decides on evictions, these are one for
/// all pods that the API server judges alike, and none for pods without a budget, or whose budget allows the evictions of
/// all pods that it counts here. In any case it is one for each budget that allows no eviction, of the protected pods: the
/// others get the same answer. They are asked about in the next round if that one passes.
pub fn dry_runs(pods: &[Budgeted], unprotected: &BTreeSet<String>, admission: EvictionAdmission) -> Vec<Budgeted> {
    let (none_under_way, mut full_budgets, mut alike) = (BudgetUse::default(), BTreeSet::new(), BTreeSet::new());
    let sure = SureBudgets::of(pods);
    let is_asked = |(pod, budgets): &&Budgeted| {
        let full = none_under_way.refusing(pod, budgets).filter(|_| !unprotected.contains(&pod.uid));
        full.is_none_or(|full| full_budgets.insert(full.full_name()))
            && match admission {
                EvictionAdmission::EachPod => true,
                EvictionAdmission::BudgetsOnly => Likeness::of(pod, budgets, &sure).is_some_and(|of| alike.insert(of)),
            }
    };
    pods.iter().filter(is_asked).cloned().collect()
}

/// Whether fewer dry runs are sent if nothing but budgets decides on evictions.
pub fn saves_dry_runs(pods: &[Budgeted]) -> bool {
    let (sure, mut alike) = (SureBudgets::of(pods), BTreeSet::new());
    !pods.iter().all(|(pod, budgets)| Likeness::of(pod, budgets, &sure).is_some_and(|of| alike.insert(of)))
}

/// Budgets (`namespace/name`) that allow the evictions of all pods of a preview that they count, as their watch shows
/// them. The API server judges by the same numbers.
struct SureBudgets(BTreeSet<String>);

impl SureBudgets {
    fn of(pods: &[Budgeted]) -> Self {
        let mut counted: BTreeMap<String, (i32, bool)> = BTreeMap::new();
        for (pod, budgets) in pods {
            let Some(budget) = counting(pod, budgets) else { continue };
            let (count, sure) = counted.entry(budget.full_name()).or_default();
            *count = count.saturating_add(1);
            *sure = *count <= budget.allowed && !budget.status_lags;
        }
        Self(counted.into_iter().filter_map(|(name, (_, sure))| sure.then_some(name)).collect())
    }

    /// Whether the API server would accept the eviction of this pod, budgets considered.
    fn allow(&self, pod: &PodRow, budgets: &[Arc<BudgetRow>]) -> bool {
        counting(pod, budgets).is_some_and(|budget| self.0.contains(&budget.full_name()))
    }
}

/// Everything on which the API server's answer to an eviction depends, if no webhook and no policy decides: budgets, and
/// the pod's health in their eyes.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Likeness {
    namespace: String,
    /// Budgets of the pod, and whether each of them counts its eviction.
    budgets: Vec<(String, bool)>,
}

impl Likeness {
    /// Returns none if there is nothing on which the answer depends.
    fn of(pod: &PodRow, budgets: &[Arc<BudgetRow>], sure: &SureBudgets) -> Option<Self> {
        fault!(PreviewSkipped => return None);
        if sure.allow(pod, budgets) {
            return None;
        }
        let budgets: Vec<_> = budgets.iter().map(|budget| (budget.full_name(), budget.judges(pod))).collect();
        (!budgets.is_empty()).then(|| Self { namespace: pod.namespace.clone(), budgets })
    }
}

/// Meaning of one answer for the preview.
enum DryRunResult {
    Yes,
    Blocked(Reason),
    Undecided(Reason, Option<u64>),
}

/// Returns the result of these dry runs. `unprotected` holds UIDs of pods in namespaces that are not protected.
/// `admission` is that of [`dry_runs`].
pub fn preview_result(
    pods: &[Budgeted],
    unprotected: &BTreeSet<String>,
    admission: EvictionAdmission,
    answers: &BTreeMap<String, Answer>,
) -> Preview {
    let accepted = |(pod, _): &&Budgeted| answers.get(&pod.uid).is_some_and(|a| a.verdict == Verdict::Accepted);
    let sure = SureBudgets::of(pods);
    let alike: BTreeSet<_> =
        pods.iter().filter(accepted).map(|(pod, budgets)| Likeness::of(pod, budgets, &sure)).collect();
    let mut passed = BTreeSet::new();
    let (mut blocked, mut undecided, mut unasked) = (None, None, false);
    for (pod, budgets) in pods {
        let Some(answer) = answers.get(&pod.uid) else {
            let needs_none = match admission {
                EvictionAdmission::EachPod => false,
                EvictionAdmission::BudgetsOnly => {
                    let likeness = Likeness::of(pod, budgets, &sure);
                    likeness.is_none() || alike.contains(&likeness)
                }
            };
            if needs_none {
                passed.insert(pod.uid.clone());
            } else {
                unasked = true;
            }
            continue;
        };
        match dry_run_result(pod, unprotected.contains(&pod.uid), &answer.verdict) {
            DryRunResult::Yes => {
                passed.insert(pod.uid.clone());
            }
            DryRunResult::Blocked(reason) => blocked = blocked.or(Some(reason)),
            DryRunResult::Undecided(reason, retry_after) => undecided = undecided.or(Some((reason, retry_after))),
        }
    }
    let finding = match (blocked, undecided) {
        (Some(reason), _) => Finding::Blocked(reason),
        (None, Some((reason, retry_after))) => Finding::Undecided { reason, retry_after },
        (None, None) if unasked => Finding::Unfinished,
        (None, None) => Finding::Clean,
    };
    Preview { passed, finding }
}

fn dry_run_result(pod: &PodRow, unprotected: bool, verdict: &Verdict) -> DryRunResult {
    let (hold, retry_after) = match verdict {
        Verdict::Accepted | Verdict::Gone => return DryRunResult::Yes,
        Verdict::Failed(answer) => {
            return DryRunResult::Blocked(Reason::EvictionRefused { pod: pod.full_name(), answer: answer.clone() });
        }
        Verdict::Undecided { answer, retry_after, .. } => {
            let reason = Reason::EvictionFailing { pod: pod.full_name(), answer: answer.clone() };
            fault!(FailureFatal => return DryRunResult::Blocked(reason));
            return DryRunResult::Undecided(reason, *retry_after);
        }
        Verdict::Held { hold, retry_after } => (hold, *retry_after),
    };
    let blocked = || DryRunResult::Blocked(pod_hold_reason(pod, hold));
    fault!(PreviewIgnored if matches!(hold, PodHold::Budget { .. } | PodHold::ManyBudgets { .. }) => {
        return DryRunResult::Yes;
    });
    fault!(DenialIgnored if matches!(hold, PodHold::Denied { .. }) => return DryRunResult::Yes);
    fault!(DeferralBlocks if matches!(hold, PodHold::Deferred { .. }) => return blocked());
    match hold {
        // Budgets hold no pod of an unprotected namespace, because it is deleted (I18).
        PodHold::Budget { .. } | PodHold::BudgetLag { .. } | PodHold::ManyBudgets { .. } if unprotected => {
            DryRunResult::Yes
        }
        // A webhook's 429 blocks nothing: only the real eviction makes the webhook move the pod. A terminating
        // namespace deletes its pods itself.
        PodHold::Deferred { .. } | PodHold::NamespaceTerminating => DryRunResult::Yes,
        PodHold::BudgetLag { .. } | PodHold::Replaced => {
            DryRunResult::Undecided(pod_hold_reason(pod, hold), retry_after)
        }
        PodHold::Budget { .. }
        | PodHold::ManyBudgets { .. }
        | PodHold::Denied { .. }
        | PodHold::Job { .. }
        | PodHold::Failing { .. }
        | PodHold::Terminating { .. }
        | PodHold::Leaving
        | PodHold::Refused { .. } => blocked(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cketerm_model::{boot_time::BootTime, drain::Undecided};

    fn found(answers: &[(&str, Verdict)], unprotected: &[&str]) -> Preview {
        let pod = |name: &&str| {
            let pod = PodRow { namespace: "ns".into(), name: (*name).into(), uid: (*name).into(), ..PodRow::default() };
            (Arc::new(pod), Vec::new())
        };
        let pods: Vec<Budgeted> = ["a", "b", "c"].iter().map(pod).collect();
        let answer = |verdict: &Verdict| Answer {
            verdict: verdict.clone(),
            at: BootTime::ZERO,
            budgets: BTreeMap::new(),
            undecided: 0,
        };
        let answers = answers.iter().map(|(uid, verdict)| ((*uid).to_owned(), answer(verdict))).collect();
        let unprotected = unprotected.iter().map(|u| (*u).to_owned()).collect();
        preview_result(&pods, &unprotected, EvictionAdmission::EachPod, &answers)
    }

    fn held(hold: PodHold) -> Verdict {
        Verdict::Held { hold, retry_after: None }
    }

    #[test]
    fn i15_only_budgets_of_protected_pods_and_webhook_denials_block_a_preview() {
        let budget = || PodHold::Budget { budget: "ns/b".into(), healthy: 1, needed: 1, cause: None };
        let many = || PodHold::ManyBudgets { budgets: vec!["ns/b".into(), "ns/c".into()] };
        let (webhook, message) = (|| "w".to_owned(), || "no".to_owned());
        let denied = || PodHold::Denied { webhook: webhook(), message: message() };
        let deferred = || PodHold::Deferred { webhook: webhook(), message: message() };
        let undecided = || Verdict::Undecided { by: Undecided::Server, answer: "503".into(), retry_after: Some(2) };
        let (lag, replaced) = (|| PodHold::BudgetLag { budget: "ns/b".into() }, || PodHold::Replaced);
        // Columns: protected, unprotected. 0 = passes, 1 = is retried, 2 = blocks.
        let table = [
            (Verdict::Accepted, [0, 0]),
            (Verdict::Gone, [0, 0]),
            (held(budget()), [2, 0]),
            (held(many()), [2, 0]),
            (held(lag()), [1, 0]),
            (held(denied()), [2, 2]),
            (held(deferred()), [0, 0]),
            (held(replaced()), [1, 1]),
            (held(PodHold::NamespaceTerminating), [0, 0]),
            (undecided(), [1, 1]),
            (Verdict::Failed("403: no".into()), [2, 2]),
        ];
        for (verdict, expected) in table {
            for (unprotected, expected) in [&[][..], &["b"][..]].into_iter().zip(expected) {
                let all = [("a", Verdict::Accepted), ("b", verdict.clone()), ("c", Verdict::Accepted)];
                let preview = found(&all, unprotected);
                let is = match &preview.finding {
                    Finding::Clean => 0,
                    Finding::Undecided { .. } => 1,
                    Finding::Blocked(_) => 2,
                    Finding::Unfinished => 3,
                };
                assert_eq!(is, expected, "{verdict:?} {unprotected:?}");
                assert_eq!(preview.passed.contains("b"), is == 0, "{verdict:?}");
                assert!(preview.passed.contains("a") && preview.passed.contains("c"));
            }
        }
        let worst = found(&[("a", undecided()), ("b", held(denied())), ("c", Verdict::Accepted)], &[]);
        assert!(
            matches!(worst.finding, Finding::Blocked(Reason::DeniedByWebhook { .. })),
            "a denial outweighs an unknown verdict"
        );
    }

    #[test]
    fn i15_a_pod_without_a_dry_run_has_not_passed_the_preview() {
        let preview = found(&[("a", Verdict::Accepted), ("c", Verdict::Accepted)], &[]);
        assert_eq!(preview.finding, Finding::Unfinished);
        assert!(!preview.passed.contains("b"));
    }
}

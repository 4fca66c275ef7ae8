//! Evictions and deletions of one pod, by its UID, and what each answer means (spec/kubernetes.md, Evictions and
//! guarded writes; I17, I20).

use kube::core::Status;
use serde_json::{Value, json};

use super::{
    call::{Built, Fault, encoded, with_body},
    connect::Kube,
};
use crate::{
    fence::{Permit, Person},
    model::{
        drain::Verdict,
        kube::{BudgetRow, PodRow},
        reason::PodHold,
    },
    mutation::{Mutation, on},
};

impl Kube {
    /// Evicts a pod, or asks whether it could be (`dry_run`). `budgets` are those that select it: they give the hold
    /// its name and numbers. The server spends a budget even when the UID turns out wrong: compare with the live copy
    /// first.
    pub async fn evict(&self, _: &Permit, pod: &PodRow, budgets: &[&BudgetRow], dry_run: bool) -> Verdict {
        self.ask_to_evict(pod, budgets, dry_run).await
    }

    /// The same by a person: not fenced, with the person's rights.
    pub async fn evict_by_hand(&self, _: &Person, pod: &PodRow, budgets: &[&BudgetRow], dry_run: bool) -> Verdict {
        self.ask_to_evict(pod, budgets, dry_run).await
    }

    async fn ask_to_evict(&self, pod: &PodRow, budgets: &[&BudgetRow], dry_run: bool) -> Verdict {
        let mut options = preconditions(pod);
        if dry_run {
            options["dryRun"] = json!(["All"]);
        }
        let body = json!({
            "apiVersion": "policy/v1", "kind": "Eviction",
            "metadata": {"name": pod.name, "namespace": pod.namespace},
            "deleteOptions": options,
        });
        let path = format!("{}/eviction", pod_path(pod));
        self.verdict(with_body("POST", &path, "application/json", &body), pod, budgets, "create pods/eviction").await
    }

    /// Deletes a pod.
    pub async fn delete_pod(&self, _: &Permit, pod: &PodRow) -> Verdict {
        self.ask_to_delete(pod).await
    }

    /// The same by a person.
    pub async fn delete_pod_by_hand(&self, _: &Person, pod: &PodRow) -> Verdict {
        self.ask_to_delete(pod).await
    }

    async fn ask_to_delete(&self, pod: &PodRow) -> Verdict {
        let mut options = preconditions(pod);
        options["apiVersion"] = json!("v1");
        options["kind"] = json!("DeleteOptions");
        #[cfg(feature = "mutations")]
        if crate::mutation::on(crate::mutation::Mutation::ForceDelete) {
            options["gracePeriodSeconds"] = json!(0);
        }
        self.verdict(with_body("DELETE", &pod_path(pod), "application/json", &options), pod, &[], "delete pods").await
    }

    async fn verdict(&self, request: Built, pod: &PodRow, budgets: &[&BudgetRow], right: &str) -> Verdict {
        match self.send::<Value>(request).await {
            Ok(_) => Verdict::Accepted,
            Err(Fault::Silent(why)) => Verdict::NoAnswer(why),
            Err(Fault::Answered(status)) => judge(&status, pod, budgets, right),
        }
    }
}

fn preconditions(pod: &PodRow) -> Value {
    if on(Mutation::EvictionWithoutUid) {
        return json!({});
    }
    json!({"preconditions": {"uid": pod.uid}})
}

fn pod_path(pod: &PodRow) -> String {
    format!("/api/v1/namespaces/{}/pods/{}", encoded(&pod.namespace), encoded(&pod.name))
}

/// What an answer that is not 2xx means.
pub(super) fn judge(status: &Status, pod: &PodRow, budgets: &[&BudgetRow], right: &str) -> Verdict {
    let details = status.details.as_ref();
    let causes = details.map(|d| d.causes.as_slice()).unwrap_or_default();
    let retry_after = details.map(|d| u64::from(d.retry_after_seconds)).filter(|s| *s > 0);
    let held = |hold| Verdict::Held { hold, retry_after };
    let answer = || format!("{}: {}", status.code, status.message);
    match status.code {
        404 => Verdict::Gone,
        429 => match causes.iter().find(|c| c.reason == "DisruptionBudget") {
            Some(cause) if retry_after.is_some() => {
                held(PodHold::BudgetLag { budget: budget_name(&cause.message, pod, budgets) })
            }
            Some(cause) => held(budget_hold(&cause.message, pod, budgets)),
            // Not the budget's refusal but the server's load: nothing was judged.
            None => Verdict::NoAnswer(answer()),
        },
        500 if status.message.contains("more than one PodDisruptionBudget") => {
            held(PodHold::ManyBudgets { budgets: budgets.iter().map(|b| b.full_name()).collect() })
        }
        403 if causes.iter().any(|c| c.reason == "NamespaceTerminating")
            || status.message.contains("is being terminated") =>
        {
            held(PodHold::NamespaceTerminating)
        }
        // Its controller does not keep up with the evictions.
        403 if details.is_some_and(|d| d.kind == "poddisruptionbudgets" || d.kind == "poddisruptionbudget") => {
            let name = details.map(|d| d.name.as_str()).unwrap_or_default();
            held(PodHold::BudgetLag { budget: format!("{}/{name}", pod.namespace) })
        }
        403 => Verdict::Failed(format!("{}; grant the right to {right} (docs/rbac.yaml)", answer())),
        409 if other_uid(&status.message) => held(PodHold::Replaced),
        // Many evictions under one budget at once write its status against each other.
        504 if status.message.contains("due to conflicts") => {
            held(PodHold::BudgetLag { budget: budget_name(&status.message, pod, budgets) })
        }
        502..=504 => Verdict::NoAnswer(answer()),
        _ => Verdict::Failed(answer()),
    }
}

/// "Precondition failed: UID in precondition: A, UID in object meta: B", or "the UID in the precondition (A) does not
/// match the UID in record (B)": the store and the eviction say it in their own words.
fn other_uid(message: &str) -> bool {
    message.contains("UID in precondition") || message.contains("UID in the precondition")
}

/// `namespace/name` of the budget of which the server speaks, or that selects the pod.
fn budget_name(message: &str, pod: &PodRow, budgets: &[&BudgetRow]) -> String {
    named_in(message)
        .map(|name| format!("{}/{name}", pod.namespace))
        .or_else(|| budgets.first().map(|b| b.full_name()))
        .unwrap_or_else(|| "?".to_owned())
}

/// The name in "The disruption budget NAME …".
fn named_in(message: &str) -> Option<&str> {
    message.split_once("disruption budget ")?.1.split_whitespace().next()
}

/// "The disruption budget NAME [does not allow … because it] needs N healthy pods and has M currently".
fn budget_hold(message: &str, pod: &PodRow, budgets: &[&BudgetRow]) -> PodHold {
    let budget = budget_name(message, pod, budgets);
    let row = budgets.iter().find(|b| b.full_name() == budget);
    let number = |before: &str| -> Option<i32> {
        message.split_once(before)?.1.split_whitespace().next().and_then(|word| word.parse().ok())
    };
    PodHold::Budget {
        healthy: number("and has ").or(row.map(|b| b.healthy)).unwrap_or(0),
        needed: number("needs ").or(row.map(|b| b.needed)).unwrap_or(0),
        budget,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(json: Value) -> Status {
        serde_json::from_value(json).unwrap()
    }

    fn pod() -> PodRow {
        PodRow { namespace: "ns".into(), name: "p".into(), ..PodRow::default() }
    }

    #[test]
    fn i18_the_servers_own_overload_is_not_a_refusal_by_a_budget() {
        let s = status(json!({"code": 429, "reason": "TooManyRequests", "message": "too many requests"}));
        assert!(matches!(judge(&s, &pod(), &[], ""), Verdict::NoAnswer(_)));
    }

    #[test]
    fn evictions_that_write_one_budget_against_each_other_wait() {
        let s = status(json!({"code": 504, "reason": "Timeout", "details": {"retryAfterSeconds": 10},
            "message": "Timeout: couldn't update PodDisruptionBudget \"b\" due to conflicts"}));
        let row = BudgetRow { namespace: "ns".into(), name: "b".into(), ..BudgetRow::default() };
        assert_eq!(
            judge(&s, &pod(), &[&row], ""),
            Verdict::Held { hold: PodHold::BudgetLag { budget: "ns/b".into() }, retry_after: Some(10) }
        );
    }

    #[test]
    fn the_servers_numbers_are_newer_than_our_row() {
        let row = BudgetRow { namespace: "ns".into(), name: "b".into(), healthy: 3, needed: 3, ..BudgetRow::default() };
        let s = status(json!({"code": 429, "details": {"causes": [{"reason": "DisruptionBudget",
            "message": "The disruption budget b needs 3 healthy pods and has 2 currently"}]}}));
        assert_eq!(
            judge(&s, &pod(), &[&row], ""),
            Verdict::Held { hold: PodHold::Budget { budget: "ns/b".into(), healthy: 2, needed: 3 }, retry_after: None }
        );
    }
}

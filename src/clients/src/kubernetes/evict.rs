//! Evictions and deletions of one pod, by its UID, and the meaning of each answer (REB-27; I17, I20). The text of
//! foreign answers is parsed in this module only.

use cketerm_model::{
    drain::{Undecided, Verdict},
    fault,
    fence::{Permit, Person},
    kube::{BudgetRow, PodRow},
    reason::PodHold,
};
use kube::core::{Status, response::StatusDetails};
use serde_json::{Value, json};

use super::{
    call::{RequestResult, percent_encode, with_body},
    connect::Kube,
    error::Fault,
};

/// Number of characters kept of an answer and of a webhook's message.
const MAX_MESSAGE: usize = 300;

impl Kube {
    /// Evicts a pod, or previews the eviction (`dry_run`). `budgets` are those that select the pod; they supply the
    /// name and the numbers of a refusal. The server spends a budget even if the UID turns out to be wrong, so compare
    /// with the live copy first.
    pub async fn evict(&self, _: &Permit, pod: &PodRow, budgets: &[&BudgetRow], dry_run: bool) -> Verdict {
        self.request_eviction(pod, budgets, dry_run).await
    }

    /// Evicts a pod for an operator. Not fenced; it uses the operator's rights.
    pub async fn evict_manually(&self, _: &Person, pod: &PodRow, budgets: &[&BudgetRow], dry_run: bool) -> Verdict {
        self.request_eviction(pod, budgets, dry_run).await
    }

    async fn request_eviction(&self, pod: &PodRow, budgets: &[&BudgetRow], dry_run: bool) -> Verdict {
        let mut options = preconditions(pod);
        if dry_run {
            options["dryRun"] = json!(["All"]);
        }
        let body = json!({
            "apiVersion": "policy/v1", "kind": "Eviction",
            "metadata": {"name": pod.name, "namespace": pod.namespace},
            "deleteOptions": options,
        });
        // In the body, `dryRun` holds for the pod and its budgets only. Admission webhooks see only the query's
        // `dryRun`; without it they would begin a migration for a preview (SAF-37).
        let query = if dry_run { "?dryRun=All" } else { "" };
        fault!(DryRunHidden => query = "");
        let path = format!("{}/eviction{query}", pod_path(pod));
        self.verdict(with_body("POST", &path, "application/json", &body), pod, budgets, ("create", "pods/eviction"))
            .await
    }

    /// Deletes a pod.
    pub async fn delete_pod(&self, _: &Permit, pod: &PodRow) -> Verdict {
        self.request_deletion(pod).await
    }

    /// Deletes a pod for an operator. Not fenced.
    pub async fn delete_pod_manually(&self, _: &Person, pod: &PodRow) -> Verdict {
        self.request_deletion(pod).await
    }

    async fn request_deletion(&self, pod: &PodRow) -> Verdict {
        let mut options = preconditions(pod);
        options["apiVersion"] = json!("v1");
        options["kind"] = json!("DeleteOptions");
        fault!(ForceDelete => options["gracePeriodSeconds"] = json!(0));
        self.verdict(with_body("DELETE", &pod_path(pod), "application/json", &options), pod, &[], ("delete", "pods"))
            .await
    }

    async fn verdict(&self, request: RequestResult, pod: &PodRow, budgets: &[&BudgetRow], right: Right) -> Verdict {
        match self.send::<Value>(request).await {
            Ok(_) => Verdict::Accepted,
            Err(Fault::Silent(why)) => {
                Verdict::Undecided { by: Undecided::Silence, answer: truncate_message(&why), retry_after: None }
            }
            Err(Fault::Answered(status)) => classify_answer(&status, pod, budgets, right),
        }
    }
}

fn preconditions(pod: &PodRow) -> Value {
    fault!(EvictionWithoutUid => return json!({}));
    json!({"preconditions": {"uid": pod.uid}})
}

fn pod_path(pod: &PodRow) -> String {
    format!("/api/v1/namespaces/{}/pods/{}", percent_encode(&pod.namespace), percent_encode(&pod.name))
}

/// Verb and resource of a request.
type Right = (&'static str, &'static str);

/// Classifies an answer that is not 2xx (REB-27). `right` is the permission that a 403 may be about.
pub(super) fn classify_answer(status: &Status, pod: &PodRow, budgets: &[&BudgetRow], right: Right) -> Verdict {
    let details = status.details.as_ref();
    let causes = details.map(|d| d.causes.as_slice()).unwrap_or_default();
    let retry_after = details.map(|d| u64::from(d.retry_after_seconds)).filter(|s| *s > 0);
    let held = |hold| Verdict::Held { hold, retry_after };
    let answer = || truncate_message(&format!("{}: {}", status.code, status.message));
    let undecided = |by| Verdict::Undecided { by, answer: answer(), retry_after };
    // This check comes first, because a webhook chooses code, causes and message of its denial freely.
    if let Some((webhook, message)) = denial(&status.message) {
        let (webhook, message) = (truncate_message(webhook), truncate_message(message));
        return match status.code {
            429 => held(PodHold::Deferred { webhook, message }),
            // The webhook reports its own failure (controller-runtime's `Errored`), so it has not decided.
            500..=599 => undecided(Undecided::Webhook(webhook)),
            _ => held(PodHold::Denied { webhook, message }),
        };
    }
    match status.code {
        // Only a dry run gets this answer. The server called neither that webhook nor evaluated the budgets. The
        // eviction itself is judged.
        400 if is_dry_run_unsupported(status) => Verdict::Accepted,
        404 => Verdict::Gone,
        429 => match causes.iter().find(|c| c.reason == "DisruptionBudget") {
            Some(cause) if retry_after.is_some() => {
                held(PodHold::BudgetLag { budget: budget_name(&cause.message, pod, budgets) })
            }
            Some(cause) => held(budget_hold(&cause.message, pod, budgets)),
            // The server is overloaded; no budget was evaluated.
            None => undecided(Undecided::Overload),
        },
        500 if status.message.contains("more than one PodDisruptionBudget")
            && failed_webhook(&status.message).is_none() =>
        {
            held(PodHold::ManyBudgets { budgets: budgets.iter().map(|b| b.full_name()).collect() })
        }
        403 if causes.iter().any(|c| c.reason == "NamespaceTerminating")
            || status.message.contains("is being terminated") =>
        {
            held(PodHold::NamespaceTerminating)
        }
        // The budget's controller lags behind the evictions. Whether the budget allows this one is not decided.
        403 if details.is_some_and(is_budget_error) => undecided(Undecided::Server),
        403 if is_right_missing(status, right) => {
            let (verb, resource) = right;
            Verdict::Failed(format!("{}; grant the right to {verb} {resource} (docs/rbac.yaml)", answer()))
        }
        409 if is_uid_mismatch(&status.message) => held(PodHold::Replaced),
        408 | 500..=599 => undecided(failed_webhook(&status.message).map_or(Undecided::Server, Undecided::Webhook)),
        _ => Verdict::Failed(answer()),
    }
}

fn is_budget_error(details: &StatusDetails) -> bool {
    details.kind == "poddisruptionbudgets" || details.kind == "poddisruptionbudget"
}

/// Reports whether the answer is `admission webhook "NAME" does not support dry run`. For a dry run, the server calls
/// no webhook whose registration declares side effects, whatever its failure policy. `admissionregistration.k8s.io/v1`
/// rejects such a registration, but one that was stored as `v1beta1` stays in force.
///
/// Code and reason are those of any bad request, and there are no details. So the whole text decides. No webhook can
/// write it, since the text of a denial begins otherwise.
fn is_dry_run_unsupported(status: &Status) -> bool {
    let name = status.message.strip_prefix("admission webhook \"");
    let name = name.and_then(|rest| rest.strip_suffix("\" does not support dry run"));
    status.reason == "BadRequest" && name.is_some_and(|name| !name.is_empty() && !name.contains('"'))
}

/// Reports whether the server's authoriser (RBAC or another) refused this request.
///
/// Admission plugins and policies refuse with the same code, reason (`Forbidden`) and details (the pod), although no
/// permission is missing. The sentence after `is forbidden: ` differs. For an authoriser the server itself writes `User
/// "NAME" cannot VERB resource "RESOURCE" in API group …`.
fn is_right_missing(status: &Status, (verb, resource): Right) -> bool {
    let response = status.message.split_once(" is forbidden: ").map_or("", |(_, response)| response);
    let behind_user = response.strip_prefix("User \"").and_then(|rest| rest.split_once('"')).map(|(_, rest)| rest);
    let required = format!(" cannot {verb} resource \"{resource}\" ");
    status.reason == "Forbidden" && behind_user.is_some_and(|rest| rest.starts_with(&required))
}

/// Returns webhook and message of `admission webhook "NAME" denied the request: MESSAGE`, or of `… without
/// explanation`.
fn denial(message: &str) -> Option<(&str, &str)> {
    let (webhook, rest) = message.strip_prefix("admission webhook \"")?.split_once("\" denied the request")?;
    Some((webhook, rest.strip_prefix(": ").unwrap_or_else(|| rest.trim_start())))
}

/// Returns the webhook of `Internal error occurred: failed calling webhook "NAME": …`.
fn failed_webhook(message: &str) -> Option<String> {
    let (_, rest) = message.split_once("failed calling webhook \"")?;
    rest.split_once('"').map(|(name, _)| truncate_message(name))
}

/// Returns the beginning of a foreign text.
fn truncate_message(text: &str) -> String {
    match text.char_indices().nth(MAX_MESSAGE) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

/// Reports whether the pod has another UID. The store answers "Precondition failed: UID in precondition: A, UID in
/// object meta: B". The eviction answers "the UID in the precondition (A) does not match the UID in record (B)".
fn is_uid_mismatch(message: &str) -> bool {
    message.contains("UID in precondition") || message.contains("UID in the precondition")
}

/// Returns `namespace/name` of the budget that the message names, or else of one that selects the pod.
fn budget_name(message: &str, pod: &PodRow, budgets: &[&BudgetRow]) -> String {
    budget_in_message(message)
        .map(|name| format!("{}/{name}", pod.namespace))
        .or_else(|| budgets.first().map(|b| b.full_name()))
        .unwrap_or_else(|| "?".to_owned())
}

/// Returns the name in "The disruption budget NAME …".
fn budget_in_message(message: &str) -> Option<&str> {
    message.split_once("disruption budget ")?.1.split_whitespace().next()
}

/// Parses "The disruption budget NAME [does not allow … because it] needs N healthy pods and has M currently".
fn budget_hold(message: &str, pod: &PodRow, budgets: &[&BudgetRow]) -> PodHold {
    let budget = budget_name(message, pod, budgets);
    let row = budgets.iter().find(|b| b.full_name() == budget);
    let number = |before: &str| -> Option<i32> {
        message.split_once(before)?.1.split_whitespace().next().and_then(|word| word.parse().ok())
    };
    PodHold::Budget {
        healthy: number("and has ").or(row.map(|b| b.healthy)).unwrap_or(0),
        needed: number("needs ").or(row.map(|b| b.needed)).unwrap_or(0),
        cause: None,
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

    fn classify(json: Value) -> Verdict {
        classify_answer(&status(json), &pod(), &[], EVICT)
    }

    const EVICT: Right = ("create", "pods/eviction");

    fn undecided(by: Undecided, answer: &str, retry_after: Option<u64>) -> Verdict {
        Verdict::Undecided { by, answer: answer.to_owned(), retry_after }
    }

    const DENIED: &str = "admission webhook \"evictions.example.com\" denied the request";

    #[test]
    fn i18_server_overload_is_not_a_refusal_by_a_budget() {
        let response = classify(json!({"code": 429, "reason": "TooManyRequests", "message": "too many requests",
            "details": {"retryAfterSeconds": 3}}));
        assert_eq!(response, undecided(Undecided::Overload, "429: too many requests", Some(3)));
    }

    #[test]
    fn i15_a_webhooks_429_defers_an_eviction_and_other_codes_deny_it() {
        let webhook = || "evictions.example.com".to_owned();
        let deferred = |message: &str, retry_after| {
            let hold = PodHold::Deferred { webhook: webhook(), message: message.to_owned() };
            Verdict::Held { hold, retry_after }
        };
        let denied = |message: &str| {
            let hold = PodHold::Denied { webhook: webhook(), message: message.to_owned() };
            Verdict::Held { hold, retry_after: None }
        };
        let denial_status = |code: u16, rest: &str| json!({"code": code, "message": format!("{DENIED}{rest}")});
        let migrates = ": Eviction triggered evacuation of VMI \"ns/vm\"";
        assert_eq!(
            classify(denial_status(429, migrates)),
            deferred("Eviction triggered evacuation of VMI \"ns/vm\"", None)
        );
        assert_eq!(classify(denial_status(429, " without explanation")), deferred("without explanation", None));
        let mut retry_later = denial_status(429, ": later");
        retry_later["details"] = json!({"retryAfterSeconds": 30});
        assert_eq!(classify(retry_later), deferred("later", Some(30)));
        // a webhook may copy the answers of the server; the denial is still the webhook's
        let mut copies = denial_status(429, ": Cannot evict pod as it would violate the pod's disruption budget.");
        copies["details"] =
            json!({"causes": [{"reason": "DisruptionBudget", "message": "The disruption budget b needs 1"}]});
        assert!(matches!(classify(copies), Verdict::Held { hold: PodHold::Deferred { .. }, .. }));
        for code in [400, 403, 404, 409, 422] {
            assert_eq!(classify(denial_status(code, ": no")), denied("no"), "{code}");
        }
        let many =
            classify(denial_status(403, ": more than one PodDisruptionBudget; the namespace is being terminated"));
        assert!(matches!(many, Verdict::Held { hold: PodHold::Denied { .. }, .. }), "{many:?}");
    }

    #[test]
    fn i20_failures_of_webhooks_etcd_or_the_server_leave_an_eviction_undecided() {
        let webhook = || Undecided::Webhook("evictions.example.com".to_owned());
        let late = "Internal error occurred: failed calling webhook \"evictions.example.com\": failed to call webhook: \
                    Post \"https://x/?timeout=1s\": context deadline exceeded";
        let broken = format!("{DENIED}: cannot get VMI");
        for (code, message, by) in [
            (500, late, webhook()),
            (500, broken.as_str(), webhook()),
            (500, "etcdserver: leader changed", Undecided::Server),
            (503, "the server is currently unable to handle the request", Undecided::Server),
            (504, "Timeout: request did not complete within the allotted timeout", Undecided::Server),
            (408, "request timeout", Undecided::Server),
        ] {
            let response = classify(json!({"code": code, "message": message}));
            assert_eq!(response, undecided(by, &format!("{code}: {message}"), None));
        }
        let quotes = "Internal error occurred: failed calling webhook \"evictions.example.com\": an error on the server \
                      (\"more than one PodDisruptionBudget\") has prevented the request from succeeding";
        assert!(matches!(classify(json!({"code": 500, "message": quotes})), Verdict::Undecided { .. }));
        let many = "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support.";
        assert!(matches!(
            classify(json!({"code": 500, "message": many})),
            Verdict::Held { hold: PodHold::ManyBudgets { .. }, retry_after: None }
        ));
    }

    /// A preview that such a webhook blocked would keep the eviction from ever being sent.
    #[test]
    fn i15_a_webhook_without_dry_run_support_does_not_block_a_preview() {
        let response = |code: u16, reason: &str, message: &str| {
            classify(json!({"code": code, "reason": reason, "message": message}))
        };
        let no_dry_run = "admission webhook \"evictions.example.com\" does not support dry run";
        assert_eq!(response(400, "BadRequest", no_dry_run), Verdict::Accepted);
        // other refusals with 400, and messages that quote it
        for (code, reason, message) in [
            (400, "BadRequest", "the object is no Eviction".to_owned()),
            (400, "BadRequest", format!("{no_dry_run}: really")),
            (400, "BadRequest", format!("x: {no_dry_run}")),
            (400, "Invalid", no_dry_run.to_owned()),
            (422, "BadRequest", no_dry_run.to_owned()),
        ] {
            assert_eq!(response(code, reason, &message), Verdict::Failed(format!("{code}: {message}")));
        }
        let denied = format!("{DENIED}: \"x\" does not support dry run");
        assert!(matches!(response(400, "BadRequest", &denied), Verdict::Held { hold: PodHold::Denied { .. }, .. }));
    }

    #[test]
    fn only_an_rbac_denial_advises_to_grant_the_right() {
        let response = |message: &str| {
            let details = json!({"name": "p", "kind": "pods"});
            match classify(json!({"code": 403, "reason": "Forbidden", "message": message, "details": details})) {
                Verdict::Failed(why) => why.contains("grant the right to create pods/eviction"),
                other => panic!("{message}: {other:?}"),
            }
        };
        let rbac = "pods \"p\" is forbidden: User \"cketerm\" cannot create resource \"pods/eviction\" in API group \"\" in the \
                    namespace \"ns\"";
        assert!(response(rbac));
        assert!(response(&format!("{rbac}: RBAC: clusterrole.rbac.authorization.k8s.io \"x\" not found")));
        for other in [
            "pods \"p\" is forbidden: ValidatingAdmissionPolicy 'frozen' with binding 'all' denied request: no evictions now",
            "pods \"p\" is forbidden: ValidatingAdmissionPolicy 'x' denied request: User \"a\" cannot create resource \"pods/eviction\" \
             in API group",
            "pods \"p\" is forbidden: User \"cketerm\" cannot get resource \"pods\" in API group \"\" in the namespace \"ns\"",
            "pods \"p\" is forbidden: exceeded quota",
            "forbidden",
        ] {
            assert!(!response(other), "{other}");
        }
    }

    #[test]
    fn a_webhooks_message_is_truncated_at_a_character_boundary() {
        let response = classify(json!({"code": 429, "message": format!("{DENIED}: {}", "é".repeat(100_000))}));
        let Verdict::Held { hold: PodHold::Deferred { message, .. }, .. } = response else { panic!() };
        assert_eq!(message, format!("{}…", "é".repeat(MAX_MESSAGE)));
    }

    /// Many evictions under one budget cause conflicts on its status, or outrun its controller. Neither is a refusal by
    /// the budget, after which a pod of an unprotected namespace would be deleted.
    #[test]
    fn i18_an_answer_not_decided_by_a_budget_is_no_refusal() {
        let row = BudgetRow { namespace: "ns".into(), name: "b".into(), ..BudgetRow::default() };
        let response = |answer: Value| classify_answer(&status(answer), &pod(), &[&row], EVICT);
        let conflicts = response(json!({"code": 504, "reason": "Timeout", "details": {"retryAfterSeconds": 10},
            "message": "Timeout: couldn't update PodDisruptionBudget \"b\" due to conflicts"}));
        assert!(
            matches!(conflicts, Verdict::Undecided { by: Undecided::Server, retry_after: Some(10), .. }),
            "{conflicts:?}"
        );
        let too_many = response(json!({"code": 403, "reason": "Forbidden",
            "details": {"name": "b", "group": "policy", "kind": "poddisruptionbudgets"},
            "message": "poddisruptionbudgets.policy \"b\" is forbidden: DisruptedPods map too big - too many evictions not \
                        confirmed by PDB controller"}));
        assert!(matches!(too_many, Verdict::Undecided { by: Undecided::Server, .. }), "{too_many:?}");
    }

    #[test]
    fn the_numbers_of_the_servers_answer_override_the_cached_budget() {
        let row = BudgetRow { namespace: "ns".into(), name: "b".into(), healthy: 3, needed: 3, ..BudgetRow::default() };
        let s = status(json!({"code": 429, "details": {"causes": [{"reason": "DisruptionBudget",
            "message": "The disruption budget b needs 3 healthy pods and has 2 currently"}]}}));
        assert_eq!(
            classify_answer(&s, &pod(), &[&row], EVICT),
            Verdict::Held {
                hold: PodHold::Budget { budget: "ns/b".into(), healthy: 2, needed: 3, cause: None },
                retry_after: None
            }
        );
    }
}

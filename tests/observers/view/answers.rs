//! Answers to evictions and deletions as the API server wrote them, told apart by code and message.

use super::super::record::ApiRequest;

/// Meaning of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Means {
    /// 2xx.
    Accepted,
    /// 404.
    Gone,
    /// A budget refuses, or has no current status.
    Budget,
    /// Two budgets select the pod.
    ManyBudgets,
    /// A webhook answers 429: it removes the pod itself.
    Deferred,
    /// A webhook denies with another code.
    Denied,
    /// The namespace is terminating, and the pod with it.
    NamespaceTerminating,
    /// 5xx, or a 429 of the server itself: nothing was decided.
    Undecided,
    /// Any other answer.
    Other,
}

impl Means {
    /// Classifies an answer.
    pub fn of(request: &ApiRequest) -> Self {
        let contains = |text: &str| request.message.contains(text);
        if request.message.starts_with("admission webhook \"") && contains("\" denied the request") {
            return match request.code {
                429 => Self::Deferred,
                500.. => Self::Undecided,
                _ => Self::Denied,
            };
        }
        match request.code {
            200..300 => Self::Accepted,
            404 => Self::Gone,
            429 if contains("disruption budget") => Self::Budget,
            403 if contains("poddisruptionbudgets") => Self::Undecided,
            500 if request.message.starts_with("This pod has more than one PodDisruptionBudget") => Self::ManyBudgets,
            403 if contains("is being terminated") => Self::NamespaceTerminating,
            429 | 408 | 500.. => Self::Undecided,
            _ => Self::Other,
        }
    }
}

//! Answers to evictions that precede the budget check: from admission webhooks, and from an API server that fails or is
//! overloaded. The messages were observed on kube-apiserver 1.35.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::PoisonError,
    time::Duration,
};

use bytes::Bytes;
use http::{Method, Request};
use serde_json::{Value, json};

use super::{
    super::resource::VALIDATING_WEBHOOKS,
    Api,
    delete::Options,
    path::{RequestInfo, Target},
    status_error::StatusError,
};

/// A fake webhook or API server fault that answers the evictions of some pods.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interceptor {
    /// Name, for example `evictions.example.com`.
    pub name: String,
    /// Namespace of the pods; empty = every namespace.
    pub namespace: String,
    /// Labels that the pods must have.
    pub labels: BTreeMap<String, String>,
    /// Behaviour.
    pub behaviour: Behaviour,
}

/// Behaviour of an interceptor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Behaviour {
    /// A webhook that denies every eviction with this code.
    Deny(u16),
    /// A webhook that denies this many evictions of each pod with 429 and then allows them. Until then it denies dry
    /// runs too.
    Defer(u32),
    /// A webhook like those of virtual machines. It denies every eviction with 429. The first eviction starts a
    /// migration, after which the pod is deleted.
    Migrate(Duration),
    /// A webhook that does not answer this many requests about each pod. After its timeout the API server fails the
    /// request.
    TimeOut {
        /// Number of requests.
        times: u32,
        /// The webhook's timeout.
        after: Duration,
    },
    /// A webhook that fails this many requests about each pod.
    Fail(u32),
    /// An API server that is overloaded for this many requests about each pod.
    Overload(u32),
    /// An API server that fails this many requests about each pod, because etcd lost its leader.
    LeaderChanged(u32),
}

impl Behaviour {
    /// Whether it is a webhook's, and not the API server's.
    fn is_webhook(&self) -> bool {
        match self {
            Self::Deny(_) | Self::Defer(_) | Self::Migrate(_) | Self::TimeOut { .. } | Self::Fail(_) => true,
            Self::Overload(_) | Self::LeaderChanged(_) => false,
        }
    }
}

/// The interceptors, and their counters.
#[derive(Debug, Default)]
pub(super) struct Interceptors {
    all: Vec<Interceptor>,
    /// Counters by interceptor index and pod UID: requests, and evictions that were not dry runs.
    counters: BTreeMap<(usize, String), (u32, u32)>,
}

/// An interceptor that applies to one pod.
struct MatchedInterceptor {
    name: String,
    behaviour: Behaviour,
    /// Counters for this pod before this request: requests, evictions.
    before: (u32, u32),
}

/// Whether a request is a dry run to admission.
#[derive(Clone, Copy)]
struct DryRun(bool);

impl Interceptor {
    fn matches(&self, pod: &Value) -> bool {
        let labels = &pod["metadata"]["labels"];
        (self.namespace.is_empty() || pod["metadata"]["namespace"] == self.namespace.as_str())
            && self.labels.iter().all(|(name, value)| labels[name.as_str()] == value.as_str())
    }
}

impl Api {
    /// Replaces the interceptors, and the registrations of those that are webhooks.
    pub fn intercept(&self, interceptors: Vec<Interceptor>) {
        let mut now = self.shared.interceptors.lock().unwrap_or_else(PoisonError::into_inner);
        let names = |all: &[Interceptor]| -> BTreeSet<String> {
            all.iter().filter(|one| one.behaviour.is_webhook()).map(|one| one.name.clone()).collect()
        };
        let (before, after) = (names(&now.all), names(&interceptors));
        for name in before.difference(&after) {
            // Fails if somebody has deleted it, which is fine.
            drop(self.objects.remove(&VALIDATING_WEBHOOKS, "", name, |_| Ok(())));
        }
        for name in after.difference(&before) {
            // Fails if somebody has created it, which is fine.
            drop(self.objects.create(&VALIDATING_WEBHOOKS, "", registration(name)));
        }
        *now = Interceptors { all: interceptors, counters: BTreeMap::new() };
    }

    /// Returns the time for which a webhook delays this request.
    pub(super) fn webhook_delay(&self, request: &Request<Bytes>) -> Option<Duration> {
        if request.method() != Method::POST || !request.uri().path().ends_with("/eviction") {
            return None;
        }
        let Ok(Target::Objects(info)) = Target::read(request.uri().path()) else { return None };
        let pod = self.objects.get(info.kind, &info.namespace, &info.name)?;
        let matching = self.matching(&pod, None);
        matching.into_iter().find_map(|matched| match matched.behaviour {
            Behaviour::TimeOut { times, after } if matched.before.0 < times => Some(after),
            _ => None,
        })
    }

    /// Returns the interceptors that apply to this pod. Counts the request, if there is one.
    fn matching(&self, pod: &Value, request: Option<DryRun>) -> Vec<MatchedInterceptor> {
        let mut now = self.shared.interceptors.lock().unwrap_or_else(PoisonError::into_inner);
        let Interceptors { all, counters } = &mut *now;
        let uid = pod["metadata"]["uid"].as_str().unwrap_or_default();
        let one = |(at, interceptor): (usize, &Interceptor)| {
            if !interceptor.matches(pod) {
                return None;
            }
            let count = counters.entry((at, uid.to_owned())).or_default();
            let before = *count;
            if let Some(DryRun(dry)) = request {
                *count = (before.0 + 1, before.1 + u32::from(!dry));
            }
            Some(MatchedInterceptor {
                name: interceptor.name.clone(),
                behaviour: interceptor.behaviour.clone(),
                before,
            })
        };
        all.iter().enumerate().filter_map(one).collect()
    }

    /// Passes one eviction to the interceptors. The first refusal is the answer. `dry` tells them that it is a dry run.
    pub(super) fn admit_eviction(&self, pod: &Value, info: &RequestInfo, dry: bool) -> Result<(), StatusError> {
        for MatchedInterceptor { name, behaviour, before: (requests, evictions) } in
            self.matching(pod, Some(DryRun(dry)))
        {
            let failed = |why: &str| Err(StatusError::internal(&format!("failed calling webhook \"{name}\": {why}")));
            match behaviour {
                Behaviour::Deny(code) => return Err(denied(code, &name, &format!("{} stays", info.name))),
                Behaviour::Defer(times) if evictions < times => return Err(denied(429, &name, "try again later")),
                Behaviour::Migrate(after) => {
                    if evictions == 0 && !dry {
                        self.migrate(pod, info, after);
                    }
                    let why = format!("Eviction triggered evacuation of VMI \"{}/{}\"", info.namespace, info.name);
                    return Err(denied(429, &name, &why));
                }
                Behaviour::TimeOut { times, after } if requests < times => {
                    let seconds = after.as_secs();
                    return failed(&format!(
                        "failed to call webhook: Post \"https://{name}/evictions?timeout={seconds}s\": context deadline exceeded"
                    ));
                }
                Behaviour::Fail(times) if requests < times => {
                    return failed(
                        "failed to call webhook: an error on the server (\"\") has prevented the request from succeeding",
                    );
                }
                Behaviour::Overload(times) if requests < times => {
                    let why = "Too many requests, please try again later.";
                    return Err(StatusError { retry_after: Some(1), ..StatusError::new(429, "TooManyRequests", why) });
                }
                Behaviour::LeaderChanged(times) if requests < times => {
                    return Err(StatusError::new(500, "", "etcdserver: leader changed"));
                }
                Behaviour::Defer(_)
                | Behaviour::TimeOut { .. }
                | Behaviour::Fail(_)
                | Behaviour::Overload(_)
                | Behaviour::LeaderChanged(_) => {}
            }
        }
        Ok(())
    }

    /// Deletes the pod after this time, because its virtual machine runs elsewhere then.
    fn migrate(&self, pod: &Value, info: &RequestInfo, after: Duration) {
        let options = Options::of_uid(pod["metadata"]["uid"].as_str().unwrap_or_default());
        let (api, info) = (self.clone(), info.clone());
        let info = RequestInfo { sub: String::new(), ..info };
        tokio::spawn(async move {
            tokio::time::sleep(after).await;
            // Fails if the pod is already gone, which is fine.
            drop(api.delete_one(&info, &options));
        });
    }
}

/// Returns the registration of a webhook that sees evictions.
fn registration(name: &str) -> Value {
    let rule =
        json!({"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods/eviction"]});
    let webhook = json!({"name": name, "rules": [rule], "clientConfig": {"url": format!("https://{name}/evictions")},
        "sideEffects": "None", "admissionReviewVersions": ["v1"]});
    json!({"metadata": {"name": name}, "webhooks": [webhook]})
}

/// Returns a webhook's denial with the API server's message.
fn denied(code: u16, name: &str, message: &str) -> StatusError {
    StatusError::new(code, "", format!("admission webhook \"{name}\" denied the request: {message}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interceptor_applies_to_pods_of_its_namespace_and_labels() {
        let pod = json!({"metadata": {"namespace": "a", "labels": {"app": "vm"}}});
        let matches = |namespace: &str, app: &str| {
            let labels = [("app".to_owned(), app.to_owned())].into();
            let (name, namespace) = (String::new(), namespace.to_owned());
            Interceptor { name, namespace, labels, behaviour: Behaviour::Deny(403) }.matches(&pod)
        };
        assert_eq!(
            (matches("a", "vm"), matches("", "vm"), matches("b", "vm"), matches("a", "db")),
            (true, true, false, false)
        );
    }
}

//! Answers to evictions that come before any budget is asked: admission webhooks, and an API server that fails or has too
//! much to do. Messages are those of kube-apiserver 1.35 as they were observed.

use std::{collections::BTreeMap, sync::PoisonError, time::Duration};

use bytes::Bytes;
use http::{Method, Request};
use serde_json::Value;

use super::{
    Api,
    delete::Options,
    failure::Failure,
    path::{Place, Target},
};

/// Something that answers the evictions of some pods.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interceptor {
    /// Its name: `evictions.example.com`.
    pub name: String,
    /// The namespace of the pods; empty = every namespace.
    pub namespace: String,
    /// Labels that the pods have.
    pub labels: BTreeMap<String, String>,
    /// What it does.
    pub behaviour: Behaviour,
}

/// What an interceptor does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Behaviour {
    /// A webhook that denies every eviction with this code.
    Deny(u16),
    /// A webhook that denies so many evictions of each pod with 429, dry runs too until then, and allows the others.
    Defer(u32),
    /// A webhook as virtual machines have it: denies every eviction with 429; the first one starts a migration, after which the
    /// pod is deleted.
    Migrate(Duration),
    /// A webhook that gives no answer to so many requests about each pod: after this time the API server fails.
    TimeOut {
        /// How many.
        times: u32,
        /// The webhook's time limit.
        after: Duration,
    },
    /// A webhook that fails so many requests about each pod.
    Fail(u32),
    /// An API server that has too much to do for so many requests about each pod.
    Overload(u32),
    /// An API server that fails so many requests about each pod: etcd has lost its leader.
    LeaderChanged(u32),
}

/// The interceptors, and how often each has answered so far.
#[derive(Debug, Default)]
pub(super) struct Interceptors {
    all: Vec<Interceptor>,
    /// By the interceptor's place and the pod's UID: requests, and evictions that were no dry runs.
    asked: BTreeMap<(usize, String), (u32, u32)>,
}

/// An interceptor that is asked about one pod.
struct Met {
    name: String,
    behaviour: Behaviour,
    /// What it was asked about this pod before: requests, evictions.
    before: (u32, u32),
}

/// Whether a request is a dry run to admission.
#[derive(Clone, Copy)]
struct DryRun(bool);

impl Interceptor {
    fn meets(&self, pod: &Value) -> bool {
        let labels = &pod["metadata"]["labels"];
        (self.namespace.is_empty() || pod["metadata"]["namespace"] == self.namespace.as_str())
            && self.labels.iter().all(|(name, value)| labels[name.as_str()] == value.as_str())
    }
}

impl Api {
    /// From now on these answer evictions, in place of those before.
    pub fn intercept(&self, interceptors: Vec<Interceptor>) {
        let mut now = self.shared.interceptors.lock().unwrap_or_else(PoisonError::into_inner);
        *now = Interceptors { all: interceptors, asked: BTreeMap::new() };
    }

    /// How long a webhook lets this request wait.
    pub(super) fn webhook_waits(&self, request: &Request<Bytes>) -> Option<Duration> {
        if request.method() != Method::POST || !request.uri().path().ends_with("/eviction") {
            return None;
        }
        let Ok(Target::Objects(place)) = Target::read(request.uri().path()) else { return None };
        let pod = self.objects.get(place.kind, &place.namespace, &place.name)?;
        let met = self.met(&pod, None);
        met.into_iter().find_map(|met| match met.behaviour {
            Behaviour::TimeOut { times, after } if met.before.0 < times => Some(after),
            _ => None,
        })
    }

    /// The interceptors of this pod; counts a request, if it is one.
    fn met(&self, pod: &Value, request: Option<DryRun>) -> Vec<Met> {
        let mut now = self.shared.interceptors.lock().unwrap_or_else(PoisonError::into_inner);
        let Interceptors { all, asked } = &mut *now;
        let uid = pod["metadata"]["uid"].as_str().unwrap_or_default();
        let one = |(at, interceptor): (usize, &Interceptor)| {
            if !interceptor.meets(pod) {
                return None;
            }
            let count = asked.entry((at, uid.to_owned())).or_default();
            let before = *count;
            if let Some(DryRun(dry)) = request {
                *count = (before.0 + 1, before.1 + u32::from(!dry));
            }
            Some(Met { name: interceptor.name.clone(), behaviour: interceptor.behaviour.clone(), before })
        };
        all.iter().enumerate().filter_map(one).collect()
    }

    /// Lets the interceptors judge one eviction: the first refusal is the answer. `dry`: they are told that it is a dry run.
    pub(super) fn admit_eviction(&self, pod: &Value, place: &Place, dry: bool) -> Result<(), Failure> {
        for Met { name, behaviour, before: (requests, evictions) } in self.met(pod, Some(DryRun(dry))) {
            let failed = |why: &str| Err(Failure::internal(&format!("failed calling webhook \"{name}\": {why}")));
            match behaviour {
                Behaviour::Deny(code) => return Err(denied(code, &name, &format!("{} stays", place.name))),
                Behaviour::Defer(times) if evictions < times => return Err(denied(429, &name, "try again later")),
                Behaviour::Migrate(after) => {
                    if evictions == 0 && !dry {
                        self.migrate(pod, place, after);
                    }
                    let why = format!("Eviction triggered evacuation of VMI \"{}/{}\"", place.namespace, place.name);
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
                    return Err(Failure { retry_after: Some(1), ..Failure::new(429, "TooManyRequests", why) });
                }
                Behaviour::LeaderChanged(times) if requests < times => {
                    return Err(Failure::new(500, "", "etcdserver: leader changed"));
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

    /// After this time the pod is deleted, as its virtual machine runs elsewhere.
    fn migrate(&self, pod: &Value, place: &Place, after: Duration) {
        let options = Options::of_uid(pod["metadata"]["uid"].as_str().unwrap_or_default());
        let (api, place) = (self.clone(), place.clone());
        let place = Place { sub: String::new(), ..place };
        tokio::spawn(async move {
            tokio::time::sleep(after).await;
            // gone by itself: as good
            drop(api.delete_one(&place, &options));
        });
    }
}

/// A webhook's denial, in the API server's words.
fn denied(code: u16, name: &str, message: &str) -> Failure {
    Failure::new(code, "", format!("admission webhook \"{name}\" denied the request: {message}"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_interceptor_meets_the_pods_of_its_namespace_and_labels() {
        let pod = json!({"metadata": {"namespace": "a", "labels": {"app": "vm"}}});
        let meets = |namespace: &str, app: &str| {
            let labels = [("app".to_owned(), app.to_owned())].into();
            let (name, namespace) = (String::new(), namespace.to_owned());
            Interceptor { name, namespace, labels, behaviour: Behaviour::Deny(403) }.meets(&pod)
        };
        assert_eq!((meets("a", "vm"), meets("", "vm"), meets("b", "vm"), meets("a", "db")), (true, true, false, false));
    }
}

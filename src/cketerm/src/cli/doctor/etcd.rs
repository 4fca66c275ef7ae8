//! Checks of the etcd that holds the queues: each endpoint, its members, the rights of this user, and who can read the
//! objects of Kubernetes in it.

use std::time::Duration;

use cketerm_actions::rights;
use cketerm_clients::store::{EtcdSettings, Store, exposure::Exposure};
use cketerm_model::{clock::Clock, secret};
use cketerm_rules::doctor::{Checks, Subject};
use futures::future::join_all;
use tokio::time::timeout;

use super::store_members;

/// Longest wait for one answer.
const TIMEOUT: Duration = Duration::from_secs(3);
/// Subject of all checks here.
const SUBJECT: Subject = Subject::Etcd;
/// Guide for an etcd of cketerm's own.
pub const OWN_ETCD: &str = "give cketerm a small etcd of its own (docs/how-to/own-etcd.md), or a user with one of the roles of \
                        docs/etcd-roles.md";

/// Adds all checks of this etcd.
pub(super) async fn add(settings: &EtcdSettings, found: &mut Checks) {
    let asked = settings.endpoints.iter().map(|endpoint| async move { (endpoint, answer(endpoint, settings).await) });
    let mut answers = 0;
    for (endpoint, answer) in join_all(asked).await {
        let shown = secret::url(endpoint);
        match answer {
            Ok(server) => {
                answers += 1;
                found.good(SUBJECT, format!("{shown} answers: {server}"));
            }
            Err(why) => found.failed(
                SUBJECT,
                format!("{shown}: {why}"),
                "start it, or correct the endpoints, certificates and user under `etcd` in the configuration",
            ),
        }
    }
    if answers == 0 {
        return;
    }
    let Ok(Ok(store)) = timeout(TIMEOUT, Store::connect(settings, Clock::host())).await else { return };
    store_members::add(settings, found).await;
    add_exposure(&store, found).await;
    let lacking = rights(&store, None).await;
    let mut lacks = false;
    for (_, why) in lacking.lacking() {
        lacks = true;
        found.warning_with_remedy_inside(SUBJECT, why);
    }
    if !lacks {
        found.good(SUBJECT, format!("this user may write what operators change, below {}", settings.prefix));
    }
}

async fn answer(endpoint: &str, settings: &EtcdSettings) -> Result<String, String> {
    let one = EtcdSettings { endpoints: vec![endpoint.to_owned()], ..settings.clone() };
    let asked = async {
        let store = Store::connect(&one, Clock::host()).await.map_err(|e| e.to_string())?;
        store.server().await.map_err(|e| e.to_string())
    };
    timeout(TIMEOUT, asked).await.unwrap_or_else(|_| Err(format!("no answer within {} s", TIMEOUT.as_secs())))
}

/// Adds whether this user can read the objects of Kubernetes.
async fn add_exposure(store: &Store, found: &mut Checks) {
    match timeout(TIMEOUT, store.exposure()).await {
        Ok(Ok(Exposure::NoObjects)) => found.good(SUBJECT, "no objects of Kubernetes below /registry/ or kubernetes.io/"),
        Ok(Ok(Exposure::Denied)) => {
            found.good(SUBJECT, "it does not let this user read the objects of Kubernetes");
        }
        Ok(Ok(Exposure::Readable)) => found.failed(
            SUBJECT,
            "it is the etcd of Kubernetes, and this user can read /registry/: whoever reads cketerm's configuration can \
             read every Secret",
            OWN_ETCD,
        ),
        Ok(Err(e)) => found.unknown(SUBJECT, e.to_string(), "run `cketerm doctor` again"),
        Err(_) => found.unknown(SUBJECT, "no answer about /registry/", "run `cketerm doctor` again"),
    }
}

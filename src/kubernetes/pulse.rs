//! Signs of life beside the watches: a cheap request every few seconds for all of them, which also brings the
//! server's time; which cluster it is and what we may do; and the endpoints, which an account may only `get`.

use std::{sync::Arc, time::Duration};

use super::live::Shared;

/// How often the server is asked for a sign of life.
const BEAT: Duration = Duration::from_secs(4);
/// How long it may take.
const BEAT_LIMIT: Duration = Duration::from_secs(4);
/// How often identity and rights are asked again.
const AGAIN: Duration = Duration::from_mins(1);
/// How often the endpoints are read, unless we wrote them.
const ENDPOINTS: Duration = Duration::from_secs(10);

/// Until the task is aborted.
pub(super) async fn beat(shared: Arc<Shared>) {
    let (mut lost, mut asked) = (false, None::<Duration>);
    loop {
        let answer = tokio::time::timeout(BEAT_LIMIT, shared.kube.ask_time()).await;
        let why = match answer {
            Ok(Ok(ahead)) => {
                shared.alive(|view| view.clock_ahead = ahead.or(view.clock_ahead));
                None
            }
            Ok(Err(fault)) => Some(shared.kube.error("GET /readyz", fault).to_string()),
            Err(_) => {
                let fault = super::call::Fault::Silent(format!("no answer within {} s", BEAT_LIMIT.as_secs()));
                Some(shared.kube.error("GET /readyz", fault).to_string())
            }
        };
        let now = shared.kube.clock.boot();
        if let Some(why) = why {
            shared.silent(&why);
            lost = true;
        } else {
            if lost {
                shared.epoch.send_modify(|n| *n += 1);
            }
            // After an absence it may be another cluster.
            if lost || asked.is_none_or(|at| now.saturating_sub(at) >= AGAIN) {
                asked = identify(&shared).await.then_some(now);
            }
            lost = false;
        }
        tokio::time::sleep(if lost { BEAT / 4 } else { BEAT }).await;
    }
}

/// Asks which cluster this is and what we may do there; whether both were answered.
async fn identify(shared: &Shared) -> bool {
    let (uid, rights) = tokio::join!(shared.kube.cluster_uid(), shared.kube.missing_rights());
    for error in [uid.as_ref().err(), rights.as_ref().err()].into_iter().flatten() {
        tracing::warn!(%error, "cannot tell which cluster this is, or what we may do there");
    }
    let known = uid.is_ok() && rights.is_ok();
    shared.note(|view| {
        if let Ok(uid) = uid {
            view.cluster_uid = Some(uid);
        }
        if let Ok(rights) = rights {
            view.missing_rights = rights;
            view.rights_known = true;
        }
    });
    known
}

/// Reads the endpoints now and then, and at once after we wrote them, until the task is aborted.
pub(super) async fn keep_endpoints(shared: Arc<Shared>, link: u64) {
    let mut epoch = shared.epoch.subscribe();
    loop {
        match shared.kube.endpoints().await {
            Ok(rows) => shared.heard(link, true, |view| view.endpoints = rows),
            Err(error) => shared.closed(link, Some(format!("endpoints: {error}"))),
        }
        tokio::select! {
            () = shared.kube.endpoints_written.notified() => {}
            _ = epoch.changed() => {}
            () = tokio::time::sleep(ENDPOINTS) => {}
        }
    }
}

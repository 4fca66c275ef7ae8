//! Liveness of the API server beside the watches. One cheap request every few seconds serves all of them and also
//! brings the server's time. This module also keeps the cluster's identity, the account's rights, and the endpoints,
//! which the account can only `get`.

use std::{sync::Arc, time::Duration};

use cketerm_model::{boot_time::BootTime, clock::Now};

use super::{
    custom_resource::CustomResource, error::Fault, follow::Follow, live::Shared, publish_throttle::Urgency,
    sources::Kind,
};

/// Interval of the liveness request.
const HEARTBEAT_INTERVAL: Duration = Duration::from_secs(4);
/// Timeout of the liveness request.
const HEARTBEAT_TIMEOUT: Duration = Duration::from_secs(4);
/// Interval at which the cluster's identity is read again, and the rights while one is missing.
const RETRY_INTERVAL: Duration = Duration::from_mins(1);
/// Interval at which the rights are checked again while none is missing. A check takes thirty requests, unless the
/// account may do everything.
const RIGHTS_INTERVAL: Duration = Duration::from_mins(10);
/// Interval at which the endpoints are read, unless cketerm wrote them.
const ENDPOINTS_INTERVAL: Duration = Duration::from_secs(10);

/// Sends the liveness request until the task is aborted.
pub(super) async fn beat(shared: Arc<Shared>) {
    let mut lost: Option<BootTime> = None;
    loop {
        let clock = &shared.kube.clock;
        let began = clock.boot();
        let before = Now { boot: began, wall: clock.wall() };
        let answer = tokio::time::timeout(HEARTBEAT_TIMEOUT, shared.kube.query_server_time()).await;
        let why = match answer {
            Ok(Ok(ahead)) => {
                let took = shared.kube.clock.boot().saturating_duration_since(began);
                shared.heartbeat_answered(took, |view| {
                    if let Some(ahead) = ahead {
                        view.clock_ahead = Some(ahead);
                        (view.clock_offset, view.clock_measured) = (before.offset(), began);
                    }
                });
                None
            }
            Ok(Err(fault)) => Some(shared.kube.error("GET /readyz", fault).to_string()),
            Err(_) => {
                let fault = Fault::Silent(format!("no answer within {} s", HEARTBEAT_TIMEOUT.as_secs()));
                Some(shared.kube.error("GET /readyz", fault).to_string())
            }
        };
        if let Some(why) = why {
            shared.heartbeat_failed(&why, HEARTBEAT_INTERVAL / 4);
            lost.get_or_insert(began);
        } else if let Some(since) = lost.take() {
            // A connection that was opened during the outage got its answer during the outage.
            shared.renew.send_replace(since);
            shared.epoch.send_modify(|n| *n += 1);
        }
        tokio::time::sleep(if lost.is_some() { HEARTBEAT_INTERVAL / 4 } else { HEARTBEAT_INTERVAL }).await;
    }
}

/// Keeps the cluster's identity and the account's rights up to date until the task is aborted. After an outage of the
/// server it reads both again, because it may be another cluster.
pub(super) async fn poll_identity(shared: Arc<Shared>) {
    let (mut epoch, mut complete) = (shared.epoch.subscribe(), None::<BootTime>);
    loop {
        let known = read_identity(&shared).await;
        let now = shared.kube.clock.boot();
        if complete.is_none_or(|at| now.saturating_duration_since(at) >= RIGHTS_INTERVAL) {
            complete = check_rights(&shared).await.then_some(now);
        }
        tokio::select! {
            biased;
            () = tokio::time::sleep(if known { RETRY_INTERVAL } else { HEARTBEAT_INTERVAL }) => {}
            _ = epoch.changed() => complete = None,
        }
    }
}

/// Reads the cluster's identity. Returns whether the server answered.
async fn read_identity(shared: &Shared) -> bool {
    match shared.kube.cluster_uid().await {
        Ok(uid) => {
            shared.update_view(|view| view.cluster_uid = Some(uid));
            true
        }
        Err(error) => {
            tracing::warn!(%error, "cannot read the cluster's identity");
            false
        }
    }
}

/// Checks the account's rights. Returns whether it has all that the queues need.
async fn check_rights(shared: &Shared) -> bool {
    match shared.kube.missing_rights().await {
        Ok(missing) => {
            let complete = missing.is_empty();
            shared.update_view(|view| {
                view.missing_rights = missing;
                view.rights_known = true;
            });
            complete
        }
        Err(error) => {
            tracing::warn!(%error, "cannot check this account's rights");
            false
        }
    }
}

/// Watches objects of a custom resource until the task is aborted, if the cluster has it and the account may list them.
/// Many clusters have not: cketerm checks those once a minute and opens no watch. A definite "none" counts as a list.
pub(super) async fn run_custom_watch<K: Kind>(shared: Arc<Shared>, link: u64, kind: K, custom: CustomResource) {
    let mut epoch = shared.epoch.subscribe();
    loop {
        let wait = match shared.kube.serves(&custom).await {
            Ok(true) => {
                Follow::new(Arc::clone(&shared), link, kind.clone()).run_while_served().await;
                // The kind seems to be gone. Its rows are removed as soon as the server confirms it.
                HEARTBEAT_INTERVAL
            }
            Ok(false) => {
                shared.mark_absent(link, custom.absent, |view| kind.replace(view, Vec::new()));
                RETRY_INTERVAL
            }
            Err(error) => {
                shared.failed(link, K::SOURCE, &error);
                HEARTBEAT_INTERVAL
            }
        };
        tokio::select! {
            biased;
            () = tokio::time::sleep(wait) => {}
            _ = epoch.changed() => {}
        }
    }
}

/// Reads the endpoints periodically, and at once after cketerm wrote them, until the task is aborted.
pub(super) async fn poll_endpoints(shared: Arc<Shared>, link: u64) {
    let mut epoch = shared.epoch.subscribe();
    loop {
        let sent = shared.mark_sent(link);
        match shared.kube.endpoints().await {
            Ok(rows) => shared.record_answer(link, true, Some(sent), |view| {
                let urgency = Urgency::immediate_if(view.endpoints != rows);
                view.endpoints = rows;
                urgency
            }),
            Err(error) => shared.failed(link, "endpoints", &error),
        }
        tokio::select! {
            biased;
            () = shared.kube.endpoints_written.notified() => {}
            _ = epoch.changed() => {}
            () = tokio::time::sleep(ENDPOINTS_INTERVAL) => {}
        }
    }
}

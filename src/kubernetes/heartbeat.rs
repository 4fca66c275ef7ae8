//! Liveness of the API server beside the watches. One cheap request every few seconds serves all of them and also
//! brings the server's time. This module also keeps the cluster's identity, the account's rights, and the endpoints,
//! which the account can only `get`.

use std::{sync::Arc, time::Duration};

use super::{
    follow::Follow,
    hosts::NO_HOSTS,
    live::Shared,
    publish_throttle::Urgency,
    sources::{Hosts, Kind},
};
use crate::clock::Now;

/// Interval of the liveness request.
const BEAT: Duration = Duration::from_secs(4);
/// Timeout of the liveness request.
const BEAT_LIMIT: Duration = Duration::from_secs(4);
/// Interval at which the cluster's identity is read again, and the rights while one is missing.
const AGAIN: Duration = Duration::from_mins(1);
/// Interval at which the rights are checked again while none is missing. A check takes thirty requests, unless the
/// account may do everything.
const RIGHTS: Duration = Duration::from_mins(10);
/// Interval at which the endpoints are read, unless cketerm wrote them.
const ENDPOINTS: Duration = Duration::from_secs(10);

/// Sends the liveness request until the task is aborted.
pub(super) async fn beat(shared: Arc<Shared>) {
    let mut lost: Option<f64> = None;
    loop {
        let clock = &shared.kube.clock;
        let began = clock.boot();
        let before = Now { boot: began, wall: clock.wall() };
        let answer = tokio::time::timeout(BEAT_LIMIT, shared.kube.ask_time()).await;
        let why = match answer {
            Ok(Ok(ahead)) => {
                let took = shared.kube.clock.boot().saturating_sub(began);
                shared.alive(took, |view| {
                    if let Some(ahead) = ahead {
                        view.clock_ahead = Some(ahead);
                        (view.clock_offset, view.clock_measured) = (before.offset(), began.as_secs_f64());
                    }
                });
                None
            }
            Ok(Err(fault)) => Some(shared.kube.error("GET /readyz", fault).to_string()),
            Err(_) => {
                let fault = super::call::Fault::Silent(format!("no answer within {} s", BEAT_LIMIT.as_secs()));
                Some(shared.kube.error("GET /readyz", fault).to_string())
            }
        };
        if let Some(why) = why {
            shared.silent(&why, BEAT / 4);
            lost.get_or_insert(began.as_secs_f64());
        } else if let Some(since) = lost.take() {
            // A connection that was opened during the outage got its answer during the outage.
            shared.renew.send_replace(since);
            shared.epoch.send_modify(|n| *n += 1);
        }
        tokio::time::sleep(if lost.is_some() { BEAT / 4 } else { BEAT }).await;
    }
}

/// Keeps the cluster's identity and the account's rights up to date until the task is aborted. After an outage of the
/// server it reads both again, because it may be another cluster.
pub(super) async fn keep_identity(shared: Arc<Shared>) {
    let (mut epoch, mut complete) = (shared.epoch.subscribe(), None::<Duration>);
    loop {
        let known = identify(&shared).await;
        let now = shared.kube.clock.boot();
        if complete.is_none_or(|at| now.saturating_sub(at) >= RIGHTS) {
            complete = ask_rights(&shared).await.then_some(now);
        }
        tokio::select! {
            biased;
            () = tokio::time::sleep(if known { AGAIN } else { BEAT }) => {}
            _ = epoch.changed() => complete = None,
        }
    }
}

/// Reads the cluster's identity. Returns whether the server answered.
async fn identify(shared: &Shared) -> bool {
    match shared.kube.cluster_uid().await {
        Ok(uid) => {
            shared.note(|view| view.cluster_uid = Some(uid));
            true
        }
        Err(error) => {
            tracing::warn!(%error, "cannot read the cluster's identity");
            false
        }
    }
}

/// Checks the account's rights. Returns whether it has all that the queues need.
async fn ask_rights(shared: &Shared) -> bool {
    match shared.kube.missing_rights().await {
        Ok(missing) => {
            let complete = missing.is_empty();
            shared.note(|view| {
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

/// Watches BareMetalHosts until the task is aborted, if the cluster has them and the account may list them. Many
/// clusters have none: cketerm checks those once a minute and opens no watch. A definite "none" counts as a list.
pub(super) async fn keep_hosts(shared: Arc<Shared>, link: u64) {
    let mut epoch = shared.epoch.subscribe();
    loop {
        let wait = match shared.kube.serves_hosts().await {
            Ok(true) => {
                Follow::new(Arc::clone(&shared), link, Hosts).while_served().await;
                // The kind seems to be gone. Its rows are removed as soon as the server confirms it.
                BEAT
            }
            Ok(false) => {
                shared.absent(link, NO_HOSTS, |view| view.hosts.clear());
                AGAIN
            }
            Err(error) => {
                shared.failed(link, Hosts::SOURCE, &error);
                BEAT
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
pub(super) async fn keep_endpoints(shared: Arc<Shared>, link: u64) {
    let mut epoch = shared.epoch.subscribe();
    loop {
        let sent = shared.sends(link);
        match shared.kube.endpoints().await {
            Ok(rows) => shared.heard(link, true, Some(sent), |view| {
                let news = Urgency::loud_if(view.endpoints != rows);
                view.endpoints = rows;
                news
            }),
            Err(error) => shared.failed(link, "endpoints", &error),
        }
        tokio::select! {
            biased;
            () = shared.kube.endpoints_written.notified() => {}
            _ = epoch.changed() => {}
            () = tokio::time::sleep(ENDPOINTS) => {}
        }
    }
}

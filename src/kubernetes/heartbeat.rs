//! Signs of life beside the watches: a cheap request every few seconds for all of them, which also brings the
//! server's time; which cluster it is and what we may do; and the endpoints, which an account may only `get`.

use std::{sync::Arc, time::Duration};

use super::{follow::Follow, hosts::NO_HOSTS, live::Shared, publish_throttle::Urgency, sources::Hosts};
use crate::clock::Now;

/// How often the server is asked for a sign of life.
const BEAT: Duration = Duration::from_secs(4);
/// How long it may take.
const BEAT_LIMIT: Duration = Duration::from_secs(4);
/// How often it is asked again which cluster this is, and what we may do while something is missing.
const AGAIN: Duration = Duration::from_mins(1);
/// How often the rights are asked again while none is missing: thirty questions, unless we may do everything.
const RIGHTS: Duration = Duration::from_mins(10);
/// How often the endpoints are read, unless we wrote them.
const ENDPOINTS: Duration = Duration::from_secs(10);

/// Until the task is aborted.
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
            // What was opened meanwhile was answered meanwhile.
            shared.renew.send_replace(since);
            shared.epoch.send_modify(|n| *n += 1);
        }
        tokio::time::sleep(if lost.is_some() { BEAT / 4 } else { BEAT }).await;
    }
}

/// Keeps what is known of the cluster and of our rights, until the task is aborted. After the server's absence both
/// are asked anew: it may be another cluster.
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

/// Asks which cluster this is; whether it was answered.
async fn identify(shared: &Shared) -> bool {
    match shared.kube.cluster_uid().await {
        Ok(uid) => {
            shared.note(|view| view.cluster_uid = Some(uid));
            true
        }
        Err(error) => {
            tracing::warn!(%error, "cannot tell which cluster this is");
            false
        }
    }
}

/// Asks what we may do; whether we may do all that the queues need.
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
            tracing::warn!(%error, "cannot tell what we may do");
            false
        }
    }
}

/// Follows BareMetalHosts where the cluster has them and we may see them, until the task is aborted. Many clusters have
/// none: those are asked once a minute and never troubled with a watch; that there are none is an answer as good as a list.
pub(super) async fn keep_hosts(shared: Arc<Shared>, link: u64) {
    let mut epoch = shared.epoch.subscribe();
    loop {
        let wait = match shared.kube.serves_hosts().await {
            Ok(true) => {
                Follow::new(Arc::clone(&shared), link, Hosts).while_served().await;
                // the kind is gone, it seems: its rows go as soon as the server says so
                BEAT
            }
            Ok(false) => {
                shared.absent(link, NO_HOSTS, |view| view.hosts.clear());
                AGAIN
            }
            Err(error) => {
                shared.closed(link, Some(error.to_string()));
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

/// Reads the endpoints now and then, and at once after we wrote them, until the task is aborted.
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
            Err(error) => shared.closed(link, Some(format!("endpoints: {error}"))),
        }
        tokio::select! {
            biased;
            () = shared.kube.endpoints_written.notified() => {}
            _ = epoch.changed() => {}
            () = tokio::time::sleep(ENDPOINTS) => {}
        }
    }
}

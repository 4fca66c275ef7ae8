//! Candidacy for the lock: a task that campaigns, leads and resigns, and reports each change.

use std::time::Duration;

use cketerm_clients::store::{Store, election::Candidacy};
use cketerm_model::{
    cketerm_records::{EngineRegistration, FirstDaemon, Who},
    fence::Fence,
};
use cketerm_runtime::{heartbeat::Heartbeat, tasks::OwnedTask};
use tokio::sync::{mpsc, watch};

/// Most events that wait for the main loop.
const MOST_EVENTS: usize = 8;

/// Event of a candidacy.
#[derive(Debug)]
pub(super) enum CandidacyEvent {
    /// The engine campaigns with this lease.
    Campaign(i64),
    /// The engine holds the lock, but records of an older version are not migrated yet. Holds the reason.
    Migrating(String),
    /// The engine leads.
    Won(Fence),
    /// The lease or the leader key is gone: the engine stops acting at once.
    Lost,
    /// The engine resigned as ordered; the lease is revoked.
    Resigned,
    /// The campaign failed. Holds the error.
    Failed(String),
}

/// Order from the main loop to a candidacy.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum CandidacyOrder {
    /// Resign.
    Resign,
    /// Write the registration again, because programs or probes have changed.
    Register(Box<EngineRegistration>),
}

/// A running candidacy.
pub(super) struct Campaign {
    /// The newest order; `None` before the first one. It is no queue, so that an order to resign is never lost.
    orders: watch::Sender<Option<CandidacyOrder>>,
    /// Events of the candidacy.
    pub events: mpsc::Receiver<CandidacyEvent>,
    _task: OwnedTask,
}

impl Campaign {
    /// Starts a campaign. The candidacy lasts while the heartbeat beats. If `migrate` is set, the new leader migrates
    /// records of an older version before it decides anything (SAF-3). The first daemon of the cluster is recorded.
    pub(super) fn begin(
        store: &Store,
        ttl: Duration,
        host: &str,
        registration: EngineRegistration,
        heartbeat: &Heartbeat,
        (migrate, first_daemon): (Option<Who>, Option<FirstDaemon>),
    ) -> Self {
        let (orders, inbox) = watch::channel(None);
        let (outbox, events) = mpsc::channel(MOST_EVENTS);
        let (store, host, heartbeat) = (store.clone(), host.to_owned(), heartbeat.clone());
        let task = OwnedTask::spawn(async move {
            let candidacy =
                Candidacy::campaign_as_first(&store, ttl, &host, registration, &heartbeat, first_daemon).await;
            let last = match candidacy {
                Ok(candidacy) => Box::pin(campaign(&store, candidacy, migrate, inbox, &outbox)).await,
                Err(e) => CandidacyEvent::Failed(e.to_string()),
            };
            let _ = outbox.send(last).await;
        });
        Self { orders, events, _task: task }
    }

    /// Gives an order in place of the last one. An order to resign stays.
    pub(super) fn ask(&self, order: CandidacyOrder) {
        self.orders.send_if_modified(|newest| {
            let changes = *newest != Some(CandidacyOrder::Resign);
            if changes {
                *newest = Some(order);
            }
            changes
        });
    }
}

async fn campaign(
    store: &Store,
    mut candidacy: Candidacy,
    migrate: Option<Who>,
    mut inbox: watch::Receiver<Option<CandidacyOrder>>,
    outbox: &mpsc::Sender<CandidacyEvent>,
) -> CandidacyEvent {
    let _ = outbox.send(CandidacyEvent::Campaign(candidacy.lease())).await;
    let fence = loop {
        tokio::select! {
            biased;
            won = candidacy.elected() => match won {
                Ok(fence) => break fence,
                Err(e) => {
                    candidacy.resign().await;
                    return CandidacyEvent::Failed(e.to_string());
                }
            },
            order = next_order(&mut inbox) => if !execute_order(&candidacy, order).await {
                candidacy.resign().await;
                return CandidacyEvent::Resigned;
            },
        }
    };
    // The migration ends before anything is decided. Orders are obeyed meanwhile, however long it takes.
    let mut migrated = std::pin::pin!(async {
        if let Some(who) = &migrate {
            let on_wait = |why| drop(outbox.try_send(CandidacyEvent::Migrating(why)));
            store.migrate(&fence, who, on_wait).await;
        }
    });
    let mut leads = false;
    loop {
        tokio::select! {
            biased;
            () = candidacy.lost() => return CandidacyEvent::Lost,
            () = &mut migrated, if !leads => {
                leads = true;
                let _ = outbox.send(CandidacyEvent::Won(fence.clone())).await;
            }
            order = next_order(&mut inbox) => if !execute_order(&candidacy, order).await {
                candidacy.resign().await;
                return CandidacyEvent::Resigned;
            },
        }
    }
}

/// Waits for the next order; none if the main loop is gone.
async fn next_order(inbox: &mut watch::Receiver<Option<CandidacyOrder>>) -> Option<CandidacyOrder> {
    inbox.changed().await.ok()?;
    inbox.borrow_and_update().clone()
}

/// Carries out an order. Returns false if the candidacy must resign.
async fn execute_order(candidacy: &Candidacy, order: Option<CandidacyOrder>) -> bool {
    let Some(CandidacyOrder::Register(registration)) = order else { return false };
    if let Err(e) = candidacy.update_registration(*registration).await {
        tracing::warn!(error = %e, "could not renew the registration");
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    fn register(host: &str) -> CandidacyOrder {
        let text = format!(r#"{{"host": "{host}", "pid": 1, "version": "0.2.0", "mode": "daemon"}}"#);
        CandidacyOrder::Register(Box::new(serde_json::from_str(&text).unwrap()))
    }

    fn running() -> (Campaign, watch::Receiver<Option<CandidacyOrder>>) {
        let (orders, inbox) = watch::channel(None);
        let events = mpsc::channel(MOST_EVENTS).1;
        (Campaign { orders, events, _task: OwnedTask::spawn(std::future::pending()) }, inbox)
    }

    #[tokio::test]
    async fn a_candidacy_that_was_busy_gets_the_newest_registration() {
        let (campaign, mut inbox) = running();
        campaign.ask(register("first"));
        campaign.ask(register("second"));
        assert_eq!(next_order(&mut inbox).await, Some(register("second")));
    }

    #[tokio::test]
    async fn an_order_to_resign_is_never_lost_or_replaced() {
        let (campaign, mut inbox) = running();
        (0..100).for_each(|n| campaign.ask(register(&n.to_string())));
        campaign.ask(CandidacyOrder::Resign);
        campaign.ask(register("later"));
        assert_eq!(next_order(&mut inbox).await, Some(CandidacyOrder::Resign));
        let (abandoned, mut inbox) = running();
        drop(abandoned);
        assert_eq!(next_order(&mut inbox).await, None, "without its main loop it resigns, too");
    }
}

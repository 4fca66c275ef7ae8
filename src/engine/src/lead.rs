//! Candidacy for the lock: a task that campaigns, leads and resigns, and reports each change.

use std::time::Duration;

use cketerm_clients::store::{Store, election::Candidacy};
use cketerm_model::{
    cketerm_records::{EngineRegistration, FirstDaemon, Who},
    fence::Fence,
};
use cketerm_runtime::heartbeat::Heartbeat;
use tokio::sync::mpsc;

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
#[derive(Debug)]
pub(super) enum CandidacyOrder {
    /// Resign.
    Resign,
    /// Write the registration again, because programs or probes have changed.
    Register(Box<EngineRegistration>),
}

/// A running candidacy.
pub(super) struct Campaign {
    orders: mpsc::Sender<CandidacyOrder>,
    /// Events of the candidacy.
    pub events: mpsc::Receiver<CandidacyEvent>,
    task: tokio::task::JoinHandle<()>,
}

impl Drop for Campaign {
    fn drop(&mut self) {
        self.task.abort();
    }
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
        let (orders, inbox) = mpsc::channel(8);
        let (outbox, events) = mpsc::channel(8);
        let (store, host, heartbeat) = (store.clone(), host.to_owned(), heartbeat.clone());
        let task = cketerm_runtime::tasks::spawn(async move {
            let candidacy =
                Candidacy::campaign_as_first(&store, ttl, &host, registration, &heartbeat, first_daemon).await;
            let last = match candidacy {
                Ok(candidacy) => Box::pin(campaign(&store, candidacy, migrate, inbox, &outbox)).await,
                Err(e) => CandidacyEvent::Failed(e.to_string()),
            };
            let _ = outbox.send(last).await;
        });
        Self { orders, events, task }
    }

    /// Sends an order. A full or closed channel means that the candidacy is ending anyway.
    pub(super) fn ask(&self, order: CandidacyOrder) {
        let _ = self.orders.try_send(order);
    }
}

async fn campaign(
    store: &Store,
    mut candidacy: Candidacy,
    migrate: Option<Who>,
    mut inbox: mpsc::Receiver<CandidacyOrder>,
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
            order = inbox.recv() => if !execute_order(&candidacy, order).await {
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
            order = inbox.recv() => if !execute_order(&candidacy, order).await {
                candidacy.resign().await;
                return CandidacyEvent::Resigned;
            },
        }
    }
}

/// Carries out an order. Returns false if the candidacy must resign.
async fn execute_order(candidacy: &Candidacy, order: Option<CandidacyOrder>) -> bool {
    let Some(CandidacyOrder::Register(registration)) = order else { return false };
    if let Err(e) = candidacy.update_registration(*registration).await {
        tracing::warn!(error = %e, "could not renew the registration");
    }
    true
}

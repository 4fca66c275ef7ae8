//! Candidacy for the lock: a task that campaigns, leads and resigns, and reports each change.

use std::time::Duration;

use tokio::sync::mpsc;

use crate::{
    fence::Fence,
    heartbeat::Heartbeat,
    model::cketerm_records::{EngineRegistration, Who},
    store::{Store, election::Candidacy},
};

/// Event of a candidacy.
#[derive(Debug)]
pub(super) enum LeadEvent {
    /// The engine campaigns with this lease.
    Standing(i64),
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
pub(super) enum LeadOrder {
    /// Resign.
    Resign,
    /// Write the registration again, because programs or probes have changed.
    Register(Box<EngineRegistration>),
}

/// A running candidacy.
pub(super) struct Standing {
    orders: mpsc::Sender<LeadOrder>,
    /// Events of the candidacy.
    pub events: mpsc::Receiver<LeadEvent>,
    task: tokio::task::JoinHandle<()>,
}

impl Drop for Standing {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Standing {
    /// Starts a campaign. The candidacy lasts while the heartbeat beats. If `migrate` is set, the new leader migrates
    /// records of an older version before it decides anything (SAF-3).
    pub(super) fn begin(
        store: &Store,
        ttl: Duration,
        host: &str,
        registration: EngineRegistration,
        heartbeat: &Heartbeat,
        migrate: Option<Who>,
    ) -> Self {
        let (orders, inbox) = mpsc::channel(8);
        let (outbox, events) = mpsc::channel(8);
        let (store, host, heartbeat) = (store.clone(), host.to_owned(), heartbeat.clone());
        let task = crate::tasks::spawn(async move {
            let candidacy = Candidacy::stand(&store, ttl, &host, registration, &heartbeat).await;
            let last = match candidacy {
                Ok(candidacy) => Box::pin(stand(&store, candidacy, migrate, inbox, &outbox)).await,
                Err(e) => LeadEvent::Failed(e.to_string()),
            };
            let _ = outbox.send(last).await;
        });
        Self { orders, events, task }
    }

    /// Sends an order. A full or closed channel means that the candidacy is ending anyway.
    pub(super) fn ask(&self, order: LeadOrder) {
        let _ = self.orders.try_send(order);
    }
}

async fn stand(
    store: &Store,
    mut candidacy: Candidacy,
    migrate: Option<Who>,
    mut inbox: mpsc::Receiver<LeadOrder>,
    outbox: &mpsc::Sender<LeadEvent>,
) -> LeadEvent {
    let _ = outbox.send(LeadEvent::Standing(candidacy.lease())).await;
    let fence = loop {
        tokio::select! {
            biased;
            won = candidacy.elected() => match won {
                Ok(fence) => break fence,
                Err(e) => {
                    candidacy.resign().await;
                    return LeadEvent::Failed(e.to_string());
                }
            },
            order = inbox.recv() => if !obeyed(&candidacy, order).await {
                candidacy.resign().await;
                return LeadEvent::Resigned;
            },
        }
    };
    // The migration ends before anything is decided. Orders are obeyed meanwhile, however long it takes.
    let mut migrated = std::pin::pin!(async {
        if let Some(who) = &migrate {
            let told = |why| drop(outbox.try_send(LeadEvent::Migrating(why)));
            store.migrate(&fence, who, told).await;
        }
    });
    let mut leads = false;
    loop {
        tokio::select! {
            biased;
            () = candidacy.lost() => return LeadEvent::Lost,
            () = &mut migrated, if !leads => {
                leads = true;
                let _ = outbox.send(LeadEvent::Won(fence.clone())).await;
            }
            order = inbox.recv() => if !obeyed(&candidacy, order).await {
                candidacy.resign().await;
                return LeadEvent::Resigned;
            },
        }
    }
}

/// Carries out an order. Returns false if the candidacy must resign.
async fn obeyed(candidacy: &Candidacy, order: Option<LeadOrder>) -> bool {
    let Some(LeadOrder::Register(registration)) = order else { return false };
    if let Err(e) = candidacy.register_again(*registration).await {
        tracing::warn!(error = %e, "could not renew the registration");
    }
    true
}

//! Standing for election, winning, losing, resigning: one task that owns the candidacy and reports what happens to it.

use std::time::Duration;

use tokio::sync::mpsc;

use crate::{
    fence::Fence,
    heartbeat::Heartbeat,
    model::cketerm_records::{EngineRegistration, Who},
    store::{Store, election::Candidacy},
};

/// What happens to a candidacy.
#[derive(Debug)]
pub(super) enum LeadEvent {
    /// We stand, with this lease.
    Standing(i64),
    /// The lock is ours, but what an older version wrote is not in our form yet: why.
    Migrating(String),
    /// We lead.
    Won(Fence),
    /// Lease or key is gone: stop acting at once.
    Lost,
    /// Given up as asked; the lease is revoked.
    Resigned,
    /// Could not stand.
    Failed(String),
}

/// What the loop asks of a candidacy.
#[derive(Debug)]
pub(super) enum LeadOrder {
    /// Give it up.
    Resign,
    /// Register anew: programs or probes have changed.
    Register(Box<EngineRegistration>),
}

/// A candidacy under way.
pub(super) struct Standing {
    orders: mpsc::Sender<LeadOrder>,
    /// What happens to it.
    pub events: mpsc::Receiver<LeadEvent>,
    task: tokio::task::JoinHandle<()>,
}

impl Drop for Standing {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Standing {
    /// Stands for election, for as long as the heartbeat beats; `migrate` = what an older version wrote is brought into our form
    /// before anything is decided.
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

    /// Asks something of it; a full or closed channel means that it is ending anyway.
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
    // done before anything is decided; orders are obeyed meanwhile, however long it takes
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

/// Obeys; false = the place is to be given up.
async fn obeyed(candidacy: &Candidacy, order: Option<LeadOrder>) -> bool {
    let Some(LeadOrder::Register(registration)) = order else { return false };
    if let Err(e) = candidacy.register_again(*registration).await {
        tracing::warn!(error = %e, "the registration could not be renewed");
    }
    true
}

//! The election: the recipe of Go's `concurrency.Election` over `leader/`, so that CKE and cketerm never both lead
//! (STO-34 to STO-39, SAF-1). It gives the create revision that fences every write.

use std::{future::Future, time::Duration};

use cketerm_model::{
    cketerm_records::{EngineRegistration, FirstDaemon},
    fence::{Fence, Life},
};
use cketerm_runtime::{heartbeat::Heartbeat, tasks::held};
use etcd_client::{
    Compare, CompareOp, EventType, GetOptions, LeaseKeepAliveStream, LeaseKeeper, PutOptions, SortOrder, SortTarget,
    TxnOp, WatchOptions,
};
use tokio::{sync::watch, task::JoinSet, time::sleep};

use super::{answer::found_key, connect::Store, error::StoreError, failure::Failure, operator::json};

/// Time between two tries of a request without an answer.
const RETRY_DELAY: Duration = Duration::from_millis(200);

/// This engine's candidacy, held by a lease that is kept alive until this is dropped or resigned.
#[derive(Debug)]
pub struct Candidacy {
    store: Store,
    lease: i64,
    key: String,
    create_revision: i64,
    life: Life,
    heartbeat: Heartbeat,
    /// Reason why the candidacy is over, once it is.
    end_signal: watch::Receiver<Option<String>>,
    /// Tasks that keep the lease alive and watch the leader key; they end with the candidacy.
    tasks: JoinSet<()>,
}

impl Candidacy {
    /// Takes a lease and writes, in one transaction under it, the key in `leader/` and the registration. `ttl` is cut
    /// to whole seconds. etcd may grant a longer lease; the shorter one counts. The lease is kept alive as long as
    /// `heartbeat` beats.
    pub async fn campaign(
        store: &Store,
        ttl: Duration,
        host: &str,
        registration: EngineRegistration,
        heartbeat: &Heartbeat,
    ) -> Result<Self, StoreError> {
        Self::campaign_as_first(store, ttl, host, registration, heartbeat, None).await
    }

    /// Does the same. The transaction also records the first daemon of this cluster, if it is given.
    pub async fn campaign_as_first(
        store: &Store,
        ttl: Duration,
        host: &str,
        registration: EngineRegistration,
        heartbeat: &Heartbeat,
        first_daemon: Option<FirstDaemon>,
    ) -> Result<Self, StoreError> {
        let seconds = i64::try_from(ttl.as_secs()).unwrap_or(i64::MAX).max(1);
        let sent = store.clock().boot();
        // If the request is sent twice, the first lease expires by itself.
        let granted = store
            .with_retries(|| {
                let mut lease_client = store.lease_client();
                async move { lease_client.grant(seconds, None).await }
            })
            .await;
        let lease = match granted {
            Ok(granted) => granted.id(),
            Err(failure) => return Err(store.store_error("get a lease", failure).await),
        };
        let life = Life::new(store.clock().clone(), Duration::from_secs(seconds.unsigned_abs()), sent);
        let key = store.keys().leader(lease);
        let create_revision =
            match register_candidate(store, lease, &key, host, &registration, first_daemon.as_ref()).await {
                Ok(revision) => revision,
                Err(failure) => {
                    revoke(store, lease).await;
                    return Err(store.store_error("campaign for the lock", failure).await);
                }
            };

        let (end_sender, end_signal) = watch::channel(None);
        let mut tasks = JoinSet::new();
        tasks.spawn(held(keep_lease(store.clone(), lease, life.clone(), end_sender.clone(), heartbeat.clone())));
        let (watched, ended) = (wait_for_deletion(store.clone(), key.clone(), create_revision), life.clone());
        tasks.spawn(held(async move {
            watched.await;
            ended.end();
            end_sender.send_if_modified(|why| why.replace("its key in leader/ was deleted".to_owned()).is_none());
        }));
        let heartbeat = heartbeat.clone();
        Ok(Self { store: store.clone(), lease, key, create_revision, life, heartbeat, end_signal, tasks })
    }

    /// Lease of the candidacy.
    pub fn lease(&self) -> i64 {
        self.lease
    }

    /// Waits until every earlier candidate is gone, by watching the one right before (STO-37). It may be dropped and
    /// called again.
    pub async fn elected(&mut self) -> Result<Fence, StoreError> {
        let why = tokio::select! {
            biased;
            why = self.end_reason() => why,
            fence = Box::pin(self.wait_until_first()) => return fence,
        };
        Err(StoreError::LeaseLost { lease: self.lease, cause: why })
    }

    async fn wait_until_first(&self) -> Result<Fence, StoreError> {
        let before = GetOptions::new()
            .with_prefix()
            .with_keys_only()
            .with_sort(SortTarget::Create, SortOrder::Descend)
            .with_limit(1)
            .with_max_create_revision(self.create_revision - 1);
        loop {
            // The candidate before and this engine's own key, at one revision.
            let own = GetOptions::new().with_keys_only();
            let reads = vec![(self.store.keys().leader_prefix(), before.clone()), (self.key.clone(), own)];
            let answer = match self.store.get_all(reads).await {
                Ok(answer) => answer,
                Err(Failure::NoAnswer { .. }) => {
                    sleep(RETRY_DELAY).await;
                    continue;
                }
                Err(failure) => return Err(self.store.store_error("campaign for the lock", failure).await),
            };
            let mut found = answer.op_responses().into_iter().map(found_key);
            let (predecessor, own) = (found.next().flatten(), found.next().flatten());
            if own.is_none_or(|kv| kv.create_revision() != self.create_revision) {
                let cause = "its key in leader/ is gone".to_owned();
                return Err(StoreError::LeaseLost { lease: self.lease, cause });
            }
            let Some(kv) = predecessor else {
                return Ok(Fence::new(&self.key, self.create_revision, self.lease, self.life.clone()));
            };
            wait_for_deletion(self.store.clone(), String::from_utf8_lossy(kv.key()).into_owned(), kv.create_revision())
                .await;
        }
    }

    /// Lifetime of the lease.
    pub fn life(&self) -> &Life {
        &self.life
    }

    /// Resolves once the lease or the key in `leader/` is gone.
    pub async fn lost(&self) {
        self.end_reason().await;
    }

    fn end_reason(&self) -> impl Future<Output = String> + Send + 'static {
        let mut end_signal = self.end_signal.clone();
        async move {
            match end_signal.wait_for(Option::is_some).await {
                Ok(why) => why.clone().unwrap_or_default(),
                Err(_) => "its keep-alive task ended".to_owned(),
            }
        }
    }

    /// Writes the registration again (programs found, probes seen).
    pub async fn update_registration(&self, registration: EngineRegistration) -> Result<(), StoreError> {
        let compares = vec![Compare::create_revision(self.key.as_str(), CompareOp::Equal, self.create_revision)];
        let lease_options = Some(PutOptions::new().with_lease(self.lease));
        let ops = vec![TxnOp::put(self.store.keys().engine(self.lease), json(&registration), lease_options)];
        match self.store.transact(compares, ops, Vec::new()).await {
            Ok(answer) if answer.succeeded() => Ok(()),
            Ok(_) | Err(Failure::NoLease) => {
                let cause = "its key in leader/ is gone".to_owned();
                Err(StoreError::LeaseLost { lease: self.lease, cause })
            }
            Err(failure) => Err(self.store.store_error("register this engine", failure).await),
        }
    }

    /// Resigns: nothing may begin any more, then the lease is revoked, which deletes every key under it. If etcd does
    /// not answer, the lease expires by itself.
    pub async fn resign(mut self) {
        self.life.end();
        self.tasks.abort_all();
        if revoke(&self.store, self.lease).await {
            self.heartbeat.revoked(self.lease);
        }
    }
}

/// Registers an engine that does not campaign yet, under a lease of its own that nobody keeps alive, until `end_signal`
/// ends. Commands that explain why nobody leads then show it.
pub async fn defer_election(
    store: Store,
    ttl: Duration,
    registration: EngineRegistration,
    end_signal: tokio::sync::oneshot::Receiver<()>,
) {
    let seconds = i64::try_from(ttl.as_secs()).unwrap_or(i64::MAX).max(1);
    let granted = store.with_retries(|| {
        let mut lease_client = store.lease_client();
        async move { lease_client.grant(seconds, None).await }
    });
    let Ok(lease) = granted.await.map(|granted| granted.id()) else { return };
    let lease_options = Some(PutOptions::new().with_lease(lease));
    let ops = vec![TxnOp::put(store.keys().engine(lease), json(&registration), lease_options)];
    if let Err(failure) = store.transact(Vec::new(), ops, Vec::new()).await {
        tracing::debug!(?failure, "could not register that this engine defers");
    }
    let _ = end_signal.await;
    revoke(&store, lease).await;
}

/// Revokes the lease; reports whether etcd no longer knows it.
async fn revoke(store: &Store, lease: i64) -> bool {
    let revoked = store
        .with_retries(|| {
            let mut lease_client = store.lease_client();
            async move { lease_client.revoke(lease).await }
        })
        .await;
    match revoked {
        Ok(_) | Err(Failure::NoLease) => true,
        Err(failure) => {
            tracing::warn!(lease = format!("{lease:x}"), ?failure, "the lease was not revoked; it will expire");
            false
        }
    }
}

/// Writes the leader key, the registration, and the record of the first daemon if there is none yet. It may be sent
/// again without an answer: the key contains the lease, so an existing key is this engine's.
async fn register_candidate(
    store: &Store,
    lease: i64,
    key: &str,
    host: &str,
    registration: &EngineRegistration,
    first_daemon: Option<&FirstDaemon>,
) -> Result<i64, Failure> {
    let lease_options = || Some(PutOptions::new().with_lease(lease));
    let (mut tries, mut first_daemon) = (0, first_daemon);
    loop {
        tries += 1;
        let mut compares = vec![Compare::create_revision(key, CompareOp::Equal, 0)];
        if first_daemon.is_some() {
            compares.push(Compare::create_revision(store.keys().daemon(), CompareOp::Equal, 0));
        }
        let mut ops = vec![
            TxnOp::put(key, host, lease_options()),
            TxnOp::put(store.keys().engine(lease), json(registration), lease_options()),
        ];
        // without a lease: it has to outlive every engine
        ops.extend(first_daemon.map(|first| TxnOp::put(store.keys().daemon(), json(first), None)));
        let look = vec![TxnOp::get(key, Some(GetOptions::new().with_keys_only()))];
        match store.transact(compares, ops, look).await {
            Ok(answer) if answer.succeeded() => {
                return Ok(answer.header().map_or(0, etcd_client::ResponseHeader::revision));
            }
            Ok(answer) => {
                match answer.op_responses().into_iter().find_map(found_key) {
                    Some(existing) => return Ok(existing.create_revision()),
                    // Another daemon was the first one, which this engine's copy of etcd did not show yet.
                    None if first_daemon.is_some() => first_daemon = None,
                    None => return Err(Failure::Refused("the key in leader/ disappeared".to_owned())),
                }
            }
            Err(Failure::NoAnswer { .. }) if tries < 3 => sleep(RETRY_DELAY).await,
            Err(failure) => return Err(failure),
        }
    }
}

/// Keeps the lease alive until it is gone, or until the heartbeat of the engine's main loop is missing. Then nothing
/// may begin any more, and the lease is revoked.
async fn keep_lease(
    store: Store,
    lease: i64,
    life: Life,
    end_signal: watch::Sender<Option<String>>,
    heartbeat: Heartbeat,
) {
    let in_use = heartbeat.lease(lease);
    let why = tokio::select! {
        biased;
        () = heartbeat.missing() => {
            life.end();
            if revoke(&store, lease).await {
                in_use.mark_revoked();
            }
            "the engine's main loop is stuck".to_owned()
        }
        why = renew_until_lost(&store, lease, &life) => {
            in_use.gone();
            why
        }
    };
    life.end();
    end_signal.send_if_modified(|reason| reason.replace(why).is_none());
}

/// Keeps the lease alive every TTL/3, and retries sooner after a failure, until the lease is gone or its remaining time
/// is 0. Returns the reason.
async fn renew_until_lost(store: &Store, lease: i64, life: &Life) -> String {
    let bound = store.timeout().min(life.ttl() / 6);
    let mut stream = None;
    let mut wait = life.ttl() / 3;
    loop {
        sleep(wait.min(life.remaining())).await;
        if life.remaining().is_zero() {
            // etcd may keep the lease longer than this engine counts it, so it is revoked to let the next candidate
            // lead.
            let detached_store = store.clone();
            cketerm_runtime::tasks::spawn(async move { revoke(&detached_store, lease).await });
            break format!("no keep-alive was answered for {:?}", life.ttl());
        }
        let sent = store.clock().boot();
        match tokio::time::timeout(bound, send_keep_alive(store, lease, &mut stream)).await {
            Ok(Ok(())) => {
                life.acknowledge(sent);
                wait = life.ttl() / 3;
            }
            Ok(Err(Failure::NoLease)) => break "etcd no longer knows the lease".to_owned(),
            other => {
                // A late answer must not count as that of the next keep-alive.
                stream = None;
                wait = RETRY_DELAY.min(life.ttl() / 30);
                let cause = format!("{other:?}");
                tracing::warn!(lease = format!("{lease:x}"), cause, "a keep-alive of the lease was not answered");
            }
        }
    }
}

/// Sends one keep-alive and awaits its answer.
async fn send_keep_alive(
    store: &Store,
    lease: i64,
    stream: &mut Option<(LeaseKeeper, LeaseKeepAliveStream)>,
) -> Result<(), Failure> {
    let Some((keeper, answers)) = stream else {
        // Opening the stream sends a keep-alive of its own.
        *stream = Some(store.lease_client().keep_alive(lease).await?);
        return Ok(());
    };
    keeper.keep_alive().await?;
    match answers.message().await? {
        Some(answer) if answer.ttl() > 0 => Ok(()),
        Some(_) => Err(Failure::NoLease),
        None => Err(Failure::NoAnswer { cause: "the stream of keep-alives ended".to_owned(), sent: true }),
    }
}

/// Resolves once the key with this create revision is gone; survives every failure of the connection.
async fn wait_for_deletion(store: Store, key: String, create_revision: i64) {
    loop {
        let revision = match store.get(key.as_str(), GetOptions::new().with_keys_only()).await {
            Ok(got) if got.kvs().first().is_none_or(|kv| kv.create_revision() != create_revision) => return,
            Ok(got) => got.header().map_or(0, etcd_client::ResponseHeader::revision),
            Err(_) => {
                sleep(RETRY_DELAY).await;
                continue;
            }
        };
        let mut watch_client = store.watch_client();
        let options = WatchOptions::new().with_start_revision(revision + 1);
        if let Ok(mut stream) = store.with_timeout(watch_client.watch(key.as_str(), Some(options))).await {
            while let Ok(Some(message)) = stream.message().await {
                if message.events().iter().any(|e| e.event_type() == EventType::Delete) {
                    return;
                }
                if message.canceled() {
                    break;
                }
            }
        }
        sleep(RETRY_DELAY).await;
    }
}

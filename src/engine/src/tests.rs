//! A leader's actor whose servers never answer, for tests of code that needs no answer. Its live copy of etcd shows
//! what the test publishes.

use std::{path::PathBuf, sync::Arc, time::Duration};

use cketerm_clients::{
    kubernetes::{Kube, KubeSettings, Live as KubeLive, Streaming},
    net::{Http, NoAnswer},
    store::{Store, connect::EtcdSettings, live::Live, members::EtcdMembers},
};
use cketerm_model::{
    boot_time::BootTime,
    cketerm_records::Who,
    clock::Steady,
    entry::Stored,
    fence::{Fence, Life},
    policy::Policy,
    stored::view::StoreView,
};
use cketerm_runtime::tokio_clock;
use jiff::Timestamp;
use tokio::sync::watch;

use crate::{
    act::{Actor, EvictionPace, Repeated, SharedRead},
    command::Spawner,
    event_recorder::EventRecorder,
};

/// Nothing listens on this port.
const KUBECONFIG: &str = "\
current-context: offline
clusters: [{name: offline, cluster: {server: 'http://127.0.0.1:1'}}]
contexts: [{name: offline, context: {cluster: offline, user: offline}}]
users: [{name: offline, user: {}}]
";

/// Create revision of the leader's key.
pub(crate) const CREATE_REVISION: i64 = 7;

/// Returns an actor that leads for an hour.
pub(crate) async fn actor(views: &watch::Sender<Arc<StoreView>>) -> Arc<Actor> {
    let clock = tokio_clock::starting_at(Timestamp::UNIX_EPOCH);
    let settings = EtcdSettings { endpoints: vec!["http://127.0.0.1:1".to_owned()], ..EtcdSettings::default() };
    let folder = tempfile::tempdir().unwrap();
    let kubeconfig = folder.path().join("kubeconfig");
    std::fs::write(&kubeconfig, KUBECONFIG).unwrap();
    let kube = KubeSettings { kubeconfig: Some(kubeconfig), context: None, in_cluster: false };
    let kube = Kube::connect(&kube, clock.clone()).await.unwrap();
    let life = Life::new(clock.clone(), Duration::from_hours(1), BootTime::ZERO);
    let fence = Fence::new("/cke/leader/1", CREATE_REVISION, 1, life);
    let steady = Steady::new(&clock);
    Arc::new(Actor {
        events: EventRecorder::start(kube.clone(), fence.clone(), steady.clone(), "offline".to_owned()),
        store: Store::connect(&settings, clock).await.unwrap(),
        live: Arc::new(Live::from_views(views.subscribe())),
        kube_live: Arc::new(KubeLive::follow(&kube, Streaming::Off)),
        kube,
        fence,
        steady,
        spawner: Spawner::new(PathBuf::new(), None, &[]),
        webhooks: http(),
        registry: watch::channel(Arc::default()).1,
        etcd: watch::channel(Arc::default()).1,
        start_gates: watch::channel(Arc::default()).1,
        etcd_members: EtcdMembers::in_process(Vec::new(), |_| None),
        who: Who::default(),
        seed: 0,
        ending: Arc::default(),
        cke_records: Arc::default(),
        audit_count: Arc::default(),
        repeats: Repeated::default(),
        eviction_pace: EvictionPace::default(),
        admission: SharedRead::default(),
        placement: SharedRead::default(),
    })
}

/// Returns a client whose servers never answer.
pub(crate) fn http() -> Http {
    Http::by(|_| Box::pin(async { Err(NoAnswer("offline".to_owned())) }))
}

/// Returns a value as it is stored in etcd.
pub(crate) fn stored<T>(key: &str, value: T) -> Stored<T> {
    Stored { key: key.to_owned(), mod_revision: 1, value: Ok(Arc::new(value)) }
}

/// Returns a copy of etcd with this policy.
pub(crate) fn with_policy(policy: Policy) -> Arc<StoreView> {
    Arc::new(StoreView { policy: Some(stored("cketerm/policy", policy)), ..StoreView::default() })
}

//! Background queries of the Kubernetes etcd's members (SAF-24). Their status is queried only while a machine that may
//! host one is in progress or next. While nothing is in progress, only the member list is read, to know which machines
//! host members.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use cketerm_clients::{
    kubernetes::Kube,
    store::members::{EtcdCluster, EtcdMembers, TIMEOUT},
};
use cketerm_model::{
    boot_time::{BootTime, Seconds},
    clock::Clock,
    etcd::{EtcdView, Member, MemberState, Reported, Source, Status},
    names::{Address, NodeName},
    policy::EtcdMembers as Policy,
};
use cketerm_rules::{decide::CATCH_UP_LIMIT, snapshot::Snapshot};
use cketerm_runtime::tasks::OwnedTask;
use tokio::sync::{Notify, watch};

/// Time between two rounds of queries.
const OFTEN: Duration = Duration::from_millis(1500);
/// Time between two reads of the list while nothing is in progress.
const SELDOM: Duration = Duration::from_mins(1);
/// Time before a failed read of the list is repeated, while nothing is in progress.
const LIST_RETRY: Duration = Duration::from_secs(5);
/// Seconds between two reads of the static Pods.
const POD_INTERVAL: Seconds = Seconds::new(15.0);
/// Time before a lagging member is queried again within a round.
const CATCH_UP_INTERVAL: Duration = Duration::from_millis(200);

/// Extent of the queries.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum QueryScope {
    /// No queries.
    #[default]
    Nothing,
    /// The list, from time to time.
    List,
    /// The status of every member, continuously.
    Status,
}

/// Extent and targets of the queries.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Targets {
    /// Extent of the queries.
    pub ask: QueryScope,
    /// URLs at which members may answer, for a configuration without endpoints.
    pub candidates: Vec<String>,
    /// Nodes of the control planes, where static Pods of etcd may run.
    pub nodes: Vec<NodeName>,
}

/// Returns what an engine queries now. It queries nothing if it neither leads nor campaigns, if the policy disables the
/// check, or if there are no control planes.
pub(super) fn targets(snap: &Snapshot, leads: bool, campaigns: bool, in_work: bool) -> Targets {
    let store = &snap.store;
    let Some(definition) = store.definition() else { return Targets::default() };
    let planes = || definition.members.control_planes(&definition.cluster);
    let control_planes: Vec<&str> = planes().map(|node| node.address().as_str()).collect();
    let asks = store.policy().etcd_members == Policy::Check && !control_planes.is_empty();
    let ask = match (leads, campaigns) {
        _ if !asks => QueryScope::Nothing,
        (true, _) if in_work => QueryScope::Status,
        (true, _) | (_, true) => QueryScope::List,
        (false, false) => QueryScope::Nothing,
    };
    if ask == QueryScope::Nothing {
        return Targets::default();
    }
    // Addresses of CKE's endpoints come first: if CKE manages etcd, the API servers use them.
    let cke = snap.kube.endpoints.iter().filter(|r| r.namespace == "kube-system" && r.name.starts_with("cke-etcd"));
    let mut addresses: Vec<&str> = cke.flat_map(|row| row.addresses.iter().map(Address::as_str)).collect();
    addresses.extend(control_planes);
    let mut candidates: Vec<String> = Vec::new();
    for address in addresses {
        let url =
            if address.contains(':') { format!("https://[{address}]:2379") } else { format!("https://{address}:2379") };
        if !candidates.contains(&url) {
            candidates.push(url);
        }
    }
    Targets { ask, candidates, nodes: planes().map(|node| node.node_name().clone()).collect() }
}

/// Background task that queries the members.
pub struct Poller {
    targets: watch::Sender<Targets>,
    seen: watch::Receiver<Arc<EtcdView>>,
    changed: Arc<Notify>,
    _task: OwnedTask,
}

impl Poller {
    /// Starts without queries.
    pub fn start(clock: &Clock, members: EtcdMembers, kube: Option<Kube>) -> Self {
        let (targets, inbox) = watch::channel(Targets::default());
        let (publish, seen) = watch::channel(Arc::default());
        let changed = Arc::new(Notify::new());
        let (view, pods_at) = (EtcdView::default(), None);
        let poller_task =
            PollerTask { members, kube, publish, changed: Arc::clone(&changed), clock: clock.clone(), view, pods_at };
        Self { targets, seen, changed, _task: OwnedTask::spawn(poller_task.run(inbox)) }
    }

    /// Sets the targets to exactly these; a change takes effect at once.
    pub fn aim(&self, targets: Targets) {
        self.targets.send_if_modified(|now| {
            let are_others = *now != targets;
            *now = targets;
            are_others
        });
    }

    /// Returns all answers so far.
    pub fn seen(&self) -> Arc<EtcdView> {
        Arc::clone(&self.seen.borrow())
    }

    /// Subscribes to the answers, for the check right before an effect.
    pub fn subscribe(&self) -> watch::Receiver<Arc<EtcdView>> {
        self.seen.clone()
    }

    /// Resolves when there is an answer that no pass has seen.
    pub async fn changed(&self) {
        self.changed.notified().await;
    }
}

struct PollerTask {
    members: EtcdMembers,
    kube: Option<Kube>,
    /// Boot time at which static Pods were listed last.
    pods_at: Option<BootTime>,
    publish: watch::Sender<Arc<EtcdView>>,
    changed: Arc<Notify>,
    clock: Clock,
    view: EtcdView,
}

impl PollerTask {
    async fn run(mut self, mut targets: watch::Receiver<Targets>) {
        loop {
            let now = targets.borrow_and_update().clone();
            let pause = match now.ask {
                QueryScope::Nothing => None,
                QueryScope::List => Some(if self.list(&now).await { SELDOM } else { LIST_RETRY }),
                QueryScope::Status => {
                    // If no endpoint returns the list, the members known so far still report their status.
                    let pods = self.static_pods(&now.nodes);
                    let asked = async {
                        self.list(&now).await;
                        self.round().await;
                    };
                    let ((), pods) = futures::join!(asked, pods);
                    self.ready(pods);
                    Some(OFTEN)
                }
            };
            if now.ask != QueryScope::Status {
                self.members.forget_clients();
            }
            let next_round = async {
                match pause {
                    Some(pause) => tokio::time::sleep(pause).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                biased;
                () = next_round => {}
                gone = targets.changed() => if gone.is_err() { return },
            }
        }
    }

    fn publish(&self) {
        self.publish.send_replace(Arc::new(self.view.clone()));
        self.changed.notify_one();
    }

    fn boot(&self) -> BootTime {
        self.clock.boot()
    }

    /// Reads the list from the configured endpoints or the candidates, or from cketerm's own etcd. Data of members that
    /// are still in the list is kept.
    async fn list(&mut self, targets: &Targets) -> bool {
        let (source, whose) = if self.members.configured() {
            (Source::Configured, EtcdCluster::Kubernetes)
        } else {
            (Source::OwnStore, EtcdCluster::Own)
        };
        let mut endpoints = self.members.endpoints(whose);
        if endpoints.is_empty() && whose == EtcdCluster::Kubernetes {
            endpoints.clone_from(&targets.candidates);
        }
        let before = self.view.clone();
        if endpoints.is_empty() {
            self.view = EtcdView { static_pods: before.static_pods.clone(), ..EtcdView::default() };
        } else {
            match self.members.list(whose, &endpoints).await {
                Ok(mut members) => {
                    keep_known(&mut members, &before.members);
                    self.view.members = members;
                    (self.view.source, self.view.error) = (source, None);
                    self.view.own_store_is_kubernetes = match whose {
                        EtcdCluster::Own => self.members.own_holds_kubernetes(&endpoints).await,
                        EtcdCluster::Kubernetes => false,
                    };
                }
                Err(why) => (self.view.source, self.view.error) = (source, Some(format!("etcd members: {why}"))),
            }
        }
        let good = self.view.error.is_none();
        if self.view != before {
            self.publish();
        }
        good
    }

    /// Reads the static Pods of etcd (kubeadm) and whether they are Ready, if no member can be queried. They are only
    /// displayed, and never prove that a member is healthy. Returns none if the read is not due. A node whose list
    /// takes too long has none.
    fn static_pods(
        &mut self,
        nodes: &[NodeName],
    ) -> impl Future<Output = Option<BTreeMap<String, bool>>> + Send + use<> {
        let asks = self.view.source != Source::Configured || self.view.members.is_empty();
        let due = self.pods_at.is_none_or(|at| self.boot() - at >= POD_INTERVAL);
        let kube = self.kube.clone().filter(|_| asks && due);
        if kube.is_some() {
            self.pods_at = Some(self.boot());
        }
        let nodes = nodes.to_vec();
        async move {
            let kube = kube?;
            let each = nodes.iter().map(|node| tokio::time::timeout(TIMEOUT, kube.pods_on(node)));
            // Without the right to list pods, none are seen here.
            let lists = futures::future::join_all(each).await.into_iter().filter_map(|list| list.ok()?.ok());
            let etcd = lists.flatten().filter(|pod| {
                let component = pod.labels.get("component").is_some_and(|component| component == "etcd");
                pod.mirror && component && pod.namespace == "kube-system"
            });
            Some(etcd.map(|pod| (pod.name, pod.ready)).collect())
        }
    }

    fn ready(&mut self, pods: Option<BTreeMap<String, bool>>) {
        if let Some(found) = pods.filter(|found| *found != self.view.static_pods) {
            self.view.static_pods = found;
            self.publish();
        }
    }

    /// Runs one round: queries every member at once, then queries those that lag behind the leader again until they
    /// have caught up or their time is over.
    async fn round(&mut self) {
        let whose = if self.view.source == Source::OwnStore { EtcdCluster::Own } else { EtcdCluster::Kubernetes };
        let all: Vec<u64> = self.view.members.keys().copied().collect();
        self.ask(whose, &all, true).await;
        self.publish();
        while let Some(reported) = self.view.reported {
            let behind = |(id, member): (&u64, &Member)| {
                let status = member.status().filter(|status| !member.learner && status.applied < reported.index)?;
                (status.at - reported.at <= CATCH_UP_LIMIT).then_some(*id)
            };
            let late: Vec<u64> = self.view.members.iter().filter_map(behind).collect();
            if late.is_empty() || self.boot() - reported.at > CATCH_UP_LIMIT {
                return;
            }
            tokio::time::sleep(CATCH_UP_INTERVAL).await;
            self.ask(whose, &late, false).await;
            self.publish();
        }
    }

    async fn ask(&mut self, whose: EtcdCluster, ids: &[u64], first: bool) {
        let asked = ids.iter().filter_map(|id| Some((*id, self.view.members.get(id)?.client_urls.clone())));
        let each = asked.map(|(id, urls)| {
            let (members, clock) = (self.members.clone(), self.clock.clone());
            async move {
                let asked = clock.boot();
                let answer = members.status(whose, id, &urls).await;
                (id, asked, clock.boot(), answer)
            }
        });
        let answers = futures::future::join_all(each).await;
        let mut states = BTreeMap::new();
        let mut reported = None;
        for (id, asked, at, answer) in answers {
            let state = match answer {
                Ok(s) => {
                    if s.leader == id {
                        reported = Some(Reported { leader: id, index: s.committed, at });
                    }
                    let (leader, committed, applied) = (s.leader, s.committed, s.applied);
                    if let Some(member) = self.view.members.get_mut(&id) {
                        member.learner = s.learner;
                    }
                    MemberState::Answered(Status { asked, at, leader, committed, applied, errors: s.errors })
                }
                Err(why) => MemberState::Silent { asked, why },
            };
            states.insert(id, state);
        }
        if first {
            self.view.reported = reported;
        }
        for (id, state) in states {
            if let Some(member) = self.view.members.get_mut(&id) {
                member.state = state;
            }
        }
    }
}

/// Keeps the data of members that were in the list before.
fn keep_known(members: &mut BTreeMap<u64, Member>, before: &BTreeMap<u64, Member>) {
    for (id, member) in members {
        let Some(known) = before.get(id) else { continue };
        member.state = known.state.clone();
        let same = member.peer_urls == known.peer_urls && member.client_urls == known.client_urls;
        // A failing name server does not move a member to another machine.
        if same && member.resolved.is_empty() {
            member.resolved.clone_from(&known.resolved);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering::SeqCst};

    use tokio::time::sleep;

    use super::*;

    fn member(peer: &str, client: &str, resolved: &[&str]) -> Member {
        Member {
            peer_urls: vec![format!("https://{peer}:2380")],
            client_urls: vec![format!("https://{client}:2379")],
            resolved: resolved.iter().map(|address| (*address).to_owned()).collect(),
            ..Member::default()
        }
    }

    #[test]
    fn a_member_that_moved_keeps_no_addresses_of_its_old_machine() {
        let before = BTreeMap::from([(1, member("cp-1", "cp-1", &["10.0.0.1"]))]);
        let kept = |listed: Member| {
            let mut members = BTreeMap::from([(1, listed)]);
            keep_known(&mut members, &before);
            members[&1].resolved.clone()
        };
        assert_eq!(kept(member("cp-1", "cp-1", &[])), ["10.0.0.1"], "the name server does not answer");
        assert_eq!(kept(member("cp-1", "cp-1", &["10.0.0.9"])), ["10.0.0.9"], "the name has another address");
        assert!(kept(member("cp-9", "cp-1", &[])).is_empty(), "another peer URL");
        assert!(kept(member("cp-1", "cp-9", &[])).is_empty(), "another client URL");
    }

    #[tokio::test(start_paused = true)]
    async fn only_other_targets_are_queried_at_once() {
        let queries = Arc::new(AtomicU32::new(0));
        let counted = Arc::clone(&queries);
        let members = EtcdMembers::in_process(vec!["https://cp-1:2379".to_owned()], move |_| {
            counted.fetch_add(1, SeqCst);
            None
        });
        let poller = Poller::start(&Clock::host(), members, None);
        let list =
            |node: &str| Targets { ask: QueryScope::List, nodes: vec![NodeName::new(node)], ..Targets::default() };
        for (targets, expected) in [(list("cp-1"), 1), (list("cp-1"), 1), (list("cp-2"), 2), (list("cp-2"), 2)] {
            poller.aim(targets);
            sleep(Duration::from_secs(1)).await;
            assert_eq!(queries.load(SeqCst), expected);
        }
        sleep(LIST_RETRY).await;
        assert_eq!(queries.load(SeqCst), 3, "a failed read is repeated");
    }
}

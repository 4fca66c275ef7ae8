//! Forecast of the reboot queue's schedule: what is in progress, each wave, and what waits for what. It uses the
//! engine's own rules, as if an engine led now, or while CKE leads the reading of CKE's rules. It writes nothing.

use std::{collections::BTreeMap, sync::Arc};

use cketerm_model::{
    clock::Now,
    entry::EntryId,
    kube::KubeView,
    names::Address,
    policy::ApiServerOrder,
    reason::Reason,
    reboot::RebootStatus,
    stored::view::{StoreView, Switch},
};

use crate::{
    assumptions::{Assumption, Assumptions},
    beside_cke,
    decide::decide_assuming,
    explain::assumptions_of_reader,
    handover::remedy_without_leader,
    snapshot::Snapshot,
};

/// Position of a machine in the forecast.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// An entry works on it: the entry's status.
    InWork(String),
    /// It starts with this wave, counted from 1. The reason why it cannot start now, unless it only waits for its turn.
    Wave(usize, Option<String>),
    /// It starts only after something changes: what has to change.
    Waits(String),
}

/// A machine of the queue, or one that the caller named.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MachineForecast {
    /// Address of the machine.
    pub address: Address,
    /// Name of its Node, or the address if it is not a member.
    pub name: String,
    /// Whether it is an API server.
    pub api_server: bool,
    /// Index of its entry, or `None` if the caller only named the machine.
    pub entry: Option<u64>,
    /// Its position in the forecast.
    pub place: Place,
}

/// Forecast of the queue, or of some machines if they were added to it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Forecast {
    /// Reasons why nothing at all can start: a disabled queue, no command, no leader, too many unreachable nodes.
    pub notes: Vec<String>,
    /// Machines in progress first, then by wave, then those that wait.
    pub placed: Vec<MachineForecast>,
}

impl Forecast {
    /// Returns the number of waves.
    pub fn waves(&self) -> usize {
        let wave = |p: &MachineForecast| if let Place::Wave(n, _) = p.place { n } else { 0 };
        self.placed.iter().map(wave).max().unwrap_or(0)
    }
}

/// Forecasts what a leader would do with the queue, or with reboots of these addresses behind it, by its own rules.
/// Whatever blocks the whole queue becomes a note, and the waves are those that would follow without it. Returns `None`
/// without a definition.
pub fn forecast(store: &StoreView, kube: &KubeView, addresses: &[Address], now: Now) -> Option<Forecast> {
    let definition = store.definition()?;
    let (cluster, members) = (&definition.cluster, &definition.members);
    let mut notes = queue_blockers(store);
    let assumed = assumptions_of_reader(now)
        .and(Assumption::PolicyReadable)
        .and(Assumption::RebootQueueEnabled)
        .and(Assumption::RebootCommandsConfigured)
        .queued(addresses);
    let snap = Snapshot { store: Arc::new(store.clone()), kube: Arc::new(kube.clone()), ..Snapshot::default() };
    let reasons = if beside_cke::applies(store) {
        reasons_by_ckes_rules(snap, &assumed, now)
    } else {
        decide_assuming(&snap, &assumed, now).reasons
    };
    let (mut in_work, mut starts, mut waits) = (Vec::new(), Vec::new(), Vec::new());
    let mut taken = 0_usize;
    for (&index, stored) in store.reboots.entries.iter().chain(assumed.entries()) {
        let Some(entry) = stored.get().filter(|e| e.status != RebootStatus::Cancelled) else { continue };
        let id = EntryId::reboot(index);
        let is_assumed = assumed.entry(id).is_some();
        let included = addresses.is_empty() || is_assumed;
        let member = members.by_address(cluster, &entry.node);
        let placed = |place| MachineForecast {
            address: entry.node.clone(),
            name: member.map_or(entry.node.as_str(), |m| m.node_name()).to_owned(),
            api_server: member.is_some_and(|m| m.control_plane),
            entry: (!is_assumed).then_some(index),
            place,
        };
        let reason = reasons.get(&id);
        let place = match reason {
            Some(Reason::DuplicateOf { index: before }) if assumed.entry(EntryId::reboot(*before)).is_some() => {
                Place::Waits("given twice: it waits for the first, then is rebooted again".to_owned())
            }
            Some(reason @ (Reason::DuplicateOf { .. } | Reason::NotMember { .. })) => Place::Waits(reason.to_string()),
            _ if entry.status != RebootStatus::Queued => {
                taken += 1;
                Place::InWork(entry.status.to_string())
            }
            Some(reason) => place_of(reason, &assumed, &mut notes),
            None => Place::Wave(0, None),
        };
        match place {
            _ if !included => {}
            Place::InWork(_) => in_work.push(placed(place)),
            Place::Wave(..) => starts.push(placed(place)),
            Place::Waits(_) => waits.push(placed(place)),
        }
    }
    let limit = usize::try_from(cluster.reboot.concurrency()).unwrap_or(1).max(1);
    let free = limit.saturating_sub(taken);
    if taken > 0 {
        notes.push(format!("{taken} of {limit} slots are in use; {free} more can start"));
    }
    let api_first = store.policy().api_server_order == ApiServerOrder::First;
    let starts = split_into_waves(starts, limit, if free == 0 { limit } else { free }, api_first);
    Some(Forecast { notes, placed: in_work.into_iter().chain(starts).chain(waits).collect() })
}

/// Returns the reasons by CKE's rules, which know no windows, groups and holds of cketerm. What blocks the whole queue
/// is assumed away, as for cketerm's own rules. Nodes that the caller has read are current.
fn reasons_by_ckes_rules(mut snap: Snapshot, assumed: &Assumptions, now: Now) -> BTreeMap<EntryId, Reason> {
    let (store, kube) = (Arc::make_mut(&mut snap.store), Arc::make_mut(&mut snap.kube));
    if !kube.nodes.is_empty() {
        for source in ["nodes", "namespaces", "poddisruptionbudgets", "daemonsets"] {
            kube.sources.entry(source.to_owned()).or_default().synced = true;
        }
    }
    store.reboots.switch = Switch::default();
    store.reboots.entries.extend(assumed.entries().iter().map(|(index, entry)| (*index, entry.clone())));
    if let Some(stored) = &mut store.cluster
        && let Some(mut definition) = stored.get().cloned()
    {
        let reboot = &mut definition.cluster.reboot;
        for command in [&mut reboot.reboot_command, &mut reboot.boot_check_command] {
            if command.as_ref().is_none_or(Vec::is_empty) {
                *command = Some(vec!["assumed".to_owned()]);
            }
        }
        stored.value = Ok(Arc::new(definition));
    }
    beside_cke::readings(&snap, now).reasons
}

/// Returns everything that blocks the whole queue as notes. The forecast assumes that it is gone, to show what would
/// follow.
fn queue_blockers(store: &StoreView) -> Vec<String> {
    let mut notes = Vec::new();
    if !store.reboots.switch.enabled() {
        notes.push("the reboot queue is disabled; enable it with `cketerm rq enable`".to_owned());
    }
    match store.leader() {
        None => notes.push(match store.standing_back() {
            Some(why) => format!("nobody leads: {why}"),
            None => format!("nobody leads; {}", remedy_without_leader(store)),
        }),
        Some(leader) if store.is_cke(leader) => {
            notes.push(format!("CKE on {} leads; the waves follow its rules, {}", leader.host, beside_cke::LABEL));
        }
        Some(leader) => notes.extend(store.migrates(leader)),
    }
    // Only the leader has the answers of Prometheus.
    let mut published = store.progress.values().filter_map(|progress| progress.get()?.reason.as_ref());
    if let Some(closed) = published.find(|reason| matches!(reason, Reason::StartGateClosed { .. })) {
        notes.push(format!("nothing starts now: {closed}"));
    }
    let Some(definition) = store.definition() else { return notes };
    let reboot = &definition.cluster.reboot;
    let lacks = |argv: &Option<Vec<String>>| argv.as_ref().is_none_or(Vec::is_empty);
    let commands = [("reboot_command", &reboot.reboot_command), ("boot_check_command", &reboot.boot_check_command)];
    for (name, _) in commands.iter().filter(|(_, argv)| lacks(argv)) {
        notes.push(format!("the definition has no reboot.{name}; nothing starts without it"));
    }
    notes
}

/// Derives the position of a queued entry from the reason that a leader would give for it.
#[warn(clippy::wildcard_enum_match_arm)]
fn place_of(reason: &Reason, assumed: &Assumptions, notes: &mut Vec<String>) -> Place {
    match reason {
        Reason::Ready
        | Reason::Working { .. }
        | Reason::WaitingForSlot { .. }
        | Reason::WaitingForWorkers { .. }
        | Reason::WaitingForControlPlane { .. }
        | Reason::WaitingForRepairs { .. }
        | Reason::LeaderOnNode { .. } => Place::Wave(0, None),
        Reason::UnreachableGate { .. } | Reason::BreakerOpen { .. } | Reason::StartGateClosed { .. } => {
            let note = format!("nothing starts now: {reason}");
            if !notes.contains(&note) {
                notes.push(note);
            }
            Place::Wave(0, None)
        }
        Reason::WaitingForGroup { by, group, holder } => {
            // An assumed entry has no number that a reader could look up: its machine is named.
            let machine = assumed.entry(*holder).map(|entry| format!("waits for {by} {group} ({})", entry.node));
            Place::Wave(0, Some(machine.unwrap_or_else(|| reason.to_string())))
        }
        Reason::CanaryPending { .. } | Reason::ControlPlaneUnhealthy { .. } => Place::Wave(0, Some(reason.to_string())),
        other @ (Reason::EtcdMemberUnhealthy { .. }
        | Reason::EtcdQuorumWouldBeLost { .. }
        | Reason::EtcdUnchecked { .. }
        | Reason::OutsideWindow { .. }
        | Reason::Backoff { .. }
        | Reason::BlockedByPdb { .. }
        | Reason::BlockedByManyPdbs { .. }
        | Reason::PdbNeverAllows { .. }
        | Reason::BlockedByJob { .. }
        | Reason::PodsLeaving { .. }
        | Reason::EvictionRefused { .. }
        | Reason::DeferredToWebhook { .. }
        | Reason::DeniedByWebhook { .. }
        | Reason::EvictionFailing { .. }
        | Reason::TerminatingStuck { .. }
        | Reason::VolumeAttached { .. }
        | Reason::UncordonedByOther { .. }
        | Reason::CommandRunning { .. }
        | Reason::CommandFailed { .. }
        | Reason::OutcomeUnknown { .. }
        | Reason::CheckUnavailable { .. }
        | Reason::NodeMismatch { .. }
        | Reason::OrphanedCordon { .. }
        | Reason::AwaitingApproval { .. }
        | Reason::Frozen { .. }
        | Reason::EngineElsewhere { .. }
        | Reason::EngineObserving { .. }
        | Reason::NoEngine { .. }
        | Reason::OnHold { .. }
        | Reason::BatchPaused { .. }
        | Reason::BatchUnreadable { .. }
        | Reason::ControlPlaneUnclear { .. }
        | Reason::DrainedByOther { .. }
        | Reason::HookRunning { .. }
        | Reason::HookFailed { .. }
        | Reason::UncordonGateClosed { .. }
        | Reason::OrderIgnored { .. }
        | Reason::BatchPauseIgnored { .. }
        | Reason::Stale { .. }
        | Reason::ProgramMissing { .. }
        | Reason::BmcNotAllowed { .. }
        | Reason::DuplicateOf { .. }
        | Reason::InMaintenance { .. }
        | Reason::MachineInRepair { .. }
        | Reason::MachineInReboot { .. }
        | Reason::WaitingForHealth { .. }
        | Reason::WaitingForJoin { .. }
        | Reason::WaitingForBoot { .. }
        | Reason::Settling { .. }
        | Reason::PowerError { .. }
        | Reason::HeldByOtherKey { .. }
        | Reason::QueueDisabled
        | Reason::NoCommand { .. }
        | Reason::NotMember { .. }
        | Reason::InvalidEntry { .. }
        | Reason::EffectFailed { .. }
        | Reason::TransactionTooLarge { .. }) => Place::Waits(other.to_string()),
    }
}

/// Splits the starts into waves. Each wave has as many workers as the definition allows, the first one as many as there
/// are free slots. API servers go one by one. The policy decides whether API servers or workers come first.
fn split_into_waves(starts: Vec<MachineForecast>, limit: usize, free: usize, api_first: bool) -> Vec<MachineForecast> {
    let (api_servers, workers): (Vec<MachineForecast>, Vec<MachineForecast>) =
        starts.into_iter().partition(|p| p.api_server);
    let (now, later) = workers.split_at(free.min(workers.len()));
    let workers = [now].into_iter().chain(later.chunks(limit)).filter(|wave| !wave.is_empty());
    let (workers, api_servers) = (workers.map(<[_]>::to_vec), api_servers.chunks(1).map(<[_]>::to_vec));
    let waves: Vec<Vec<MachineForecast>> =
        if api_first { api_servers.chain(workers).collect() } else { workers.chain(api_servers).collect() };
    let numbered = |(wave, nodes): (usize, Vec<MachineForecast>)| {
        nodes.into_iter().map(move |mut node| {
            if let Place::Wave(number, _) = &mut node.place {
                *number = wave + 1;
            }
            node
        })
    };
    waves.into_iter().enumerate().flat_map(numbered).collect()
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;

    use super::*;
    use cketerm_model::names::NodeName;
    use cketerm_model::{
        boot_time::BootTime,
        cketerm_records::{Order, Verb, Who},
        cluster::{Cluster, Members, Node},
        entry::Stored,
        kube::NodeRow,
        policy::Policy,
        reboot::RebootEntry,
        stored::view::{Candidate, Definition},
    };

    fn stored<T>(value: T) -> Stored<T> {
        Stored { key: String::new(), mod_revision: 1, value: Ok(Arc::new(value)) }
    }

    /// API servers 1 and 2, workers 3 to 7, two at once. Entries by index and the last part of their address.
    fn fixture(
        entries: &[(u64, u8)],
        change: impl FnOnce(&mut Cluster, &mut StoreView, &mut KubeView),
    ) -> (StoreView, KubeView) {
        let node =
            |n: u8| Node { address: Address::new(format!("10.0.0.{n}")), control_plane: n <= 2, ..Node::default() };
        let mut cluster = Cluster { nodes: (1..=7).map(node).collect(), ..Cluster::default() };
        cluster.reboot.max_concurrent_reboots = Some(2);
        (cluster.reboot.reboot_command, cluster.reboot.boot_check_command) =
            (Some(vec!["r".to_owned()]), Some(vec!["c".to_owned()]));
        let (mut store, mut kube) = (StoreView::default(), KubeView::default());
        for n in 1..=7_u8 {
            kube.put_node(NodeRow {
                name: NodeName::new(format!("10.0.0.{n}")),
                addresses: vec![Address::new(format!("10.0.0.{n}"))],
                ready: true,
                ..NodeRow::default()
            });
        }
        for (index, n) in entries {
            store
                .reboots
                .entries
                .insert(*index, stored(RebootEntry::queued(*index, &Address::new(format!("10.0.0.{n}")))));
        }
        change(&mut cluster, &mut store, &mut kube);
        let members = Members::of(&cluster);
        store.cluster = Some(stored(Definition { cluster, members }));
        (store, kube)
    }

    fn now() -> Now {
        Now { boot: BootTime::new(1000.0), wall: Timestamp::UNIX_EPOCH }
    }

    fn planned((store, kube): (StoreView, KubeView), addresses: &[&str]) -> Forecast {
        forecast(&store, &kube, &addresses.iter().map(|a| Address::new(*a)).collect::<Vec<_>>(), now()).unwrap()
    }

    /// Last part of each address, with its wave; 0 = in no wave.
    fn waves(forecasted: &Forecast) -> Vec<(&str, usize)> {
        let wave = |p: &Place| if let Place::Wave(n, _) = p { *n } else { 0 };
        forecasted.placed.iter().map(|p| (&p.address[7..], wave(&p.place))).collect()
    }

    fn waiting(forecasted: &Forecast) -> Vec<(Option<u64>, String)> {
        let waits =
            |p: &MachineForecast| if let Place::Waits(why) = &p.place { Some((p.entry, why.clone())) } else { None };
        forecasted.placed.iter().filter_map(waits).collect()
    }

    #[test]
    fn waves_hold_up_to_the_limit_of_workers_or_one_api_server() {
        let five = ["10.0.0.1", "10.0.0.2", "10.0.0.3", "10.0.0.4", "10.0.0.5"];
        let last = planned(fixture(&[], |_, _, _| {}), &five);
        assert_eq!(waves(&last), [("3", 1), ("4", 1), ("5", 2), ("1", 3), ("2", 4)]);
        let first = planned(
            fixture(&[], |_, store, _| {
                let policy = Policy { api_server_order: ApiServerOrder::First, ..Policy::default() };
                store.policy = Some(stored(policy));
            }),
            &five,
        );
        assert_eq!(waves(&first), [("1", 1), ("2", 2), ("3", 3), ("4", 3), ("5", 4)]);
    }

    /// A machine that is named twice appears once in the waves.
    #[test]
    fn i4_a_machine_appears_in_at_most_one_wave() {
        let twice = planned(fixture(&[], |_, _, _| {}), &["10.0.0.3", "10.0.0.3", "10.0.0.4"]);
        assert_eq!(waves(&twice), [("3", 1), ("4", 1), ("3", 0)]);
        assert!(waiting(&twice)[0].1.contains("given twice"), "{twice:?}");
        let queued = planned(fixture(&[(4, 3)], |_, _, _| {}), &["10.0.0.3"]);
        assert_eq!(waiting(&queued).len(), 1, "{queued:?}");
        assert!(waiting(&queued)[0].1.contains('4'), "the earlier entry is named: {queued:?}");
    }

    #[test]
    fn blocked_entries_wait_and_entries_in_progress_take_a_slot() {
        let forecasted = planned(
            fixture(&[(0, 3), (1, 4), (2, 5), (3, 6), (4, 9), (5, 7)], |_, store, _| {
                let mut entry = |index: u64, how: &dyn Fn(&mut RebootEntry)| {
                    let mut changed = store.reboots.entries[&index].get().cloned().unwrap();
                    how(&mut changed);
                    store.reboots.entries.insert(index, stored(changed));
                };
                entry(0, &|e| e.status = RebootStatus::Rebooting);
                entry(2, &|e| (e.drain_backoff_count, e.drain_backoff_expire) = (1, Some(Timestamp::MAX)));
                let order = Order {
                    verb: Verb::Hold,
                    who: Who { user: "ann".to_owned(), ..Who::default() },
                    at: Timestamp::UNIX_EPOCH,
                    reason: None,
                    entry_revision: 1,
                };
                store.orders.insert(EntryId::reboot(1), stored(order));
            }),
            &[],
        );
        assert_eq!(forecasted.placed[0].place, Place::InWork("rebooting".to_owned()));
        assert_eq!(waves(&forecasted)[1..3], [("6", 1), ("7", 2)], "one slot is free: {forecasted:?}");
        let waits = waiting(&forecasted);
        let by = |index: u64| waits.iter().find(|(i, _)| *i == Some(index)).map(|(_, why)| why.clone()).unwrap();
        assert!(by(1).contains("ann"), "{waits:?}");
        assert!(by(4).contains("10.0.0.9"), "{waits:?}");
        assert_eq!(waits.len(), 3);
    }

    #[test]
    fn queue_wide_blockers_become_notes_and_the_waves_ignore_them() {
        let forecasted = planned(
            fixture(&[(0, 3), (1, 4), (2, 5)], |cluster, store, kube| {
                cluster.reboot.reboot_command = None;
                store.reboots.switch = Switch { raw: Some("true".to_owned()), mod_revision: 1 };
                for n in [6, 7] {
                    let mut node = NodeRow::clone(&kube.nodes[format!("10.0.0.{n}").as_str()]);
                    node.ready = false;
                    kube.put_node(node);
                }
            }),
            &[],
        );
        assert_eq!(waves(&forecasted), [("3", 1), ("4", 1), ("5", 2)]);
        let notes = forecasted.notes.join("\n");
        for text in ["the reboot queue is disabled", "no reboot.reboot_command", "nobody leads", "nothing starts now: "]
        {
            assert!(notes.contains(text), "{text}: {notes}");
        }
    }

    #[test]
    fn a_closed_start_gate_that_the_leader_published_is_a_note() {
        let reason = serde_json::json!({"reason": "StartGateClosed", "gate": "alerts", "why": "HostDown"});
        let progress = serde_json::json!({"phase": "", "since": Timestamp::UNIX_EPOCH, "pods_at_start": 0,
            "pods_gone": 0, "reason": reason});
        let forecasted = planned(
            fixture(&[(0, 3)], |_, store, _| {
                store.progress.insert(EntryId::reboot(0), stored(serde_json::from_value(progress).unwrap()));
            }),
            &[],
        );
        assert_eq!(waves(&forecasted), [("3", 1)]);
        let note = "nothing starts now: start gate alerts is closed: HostDown";
        assert!(forecasted.notes.iter().any(|found| found == note), "{:?}", forecasted.notes);
    }

    /// CKE knows neither groups nor holds, and processes no reboot while a repair is in the way.
    #[test]
    fn beside_cke_the_waves_follow_ckes_rules() {
        let beside = |change: &dyn Fn(&mut Cluster, &mut StoreView)| {
            planned(
                fixture(&[(0, 3), (1, 4), (2, 5), (3, 1), (4, 2)], |cluster, store, _| {
                    let key = "leader//7".to_owned();
                    let cke = Candidate { key, lease: 7, host: "boot-0".into(), create_revision: 1 };
                    store.candidates.insert(1, cke);
                    for node in &mut cluster.nodes {
                        node.labels = Some([("cke.cybozu.com/rack".to_owned(), "0".to_owned())].into());
                    }
                    let groups = serde_json::from_str(r#"{"by": "rack", "limit": 1}"#).unwrap();
                    store.policy = Some(stored(Policy { groups: Some(groups), ..Policy::default() }));
                    change(cluster, store);
                }),
                &[],
            )
        };
        let plain = beside(&|_, _| {});
        assert_eq!(waves(&plain), [("3", 1), ("4", 1), ("5", 2), ("1", 3), ("2", 4)]);
        assert!(plain.placed.iter().all(|p| matches!(p.place, Place::Wave(_, None))), "no group holds: {plain:?}");
        assert!(plain.notes.iter().any(|note| note.contains("as cketerm reads CKE's rules")), "{plain:?}");
        let held = beside(&|_, store| {
            let order = Order {
                verb: Verb::Hold,
                who: Who::default(),
                at: Timestamp::UNIX_EPOCH,
                reason: None,
                entry_revision: 1,
            };
            store.orders.insert(EntryId::reboot(1), stored(order));
        });
        assert_eq!(waves(&held), waves(&plain), "CKE does not know the hold");
        let disabled = beside(&|cluster, store| {
            store.reboots.switch = Switch { raw: Some("true".to_owned()), mod_revision: 1 };
            cluster.reboot.reboot_command = None;
        });
        assert_eq!(waves(&disabled), waves(&plain), "the notes name what blocks all");
        let backed_off = beside(&|_, store| {
            let mut entry = store.reboots.entries[&0].get().cloned().unwrap();
            (entry.drain_backoff_count, entry.drain_backoff_expire) = (1, Some(Timestamp::MAX));
            store.reboots.entries.insert(0, stored(entry));
        });
        assert_eq!(waves(&backed_off), [("4", 1), ("5", 1), ("1", 2), ("2", 3), ("3", 0)]);
    }

    /// An added entry has no number yet, so that the machine is named.
    #[test]
    fn a_group_that_an_added_machine_holds_is_named_with_that_machine() {
        let forecasted = planned(
            fixture(&[], |cluster, store, _| {
                for (node, rack) in cluster.nodes.iter_mut().zip(["0", "0", "1", "2", "1", "2", "1"]) {
                    node.labels = Some([("cke.cybozu.com/rack".to_owned(), rack.to_owned())].into());
                }
                let groups = serde_json::from_str(r#"{"by": "rack", "limit": 1}"#).unwrap();
                store.policy = Some(stored(Policy { groups: Some(groups), ..Policy::default() }));
            }),
            &["10.0.0.3", "10.0.0.4"],
        );
        let waits: Vec<_> = forecasted.placed.iter().map(|p| &p.place).collect();
        assert_eq!(waits, [&Place::Wave(1, None), &Place::Wave(1, Some("waits for rack 1 (10.0.0.3)".to_owned()))]);
    }
}

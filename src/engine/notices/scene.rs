//! What there is to tell about at one moment, made from what a pass saw: conditions, failed commands, who leads, the freeze.
//! Pure, and the same for every receiver.

use std::{
    collections::{BTreeMap, BTreeSet},
    mem::discriminant,
    sync::Arc,
};

use jiff::Timestamp;
use serde_json::Value;

use crate::{
    engine::{
        decide::Applying,
        snapshot::{Seen, Snapshot, secs},
        trouble::{self, Trouble},
    },
    model::{
        attempt::Attempt,
        cketerm_records::{Ending, Request},
        entry::{EntryId, QueueKind, Stored},
        notice::{Kind, Leadership, Notice},
        reason::{Attention, Reason},
        reboot::{RebootEntry, RebootStatus},
        repair::{RepairEntry, StepStatus},
        secret,
    },
    store::view::StoreView,
};

/// Seconds for which something must be stuck before somebody is told.
const SETTLE: f64 = 30.0;

/// A condition that lasts.
#[derive(Clone, Debug, PartialEq)]
pub struct Level {
    /// What would be said.
    pub notice: Notice,
    /// Those of one word can be told together.
    pub word: String,
    /// Seconds for which it must last before it is told.
    pub settle: f64,
}

/// What there is to tell about.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Scene {
    /// Wall time.
    pub at: Timestamp,
    /// Boot-time seconds.
    pub boot: f64,
    /// Who leads: we.
    pub leader: Leadership,
    /// The cluster's name.
    pub cluster: Option<String>,
    /// UID of its `kube-system` namespace.
    pub cluster_uid: Option<String>,
    /// The freeze in force.
    pub freeze: Option<Value>,
    /// Conditions by their keys.
    pub levels: BTreeMap<String, Level>,
    /// Keys of conditions begin with these while nobody knows whether they are over: the drain waits for its next try.
    pub unsure: BTreeSet<String>,
    /// Commands that failed, of entries that are still there, by their keys.
    pub commands: BTreeMap<String, Notice>,
    /// What lies in etcd.
    pub store: Arc<StoreView>,
}

impl Scene {
    /// What the leader's pass saw; none where it does not lead.
    pub fn of(seen: &Seen) -> Option<Self> {
        let snap = &seen.snapshot;
        let leading = snap.engine.leading.as_ref()?;
        let (store, at) = (&snap.store, seen.now.wall);
        let mut scene = Self {
            at,
            boot: secs(seen.now.boot),
            leader: Leadership { create_revision: leading.create_revision, host: snap.engine.host.clone() },
            cluster: store.definition().map(|d| d.cluster.name.clone()).filter(|name| !name.is_empty()),
            cluster_uid: store.identity.as_ref().and_then(Stored::get).map(|i| i.uid.clone()),
            freeze: freeze(snap, at),
            store: Arc::clone(store),
            ..Self::default()
        };
        scene.add_unsure(snap);
        scene.add_reasons(seen);
        for (name, reason) in seen.orphans.iter() {
            let title = format!("node {name} stays cordoned");
            let mut notice = with_reason(
                Notice::new(Kind::Stuck, format!("stuck/node/{name}/{}", reason.name()), title, at),
                reason,
            );
            notice.node = Some(name.clone());
            scene.add(notice, &reason.name(), SETTLE);
        }
        if let Applying::Approval(digest, why) = &*seen.applying {
            let title = format!("a change of the definition waits for approval: {digest}");
            let mut notice = Notice::new(Kind::Approval, format!("approval/{digest}"), title, at);
            notice.text.clone_from(why);
            notice.reason = Some("AwaitingApproval".to_owned());
            notice.runbook = Some(runbook("AwaitingApproval"));
            scene.add(notice, "AwaitingApproval", 0.0);
        }
        for (key, why) in &store.broken {
            let mut notice = Notice::new(Kind::Broken, format!("broken/{key}"), format!("{key} cannot be read"), at);
            notice.text.clone_from(why);
            scene.add(notice, "broken", SETTLE);
        }
        // those of an entry that has ended are told with its end
        let ended = |id: EntryId| {
            let repair = store.repairs.entries.get(&id.index).filter(|_| id.queue == QueueKind::Repair);
            repair.and_then(Stored::get).is_some_and(RepairEntry::finished)
        };
        let attempts = store.attempts.values().filter_map(Stored::get);
        for attempt in attempts.filter(|a| failed(a) && !ended(a.entry)) {
            let request = store.requests.get(&attempt.entry).and_then(Stored::get);
            let notice = command(snap, attempt, request, at);
            scene.commands.insert(notice.key.clone(), notice);
        }
        Some(scene)
    }

    /// A drain that was given up and is to be tried again: only past it what blocked it is known to be over.
    fn add_unsure(&mut self, snap: &Snapshot) {
        let reboots = snap.store.reboots.entries.values().filter_map(Stored::get);
        let again = |e: &&RebootEntry| matches!(e.status, RebootStatus::Queued | RebootStatus::Draining);
        let reboots = reboots.filter(again).filter(|e| e.drain_backoff_count > 0).map(|e| EntryId::reboot(e.index));
        let repairs = snap.store.repairs.entries.values().filter_map(Stored::get);
        let again = |e: &&RepairEntry| e.unfinished() && e.step_status != StepStatus::Watching;
        let repairs = repairs.filter(again).filter(|e| e.drain_backoff_count > 0).map(|e| EntryId::repair(e.index));
        self.unsure.extend(reboots.chain(repairs).map(|id| format!("stuck/{id}/")));
    }

    fn add_reasons(&mut self, seen: &Seen) {
        let snap = &seen.snapshot;
        // what holds a whole queue is one condition, and not one for each entry
        let mut whole: Vec<(&Reason, u64)> = Vec::new();
        for (id, reason) in seen.reasons.iter() {
            // what cannot be read is told of as broken
            if reason.attention() == Attention::None || trouble::unreadable(&snap.store, *id) {
                continue;
            }
            // an entry in work that meets a gate is held up by itself
            if reason.holds_all() && !(reason.is_gate() && trouble::by(seen, *id, reason) == Some(Trouble::Stuck)) {
                // by the thousand: their names are not asked for
                match whole.iter_mut().find(|(known, _)| discriminant(*known) == discriminant(reason)) {
                    Some((_, entries)) => *entries += 1,
                    None => whole.push((reason, 1)),
                }
                continue;
            }
            if trouble::by(seen, *id, reason) != Some(Trouble::Stuck) {
                continue;
            }
            let word = reason.name();
            let who = place(snap, *id);
            let title = match reason {
                Reason::Backoff { count, .. } => format!("{id}{who} was given up {count} times: its drain is blocked"),
                _ => format!("{id}{who} waits for a person: {word}"),
            };
            let notice = Notice::new(Kind::Stuck, format!("stuck/{id}/{word}"), title, seen.now.wall);
            let mut notice = of_entry(snap, with_reason(notice, reason), *id, address(snap, *id).as_deref());
            asked(&mut notice, snap.store.requests.get(id).and_then(Stored::get));
            self.add(notice, &word, SETTLE);
        }
        for (reason, entries) in whole {
            let word = reason.name();
            let waits = if entries == 1 { "an entry waits".to_owned() } else { format!("{entries} entries wait") };
            let notice =
                Notice::new(Kind::Stuck, group_key(Kind::Stuck, &word), format!("{waits}: {word}"), seen.now.wall);
            self.add(with_reason(notice, reason), &word, SETTLE);
        }
    }

    /// The entry is there.
    pub(super) fn has(&self, id: EntryId) -> bool {
        match id.queue {
            QueueKind::Reboot => self.store.reboots.entries.contains_key(&id.index),
            QueueKind::Repair => self.store.repairs.entries.contains_key(&id.index),
        }
    }

    fn add(&mut self, notice: Notice, word: &str, settle: f64) {
        self.levels.insert(notice.key.clone(), Level { notice, word: word.to_owned(), settle });
    }
}

/// The key of all conditions of one kind and word together.
pub(super) fn group_key(kind: Kind, word: &str) -> String {
    format!("{kind}/*/{word}")
}

/// The freeze in force; one whose time is over is none.
fn freeze(snap: &Snapshot, now: Timestamp) -> Option<Value> {
    let policy = snap.store.policy();
    let freeze = serde_json::to_value(&policy.freeze).ok().filter(|f| !f.is_null())?;
    let until = freeze.get("until").and_then(Value::as_str).and_then(|u| u.parse::<Timestamp>().ok());
    until.is_none_or(|until| until > now).then_some(freeze)
}

fn address(snap: &Snapshot, id: EntryId) -> Option<String> {
    match id.queue {
        QueueKind::Reboot => snap.store.reboots.entries.get(&id.index)?.get().map(|e| e.node.clone()),
        QueueKind::Repair => snap.store.repairs.entries.get(&id.index)?.get().map(|e| e.address.clone()),
    }
}

/// ` on w12`, as far as it is known.
fn place(snap: &Snapshot, id: EntryId) -> String {
    address(snap, id).map(|a| on(snap, &a)).unwrap_or_default()
}

fn on(snap: &Snapshot, address: &str) -> String {
    if address.is_empty() { String::new() } else { format!(" on {}", snap.machine(address)) }
}

/// Where the word is explained.
fn runbook(word: &str) -> String {
    format!("docs/runbook.md#{}", word.to_lowercase())
}

fn with_reason(mut notice: Notice, reason: &Reason) -> Notice {
    let word = reason.name();
    notice.text = reason.to_string();
    notice.runbook = Some(runbook(&word));
    notice.reason = Some(word);
    if let Reason::WaitingForBoot { since, .. } | Reason::TerminatingStuck { since, .. } = reason {
        notice.since = Some(*since);
    }
    notice
}

/// Which entry, which machine.
pub(super) fn of_entry(snap: &Snapshot, mut notice: Notice, id: EntryId, address: Option<&str>) -> Notice {
    notice.entry = Some(id.to_string());
    notice.queue = Some(id.queue.to_string());
    notice.index = Some(id.index);
    let Some(address) = address.filter(|a| !a.is_empty()) else { return notice };
    notice.address = Some(address.to_owned());
    let node = snap.node_of(address);
    let member = snap.store.definition().and_then(|d| d.members.by_address(&d.cluster, address));
    notice.node = node.map(|n| n.name.clone()).or_else(|| member.map(|m| m.node_name().to_owned()));
    let own = node.into_iter().flat_map(|n| n.shown_labels.iter()).map(|(k, v)| (k.as_str(), v.as_str()));
    let defined = member.and_then(|m| m.labels.as_ref()).into_iter().flatten().map(|(k, v)| (k.as_str(), v.as_str()));
    let labels: Vec<(&str, &str)> = own.chain(defined).filter(|(_, v)| !v.is_empty()).collect();
    let named = |end: &str| labels.iter().find(|(k, _)| k.ends_with(end)).map(|(_, v)| (*v).to_owned());
    let control_plane = member.is_some_and(|m| m.control_plane).then(|| "control-plane".to_owned());
    notice.role = named("/role").or(control_plane);
    notice.rack = named("/rack").or_else(|| named("/zone"));
    notice
}

fn asked(notice: &mut Notice, request: Option<&Request>) {
    if let Some(request) = request {
        notice.requested_by = Some(request.who.to_string());
        notice.request_reason.clone_from(&request.reason);
    }
}

fn failed(attempt: &Attempt) -> bool {
    attempt.outcome.as_ref().is_some_and(|o| o.end.failed())
}

fn command(snap: &Snapshot, attempt: &Attempt, request: Option<&Request>, at: Timestamp) -> Notice {
    let (id, outcome) = (attempt.entry, attempt.outcome.as_ref());
    let end = outcome.map(|o| o.end.to_string()).unwrap_or_default();
    let what = attempt.what();
    let key = format!("failed/{id}/{}", attempt.number);
    let title = format!("{what} of {id}{} failed: {end}", on(snap, &attempt.address));
    let mut notice = of_entry(snap, Notice::new(Kind::Failed, key, title, at), id, Some(&attempt.address));
    let last = |text: &str| text.trim_end().lines().last().map(|line| format!(": {line}"));
    let said = outcome.and_then(|o| last(&o.stderr).or_else(|| last(&o.stdout))).unwrap_or_default();
    notice.text = format!("{}: {end}{}", attempt.command(), secret::masked(&said));
    notice.since = outcome.map(|o| o.at);
    notice.reason = Some("CommandFailed".to_owned());
    notice.runbook = Some(runbook("CommandFailed"));
    asked(&mut notice, request);
    notice
}

/// The notices of an entry that ended, in order: its failed commands, then how it ended.
pub(super) fn ended(snap: &Snapshot, ending: &Ending, at: Timestamp) -> Vec<Notice> {
    let id = ending.entry;
    let mut notices: Vec<Notice> =
        ending.attempts.iter().filter(|a| failed(a)).map(|a| command(snap, a, ending.request.as_ref(), at)).collect();
    let kind = if ending.outcome.starts_with("failed") { Kind::Failed } else { Kind::Finished };
    let title = format!("{id}{} ended: {}", on(snap, &ending.address), ending.outcome);
    let mut notice = of_entry(snap, Notice::new(kind, format!("ended/{id}"), title, at), id, Some(&ending.address));
    notice.since = Some(ending.at);
    asked(&mut notice, ending.request.as_ref());
    notices.push(notice);
    notices
}

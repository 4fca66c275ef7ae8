//! Conditions and events to notify about at one moment, made from a pass: conditions, failed commands, the leader, the
//! freeze. Pure, and the same for every receiver.

use std::{
    collections::{BTreeMap, BTreeSet},
    mem::discriminant,
    sync::Arc,
};

use cketerm_model::{
    attempt::Attempt,
    boot_time::{BootTime, Seconds},
    cketerm_records::{EndKind, Ending, Request},
    entry::{EntryId, Stored},
    entry_ref::EntryRef,
    names::Address,
    notice::{Kind, Leadership, Notice},
    reason::{Attention, Reason},
    reboot::{RebootEntry, RebootStatus},
    repair::{RepairEntry, StepStatus},
    secret,
    stored::view::StoreView,
};
use jiff::Timestamp;
use serde_json::Value;

use crate::{
    decide::ApplyState,
    seen::Seen,
    snapshot::Snapshot,
    trouble::{self, Trouble},
};

/// Time for which an entry must be stuck before a notice is sent.
const SETTLE: Seconds = Seconds::new(30.0);

/// A condition that lasts.
#[derive(Clone, Debug, PartialEq)]
pub struct Condition {
    /// The notice to send.
    pub notice: Notice,
    /// Name of the reason. Conditions with the same name can become one notice.
    pub word: String,
    /// Time for which it must last before the notice is sent.
    pub settle: Seconds,
}

/// Conditions and events at one moment.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Scene {
    /// Wall time.
    pub at: Timestamp,
    /// Boot time.
    pub boot: BootTime,
    /// The leader: this engine.
    pub leader: Leadership,
    /// Name of the cluster.
    pub cluster: Option<String>,
    /// UID of its `kube-system` namespace.
    pub cluster_uid: Option<String>,
    /// The freeze in force.
    pub freeze: Option<Value>,
    /// Conditions by their keys.
    pub conditions: BTreeMap<String, Condition>,
    /// Key prefixes of conditions whose end cannot be known yet, because the drain waits for its next try.
    pub undetermined: BTreeSet<String>,
    /// Failed commands of entries that still exist, by their keys.
    pub commands: BTreeMap<String, Notice>,
    /// Live copy of etcd.
    pub store: Arc<StoreView>,
}

impl Scene {
    /// Makes the scene from a pass; none if this engine does not lead.
    pub fn of(seen: &Seen) -> Option<Self> {
        let snap = &seen.snapshot;
        let leading = snap.engine.leading.as_ref()?;
        let (store, at) = (&snap.store, seen.now.wall);
        let mut scene = Self {
            at,
            boot: seen.now.boot,
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
        if let ApplyState::Approval(digest, why) = &*seen.applying {
            let title = format!("a change of the definition waits for approval: {digest}");
            let mut notice = Notice::new(Kind::Approval, format!("approval/{digest}"), title, at);
            notice.text.clone_from(why);
            notice.reason = Some("AwaitingApproval".to_owned());
            notice.runbook = Some(runbook("AwaitingApproval"));
            scene.add(notice, "AwaitingApproval", Seconds::ZERO);
        }
        for (key, why) in &store.broken {
            let mut notice = Notice::new(Kind::Broken, format!("broken/{key}"), format!("{key} cannot be read"), at);
            notice.text.clone_from(why);
            scene.add(notice, "broken", SETTLE);
        }
        // The notice of an entry's end covers its commands.
        let ended = |id: EntryId| store.entry(id).is_some_and(EntryRef::finished);
        let attempts = store.attempts.values().filter_map(Stored::get);
        for attempt in attempts.filter(|a| failed(a) && !ended(a.entry)) {
            let request = store.requests.get(&attempt.entry).and_then(Stored::get);
            let notice = command(snap, attempt, request, at);
            scene.commands.insert(notice.key.clone(), notice);
        }
        Some(scene)
    }

    /// Marks entries whose drain backed off and will be retried. Their blocker is known to be over only after the
    /// drain.
    fn add_unsure(&mut self, snap: &Snapshot) {
        let reboots = snap.store.reboots.entries.values().filter_map(Stored::get);
        let again = |e: &&RebootEntry| matches!(e.status, RebootStatus::Queued | RebootStatus::Draining);
        let reboots = reboots.filter(again).filter(|e| e.drain_backoff_count > 0).map(|e| EntryId::reboot(e.index));
        let repairs = snap.store.repairs.entries.values().filter_map(Stored::get);
        let again = |e: &&RepairEntry| e.unfinished() && e.step_status != StepStatus::Watching;
        let repairs = repairs.filter(again).filter(|e| e.drain_backoff_count > 0).map(|e| EntryId::repair(e.index));
        self.undetermined.extend(reboots.chain(repairs).map(|id| format!("stuck/{id}/")));
    }

    fn add_reasons(&mut self, seen: &Seen) {
        let snap = &seen.snapshot;
        // A reason that holds a whole queue is one condition, not one for each entry.
        let mut queue_wide: Vec<(&Reason, u64)> = Vec::new();
        for (id, reason) in seen.reasons.iter() {
            // Unreadable entries are reported as broken.
            if reason.attention() == Attention::None || trouble::unreadable(&snap.store, *id) {
                continue;
            }
            // An entry in progress at a gate is held up on its own.
            if reason.holds_all() && !(reason.is_gate() && trouble::by(seen, *id, reason) == Some(Trouble::Stuck)) {
                // There may be thousands, so their names are not computed.
                match queue_wide.iter_mut().find(|(known, _)| discriminant(*known) == discriminant(reason)) {
                    Some((_, entries)) => *entries += 1,
                    None => queue_wide.push((reason, 1)),
                }
                continue;
            }
            if trouble::by(seen, *id, reason) != Some(Trouble::Stuck) {
                continue;
            }
            let word = reason.name();
            let who = place(snap, *id);
            let title = if let Reason::Backoff { count, .. } = reason {
                format!("{id}{who} backed off {count} times: its drain is blocked")
            } else {
                format!("{id}{who} needs an operator: {word}")
            };
            let notice = Notice::new(Kind::Stuck, format!("stuck/{id}/{word}"), title, seen.now.wall);
            let mut notice = of_entry(snap, with_reason(notice, reason), *id, address(snap, *id));
            add_request(&mut notice, snap.store.requests.get(id).and_then(Stored::get));
            self.add(notice, &word, SETTLE);
        }
        for (reason, entries) in queue_wide {
            let word = reason.name();
            let waits = if entries == 1 { "an entry waits".to_owned() } else { format!("{entries} entries wait") };
            let notice =
                Notice::new(Kind::Stuck, group_key(Kind::Stuck, &word), format!("{waits}: {word}"), seen.now.wall);
            self.add(with_reason(notice, reason), &word, SETTLE);
        }
    }

    /// Reports whether the entry exists.
    pub(super) fn has(&self, id: EntryId) -> bool {
        self.store.has_entry(id)
    }

    fn add(&mut self, notice: Notice, word: &str, settle: Seconds) {
        self.conditions.insert(notice.key.clone(), Condition { notice, word: word.to_owned(), settle });
    }
}

/// Returns the key of all conditions of one kind and reason together.
pub(super) fn group_key(kind: Kind, word: &str) -> String {
    format!("{kind}/*/{word}")
}

/// Returns the freeze in force; an expired one does not count.
fn freeze(snap: &Snapshot, now: Timestamp) -> Option<Value> {
    let policy = snap.store.policy();
    let freeze = serde_json::to_value(&policy.freeze).ok().filter(|f| !f.is_null())?;
    let until = freeze.get("until").and_then(Value::as_str).and_then(|u| u.parse::<Timestamp>().ok());
    until.is_none_or(|until| until > now).then_some(freeze)
}

fn address(snap: &Snapshot, id: EntryId) -> Option<&Address> {
    snap.store.entry(id).map(EntryRef::address)
}

/// Returns ` on w12`, as far as the machine is known.
fn place(snap: &Snapshot, id: EntryId) -> String {
    address(snap, id).map(|a| on(snap, a)).unwrap_or_default()
}

fn on(snap: &Snapshot, address: &Address) -> String {
    if address.is_empty() { String::new() } else { format!(" on {}", snap.machine(address)) }
}

/// Returns the place that explains the reason.
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

/// Adds the entry and the machine to a notice.
pub(super) fn of_entry(snap: &Snapshot, mut notice: Notice, id: EntryId, address: Option<&Address>) -> Notice {
    notice.entry = Some(id.to_string());
    notice.queue = Some(id.queue.to_string());
    notice.index = Some(id.index);
    let Some(address) = address.filter(|a| !a.is_empty()) else { return notice };
    notice.address = Some(address.clone());
    let node = snap.node_of(address);
    let member = snap.store.definition().and_then(|d| d.members.by_address(&d.cluster, address));
    notice.node = node.map(|n| n.name.clone()).or_else(|| member.map(|m| m.node_name().clone()));
    let own = node.into_iter().flat_map(|n| n.shown_labels.iter()).map(|(k, v)| (k.as_str(), v.as_str()));
    let defined =
        member.and_then(|m| m.node().labels.as_ref()).into_iter().flatten().map(|(k, v)| (k.as_str(), v.as_str()));
    let labels: Vec<(&str, &str)> = own.chain(defined).filter(|(_, v)| !v.is_empty()).collect();
    let named = |end: &str| labels.iter().find(|(k, _)| k.ends_with(end)).map(|(_, v)| (*v).to_owned());
    let control_plane = member.is_some_and(|m| m.control_plane).then(|| "control-plane".to_owned());
    notice.role = named("/role").or(control_plane);
    notice.rack = named("/rack").or_else(|| named("/zone"));
    notice
}

fn add_request(notice: &mut Notice, request: Option<&Request>) {
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
    let last_line = outcome.and_then(|o| last(&o.stderr).or_else(|| last(&o.stdout))).unwrap_or_default();
    notice.text = format!("{}: {end}{}", attempt.command(), secret::masked(&last_line));
    notice.since = outcome.map(|o| o.at);
    notice.reason = Some("CommandFailed".to_owned());
    notice.runbook = Some(runbook("CommandFailed"));
    add_request(&mut notice, request);
    notice
}

/// Returns the notices of an entry that ended, in order: its failed commands, then its outcome.
pub fn ended(snap: &Snapshot, ending: &Ending, at: Timestamp) -> Vec<Notice> {
    let id = ending.entry;
    let mut notices: Vec<Notice> =
        ending.attempts.iter().filter(|a| failed(a)).map(|a| command(snap, a, ending.request.as_ref(), at)).collect();
    let kind = if ending.end == EndKind::Failed { Kind::Failed } else { Kind::Finished };
    let title = format!("{id}{} ended: {}", on(snap, &ending.address), ending.outcome);
    let mut notice = of_entry(snap, Notice::new(kind, format!("ended/{id}"), title, at), id, Some(&ending.address));
    notice.since = Some(ending.at);
    add_request(&mut notice, ending.request.as_ref());
    notices.push(notice);
    notices
}

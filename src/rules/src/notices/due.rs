//! Notices due for one receiver: pure, from the present scene and from what was noted before.
//!
//! A new notice goes into `pending` in the same write that marks it as noted. It leaves `pending` once it was received.
//! So each notice is delivered at least once, whatever happens in between, and always with the same id.

use std::collections::{BTreeMap, BTreeSet};

use cketerm_model::{
    boot_time::{BootTime, Seconds},
    cketerm_records::Who,
    entry::EntryId,
    notice::{Kind, Leadership, Mark, Notice, NotifierState, Pending},
};
use jiff::Timestamp;

use super::scene::{Condition, Scene, group_key};

/// Number of conditions with the same reason above which they become one notice.
const GROUP_LIMIT: usize = 20;
/// Time without a condition after which it counts as over.
const RESOLVED_AFTER: Seconds = Seconds::new(60.0);

/// Times at which this leader first saw conditions, and first missed them: a cache of observations.
#[derive(Clone, Debug, Default)]
pub struct Memory {
    appeared: BTreeMap<String, (BootTime, Timestamp)>,
    missed: BTreeMap<String, BootTime>,
}

/// Entries that ended after the cursor, with their notices, oldest first.
#[derive(Clone, Debug, Default)]
pub struct Endings {
    /// The notices of each, with the create revision of its history record.
    pub list: Vec<(i64, Vec<Notice>)>,
    /// Whether there are no more of them.
    pub complete: bool,
}

/// Returns the state of a new receiver. It gets notices of lasting conditions, and of entries that end after this
/// revision.
pub fn new_receiver(at: Timestamp, revision: i64) -> NotifierState {
    // Ids begin where no earlier record of this name can have used them.
    let next = u64::try_from(at.as_second()).unwrap_or(0);
    NotifierState { next, cursor: revision, ..NotifierState::default() }
}

/// Returns the receiver's state after this moment.
pub fn due(
    state: &NotifierState,
    scene: &Scene,
    endings: &Endings,
    kinds: &BTreeSet<Kind>,
    memory: &mut Memory,
) -> NotifierState {
    let mut out = StateUpdate { state: state.clone(), scene, kinds };
    out.leader();
    out.freeze();
    for (revision, notices) in &endings.list {
        for notice in notices {
            // A notice of a failed command may have been sent while its entry still existed.
            if !out.state.marks.contains_key(&notice.key) {
                out.push(notice.clone());
            }
        }
        out.state.cursor = out.state.cursor.max(*revision);
    }
    // After an operator's `done`, the attempts stay for a while. The notice of the entry's end has covered them.
    let ended = |key: &String| endings.list.iter().any(|(_, notices)| notices.iter().any(|n| n.key == *key));
    for (key, notice) in &scene.commands {
        if kinds.contains(&Kind::Failed) && !out.state.marks.contains_key(key) {
            out.mark(notice);
            if !ended(key) {
                out.push(notice.clone());
            }
        }
    }
    let conditions = out.grouped_conditions();
    out.appeared(&conditions, memory);
    out.resolved(&conditions, endings.complete, memory);
    out.state
}

struct StateUpdate<'a> {
    state: NotifierState,
    scene: &'a Scene,
    kinds: &'a BTreeSet<Kind>,
}

impl StateUpdate<'_> {
    /// Adds a notice, if this receiver wants its kind.
    fn push(&mut self, notice: Notice) {
        if self.kinds.contains(&notice.kind) {
            push(&mut self.state, self.scene, notice);
        }
    }

    fn mark(&mut self, notice: &Notice) {
        self.state.marks.insert(notice.key.clone(), Mark { at: self.scene.at, title: notice.title.clone() });
    }

    fn leader(&mut self) {
        let now = &self.scene.leader;
        if self.state.leader.as_ref().is_some_and(|l| l.create_revision == now.create_revision) {
            return;
        }
        let before = self.state.leader.replace(now.clone());
        let before = before.map(|Leadership { host, .. }| format!(", before: {host}")).unwrap_or_default();
        let title = format!("{} leads{before}", now.host);
        self.push(Notice::new(Kind::Leader, "leader".to_owned(), title, self.scene.at));
    }

    fn freeze(&mut self) {
        let now = self.scene.freeze.clone();
        if self.state.freeze == now {
            return;
        }
        self.state.freeze.clone_from(&now);
        let text = |name: &str| now.as_ref().and_then(|f| f.get(name)?.as_str());
        let title = match (&now, text("until"), text("reason")) {
            (None, ..) => "the freeze has ended".to_owned(),
            (Some(_), Some(until), Some(reason)) => format!("frozen until {until}: {reason}"),
            (Some(_), Some(until), None) => format!("frozen until {until}"),
            (Some(_), None, Some(reason)) => format!("frozen: {reason}"),
            (Some(freeze), None, None) => format!("frozen: {freeze}"),
        };
        let reason = text("reason").map(str::to_owned);
        let who = now.as_ref().and_then(|f| serde_json::from_value::<Who>(f.get("who")?.clone()).ok());
        let mut notice = Notice::new(Kind::Freeze, "freeze".to_owned(), title, self.scene.at);
        notice.request_reason = reason;
        notice.requested_by = who.filter(|w| !w.user.is_empty()).map(|w| w.to_string());
        notice.reason = now.is_some().then(|| "Frozen".to_owned());
        notice.runbook = now.is_some().then(|| "docs/runbook.md#frozen".to_owned());
        self.push(notice);
    }

    /// Returns the conditions. Too many conditions with the same reason become one, and stay one until the last is
    /// over.
    fn grouped_conditions(&self) -> BTreeMap<String, Condition> {
        let mut words: BTreeMap<(Kind, &str), Vec<&Condition>> = BTreeMap::new();
        for condition in self.scene.conditions.values().filter(|l| self.kinds.contains(&l.notice.kind)) {
            words.entry((condition.notice.kind, &condition.word)).or_default().push(condition);
        }
        let mut conditions = BTreeMap::new();
        for ((kind, word), all) in words {
            let key = group_key(kind, word);
            let single = |l: &&Condition| (l.notice.key.clone(), Condition::clone(l));
            if all.len() <= GROUP_LIMIT && !self.state.marks.contains_key(&key) {
                conditions.extend(all.iter().map(single));
                continue;
            }
            // A condition with a notice of its own also ends on its own.
            conditions.extend(all.iter().filter(|l| self.state.marks.contains_key(&l.notice.key)).map(single));
            let first = all[0];
            let mut notice = first.notice.clone();
            notice.key.clone_from(&key);
            if first.notice.key != key {
                notice.title = format!("{} at once: {word}", all.len());
                let titles: Vec<&str> = all.iter().take(5).map(|l| l.notice.title.as_str()).collect();
                notice.text = format!("{}\nand {} more", titles.join("\n"), all.len().saturating_sub(titles.len()));
                (notice.entry, notice.queue, notice.index) = (None, None, None);
                (notice.address, notice.node, notice.role, notice.rack) = (None, None, None, None);
                (notice.requested_by, notice.request_reason) = (None, None);
            }
            conditions.insert(key, Condition { notice, word: word.to_owned(), settle: first.settle });
        }
        conditions
    }

    fn appeared(&mut self, conditions: &BTreeMap<String, Condition>, memory: &mut Memory) {
        memory.appeared.retain(|key, _| conditions.contains_key(key));
        for (key, condition) in conditions {
            let (since, at) = *memory.appeared.entry(key.clone()).or_insert((self.scene.boot, self.scene.at));
            memory.missed.remove(key);
            if self.state.marks.contains_key(key) || self.scene.boot - since < condition.settle {
                continue;
            }
            let mut notice = condition.notice.clone();
            notice.since = notice.since.or(Some(at));
            self.mark(&notice);
            self.push(notice);
        }
    }

    /// Removes the marks of conditions that are over, and adds notices that they are over.
    fn resolved(&mut self, conditions: &BTreeMap<String, Condition>, settled: bool, memory: &mut Memory) {
        let keys: Vec<String> = self.state.marks.keys().filter(|k| !conditions.contains_key(*k)).cloned().collect();
        memory.missed.retain(|key, _| self.state.marks.contains_key(key));
        for key in keys {
            let kind = Kind::CHOICE.into_iter().find(|k| key.split('/').next() == Some(k.as_str()));
            if kind == Some(Kind::Failed) {
                // A failed command is never over. Its mark is removed once the entry has ended and the notice of that
                // is noted.
                if settled && !self.scene.commands.contains_key(&key) {
                    self.state.marks.remove(&key);
                }
                continue;
            }
            let entry = entry_of(&key);
            let ended = entry.is_some_and(|id| !self.scene.has(id));
            if !ended && self.scene.undetermined.iter().any(|begins| key.starts_with(begins.as_str())) {
                memory.missed.remove(&key);
                continue;
            }
            let since = *memory.missed.entry(key.clone()).or_insert(self.scene.boot);
            if !ended && kind != Some(Kind::Approval) && self.scene.boot - since < RESOLVED_AFTER {
                continue;
            }
            memory.missed.remove(&key);
            let Some(mark) = self.state.marks.remove(&key) else { continue };
            if kind.is_some_and(|kind| self.kinds.contains(&kind)) {
                let mut notice = Notice::new(Kind::Cleared, key, format!("resolved: {}", mark.title), self.scene.at);
                notice.since = Some(mark.at);
                if let Some(id) = entry {
                    notice.entry = Some(id.to_string());
                    notice.queue = Some(id.queue.to_string());
                    notice.index = Some(id.index);
                }
                self.push(notice);
            }
        }
    }
}

/// Appends a notice, with its id and the common fields.
pub(super) fn push(state: &mut NotifierState, scene: &Scene, mut notice: Notice) {
    let cluster = scene.cluster_uid.as_deref().unwrap_or("cluster");
    notice.id = format!("{}-{}", cluster.split('-').next().unwrap_or(cluster), state.next);
    state.next += 1;
    notice.cluster.clone_from(&scene.cluster);
    notice.cluster_uid.clone_from(&scene.cluster_uid);
    notice.leader.clone_from(&scene.leader.host);
    state.pending.push(Pending { notice, begun: false });
}

/// Returns the entry in a key such as `stuck/reboots/12/BlockedByPDB`.
fn entry_of(key: &str) -> Option<EntryId> {
    let mut parts = key.split('/').skip(1);
    let (queue, index) = (parts.next()?, parts.next()?);
    format!("{queue}/{index}").parse().ok()
}

//! Manual actions on one node with the operator's own rights: cordon, uncordon, drain, keep a cordon (SAF-36). They are
//! refused while an entry of a queue works on the node.

use cketerm_clients::{
    kubernetes::{Kube, Live as KubeLive, Streaming, WriteError},
    store::{
        live::Live,
        operator::{AuditNote, AuditResult},
    },
};
use cketerm_model::{
    acceptance::OperatorCommand,
    entry::{EntryId, Stored},
    kube::NodeRow,
    names::{Address, NodeName},
    reboot::RebootStatus,
    stored::view::StoreView,
};
use cketerm_rules::manual_drain::{Progress, Stopped};

use super::{
    error::ActionError,
    manual_drain::{self, DrainContext},
    operator::Operator,
    repair,
};

/// Number of attempts of a write. Kubelets write Nodes all the time.
const TRIES: u32 = 5;

/// Result of a cordon or an uncordon.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Turned {
    /// The node was changed.
    Done,
    /// The node was in that state before.
    Already,
}

impl Operator {
    /// Returns the Node with this name or address.
    pub async fn node_named(&self, name: &str) -> Result<NodeRow, ActionError> {
        let kube = self.kube("this command")?;
        if name.trim().is_empty() {
            return Err(ActionError::misused("the name is empty; give a Node's name or its address"));
        }
        let failed = |e| ActionError::failed(format!("node {name}: {e}"));
        if let Some(row) = kube.node(&NodeName::new(name)).await.map_err(failed)? {
            return Ok(row);
        }
        single_node(name, kube.nodes().await.map_err(failed)?)
    }

    /// Cordons a node for the administrator. No engine removes that cordon.
    pub async fn cordon_node(&self, name: &str, reason: Option<&str>) -> Result<Turned, ActionError> {
        self.refuse_mismatch().await?;
        self.set_cordon(name, true, reason).await
    }

    /// Removes a cordon of any owner, with all its marks.
    pub async fn uncordon_node(&self, name: &str, reason: Option<&str>) -> Result<Turned, ActionError> {
        self.refuse_mismatch().await?;
        self.set_cordon(name, false, reason).await
    }

    /// Turns the cordon of a node into the administrator's, or gives it back. Refused if there is no cordon to keep, or
    /// no mark to remove.
    pub async fn keep_cordon_of(&self, name: &str, keep: bool, reason: Option<&str>) -> Result<NodeName, ActionError> {
        let row = self.node_named(name).await?;
        if keep && !row.unschedulable {
            // an entry that works on the node is about to cordon it
            if claiming_entry(&self.store.read_view().await?, &row).is_none() {
                return Err(ActionError::refused(format!(
                    "node {0} is not cordoned and no entry works on it; to cordon it: \
                     `cketerm nodes cordon {0}`",
                    row.name
                )));
            }
        } else if !keep && !row.keep_cordoned {
            return Err(ActionError::refused(format!(
                "node {}: its cordon is not kept; nothing to give back",
                row.name
            )));
        }
        self.keep_cordoned(&row.name, keep, reason).await?;
        Ok(row.name)
    }

    /// Turns a cordon of cketerm into the administrator's, or gives it back. Needs Kubernetes. The caller checks that
    /// there is a cordon to keep: [`Operator::keep_cordon_of`].
    pub async fn keep_cordoned(&self, node: &NodeName, keep: bool, reason: Option<&str>) -> Result<(), ActionError> {
        let kube = self.kube("keep-cordoned")?;
        self.accepted(if keep { OperatorCommand::KeepCordoned } else { OperatorCommand::GiveCordonBack }).await?;
        let answer = kube.annotate_keep_cordoned(&self.person, node, keep).await;
        let failure = answer.as_ref().err().map(ToString::to_string);
        let result = failure.as_deref().map_or(AuditResult::Done("done"), AuditResult::Failed);
        let what = if keep { "node keep-cordoned" } else { "node give the cordon back" };
        let on = format!("node {node}");
        let record = AuditNote::new(&self.person, what, &on, reason);
        let audited = self.store.write(record, result, Vec::new(), Vec::new()).await;
        answer.map_err(|e| ActionError::failed(format!("node {node}: the annotation was not changed: {e}")))?;
        audited.map_err(|e| ActionError::failed(format!("node {node}: done, but not recorded in the audit: {e}")))?;
        Ok(())
    }

    async fn set_cordon(&self, name: &str, cordon: bool, reason: Option<&str>) -> Result<Turned, ActionError> {
        let kube = self.kube("this command")?;
        let what = if cordon { "node cordon" } else { "node uncordon" };
        for _ in 0..TRIES {
            let row = self.node_named(name).await?;
            refuse_claimed(&self.store.read_view().await?, &row)?;
            let marked = row.cke_mark || row.owner.is_some() || row.keep_cordoned;
            if row.unschedulable == cordon && (if cordon { row.keep_cordoned } else { !marked }) {
                return Ok(Turned::Already);
            }
            let was = row.unschedulable == cordon;
            let answer = kube.cordon_manually(&self.person, &row, cordon).await;
            if answer.as_ref().is_err_and(|e| *e == WriteError::Conflict) {
                continue;
            }
            let failure = answer.as_ref().err().map(ToString::to_string);
            let result = failure.as_deref().map_or(AuditResult::Done("done"), AuditResult::Failed);
            let recorded = self.report(what, &row.name, reason, result).await;
            answer.map_err(|e| ActionError::failed(format!("node {}: {what}: {e}", row.name)))?;
            recorded?;
            return Ok(if was { Turned::Already } else { Turned::Done });
        }
        Err(ActionError::refused(format!("node {name} keeps changing; nothing was done, try again")))
    }

    /// Cordons and drains a node by the queues' rules. Returns when the node is empty; `report` is called on every
    /// change. The node stays cordoned, however the drain ends.
    pub async fn drain_node(
        &self,
        name: &str,
        reason: Option<&str>,
        report: impl FnMut(&Progress),
    ) -> Result<Progress, ActionError> {
        self.cordon_node(name, reason).await?;
        let row = self.node_named(name).await?;
        let kube: &Kube = self.kube("nodes drain")?;
        let definition = self.store.read_view().await?;
        self.report("node drain", &row.name, reason, AuditResult::Done("begun")).await?;
        let (entries, live) = (Live::follow(&self.store), KubeLive::follow(kube, Streaming::Auto));
        let cluster = definition.definition().map(|d| &d.cluster);
        let on =
            DrainContext { kube, live: &live, entries: &entries, definition: cluster, person: self.person.clone() };
        let drained = manual_drain::drain(&on, &row, |view| claiming_entry(view, &row), report).await;
        let stays = format!("{} stays cordoned (`cketerm nodes uncordon {}`)", row.name, row.name);
        let (result, outcome) = match drained {
            Ok(progress) => (format!("drained, {} pods", progress.pods_at_start), Ok(progress)),
            Err(Stopped::Blocked(progress)) => {
                let mut why = progress.reason.as_ref().map(ToString::to_string).unwrap_or_default();
                for blocker in &progress.blockers {
                    why = format!("{why}\n  {}: {}", blocker.pod, blocker.why);
                }
                (format!("blocked: {why}"), Err(ActionError::failed(format!("not drained, {stays}: {why}"))))
            }
            Err(Stopped::Claimed(entry)) => {
                let text = format!("{entry} started work on it");
                (text.clone(), Err(ActionError::refused(format!("drain stopped: {text}; the entry continues it"))))
            }
            Err(Stopped::Uncordoned) => {
                let text = format!("node {}: drain stopped, because somebody uncordoned it", row.name);
                ("uncordoned by somebody".to_owned(), Err(ActionError::refused(text)))
            }
            Err(Stopped::Gone) => {
                let text = format!("node {}: drain stopped, because the Node was deleted or replaced", row.name);
                ("the Node is gone".to_owned(), Err(ActionError::failed(text)))
            }
        };
        let result = match &outcome {
            Ok(_) => AuditResult::Done(&result),
            Err(_) => AuditResult::Failed(&result),
        };
        self.report("node drain", &row.name, reason, result).await?;
        outcome
    }

    async fn report(
        &self,
        what: &str,
        on: &str,
        reason: Option<&str>,
        result: AuditResult<'_>,
    ) -> Result<(), ActionError> {
        let on = format!("node {on}");
        let note = AuditNote::new(&self.person, what, &on, reason);
        let recorded = self.store.write(note, result, Vec::new(), Vec::new()).await;
        recorded
            .map(drop)
            .map_err(|e| ActionError::failed(format!("node {on}: {what}: {}, but not recorded: {e}", result.text())))
    }
}

/// Returns the Node that a text names: by one of its addresses, or by the part of its name before the first dot. Nodes
/// that share it are an error, because a cordon must not meet another machine.
fn single_node(name: &str, all: Vec<NodeRow>) -> Result<NodeRow, ActionError> {
    let matches = |row: &NodeRow| {
        let short = || row.name.split_once('.').map(|(first, _)| first);
        row.addresses.iter().any(|a| a == name) || short().is_some_and(|first| first.eq_ignore_ascii_case(name))
    };
    let mut found: Vec<NodeRow> = all.into_iter().filter(matches).collect();
    match (found.pop(), found.as_slice()) {
        (Some(row), []) => Ok(row),
        (Some(row), others) => {
            let names: Vec<&str> = others.iter().chain([&row]).map(|row| row.name.as_str()).collect();
            let names = names.join(", ");
            Err(ActionError::failed(format!("{name} means several Nodes: {names}; give the full name")))
        }
        (None, _) => Err(ActionError::failed(format!("Kubernetes has no Node {name}; see `cketerm nodes list`"))),
    }
}

fn refuse_claimed(view: &StoreView, row: &NodeRow) -> Result<(), ActionError> {
    claiming_entry(view, row).map_or(Ok(()), |entry| {
        Err(ActionError::refused(format!(
            "node {}: {entry} works on it; cancel the entry (`cketerm rq cancel`, `repair-queue delete`, `maintenance release`) or wait for \
             its end; `cketerm nodes keep-cordoned {}` keeps its cordon",
            row.name, row.name
        )))
    })
}

/// Returns the entry that works on a node now: it drains, reboots, repairs or keeps the node, or its command may still be
/// running.
fn claiming_entry(view: &StoreView, row: &NodeRow) -> Option<String> {
    let of_definition = view.definition().and_then(|d| d.members.by_name(&d.cluster, &row.name));
    let is_this_machine = |address: &Address| {
        row.addresses.contains(address) || of_definition.is_some_and(|member| member.address == *address)
    };
    let reboot = view.reboots.entries.iter().find_map(|(index, stored)| {
        let entry = stored.get().filter(|e| is_this_machine(&e.node))?;
        let works = matches!(entry.status, RebootStatus::Draining | RebootStatus::Rebooting);
        works.then(|| format!("{} ({})", EntryId::reboot(*index), entry.status))
    });
    let repair = || {
        view.repairs.entries.iter().find_map(|(index, stored)| {
            let entry = stored.get().filter(|e| is_this_machine(&e.address) && e.claims_machine())?;
            Some(format!("{} ({})", EntryId::repair(*index), repair::state(entry)))
        })
    };
    let maintenance = || {
        view.maintenance.entries.iter().find_map(|(index, stored)| {
            let entry = stored.get().filter(|e| is_this_machine(&e.node) && e.claims_machine())?;
            Some(format!("{} ({})", EntryId::maintenance(*index), entry.status))
        })
    };
    let running = || {
        let open = view.attempts.values().filter_map(Stored::get).filter(|a| a.open() && is_this_machine(&a.address));
        let alive = |lease| view.candidates.values().any(|c| c.lease == lease);
        open.into_iter().find(|a| alive(a.lease)).map(|a| format!("the command of {}", a.entry))
    };
    reboot.or_else(repair).or_else(maintenance).or_else(running)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use cketerm_model::{cluster::Cluster, reboot::RebootEntry, stored::view::Definition};
    use jiff::Timestamp;

    use super::*;

    #[test]
    fn a_node_is_found_by_its_address_or_the_first_part_of_its_name_if_only_one_has_it() {
        let row = |name: &str, address: &str| NodeRow {
            name: NodeName::new(name),
            addresses: vec![Address::new(address)],
            ..NodeRow::default()
        };
        let all =
            || vec![row("w1.a", "10.0.0.1"), row("w2.a", "10.0.0.2"), row("w2.b", "10.0.0.3"), row("w3.a", "10.0.0.1")];
        assert_eq!(single_node("10.0.0.2", all()).unwrap().name, "w2.a");
        assert_eq!(single_node("W1", all()).unwrap().name, "w1.a");
        for (name, expected) in [("w2", "w2.a, w2.b"), ("10.0.0.1", "w1.a, w3.a")] {
            let why = single_node(name, all()).unwrap_err().text;
            assert!(why.contains(&format!("{name} means several Nodes: {expected}; give the full name")), "{why}");
        }
        assert!(single_node("w", all()).unwrap_err().text.contains("has no Node w"));
    }
    #[test]
    fn a_node_that_an_entry_works_on_is_left_to_the_entry() {
        let cluster = serde_json::json!({"name": "c", "nodes": [
            {"address": "10.0.0.1", "hostname": "w1"}, {"address": "10.0.0.2", "hostname": "w2"}]});
        let cluster: Cluster = serde_json::from_value(cluster).unwrap();
        let stored = |value| Stored { key: String::new(), mod_revision: 1, value: Ok(Arc::new(value)) };
        let mut view = StoreView { cluster: Some(stored(Definition::from(cluster))), ..StoreView::default() };
        let mut set = |status| {
            let entry = RebootEntry::queued(3, &Address::new("10.0.0.1")).moved_to(status, Timestamp::UNIX_EPOCH);
            let stored = Stored { key: String::new(), mod_revision: 1, value: Ok(Arc::new(entry)) };
            view.reboots.entries.insert(3, stored);
            view.clone()
        };
        let row = |name: &str, address: &str| NodeRow {
            name: NodeName::new(name),
            addresses: vec![Address::new(address)],
            ..NodeRow::default()
        };
        for status in [RebootStatus::Draining, RebootStatus::Rebooting] {
            let view = set(status);
            let expected = format!("reboots/3 ({status})");
            assert_eq!(claiming_entry(&view, &row("other", "10.0.0.1")), Some(expected.clone()));
            assert_eq!(claiming_entry(&view, &row("w1", "192.168.0.1")), Some(expected), "by the definition's name");
            assert_eq!(claiming_entry(&view, &row("w2", "10.0.0.2")), None);
            assert_eq!(claiming_entry(&view, &row("unknown", "10.0.0.9")), None);
            let refused = refuse_claimed(&view, &row("w1", "10.0.0.1")).unwrap_err().text;
            assert!(refused.starts_with(&format!("node w1: reboots/3 ({status}) works on it")), "{refused}");
        }
        let queued = set(RebootStatus::Queued);
        assert!(refuse_claimed(&queued, &row("w1", "10.0.0.1")).is_ok());
    }
}

//! Quorum of etcd. Before a machine that hosts a voting member is cordoned or powered off, every other voting member
//! must be healthy (SAF-23, I46). An API server can be healthy while the etcd member on its machine is down, because it
//! connects to the other members.
//!
//! Pure: [`EtcdView`] holds the answers of the members; `src/engine/src/etcd_members.rs` requests them.

use std::collections::{BTreeMap, BTreeSet};

use cketerm_model::{
    attempt::Attempt,
    boot_time::{BootTime, Seconds},
    cluster,
    entry::Stored,
    etcd::{EtcdView, Member, MemberState, Reported, Source, Status},
    fault,
    kube::NodeRow,
    names::{Address, NodeName},
    policy::EtcdMembers,
    reason::Reason,
};
use serde::Serialize;

use super::{Effect, Guard, Pass, attempts, entry_context::EntryContext};
use crate::snapshot::Snapshot;

/// Maximum age of a member's answer.
const MAX_ANSWER_AGE: Seconds = Seconds::new(5.0);
/// Time within which a member has to apply the raft index that the leader reported.
pub const CATCH_UP_LIMIT: Seconds = Seconds::new(5.0);

/// Machines that host members, by member id. Each has the name under which effects of the machine exclude one another.
#[derive(Debug, Default)]
pub(super) struct MemberHosts(BTreeMap<u64, MemberHost>);

#[derive(Debug)]
struct MemberHost {
    machine: NodeName,
    address: Address,
    control_plane: bool,
}

impl MemberHosts {
    /// Maps each member by the hosts in its URLs: an address or name of the definition or of a Node.
    pub(super) fn of(snap: &Snapshot) -> Self {
        let Some(definition) = snap.store.definition() else { return Self::default() };
        let place = |host: &str| {
            let node = || {
                let name = snap.kube.by_address.get(host)?;
                definition.members.by_name(&definition.cluster, name)
            };
            definition.members.by_text(&definition.cluster, host).or_else(node)
        };
        let host = |node: cluster::Member<'_>| MemberHost {
            machine: node.node_name().clone(),
            address: node.address.clone(),
            control_plane: node.control_plane,
        };
        let of = |member: &Member| member.hosts().find_map(|name| place(&name)).map(host);
        Self(snap.etcd.members.iter().filter_map(|(id, member)| Some((*id, of(member)?))).collect())
    }

    /// Returns the members that this machine hosts.
    fn members_on(&self, ctx: EntryContext<'_>, etcd: &EtcdView) -> BTreeSet<u64> {
        let here = |id: u64, member: &Member| match self.0.get(&id) {
            Some(host) => *host.machine == *ctx.machine || host.address == *ctx.address,
            // A machine outside the definition.
            None => member.hosts().any(|host| host == **ctx.address),
        };
        etcd.members.iter().filter(|(id, member)| here(**id, member)).map(|(id, _)| *id).collect()
    }

    /// Reports whether the list is that of the Kubernetes etcd. The list of cketerm's own store counts only if it holds the
    /// objects of Kubernetes, and each voting member is on a control plane: the store may be another etcd, also on the
    /// control planes, whose health proves nothing (SAF-24).
    fn is_kubernetes_etcd(&self, etcd: &EtcdView) -> bool {
        match etcd.source {
            Source::Nothing => false,
            Source::Configured => true,
            Source::OwnStore => {
                let mut voters = etcd.members.iter().filter(|(_, member)| !member.learner).peekable();
                etcd.own_store_is_kubernetes
                    && voters.peek().is_some()
                    && voters.all(|(id, _)| self.0.get(id).is_some_and(|host| host.control_plane))
            }
        }
    }
}

/// Condition on the etcd members for one effect on one machine. It is stored with the effect, and
/// [`QuorumCondition::barred`] checks it again right before the effect.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct QuorumCondition {
    /// The machine, for messages.
    machine: String,
    /// Whether the machine is a control plane of the definition.
    control_plane: bool,
    /// IDs of the members that it hosts.
    own: BTreeSet<u64>,
    /// Members that count as down because of work on their machines, with that work.
    busy: BTreeMap<u64, String>,
    /// A voting member whose machine is unknown.
    unplaced: Option<u64>,
    /// Whether the list of members is that of the Kubernetes etcd. Otherwise it proves nothing.
    counts: bool,
    /// Whether an operator accepts that one or two voting members lose their quorum.
    loss_allowed: bool,
}

impl QuorumCondition {
    /// Returns the reason why the machine must not be disrupted now. Its own unhealthy member is no reason, because the
    /// broken machine may be repaired. `boot`: the present boot time. In this order:
    ///
    /// 1. The list is not that of the Kubernetes etcd, or it is empty: only control planes are barred.
    /// 2. No voting member is on the machine: see `unknown_host_reason`.
    /// 3. Its own members are silent, and the other members prove a quorum without them: not barred.
    /// 4. There are at most two voters: barred, unless the policy allows the loss of their quorum.
    /// 5. Another voter reports an alarm of a member: barred.
    /// 6. Another voter has a known fault, which includes work on its machine: barred.
    /// 7. The present list of voters is not known, or a fact about another voter is not known: barred.
    pub fn barred(&self, etcd: &EtcdView, boot: BootTime) -> Option<Reason> {
        fault!(QuorumForgotten => return None);
        if !self.counts {
            return self.control_plane.then(|| Reason::EtcdUnchecked { why: no_members_reason(etcd) });
        }
        if etcd.members.is_empty() {
            // Workers go on: only the list tells whether one of them hosts a member.
            let why = || etcd.error.clone().unwrap_or_else(|| "no member has been asked yet".to_owned());
            return self.control_plane.then(|| Reason::EtcdUnchecked { why: why() });
        }
        let own = || self.own.iter().filter_map(|id| etcd.members.get(id)).filter(|member| !member.learner);
        if own().next().is_none() {
            return self.unknown_host_reason(etcd);
        }
        let voters: Vec<(&u64, &Member)> = etcd.members.iter().filter(|(_, member)| !member.learner).collect();
        if own().all(|member| silent(member, boot)) && self.others_prove_quorum(&voters, boot) {
            return None;
        }
        if voters.len() <= 2 && !self.loss_allowed {
            let member = own().next().map_or_else(String::new, |member| member.shown().to_owned());
            return Some(Reason::EtcdQuorumWouldBeLost { member, voters: voters.len() });
        }
        let others = || voters.iter().filter(|(id, _)| !self.own.contains(*id));
        // Known faults come before unknown states.
        let why = |id: &u64, member: &Member| match self.busy.get(id) {
            Some(busy) => Some(busy.clone()),
            None => unhealthy(member, etcd.reported, boot),
        };
        let mut alarms = others().filter_map(|(_, member)| member.status()).flat_map(|status| &status.errors);
        if let Some((member, what)) = alarms.find_map(|error| parse_alarm(error, etcd)) {
            return Some(Reason::EtcdMemberUnhealthy { member, why: format!("it has raised alarm {what}") });
        }
        let unwell = others().find_map(|(id, member)| Some((member.shown().to_owned(), why(id, member)?)));
        if let Some((member, why)) = unwell {
            return Some(Reason::EtcdMemberUnhealthy { member, why });
        }
        // The present voters are not known.
        if let Some(why) = etcd.error.clone() {
            return Some(Reason::EtcdUnchecked { why });
        }
        let unknown = others().find_map(|(_, member)| unknown(member, etcd.reported, boot));
        unknown.map(|why| Reason::EtcdUnchecked { why })
    }

    /// Reports whether the members on other machines prove that they have a quorum without those on this one: more than
    /// half of all voters answered within 5 s and see a leader. Silent members on this machine are then down, and
    /// disrupting it loses nothing. With fewer answers, a member that is down looks the same as one that only this
    /// engine cannot reach, and that member may keep the quorum (SAF-25).
    fn others_prove_quorum(&self, voters: &[(&u64, &Member)], boot: BootTime) -> bool {
        let others = voters.iter().filter(|(id, _)| !self.own.contains(*id) && !self.busy.contains_key(*id));
        let statuses = others.filter_map(|(_, member)| member.status());
        let answer = statuses.filter(|status| fresh(status.asked, boot) && status.leader != 0).count();
        fault!(SilenceTrusted => return answer > 0);
        answer * 2 > voters.len()
    }

    /// Returns a reason for a control plane without a known voting member while there is a member whose machine is
    /// unknown.
    fn unknown_host_reason(&self, etcd: &EtcdView) -> Option<Reason> {
        let is_learner = self.own.iter().any(|id| etcd.members.get(id).is_some_and(|member| member.learner));
        let unplaced = self.unplaced.filter(|_| self.control_plane && !is_learner)?;
        let member = etcd.members.get(&unplaced)?;
        let urls = member.peer_urls.iter().chain(&member.client_urls).cloned().collect::<Vec<_>>().join(", ");
        let why = format!(
            "no member is known on {}, and member {} ({urls}) is on no machine of the definition; if etcd runs \
             elsewhere, `cketerm policy set etcd_members none`",
            self.machine,
            member.shown()
        );
        Some(Reason::EtcdUnchecked { why })
    }
}

fn fresh(asked: BootTime, boot: BootTime) -> bool {
    boot - asked <= MAX_ANSWER_AGE
}

/// Reports whether the member was queried a moment ago and did not answer.
fn silent(member: &Member, boot: BootTime) -> bool {
    matches!(&member.state, MemberState::Silent { asked, .. } if fresh(*asked, boot))
}

/// Returns the known fault of a voting member. `reported`: the leader of this round and its raft index, with which the
/// member is compared.
fn unhealthy(member: &Member, reported: Option<Reported>, boot: BootTime) -> Option<String> {
    let status = match &member.state {
        MemberState::Unasked => return None,
        MemberState::Silent { why, .. } => return Some(format!("it gives no answer: {why}")),
        MemberState::Answered(status) => status,
    };
    if let Some(error) = status.errors.first() {
        return Some(format!("it reports {error}"));
    }
    if status.leader == 0 {
        return Some("it has no leader".to_owned());
    }
    let reported = reported?;
    if !fresh(status.asked, boot) {
        return None;
    }
    if status.leader != reported.leader {
        return Some("its leader differs from that of the others".to_owned());
    }
    behind(status, reported)
}

/// Returns the member that raised an alarm, and the alarm. Every member reports the alarms of all members as
/// `memberID:N alarm:NAME`; etcd 3.7 may write two spaces between them.
fn parse_alarm(error: &str, etcd: &EtcdView) -> Option<(String, String)> {
    let (id, alarm) = error.strip_prefix("memberID:")?.split_once(char::is_whitespace)?;
    let member = etcd.members.get(&id.parse().ok()?)?;
    Some((member.shown().to_owned(), alarm.trim().strip_prefix("alarm:")?.to_owned()))
}

/// Returns the fault of a member that has not applied the leader's raft index of this round, or applied it late.
fn behind(status: &Status, reported: Reported) -> Option<String> {
    if status.applied < reported.index {
        return Some(format!("it has applied raft index {}, and the leader is at {}", status.applied, reported.index));
    }
    let is_late = status.at - reported.at > CATCH_UP_LIMIT;
    is_late.then(|| format!("it took more than {CATCH_UP_LIMIT} to apply the raft index {}", reported.index))
}

/// Returns the fact that is missing about a voting member without a known fault: an answer, a young one, or a leader.
fn unknown(member: &Member, reported: Option<Reported>, boot: BootTime) -> Option<String> {
    let name = member.shown();
    let asked = match &member.state {
        MemberState::Unasked => return Some(format!("member {name} has not been asked yet")),
        MemberState::Silent { asked, .. } => *asked,
        MemberState::Answered(status) => status.asked,
    };
    if boot - asked > MAX_ANSWER_AGE {
        return Some(format!("the last answer of member {name} is older than {MAX_ANSWER_AGE}"));
    }
    reported.is_none().then(|| "no member reports being the leader".to_owned())
}

/// Returns why no member can be queried, and the remedy for the operator.
fn no_members_reason(etcd: &EtcdView) -> String {
    let found = match (etcd.source, &etcd.error) {
        (_, Some(error)) => format!("{error}; "),
        (Source::OwnStore, None) if !etcd.members.is_empty() => {
            "the etcd that holds the queues is not that of Kubernetes; ".to_owned()
        }
        _ => String::new(),
    };
    let pods =
        etcd.static_pods.iter().map(|(name, ready)| format!("{name} {}", if *ready { "Ready" } else { "not Ready" }));
    let pods = pods.collect::<Vec<_>>().join(", ");
    let pods = if pods.is_empty() { pods } else { format!(" (static Pods are not enough: {pods})") };
    format!(
        "{found}set `cluster_etcd` in the engine's configuration, or check the quorum yourself and \
         `policy set etcd_members none`{pods}"
    )
}

/// Reports whether this engine can query the members; `Err` holds what it lacks. A site without control planes needs
/// none.
pub fn can_check_quorum(snap: &Snapshot) -> Result<(), String> {
    let Some(definition) = snap.store.definition() else { return Ok(()) };
    let asks = snap.store.policy().etcd_members == EtcdMembers::Check;
    if !asks || definition.members.control_planes(&definition.cluster).next().is_none() {
        return Ok(());
    }
    let etcd = &snap.etcd;
    if MemberHosts::of(snap).is_kubernetes_etcd(etcd) && !etcd.members.is_empty() && etcd.error.is_none() {
        return Ok(());
    }
    Err(etcd.error.clone().unwrap_or_else(|| "it has no list of etcd's members (cluster_etcd)".to_owned()))
}

impl<'a> Pass<'a> {
    /// Returns the condition on the etcd members for an effect on this machine, or `None` if there is none.
    pub(super) fn quorum(&self, ctx: EntryContext<'_>) -> Option<QuorumCondition> {
        let definition = self.definition?;
        if !self.checks_etcd_members() || definition.members.control_planes(&definition.cluster).next().is_none() {
            return None;
        }
        let etcd = &self.snap.etcd;
        let own = self.etcd_hosts.members_on(ctx, etcd);
        // A worker without a member has no condition.
        if own.is_empty() && !ctx.control_plane() {
            return None;
        }
        let others = etcd.members.iter().filter(|(id, member)| !member.learner && !own.contains(id));
        let (mut busy, mut unplaced) = (BTreeMap::new(), None);
        for (id, _) in others {
            match self.etcd_hosts.0.get(id) {
                Some(host) => busy.extend(self.busy_reason(host).map(|why| (*id, why))),
                None => unplaced = unplaced.or(Some(*id)),
            }
        }
        Some(QuorumCondition {
            machine: ctx.machine.to_owned(),
            control_plane: ctx.control_plane(),
            own,
            busy,
            unplaced,
            counts: self.etcd_hosts.is_kubernetes_etcd(etcd),
            loss_allowed: self.policy.allow_quorum_loss,
        })
    }

    /// Returns why a member's machine counts as down: it is in progress, has an open attempt or an orphaned cordon. An
    /// administrator's cordon does not count.
    fn busy_reason(&self, host: &MemberHost) -> Option<String> {
        let describe = |what: &str, id| format!("its machine {} {what} {id}", host.machine);
        if let Some(id) = self.claims.machines.get(&host.address) {
            return Some(describe("is in work for", *id));
        }
        let attempts = self.snap.store.attempts.values().filter_map(Stored::get);
        if let Some(open) = attempts.filter(|a| a.address == host.address && !a.success).find(|a| Attempt::open(a)) {
            return Some(describe("has a command of unknown outcome, from", open.entry));
        }
        let node = self.snap.kube.by_name.get(&host.machine).filter(|node| node.unschedulable)?;
        let owner = node.owner().filter(|owner| !attempts::has_live_entry(self.snap, owner.entry))?;
        Some(describe("is still cordoned for", owner.entry))
    }

    /// Reports whether a voting member is on this machine.
    pub(super) fn hosts_voting_member(&self, ctx: EntryContext<'_>) -> bool {
        let etcd = &self.snap.etcd;
        let votes = |id: &u64| etcd.members.get(id).is_some_and(|member| !member.learner);
        !etcd.members.is_empty() && self.etcd_hosts.members_on(ctx, etcd).iter().any(votes)
    }

    /// Returns the reason why etcd's quorum bars this machine. An observing engine does not query the members and shows
    /// the reason that the leader published.
    pub(super) fn etcd_blocker(&self, ctx: EntryContext<'_>) -> Option<Reason> {
        if !self.leading() {
            return None;
        }
        self.quorum(ctx)?.barred(&self.snap.etcd, self.monotonic_now())
    }

    /// Returns the guard of an effect that begins to disrupt the machine. The etcd members are checked again with it.
    pub(super) fn disruption_guard(&self, ctx: EntryContext<'_>) -> Guard {
        Guard { quorum: self.quorum(ctx), ..self.start_guard(ctx) }
    }

    /// Returns the guard of a cordon. A new record on a cordon that this entry has already disrupts nothing.
    pub(super) fn cordon_guard(&self, ctx: EntryContext<'_>, node: &NodeRow) -> Result<Guard, Reason> {
        if node.unschedulable && node.owner().is_some_and(|owner| owner.entry == ctx.id) {
            return Ok(self.start_guard(ctx));
        }
        self.etcd_blocker(ctx).map_or_else(|| Ok(self.disruption_guard(ctx)), Err)
    }

    /// Checks the quorum before power: the other members are healthy, and the machine's own member has been asked to
    /// hand over the leadership of etcd (SAF-26).
    pub(super) fn check_etcd_before_power(&mut self, ctx: EntryContext<'a>) -> Result<(), Reason> {
        if let Some(barred) = self.etcd_blocker(ctx) {
            return Err(barred);
        }
        let Some(quorum) = self.quorum(ctx) else { return Ok(()) };
        let work = self.snap.work.get(&ctx.id);
        let commanded = work.and_then(|work| work.commanded);
        let moved = work
            .and_then(|work| work.drain.leader_moved)
            .filter(|moved| commanded.is_none_or(|commanded| *moved > commanded));
        let etcd = &self.snap.etcd;
        let asks = || Reason::Working { phase: "asking the etcd members".to_owned() };
        if let Some(moved) = moved {
            // Answers from before the change of leader do not count. Without a report, `etcd_blocker` above has decided
            // already.
            let is_newer = etcd.reported.is_none_or(|reported| reported.at > moved);
            return if is_newer { Ok(()) } else { Err(asks()) };
        }
        let Some((from, to)) = quorum.leader_to_move(etcd, self.monotonic_now()) else { return Ok(()) };
        let (urls, member) = (from.client_urls.clone(), from.shown().to_owned());
        let effect = Effect::MoveEtcdLeader { member, urls, to: to.0, to_name: to.1.shown().to_owned() };
        self.plan(ctx.machine, Some(ctx.id), self.disruption_guard(ctx), effect);
        Err(Reason::Working { phase: "moving the etcd leader to another member".to_owned() })
    }
}

impl QuorumCondition {
    /// Returns the leading member on this machine, and the other member that has applied most.
    fn leader_to_move<'e>(&self, etcd: &'e EtcdView, boot: BootTime) -> Option<(&'e Member, (u64, &'e Member))> {
        let leader = etcd.reported?.leader;
        let from = etcd.members.get(&leader).filter(|_| self.own.contains(&leader))?;
        from.status().filter(|status| boot - status.asked <= MAX_ANSWER_AGE)?;
        let others = etcd.members.iter().filter(|(id, m)| !m.learner && !self.own.contains(id));
        let to = others.max_by_key(|(_, member)| member.status().map(|status| status.applied))?;
        Some((from, (*to.0, to.1)))
    }
}

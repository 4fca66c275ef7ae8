//! The quorum of etcd (I46), judged by the events of machines and members.

use cketerm_model::policy::EtcdMembers;
use jiff::Timestamp;

use super::{
    record::{Breach, EtcdMember, PowerEvent},
    view::View,
};

/// Seconds for which an answer of a member counts, and within which it may catch up.
const ANSWER_VALIDITY: f64 = 10.0;

/// One action that takes a machine down or prepares that.
struct Step<'v> {
    at: Timestamp,
    address: &'v str,
    engine: &'v str,
    what: String,
}

/// I46: where engines query the members, no engine cordons or takes down a machine whose member votes while another
/// voting member is unhealthy. That member must have been unhealthy for as long as an engine may rely on an old answer.
pub fn i46(view: &View<'_>) -> Vec<Breach> {
    let steps = cordons(view).into_iter().chain(power_downs(view));
    let found = steps.filter_map(|step| {
        let unhealthy = unhealthy_members(view, &step)?;
        let what =
            format!("{}, a voting member of etcd, while others are unhealthy: {}", step.what, unhealthy.join(", "));
        Some(Breach { code: "I46", at: step.at, what })
    });
    found.collect()
}

/// Reports whether other voting members forbid that this engine disturbs the machine now.
pub fn forbids(view: &View<'_>, address: &str, at: Timestamp, engine: &str) -> bool {
    unhealthy_members(view, &Step { at, address, engine, what: String::new() }).is_some()
}

/// Nodes of member hosts that an engine makes unschedulable.
fn cordons<'v>(view: &'v View<'_>) -> Vec<Step<'v>> {
    let cordons = view.node_writes.iter().filter(|w| w.engine && !w.before.unschedulable && w.after.unschedulable);
    let steps = cordons.filter_map(|w| {
        let address = hosts(view).into_iter().find(|host| w.before.addresses.iter().any(|a| a == host))?;
        let what = format!("{} cordons {address}", w.request.by);
        Some(Step { at: w.request.at, address, engine: w.request.by.as_str(), what })
    });
    steps.collect()
}

/// Machines of members that a command of an engine takes down, at the moment in which the command began.
fn power_downs<'v>(view: &'v View<'_>) -> Vec<Step<'v>> {
    let power = &view.record.power;
    let downs = power.iter().filter(|p| p.what == PowerEvent::Down && !p.entry.is_empty());
    let steps = downs.filter_map(|down| {
        let same = |p: &&super::record::Power| {
            p.what == PowerEvent::Begin && p.attempt == down.attempt && p.address == down.address && p.at <= down.at
        };
        let begin = power.iter().rev().find(same)?;
        let engine =
            view.leading().filter(|report| report.at <= begin.at).last().map_or("", |report| report.by.as_str());
        let what = format!("{} takes {} down", down.entry, down.address);
        Some(Step { at: begin.at, address: &down.address, engine, what })
    });
    steps.collect()
}

/// The other voting members that were unhealthy all the time. None where the step is allowed.
fn unhealthy_members<'v>(view: &'v View<'_>, step: &Step<'_>) -> Option<Vec<&'v str>> {
    let (address, to) = (step.address, step.at);
    let from = view.back(step.engine, to, ANSWER_VALIDITY + view.late());
    let requested = view.policies.throughout(from, to, |policy| {
        policy.is_some_and(|p| p.etcd_members == EtcdMembers::Check && !p.allow_quorum_loss)
    });
    let voted = |address: &str| held_throughout(view, address, from, to, |member| !member.learner);
    // rebooting a member that is already down loses nothing
    if !requested || !voted(address) || was_down(view, address, from, to) {
        return None;
    }
    let others: Vec<&str> = hosts(view).into_iter().filter(|host| *host != address && voted(host)).collect();
    let unhealthy: Vec<&str> =
        others.iter().copied().filter(|host| unhealthy_throughout(view, host, from, to)).collect();
    // A member that clients do not reach counts as down if the others have a quorum without it. Members with an
    // alarm vote, too.
    let unreachable = !held_throughout(view, address, from, to, |member| !member.unreachable);
    let vote = others.iter().filter(|host| !silent_throughout(view, host, from, to)).count();
    (!unhealthy.is_empty() && !(unreachable && vote * 2 > others.len() + 1)).then_some(unhealthy)
}

fn hosts<'v>(view: &'v View<'_>) -> Vec<&'v str> {
    let mut all: Vec<&str> = view.record.members.iter().map(|m| m.address.as_str()).collect();
    all.sort_unstable();
    all.dedup();
    all
}

/// Reports whether a condition held for a member from `from` to `to`, without a break.
fn held_throughout(
    view: &View<'_>,
    address: &str,
    from: Timestamp,
    to: Timestamp,
    condition: impl Fn(&EtcdMember) -> bool,
) -> bool {
    let changes = || view.record.members.iter().filter(|m| m.address == address);
    let before = changes().rfind(|m| m.at < from);
    before.is_some_and(&condition) && changes().filter(|m| m.at >= from && m.at <= to).all(condition)
}

/// Reports whether its machine ran (or did not run) all the time, by the machine's own log.
fn was_running(view: &View<'_>, address: &str, from: Timestamp, to: Timestamp, running: bool) -> bool {
    let log = || {
        let log = view.record.power.iter().filter(|p| p.address == address);
        log.filter_map(|p| match p.what {
            PowerEvent::Down => Some((p.at, false)),
            PowerEvent::Up => Some((p.at, true)),
            PowerEvent::Begin | PowerEvent::End(_) => None,
        })
    };
    let before = log().rfind(|(at, _)| *at < from).is_none_or(|(_, up)| up);
    before == running && log().filter(|(at, _)| *at >= from && *at <= to).all(|(_, up)| up == running)
}

fn was_down(view: &View<'_>, address: &str, from: Timestamp, to: Timestamp) -> bool {
    !was_running(view, address, from, to, true) || !held_throughout(view, address, from, to, |member| !member.stopped)
}

/// Reports whether, without a break, its machine was off, or it was stopped, behind or had an alarm. The moment in
/// which a member begins to fall behind is a break: it has applied all commits until then.
fn unhealthy_throughout(view: &View<'_>, address: &str, from: Timestamp, to: Timestamp) -> bool {
    let has_fault = |member: &EtcdMember| member.stopped || member.behind || member.alarm;
    was_running(view, address, from, to, false)
        || (held_throughout(view, address, from, to, has_fault) && !begins_to_fall_behind(view, address, from, to))
}

/// Without a break: its machine was off, or it was stopped.
fn silent_throughout(view: &View<'_>, address: &str, from: Timestamp, to: Timestamp) -> bool {
    was_running(view, address, from, to, false) || held_throughout(view, address, from, to, |member| member.stopped)
}

fn begins_to_fall_behind(view: &View<'_>, address: &str, from: Timestamp, to: Timestamp) -> bool {
    let changes: Vec<&EtcdMember> = view.record.members.iter().filter(|m| m.address == address).collect();
    let begins = |two: &[&EtcdMember]| {
        let (before, after) = (two[0], two[1]);
        let has_other_fault = after.stopped || after.alarm;
        (from..=to).contains(&after.at) && after.behind && !before.behind && !has_other_fault
    };
    changes.windows(2).any(begins)
}

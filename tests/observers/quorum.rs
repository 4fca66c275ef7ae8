//! The quorum of etcd (I46), judged by the events of machines and members.

use cketerm::model::policy::EtcdMembers;
use jiff::Timestamp;

use super::{
    record::{Breach, EtcdMember, What},
    view::View,
};

/// Seconds for which an answer of a member counts, and within which it may catch up.
const ANSWERS: f64 = 10.0;

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
    let steps = cordons(view).into_iter().chain(takes_down(view));
    let found = steps.filter_map(|step| {
        let unwell = others_unwell(view, &step)?;
        let what = format!("{}, a voting member of etcd, while others are not well: {}", step.what, unwell.join(", "));
        Some(Breach { code: "I46", at: step.at, what })
    });
    found.collect()
}

/// Nodes of member hosts that an engine makes unschedulable.
fn cordons<'v>(view: &'v View<'_>) -> Vec<Step<'v>> {
    let cordons = view.node_writes.iter().filter(|w| w.engine && !w.before.unschedulable && w.after.unschedulable);
    let steps = cordons.filter_map(|w| {
        let address = hosts(view).into_iter().find(|host| w.before.addresses.iter().any(|a| a == host))?;
        let what = format!("{} cordons {address}", w.asked.by);
        Some(Step { at: w.asked.at, address, engine: w.asked.by.as_str(), what })
    });
    steps.collect()
}

/// Machines of members that a command of an engine takes down, at the moment in which the command began.
fn takes_down<'v>(view: &'v View<'_>) -> Vec<Step<'v>> {
    let power = &view.record.power;
    let downs = power.iter().filter(|p| p.what == What::Down && !p.entry.is_empty());
    let steps = downs.filter_map(|down| {
        let same = |p: &&super::record::Power| {
            p.what == What::Begin && p.attempt == down.attempt && p.address == down.address && p.at <= down.at
        };
        let begin = power.iter().rev().find(same)?;
        let engine = view.leading().filter(|said| said.at <= begin.at).last().map_or("", |said| said.by.as_str());
        let what = format!("{} takes {} down", down.entry, down.address);
        Some(Step { at: begin.at, address: &down.address, engine, what })
    });
    steps.collect()
}

/// The other voting members that were unhealthy all the time. None where the step is allowed.
fn others_unwell<'v>(view: &'v View<'_>, step: &Step<'_>) -> Option<Vec<&'v str>> {
    let (address, to) = (step.address, step.at);
    let from = view.back(step.engine, to, ANSWERS + view.late());
    let asked = view.policies.throughout(from, to, |policy| {
        policy.is_some_and(|p| p.etcd_members == EtcdMembers::Check && !p.allow_quorum_loss)
    });
    let voted = |address: &str| always(view, address, from, to, |member| !member.learner);
    // a member that is already down is no further loss
    if !asked || !voted(address) || sometime_down(view, address, from, to) {
        return None;
    }
    let others: Vec<&str> = hosts(view).into_iter().filter(|host| *host != address && voted(host)).collect();
    let unwell: Vec<&str> = others.iter().copied().filter(|host| unwell_throughout(view, host, from, to)).collect();
    // A member that clients do not reach counts as down where the others are a quorum without it: alarm or not, they vote.
    let unreachable = !always(view, address, from, to, |member| !member.unreachable);
    let vote = others.iter().filter(|host| !silent_throughout(view, host, from, to)).count();
    (!unwell.is_empty() && !(unreachable && vote * 2 > others.len() + 1)).then_some(unwell)
}

fn hosts<'v>(view: &'v View<'_>) -> Vec<&'v str> {
    let mut all: Vec<&str> = view.record.members.iter().map(|m| m.address.as_str()).collect();
    all.sort_unstable();
    all.dedup();
    all
}

/// Reports whether a condition held for a member from `from` to `to`, without a break.
fn always(view: &View<'_>, address: &str, from: Timestamp, to: Timestamp, so: impl Fn(&EtcdMember) -> bool) -> bool {
    let changes = || view.record.members.iter().filter(|m| m.address == address);
    let before = changes().rfind(|m| m.at < from);
    before.is_some_and(&so) && changes().filter(|m| m.at >= from && m.at <= to).all(so)
}

/// Reports whether its machine ran (or did not run) all the time, by the machine's own log.
fn ran(view: &View<'_>, address: &str, from: Timestamp, to: Timestamp, running: bool) -> bool {
    let log = || {
        let log = view.record.power.iter().filter(|p| p.address == address);
        log.filter_map(|p| match p.what {
            What::Down => Some((p.at, false)),
            What::Up => Some((p.at, true)),
            What::Begin | What::End(_) => None,
        })
    };
    let before = log().rfind(|(at, _)| *at < from).is_none_or(|(_, up)| up);
    before == running && log().filter(|(at, _)| *at >= from && *at <= to).all(|(_, up)| up == running)
}

fn sometime_down(view: &View<'_>, address: &str, from: Timestamp, to: Timestamp) -> bool {
    !ran(view, address, from, to, true) || !always(view, address, from, to, |member| !member.stopped)
}

/// Reports whether, without a break, its machine was off, or it was stopped, behind or had an alarm. The moment in
/// which a member begins to fall behind is a break: it has applied all commits until then.
fn unwell_throughout(view: &View<'_>, address: &str, from: Timestamp, to: Timestamp) -> bool {
    let trouble = |member: &EtcdMember| member.stopped || member.behind || member.alarm;
    ran(view, address, from, to, false)
        || (always(view, address, from, to, trouble) && !begins_to_fall_behind(view, address, from, to))
}

/// Without a break: its machine was off, or it was stopped.
fn silent_throughout(view: &View<'_>, address: &str, from: Timestamp, to: Timestamp) -> bool {
    ran(view, address, from, to, false) || always(view, address, from, to, |member| member.stopped)
}

fn begins_to_fall_behind(view: &View<'_>, address: &str, from: Timestamp, to: Timestamp) -> bool {
    let changes: Vec<&EtcdMember> = view.record.members.iter().filter(|m| m.address == address).collect();
    let begins = |two: &[&EtcdMember]| {
        let (before, after) = (two[0], two[1]);
        let hides_it = after.stopped || after.alarm;
        (from..=to).contains(&after.at) && after.behind && !before.behind && !hides_it
    };
    changes.windows(2).any(begins)
}

//! The quorum of etcd (I46), judged by what the machines and their members went through.

use cketerm::model::policy::EtcdMembers;
use jiff::Timestamp;

use super::{
    record::{Breach, EtcdMember, What},
    view::View,
};

/// Seconds for which an answer of a member counts, and within which it may catch up.
const ANSWERS: f64 = 10.0;

/// I46: where the members are asked, no command of ours takes a machine down whose member votes, unless the voting members
/// that were well at some moment shortly before would be a quorum without it. A quorum of which more than one is missing
/// already has nothing to lose.
pub fn i46(view: &View<'_>) -> Vec<Breach> {
    let record = view.record;
    let mut found = Vec::new();
    let downs = record.power.iter().filter(|p| p.what == What::Down && !p.entry.is_empty());
    for down in downs.filter(|p| record.members.iter().any(|m| m.address == p.address)) {
        let same = |p: &&super::record::Power| {
            p.what == What::Begin && p.attempt == down.attempt && p.address == down.address && p.at <= down.at
        };
        let Some(begin) = record.power.iter().rev().find(same) else { continue };
        let engine = view.leading().filter(|said| said.at <= begin.at).last().map_or("", |said| said.by.as_str());
        let from = view.back(engine, begin.at, ANSWERS + view.late());
        let asked = view.policies.throughout(from, begin.at, |policy| {
            policy.is_some_and(|p| p.etcd_members == EtcdMembers::Check && !p.allow_quorum_loss)
        });
        let voted = |address: &str| always(view, address, from, begin.at, |member| !member.learner);
        if !asked || !voted(&down.address) || sometime_down(view, &down.address, from, begin.at) {
            continue;
        }
        let hosts = || hosts(view).into_iter().filter(|host| *host != down.address);
        // one that was a voter for a part of the time: nobody knows what was decided from
        if hosts().any(|host| !voted(host) && !always(view, host, from, begin.at, |member| member.learner)) {
            continue;
        }
        let others: Vec<&str> = hosts().filter(|host| voted(host)).collect();
        let unwell: Vec<&str> =
            others.iter().copied().filter(|host| unwell_throughout(view, host, from, begin.at)).collect();
        let (voters, well) = (others.len() + 1, others.len() - unwell.len());
        if well * 2 <= voters {
            let what = format!(
                "{} takes {} down, a voting member of etcd, while {} of {voters} are not well: {}",
                down.entry,
                down.address,
                unwell.len(),
                unwell.join(", ")
            );
            found.push(Breach { code: "I46", at: begin.at, what });
        }
    }
    found
}

fn hosts<'v>(view: &'v View<'_>) -> Vec<&'v str> {
    let mut all: Vec<&str> = view.record.members.iter().map(|m| m.address.as_str()).collect();
    all.sort_unstable();
    all.dedup();
    all
}

/// Whether this was so of a member from `from` to `to`, without a break.
fn always(view: &View<'_>, address: &str, from: Timestamp, to: Timestamp, so: impl Fn(&EtcdMember) -> bool) -> bool {
    let changes = || view.record.members.iter().filter(|m| m.address == address);
    let before = changes().rfind(|m| m.at < from);
    before.is_some_and(&so) && changes().filter(|m| m.at >= from && m.at <= to).all(so)
}

/// Whether its machine runs, as its own log has it, all the time.
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

/// Without a break: its machine was off, or it was stopped, behind or had an alarm.
fn unwell_throughout(view: &View<'_>, address: &str, from: Timestamp, to: Timestamp) -> bool {
    let trouble = |member: &EtcdMember| member.stopped || member.behind || member.alarm;
    ran(view, address, from, to, false) || always(view, address, from, to, trouble)
}

//! Events of the machines, from their own log and not from cketerm's records, for several observers.

use std::collections::BTreeMap;

use cketerm_model::cketerm_records::Verb;
use jiff::Timestamp;

use super::{
    record::{Breach, Power, PowerEvent},
    view::{View, member, shift},
};

/// Returns the index in an entry's name as the log has it: `reboots/3`.
pub fn index(entry: &str) -> Option<u64> {
    entry.strip_prefix("reboots/")?.parse().ok()
}

/// Power commands of the reboot queue, in the order in which they began.
pub fn begins<'r>(view: &View<'r>) -> impl Iterator<Item = (u64, &'r Power)> {
    let log = view.record.power.iter().filter(|p| p.what == PowerEvent::Begin);
    log.filter_map(|p| Some((index(&p.entry)?, p)))
}

/// End of the command that began with this line, if it ended.
pub fn ended<'r>(view: &View<'r>, begin: &Power) -> Option<&'r Power> {
    let from = view.record.power.partition_point(|p| p.at < begin.at);
    let after = view.record.power[from..].iter().skip_while(|p| !is_same(p, begin)).skip(1);
    let mut same_attempt = after.filter(|p| p.address == begin.address && p.attempt == begin.attempt);
    same_attempt.find(|p| matches!(p.what, PowerEvent::End(_)))
}

fn is_same(a: &Power, b: &Power) -> bool {
    std::ptr::eq(a, b)
}

/// Addresses on which the command of a deleted or cancelled entry still runs within its bound.
pub fn running<'v>(view: &'v View<'_>, at: Timestamp, revision: i64) -> Vec<&'v str> {
    let mut all = Vec::new();
    for (i, power) in begins(view).filter(|(_, p)| p.at < at) {
        let Some((_, line)) = view.attempt(i, &power.attempt) else { continue };
        let Some(attempt) = line.get(revision).filter(|a| a.open()) else { continue };
        #[allow(clippy::cast_precision_loss)] // seconds
        let bound = attempt.bound_seconds as f64;
        let over = ended(view, power).is_some_and(|end| end.at <= at) || shift(power.at, bound) <= at;
        if !over && !super::view::in_progress(view.entries.get(&i).and_then(|l| l.get(revision))) {
            all.push(attempt.address.as_str());
        }
    }
    all
}

/// One API server that a command of cketerm has disturbed.
struct DisturbedServer<'r> {
    index: u64,
    begin: &'r Power,
    runs: bool,
    down: bool,
}

/// I1 by the machines' own log; see `queue::i1`.
pub fn two_api_servers(view: &View<'_>) -> Vec<Breach> {
    let mut found = Vec::new();
    let mut disturbed: BTreeMap<&str, DisturbedServer<'_>> = BTreeMap::new();
    for power in &view.record.power {
        let address = power.address.as_str();
        match (power.what, index(&power.entry)) {
            (PowerEvent::Begin, Some(index)) => {
                if api_server(view, address, power.at) {
                    for (other, state) in &disturbed {
                        if *other != address && (state.runs || state.down) && !is_settled(view, other, state, power.at)
                        {
                            let how = if state.runs { "its command runs" } else { "it is not back" };
                            let what = format!(
                                "power command of {} on API server {address} while {other} is disturbed by reboots/{}: {how}",
                                power.entry, state.index
                            );
                            found.push(Breach { code: "I1", at: power.at, what });
                        }
                    }
                }
                disturbed.insert(address, DisturbedServer { index, begin: power, runs: true, down: false });
            }
            (PowerEvent::End(_), Some(_)) => {
                if let Some(state) = disturbed.get_mut(address).filter(|s| s.begin.attempt == power.attempt) {
                    state.runs = false;
                }
            }
            (PowerEvent::Down, Some(_)) => {
                if let Some(state) = disturbed.get_mut(address) {
                    state.down = true;
                }
            }
            (PowerEvent::Up, _) => {
                if let Some(state) = disturbed.get_mut(address) {
                    state.down = false;
                }
            }
            _ => {}
        }
    }
    found
}

fn api_server(view: &View<'_>, address: &str, at: Timestamp) -> bool {
    view.clusters.at(at).and_then(|c| member(c, address)).is_some_and(|m| m.control_plane)
}

/// Reports whether a person has handled the machine since, it was no API server of the definition all the time, or its
/// command must have ended.
fn is_settled(view: &View<'_>, address: &str, state: &DisturbedServer<'_>, at: Timestamp) -> bool {
    let from = state.begin.at;
    let member_all_along =
        view.clusters.throughout(from, at, |c| c.and_then(|c| member(c, address)).is_some_and(|m| m.control_plane));
    let ordered = view
        .orders
        .get(&state.index)
        .is_some_and(|o| o.sometime(from, at, |o| o.is_some_and(|o| matches!(o.verb, Verb::Done | Verb::Uncordon))));
    let name = view.clusters.at(at).and_then(|c| member(c, address)).map(cketerm_model::cluster::Node::node_name);
    let manually = name.is_none_or(|name| view.released_manually(&name, from, at));
    let bound = view.attempt(state.index, &state.begin.attempt).and_then(|(_, l)| l.steps().first()?.value.as_ref());
    #[allow(clippy::cast_precision_loss)] // seconds
    let over = bound.is_some_and(|a| shift(from, a.bound_seconds as f64) <= at) && !state.down;
    !member_all_along || ordered || manually || over
}

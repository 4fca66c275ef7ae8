//! Gates of the site for new reboots (I72).

use jiff::Timestamp;

use super::{
    record::{Breach, GateQuery},
    view::{EntryChange, View, shift},
};

/// Seconds by which an answer may be older than the policy allows: it is measured by another clock.
const CLOCKS: f64 = 1.0;

/// Time since which the leader of this revision has led.
fn led_since(view: &View<'_>, revision: i64) -> Option<Timestamp> {
    let leader = view.leader(revision)?;
    let before = view.candidates.iter().take_while(|candidate| candidate.created < leader.created);
    let free = before.filter_map(|candidate| candidate.deleted).map(|(_, at)| at).max();
    Some(free.map_or(leader.from, |free| free.max(leader.from)))
}

/// I72, at each start of a reboot by an engine, by the policy in the revision before, which its transaction compares:
/// at some moment since the decision, each gate was open by the newest answer that the engine had got in this
/// leadership, and the request for that was not older than two intervals and a timeout. A request without an answer
/// counts as an error once it has timed out.
pub fn i72(view: &View<'_>) -> Vec<Breach> {
    let Some(queries) = &view.record.gate_queries else { return Vec::new() };
    let mut found = Vec::new();
    for start in view.entry_changes().into_iter().filter(EntryChange::starts) {
        let policy = view.policies.before(start.revision);
        let Some(settings) = policy.and_then(|policy| policy.start_gates.as_ref()) else { continue };
        let (Some(txn), Some(since)) = (view.txn(start.revision), led_since(view, start.revision)) else { continue };
        let timeout = f64::from(u32::try_from(settings.timeout_seconds).unwrap_or(u32::MAX));
        let known: Vec<(Timestamp, &GateQuery)> = queries
            .iter()
            .filter(|query| query.by == txn.by && query.at >= since)
            .map(|query| (query.answered.unwrap_or_else(|| shift(query.at, timeout)), query))
            .collect();
        let closed = |at: Timestamp| {
            settings.gates().into_iter().find_map(|(gate, expression)| {
                let mut own = known.iter().filter(|(known, query)| *known <= at && query.expression == expression);
                let Some((_, newest)) = own.next_back() else { return Some(format!("{gate} has no answer")) };
                if !newest.empty {
                    return Some(format!("{gate} was closed by the answer to the request at {}", newest.at));
                }
                let too_old = shift(newest.at, settings.max_age().get() + CLOCKS) < at;
                too_old.then(|| format!("the last answer of {gate} is of {}", newest.at))
            })
        };
        let from = view.back(&txn.by, start.at, view.late());
        let answers = known.iter().map(|(known, _)| *known).filter(|known| *known > from && *known < start.at);
        if [from, start.at].into_iter().chain(answers).all(|at| closed(at).is_some()) {
            let why = closed(start.at).unwrap_or_default();
            let what = format!("reboots/{} starts although {why}", start.index);
            found.push(Breach { code: "I72", at: start.at, what });
        }
    }
    found
}

//! Reboots by the agents of nodes (I60 to I63).

use std::collections::BTreeSet;

use cketerm_model::{
    agent::{Answer, Order},
    cketerm_records::EndKind,
};

use super::{
    power_log,
    record::{AgentReboot, Breach, PowerEvent},
    view::{Node, Step, Timeline, View, member},
};

/// Seconds by which the reboot may be noted after the deadline.
const ALLOWANCE: f64 = 1.0;
/// Seconds from which a clock counts as wrong. Deadlines mean nothing to it.
const WRONG_CLOCK: i64 = 5;

/// Reboots that honest agents requested.
fn honest<'v>(view: &'v View<'_>) -> impl Iterator<Item = &'v AgentReboot> {
    view.record.agent_reboots.iter().flatten().filter(|reboot| reboot.honest)
}

/// I60: an honest agent requests at most one reboot for each order, and for each attempt in one boot.
pub fn i60(view: &View<'_>) -> Vec<Breach> {
    let (mut found, mut orders, mut attempts) = (Vec::new(), BTreeSet::new(), BTreeSet::new());
    for reboot in honest(view) {
        let AgentReboot { node, boot_id, order_id, attempt, .. } = reboot;
        let mut breach = |what: String| found.push(Breach { code: "I60", at: reboot.at, what });
        if !orders.insert(order_id) {
            breach(format!("the agent of {node} reboots again for order {order_id}"));
        }
        if !attempts.insert((node, boot_id, attempt)) {
            breach(format!("the agent of {node} reboots again for attempt {attempt} in boot {boot_id}"));
        }
    }
    found
}

/// Returns the first state of the Node in which its agent obeys this order.
fn obeyed<'v>(line: &'v Timeline<Node>, order_id: &str) -> Option<(&'v Step<Node>, Answer)> {
    line.steps().iter().find_map(|step| {
        let answer = step.value.as_ref()?.agent.answer()?;
        (answer.obeyed && answer.order_id == order_id).then_some((step, answer))
    })
}

fn order_in(step: &Step<Node>) -> Option<Order> {
    step.value.as_ref()?.agent.order()?.ok()
}

/// I61, at each reboot that an honest agent requests: it has answered that it obeys an order. When it answered, the order
/// was on its Node, for this boot, and its deadline has not passed yet.
///
/// Not covered: deadlines, where the clock of the machine is wrong.
pub fn i61(view: &View<'_>) -> Vec<Breach> {
    let mut found = Vec::new();
    for reboot in honest(view) {
        let AgentReboot { node, boot_id, order_id, .. } = reboot;
        let mut breach = |what: String| found.push(Breach { code: "I61", at: reboot.at, what });
        let answered = view.nodes.get(node).and_then(|line| obeyed(line, order_id));
        let Some((step, _)) = answered.filter(|(step, _)| step.at <= reboot.at) else {
            breach(format!("the agent of {node} reboots without an answer to order {order_id:?}"));
            continue;
        };
        let Some(order) = order_in(step).filter(|order| order.id == *order_id) else {
            breach(format!("the agent of {node} obeys order {order_id}, which was withdrawn"));
            continue;
        };
        if order.boot_id != *boot_id {
            breach(format!("the agent of {node} obeys order {order_id} for boot {} in {boot_id}", order.boot_id));
        }
        let late = reboot.at.duration_since(order.deadline).as_secs_f64();
        if late > ALLOWANCE && reboot.clock_error.abs() <= WRONG_CLOCK {
            breach(format!("the agent of {node} reboots for order {order_id} {late:.0} s after its deadline"));
        }
    }
    found
}

/// I62, where agents reboot the machines, at the end of each entry as booted: the kubelet reports another boot id than
/// the one that the drain recorded.
pub fn i62(view: &View<'_>) -> Vec<Breach> {
    if view.record.agent_reboots.is_none() {
        return Vec::new();
    }
    let mut found = Vec::new();
    for change in view.entry_changes().into_iter().filter(|change| change.after.is_none() && change.engine) {
        let (index, at) = (change.index, change.at);
        let ending = view.endings.get(&index).and_then(|line| line.get(change.revision));
        let (Some(Ok(entry)), Some(EndKind::Booted)) = (change.before, ending.map(|ending| ending.end)) else {
            continue;
        };
        let node = view.clusters.get(change.revision).and_then(|cluster| member(cluster, &entry.node));
        let Some(line) = node.and_then(|node| view.nodes.get(node.node_name().as_str())) else { continue };
        let before = line.steps().iter().rev().skip_while(|step| step.at > at);
        let mut owners = before.filter_map(|step| step.value.as_ref().filter(|node| node.owned_by(index))?.owner());
        let Some(boot_id) = owners.next().map(|owner| &owner.boot_id).filter(|id| !id.is_empty()) else { continue };
        if line.at(at).is_some_and(|node| node.boot_id == *boot_id) {
            let what =
                format!("reboots/{index} of {} ends as booted in boot {boot_id}, as before its drain", entry.node);
            found.push(Breach { code: "I62", at, what });
        }
    }
    found
}

/// I63, where agents reboot the machines, at each reboot command that succeeds: the agent has answered that it obeys the
/// command's own order, or the kubelet reports another boot id.
pub fn i63(view: &View<'_>) -> Vec<Breach> {
    if view.record.agent_reboots.is_none() {
        return Vec::new();
    }
    let mut found = Vec::new();
    for (index, begin) in power_log::begins(view) {
        let Some(end) = power_log::ended(view, begin).filter(|end| end.what == PowerEvent::End(Some(0))) else {
            continue;
        };
        let mut breach = |what: String| found.push(Breach { code: "I63", at: end.at, what });
        let is_of = |step: &&Step<Node>| step.value.as_ref().is_some_and(|n| n.addresses.contains(&begin.address));
        let Some(line) = view.nodes.values().find(|line| line.steps().iter().any(|step| is_of(&step))) else {
            continue;
        };
        let during = || line.steps().iter().filter(|step| (begin.at..=end.at).contains(&step.at));
        let own = during().filter_map(order_in).rfind(|order| order.attempt == begin.attempt);
        let Some(order) = own else {
            breach(format!("the command of reboots/{index} succeeds without an order to {}", begin.address));
            continue;
        };
        let is_obeyed = |step: &Step<Node>| {
            let node = step.value.as_ref();
            let answer = node.and_then(|node| node.agent.answer());
            answer.is_some_and(|a| a.obeyed && a.order_id == order.id && a.boot_id == order.boot_id)
                || node.is_some_and(|node| node.boot_id != order.boot_id)
        };
        if !during().any(is_obeyed) {
            breach(format!("the command of reboots/{index} succeeds, but nobody obeyed its order {}", order.id));
        }
    }
    found
}

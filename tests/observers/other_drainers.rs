//! Other programs that drain Nodes beside cketerm (I59).

use super::{
    power_log,
    record::Breach,
    view::{View, shift},
};

/// Time for which a sign may have been on a Node without an engine that has just read the Node: the fresh read before a
/// command is valid for TTL/12.
const READ_AGE: f64 = 15.0;

/// I59, at each patch by an engine that cordons or uncordons a Node: no sign of another program was on the Node. The
/// patch carries the resourceVersion, so the engine had seen that state.
///
/// And at each power command: no sign was on the Node without a break for as long as a fresh read may be old.
///
/// Not covered: an uncordon that an operator ordered.
pub fn i59(view: &View<'_>) -> Vec<Breach> {
    let mut found = Vec::new();
    for write in view.node_writes.iter().filter(|write| write.engine && write.before.drained_by_other) {
        let what = match (write.before.unschedulable, write.after.unschedulable) {
            (false, true) => "cordoned",
            (true, false) => "uncordoned",
            _ => continue,
        };
        let what = format!("node {} is {what} by {} while another program works on it", write.name, write.request.by);
        found.push(Breach { code: "I59", at: write.request.at, what });
    }
    for (index, power) in power_log::begins(view) {
        let from = shift(power.at, -READ_AGE);
        let mut nodes = view.nodes.iter().filter(|(_, line)| {
            line.throughout(from, power.at, |node| {
                node.is_some_and(|node| node.drained_by_other && node.addresses.contains(&power.address))
            })
        });
        if let Some((name, _)) = nodes.next() {
            let what = format!("the command of reboots/{index} begins on {name}, on which another program works");
            found.push(Breach { code: "I59", at: power.at, what });
        }
    }
    found
}

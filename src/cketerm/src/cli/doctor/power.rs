//! Check of the ways to switch machines: a login at each, as `power test --all` does. Switches nothing.

use cketerm_model::{cluster::Cluster, names::Address};
use cketerm_rules::{
    doctor::{Checks, Subject},
    snapshot::BmcAccess,
};

use crate::cli::{
    Context,
    power::test::{Tested, test_all},
};

/// Largest number of machines that are named.
const MAX_NAMED: usize = 5;
/// Number of machines from which the progress is worth a message.
const MANY: usize = 20;

/// Adds the checks of all members, if the definition reboots them with `cketerm power`.
pub(super) async fn add(cluster: &Cluster, context: &Context, found: &mut Checks) {
    const SUBJECT: Subject = Subject::Power;
    let uses_drivers = cluster.reboot.reboot_command.iter().any(|command| BmcAccess::concerns(command));
    if !uses_drivers || cluster.nodes.is_empty() {
        return;
    }
    let machines: Vec<Address> = cluster.nodes.iter().map(|node| node.address.clone()).collect();
    let all = machines.len();
    if all > MANY {
        context.print_message(&format!("logging in to the power drivers of {all} machines; nothing is switched"));
    }
    let failures: Vec<String> = test_all(machines, context).await.iter().filter_map(Tested::failure).collect();
    for failure in failures.iter().take(MAX_NAMED) {
        found.failed(SUBJECT, failure.clone(), "docs/power.md; `cketerm power test NODE` tries one machine");
    }
    if failures.len() > MAX_NAMED {
        let more = failures.len() - MAX_NAMED;
        found.failed(SUBJECT, format!("{more} more machines"), "`cketerm power test --all` names them");
    }
    if failures.len() < all {
        found.good(SUBJECT, format!("{} of {all} machines could be rebooted now", all - failures.len()));
    }
}

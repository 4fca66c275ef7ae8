//! `rq needed`, and `rq add --needed`: Nodes that need a reboot.

use std::collections::BTreeMap;

use cketerm_actions::{ActionError, Operator};
use cketerm_clients::kubernetes::Kube;
use cketerm_model::{
    acceptance::LeaderKind, kube::KubeView, names::Address, policy::RebootNeeded, stored::view::StoreView,
};
use cketerm_rules::reboot_needed::{
    list::{Row, State, list as rows_of},
    queue::wait,
    signals::ShownSignals,
};
use jiff::Timestamp;

use super::{Context, options::Output, output::columns};

/// Prints the Nodes that need a reboot.
pub async fn list(context: &Context) -> Result<(), ActionError> {
    let kube = context.kube("rq needed").await?;
    let store = context.store().await?;
    let view = store.read_view().await?;
    let rows = read(&view, &kube, store.clock().wall()).await?;
    print_notes(&view, store.clock().wall(), context);
    match context.output(Output::Table) {
        Output::Table => {
            let cells: Vec<Vec<String>> = rows.iter().map(cells).collect();
            context.out.text(columns(&["Node", "Address", "Cause", "Since", "State"], &cells))
        }
        form => context.out.value(&rows, form),
    }
}

/// Returns the machines whose reboots can be queued, by cause; of one cause, if it is given.
pub async fn proposed(cause: &str, operator: &Operator) -> Result<BTreeMap<String, Vec<Address>>, ActionError> {
    let kube = operator.kube.as_ref().ok_or_else(|| {
        ActionError::misused("rq add --needed needs Kubernetes, which is not configured or does not answer")
    })?;
    let view = operator.store.read_view().await?;
    if view.policy().reboot_needed == RebootNeeded::Off {
        return Err(ActionError::refused(OFF));
    }
    let rows = read(&view, kube, operator.store.clock().wall()).await?;
    let mut all: BTreeMap<String, Vec<Address>> = BTreeMap::new();
    // without a cause, somebody's stop and what may be in vain are not overruled
    let is_chosen = |row: &Row| {
        if cause.is_empty() { row.state == State::Proposed } else { row.is_proposed() && row.cause == cause }
    };
    for row in rows.into_iter().filter(is_chosen) {
        if let Some(address) = row.address {
            all.entry(row.cause).or_default().push(address);
        }
    }
    if all.is_empty() {
        let of = if cause.is_empty() { String::new() } else { format!(" because of {cause:?}") };
        return Err(ActionError::failed(format!("no reboot is proposed{of}: see `cketerm rq needed`")));
    }
    Ok(all)
}

const OFF: &str = "the policy `reboot_needed` is off: nobody looks; `cketerm policy set reboot_needed propose`";

async fn read(view: &StoreView, kube: &Kube, now: Timestamp) -> Result<Vec<Row>, ActionError> {
    let nodes = kube.nodes().await.map_err(|e| ActionError::failed(format!("the Nodes are not known: {e}")))?;
    let mut all = KubeView::default();
    for node in nodes {
        all.put_node(node);
    }
    Ok(rows_of(view, &all, &ShownSignals::of(&view.policy(), &all), now))
}

/// Prints the reason why nothing is recorded, shown or queued.
fn print_notes(view: &StoreView, now: Timestamp, context: &Context) {
    let leadership = view.leadership();
    if view.policy().reboot_needed == RebootNeeded::Off {
        context.print_message(OFF);
    } else if leadership.lead != LeaderKind::Cketerm {
        context.print_message(&format!(
            "{}: nothing is recorded or queued by itself; this is what the Nodes show now",
            leadership.message
        ));
    } else if view.policy().reboot_needed == RebootNeeded::Queue
        && let Some(wait) = wait(view, &view.policy(), now)
    {
        context.print_message(&format!("the leader queues none by itself now: {wait}"));
    }
}

fn cells(row: &Row) -> Vec<String> {
    let state = match &row.state {
        State::Proposed => "proposed".to_owned(),
        State::Queued { entry } => format!("queued as {entry}"),
        State::NotAgain { index } => {
            format!("was queued as {index}, which ended without a reboot: queue it yourself")
        }
        State::SoonAgain { index, at } => {
            format!("proposed; the leader queued {index} for this machine at {at}, and waits a day")
        }
        State::Stopped { batch } => format!("proposed; batch {batch} of this cause was paused or cancelled"),
        State::InVain { machines } => {
            format!("proposed; the leader waits: still set on {machines} machines after their reboot")
        }
        State::Rebooted { at } => format!("rebooted at {at}; the signal is expected to go"),
        State::StillSet { at, index } => {
            let of = index.map(|index| format!(" of entry {index}")).unwrap_or_default();
            format!("STILL SET after the reboot{of} at {at}: see what sets it")
        }
        State::NotMember => "not in the cluster definition".to_owned(),
    };
    let since = row.since.map_or_else(|| "–".to_owned(), |since| since.to_string());
    let address = row.address.as_ref().map_or("–", |address| address.as_str()).to_owned();
    vec![row.node.to_string(), address, row.cause.clone(), since, state]
}

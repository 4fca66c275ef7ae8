//! `membership`: the definition that follows the Nodes of Kubernetes.

use std::sync::Arc;

use cketerm_actions::ActionError;
use cketerm_model::policy::Membership;
use cketerm_rules::{
    membership::list::{Row, State, list},
    seen::Seen,
};
use clap::Subcommand;
use jiff::Timestamp;

use super::{
    Context,
    diff::{Pending, approve_change, print_change},
    observe::read_complete,
    options::{Output, Reason},
    output::columns,
};
use crate::backends::connect;

/// Subcommands of `membership`.
#[derive(Debug, Subcommand)]
pub enum MembershipCommand {
    /// List members and Nodes: who is a member, what shows a control plane, who joins or leaves, and why not
    List,
    /// Compare the definition in force with the Nodes; writes nothing
    Diff,
    /// Approve the pending change of the definition, for an hour and only as it is now
    Approve {
        /// Approve only this digest, as printed by `membership diff`
        digest: Option<String>,
        #[command(flatten)]
        #[allow(missing_docs)]
        reason: Reason,
    },
    /// Stop applying changes of the definition
    Hold(Reason),
    /// Continue applying changes of the definition
    Unhold(Reason),
}

/// Runs a subcommand.
pub async fn run(command: MembershipCommand, context: &Context) -> Result<(), ActionError> {
    match command {
        MembershipCommand::List => {
            let (seen, now) = look(context).await?;
            print_list(&seen, now, context)
        }
        MembershipCommand::Diff => {
            let (seen, now) = look(context).await?;
            let pending = pending(&seen, now)?;
            print_change(pending.view, &pending.proposed, &pending.applying, now, context)
        }
        MembershipCommand::Approve { digest, reason } => {
            let (seen, now) = look(context).await?;
            Box::pin(approve_change(&pending(&seen, now)?, digest.as_deref(), reason.get(), context)).await
        }
        MembershipCommand::Hold(reason) => context.operator().await?.hold_registry(true, None, reason.get()).await,
        MembershipCommand::Unhold(reason) => context.operator().await?.hold_registry(false, None, reason.get()).await,
    }
}

/// Reads etcd and Kubernetes as an engine that only observes does. Refused unless the definition follows the Nodes.
async fn look(context: &Context) -> Result<(Arc<Seen>, Timestamp), ActionError> {
    let store = context.store().await?;
    let policy = store.read_view().await?.policy();
    if policy.membership != Membership::Nodes {
        return Err(ActionError::refused(
            "the definition does not follow the Nodes: `cketerm policy set membership nodes` changes that; members now: \
             `cketerm cluster get`",
        ));
    }
    if context.settings.kube.is_none() {
        return Err(ActionError::misused("this needs Kubernetes: give --kubeconfig FILE"));
    }
    let backends = connect(&context.settings).await.map_err(|e| ActionError::failed(format!("{e:#}")))?;
    let seen = read_complete(&backends, context).await;
    Ok((seen, store.clock().wall()))
}

fn pending(seen: &Seen, now: Timestamp) -> Result<Pending<'_>, ActionError> {
    let proposal = seen.snapshot.registry.proposal.as_ref();
    let proposal = proposal.ok_or_else(|| ActionError::failed("the Nodes were not read: try again"))?;
    let proposed = proposal.outcome.clone().map_err(ActionError::failed)?;
    Ok(Pending { view: &seen.snapshot.store, proposed, applying: (*seen.applying).clone(), now })
}

fn print_list(seen: &Seen, now: Timestamp, context: &Context) -> Result<(), ActionError> {
    let snap = &seen.snapshot;
    let rows = list(&snap.store, &snap.kube, now).ok_or_else(|| {
        ActionError::failed("the Nodes are not known, or the definition cannot be read: see `cketerm info`")
    })?;
    match context.output(Output::Table) {
        Output::Table => {
            let cells: Vec<Vec<String>> = rows.iter().map(|row| cells(row, now)).collect();
            context.out.text(columns(&["Node", "Address", "Role", "State", "Control plane by"], &cells))
        }
        form => context.out.value(&rows, form),
    }
}

fn cells(row: &Row, now: Timestamp) -> Vec<String> {
    let role = if row.control_plane { "control plane" } else { "worker" };
    let state = match &row.state {
        State::Member => "member".to_owned(),
        State::Joins => "joins".to_owned(),
        State::NotJoined { why } => why.clone(),
        State::NotPicked => "no member: node_selector does not pick it".to_owned(),
        State::Absent { in_work: true, .. } => "no Node; stays while its entry is in work".to_owned(),
        State::Absent { leaves_at: None, .. } => "no Node; not recorded yet".to_owned(),
        State::Absent { leaves_at: Some(at), .. } if *at <= now => "no Node; leaves with the next change".to_owned(),
        State::Absent { leaves_at: Some(at), .. } => format!("no Node; leaves at {at}"),
    };
    let mut by = Vec::new();
    if let Some(signals) = row.signals {
        let sources =
            [("label", Some(signals.label)), ("endpoint", signals.endpoint), ("static Pod", signals.static_pod)];
        by.extend(sources.iter().filter(|(_, shows)| *shows == Some(true)).map(|(name, _)| (*name).to_owned()));
        by.extend(sources.iter().filter(|(_, shows)| shows.is_none()).map(|(name, _)| format!("{name} unknown")));
        if signals.disagree() {
            by.push("SOURCES DISAGREE".to_owned());
        }
    }
    let by = if by.is_empty() { "–".to_owned() } else { by.join(", ") };
    let address = row.address.as_ref().map_or("–", |address| address.as_str()).to_owned();
    vec![row.node.to_string(), address, role.to_owned(), state, by]
}

//! Checks of the definition: its faults, its programs, its power drivers, and its members beside the Nodes.

use cketerm_model::{
    cluster::check,
    entry::Stored,
    kube::ControlPlaneSignals,
    policy::{MemberSource, Membership},
    stored::view::StoreView,
};

use super::{Checks, Subject, named};
use crate::{
    decide::ApplyState,
    membership::list::{State, list},
    seen::Seen,
    snapshot::Snapshot,
};

/// Adds the faults of the stored definition.
pub(super) fn definition(store: &StoreView, checks: &mut Checks) {
    const SUBJECT: Subject = Subject::Definition;
    if let Some(Err(why)) = store.constraints.as_ref().map(|stored| &stored.value) {
        checks.failed(
            SUBJECT,
            format!("the constraints cannot be read: {why}"),
            "set them again: `cketerm constraints set`",
        );
    }
    let Some(stored) = &store.cluster else {
        checks.failed(
            SUBJECT,
            "none is stored, so nothing can be queued",
            "run `cketerm init`, or `cketerm cluster set FILE`",
        );
        return;
    };
    let definition = match &stored.value {
        Ok(definition) => definition,
        Err(why) => {
            checks.failed(SUBJECT, format!("it cannot be read: {why}"), "set it again: `cketerm cluster set FILE`");
            return;
        }
    };
    let cluster = &definition.cluster;
    let value = serde_json::to_value(cluster).unwrap_or_default();
    let constraints = store.constraints();
    // control planes that follow the Nodes come and go without the constraint
    let counts = match store.member_source() {
        MemberSource::Nodes => None,
        MemberSource::Operators | MemberSource::Sabakan => Some(&*constraints),
    };
    let found = check(&value, counts);
    for fault in &found.faults {
        checks.failed(SUBJECT, fault.to_string(), "correct it: `cketerm cluster get`, then `cketerm cluster set FILE`");
    }
    for (name, command) in
        [("reboot_command", &cluster.reboot.reboot_command), ("boot_check_command", &cluster.reboot.boot_check_command)]
    {
        if command.as_ref().is_none_or(Vec::is_empty) {
            checks.failed(
                SUBJECT,
                format!("reboot.{name} is not set: no machine can be rebooted"),
                "set it in the definition; docs/power.md has drivers for Redfish, IPMI, SSH and the node agent",
            );
        }
    }
    let planes = cluster.nodes.iter().filter(|node| node.control_plane).count();
    let workers = cluster.nodes.len() - planes;
    checks.good(SUBJECT, format!("{}: {planes} control planes, {workers} workers", cluster.name));
}

/// Adds the programs of the definition that this host lacks.
pub(super) fn programs(snap: &Snapshot, checks: &mut Checks) {
    const SUBJECT: Subject = Subject::Programs;
    if let Some(why) = &snap.engine.unable {
        checks.failed(
            SUBJECT,
            format!("this host cannot start programs: {why}"),
            "raise the limits of this user or unit",
        );
    }
    let missing = &snap.engine.missing_programs;
    if !missing.is_empty() {
        checks.failed(
            SUBJECT,
            format!("this host lacks {}", named(missing)),
            "install them on every host with an engine: entries that need them wait",
        );
    } else if snap.store.definition().is_some() && snap.engine.unable.is_none() {
        checks.good(SUBJECT, "this host has every program of the definition");
    }
}

/// Adds what the machines of the definition need and the file of BMCs does not give.
pub(super) fn power(snap: &Snapshot, checks: &mut Checks) {
    let missing: Vec<String> = snap.engine.bmcs.missing_settings().iter().map(ToString::to_string).collect();
    if !missing.is_empty() {
        checks.failed(
            Subject::Power,
            format!("the file `power.bmcs` lacks {}", named(&missing)),
            "add them (docs/power.md): their machines wait until then",
        );
    }
}

/// Adds members without a Node, Nodes that are no members, and what waits for a person.
pub(super) fn membership(seen: &Seen, checks: &mut Checks) {
    const SUBJECT: Subject = Subject::Membership;
    let snap = &seen.snapshot;
    let store = &snap.store;
    if store.definition().is_none() {
        return;
    }
    if !snap.kube.synced() {
        checks.unknown(SUBJECT, "the Nodes were not read", "let the API server answer");
        return;
    }
    let follows = match store.member_source() {
        MemberSource::Nodes => true,
        MemberSource::Operators | MemberSource::Sabakan => false,
    };
    let rows = list(store, &snap.kube, seen.now.wall).unwrap_or_default();
    let (mut absent, mut new, mut unclear) = (Vec::new(), Vec::new(), Vec::new());
    let mut members = 0;
    for row in &rows {
        match &row.state {
            State::Member => {
                members += 1;
                if follows && row.signals.is_some_and(ControlPlaneSignals::disagree) {
                    unclear.push(&row.node);
                }
            }
            State::Absent { .. } => absent.push(&row.node),
            State::Joins => new.push(&row.node),
            // only a definition that follows the Nodes has to know why
            State::NotJoined { .. } if !follows => new.push(&row.node),
            State::NotJoined { why } => checks.warning_with_remedy_inside(SUBJECT, format!("{}: {why}", row.node)),
            State::NotPicked => {}
        }
    }
    if !absent.is_empty() {
        let remedy = if follows {
            "nothing to do: they leave after `node_grace_seconds`, or see `cketerm membership list`"
        } else {
            "remove them from the definition, or let it follow the Nodes: `cketerm policy set membership nodes`"
        };
        checks.warning(SUBJECT, format!("members without a Node: {}", named(&absent)), remedy);
    }
    if !new.is_empty() && !follows {
        checks.warning(
            SUBJECT,
            format!("Nodes that are no members, so they cannot be queued: {}", named(&new)),
            "add them to the definition, or let it follow the Nodes: `cketerm policy set membership nodes`",
        );
    }
    if !unclear.is_empty() {
        checks.failed(
            SUBJECT,
            format!(
                "label, endpoints and static Pods do not agree whether these are control planes: {}",
                named(&unclear)
            ),
            "set or remove the label node-role.kubernetes.io/control-plane; see `cketerm membership list`",
        );
    }
    match &*seen.applying {
        ApplyState::Approval(_, why) => checks.warning(
            SUBJECT,
            format!("a change waits for an approval: {why}"),
            if follows { "see `cketerm membership diff`" } else { "see `cketerm sabakan diff`" },
        ),
        ApplyState::Error(why) => checks.failed(SUBJECT, why.clone(), "see `cketerm membership diff`"),
        ApplyState::Off
        | ApplyState::Disabled(_)
        | ApplyState::Settled
        | ApplyState::Waits(_)
        | ApplyState::Applies => {}
    }
    if store.registry.url.as_ref().and_then(Stored::get).is_some() && store.policy().membership == Membership::Nodes {
        checks.warning(
            SUBJECT,
            "sabakan is configured, but the definition follows the Nodes",
            "choose one: `cketerm policy set membership sabakan`, or `cketerm sabakan disable`",
        );
    }
    checks.good(SUBJECT, format!("{members} of {} members have their Node", members + absent.len()));
}

//! Checks of the servers: faults of the preflight, API servers, members of etcd, the leader, the queues.

use cketerm_model::{
    acceptance::LeaderKind,
    boot_time::BootTime,
    entry::{QueueKind, Stored},
    etcd::MemberState,
    policy::EtcdMembers,
    stored::view::StoreView,
};

use super::{Checks, MAX_NAMES, Subject, named};
use crate::{decide::can_check_quorum, handover, preflight_fault::PreflightFault, seen::Seen, snapshot::Snapshot};

/// Adds the faults for which an engine with these settings only observes, and what is known good.
pub(super) fn preflight(snap: &Snapshot, with_kubernetes: bool, checks: &mut Checks) {
    for fault in &snap.engine.observing {
        let subject = subject(fault);
        let remedy = match fault {
            PreflightFault::EtcdUnread { .. } => {
                "check the endpoints and certificates under `etcd` in the configuration"
            }
            PreflightFault::SchemaUnreadable { .. } => {
                "restore the key from a backup, or delete it with etcdctl; the next engine writes it again"
            }
            PreflightFault::PolicyUnreadable { .. } => {
                "restore the key from a backup, or delete it with etcdctl; then all settings have their defaults"
            }
            PreflightFault::PolicyTooNew { .. } => "upgrade this cketerm",
            PreflightFault::IdentityUnreadable { .. } => {
                "delete the key with etcdctl, then run `cketerm cluster identify --confirm`"
            }
            PreflightFault::IdentityNotProposed => "run `cketerm cluster identify --confirm`",
            PreflightFault::IdentityUnknown | PreflightFault::RightsUnknown => {
                "let the API server answer: check `kubernetes` in the configuration"
            }
            PreflightFault::ClockWasSet { .. } => "run `cketerm doctor` again in a minute",
            PreflightFault::RightsMissing { .. } => "apply docs/rbac.yaml (in a package: /usr/share/doc/cketerm)",
            PreflightFault::SchemaTooNew { .. }
            | PreflightFault::KubernetesNotConfigured
            | PreflightFault::IdentityMismatch { .. }
            | PreflightFault::IdentityUnconfirmed { .. }
            | PreflightFault::ClockDiffers { .. } => {
                checks.failed_with_remedy_inside(subject, fault.to_string());
                continue;
            }
        };
        checks.failed(subject, fault.to_string(), remedy);
    }
    if !with_kubernetes || !snap.store.synced {
        return;
    }
    if !checks.has(Subject::Kubernetes) && snap.kube.rights_known {
        checks.good(Subject::Kubernetes, "this account has all rights of an engine");
    }
    if !checks.has(Subject::Identity)
        && let Some(uid) = &snap.kube.cluster_uid
    {
        checks.good(Subject::Identity, format!("this etcd belongs to the cluster {uid}"));
    }
    if !checks.has(Subject::Clock)
        && let Some(ahead) = snap.kube.clock_ahead
    {
        checks.good(Subject::Clock, format!("differs from the API server's by {:.0}", ahead.abs()));
    }
}

fn subject(fault: &PreflightFault) -> Subject {
    match fault {
        PreflightFault::EtcdUnread { .. }
        | PreflightFault::SchemaTooNew { .. }
        | PreflightFault::SchemaUnreadable { .. }
        | PreflightFault::PolicyUnreadable { .. }
        | PreflightFault::PolicyTooNew { .. } => Subject::Etcd,
        PreflightFault::KubernetesNotConfigured
        | PreflightFault::RightsMissing { .. }
        | PreflightFault::RightsUnknown => Subject::Kubernetes,
        PreflightFault::IdentityUnreadable { .. }
        | PreflightFault::IdentityUnknown
        | PreflightFault::IdentityNotProposed
        | PreflightFault::IdentityMismatch { .. }
        | PreflightFault::IdentityUnconfirmed { .. } => Subject::Identity,
        PreflightFault::ClockDiffers { .. } | PreflightFault::ClockWasSet { .. } => Subject::Clock,
    }
}

/// Adds the health of each API server, as the policy `control_plane_probe` checks it.
pub(super) fn control_planes(snap: &Snapshot, boot: BootTime, checks: &mut Checks) {
    const SUBJECT: Subject = Subject::ControlPlanes;
    let Some(definition) = snap.store.definition() else { return };
    let planes: Vec<_> = definition.members.control_planes(&definition.cluster).collect();
    if planes.is_empty() {
        checks.warning(
            SUBJECT,
            "the definition has none: no API server is protected, and none can be rebooted",
            "mark them with control_plane in the definition, or let it follow the Nodes (policy membership)",
        );
        return;
    }
    let policy = snap.store.policy();
    let (mut good, mut not_ready) = (Vec::new(), Vec::new());
    for plane in &planes {
        let name = plane.node_name();
        if !snap.node_of(&plane.address).is_some_and(|node| node.ready) {
            not_ready.push(name.clone());
            continue;
        }
        if policy.control_plane_probe.url().is_none() {
            good.push(name.clone());
            continue;
        }
        let probe = snap.probes.get(&plane.address);
        match probe.map(|probe| (&probe.error, &probe.not_known, probe.last_good)) {
            Some((Some(why), _, _)) => checks.failed(
                SUBJECT,
                format!("{name}: {} answers {why}", probe.map_or("", |probe| probe.url.as_str())),
                "repair it, or correct policy control_plane_probe",
            ),
            Some((None, Some(why), _)) => checks.failed_with_remedy_inside(SUBJECT, format!("{name}: {why}")),
            Some((None, None, Some(at))) if at <= boot => good.push(name.clone()),
            Some((None, None, _)) | None => {
                checks.unknown(SUBJECT, format!("{name}: no answer of its probe yet"), "run `cketerm doctor` again");
            }
        }
    }
    if !not_ready.is_empty() {
        checks.failed(
            SUBJECT,
            format!("not Ready: {}", named(&not_ready)),
            "repair them: no API server is rebooted while another one is down",
        );
    }
    if !good.is_empty() {
        let by = if policy.control_plane_probe.url().is_some() { "Ready, and its probe is good" } else { "Ready" };
        checks.good(SUBJECT, format!("{by}: {}", named(&good)));
    }
}

/// Adds whether an engine can check the members of the etcd of Kubernetes, and their last answers.
pub(super) fn etcd_members(snap: &Snapshot, checks: &mut Checks) {
    const SUBJECT: Subject = Subject::EtcdMembers;
    let Some(definition) = snap.store.definition() else { return };
    if definition.members.control_planes(&definition.cluster).next().is_none() {
        return;
    }
    match snap.store.policy().etcd_members {
        EtcdMembers::None => {
            checks.warning(
                SUBJECT,
                "not checked before a control plane goes down (policy etcd_members `none`)",
                "set `cluster_etcd` in the configuration, then run `cketerm policy set etcd_members check`",
            );
            return;
        }
        EtcdMembers::Check => {}
    }
    if let Err(why) = can_check_quorum(snap) {
        checks.failed(
            SUBJECT,
            format!("control planes will wait, because an engine here cannot check etcd's members: {why}"),
            "set `cluster_etcd` in the configuration; for an etcd that you watch yourself, run `cketerm policy set \
             etcd_members none`",
        );
        return;
    }
    let mut good = Vec::new();
    for member in snap.etcd.members.values().filter(|member| !member.learner) {
        match &member.state {
            MemberState::Answered(status) if status.errors.is_empty() => good.push(member.shown().to_owned()),
            MemberState::Answered(status) => checks.failed(
                SUBJECT,
                format!("{} reports {}", member.shown(), status.errors.join("; ")),
                "clear the alarm: control planes wait until then",
            ),
            MemberState::Silent { why, .. } => checks.failed(
                SUBJECT,
                format!("{} does not answer: {why}", member.shown()),
                "repair it: control planes wait until every other voting member is healthy",
            ),
            MemberState::Unasked => checks.unknown(
                SUBJECT,
                format!("{} has not answered yet", member.shown()),
                "run `cketerm doctor` again",
            ),
        }
    }
    if !good.is_empty() {
        checks.good(SUBJECT, format!("healthy: {}", named(&good)));
    }
    if snap.etcd.members.values().filter(|member| !member.learner).count() < 3 && !snap.store.policy().allow_quorum_loss
    {
        checks.warning(
            SUBJECT,
            "fewer than three voting members: none of their machines can be rebooted without a loss of the quorum",
            "add members; or run `cketerm policy set allow_quorum_loss true`, and Kubernetes stands still during the boot",
        );
    }
}

/// Adds who leads, and which engines lack something.
pub(super) fn leader(store: &StoreView, checks: &mut Checks) {
    const SUBJECT: Subject = Subject::Leader;
    let leadership = store.leadership();
    match leadership.lead {
        LeaderKind::Cketerm | LeaderKind::Yielding | LeaderKind::Cke => checks.good(SUBJECT, leadership.message),
        LeaderKind::Unknown => checks.failed(SUBJECT, leadership.message, "see `cketerm info`"),
        LeaderKind::Nobody => {
            checks.warning(SUBJECT, "nobody processes the queues", handover::remedy_without_leader(store));
        }
    }
    let engines: Vec<_> = store.engines.values().filter_map(Stored::get).collect();
    for engine in &engines {
        let settings = engine.missing_settings.iter().map(ToString::to_string);
        let lacks: Vec<String> =
            engine.missing_programs.iter().cloned().chain(settings).chain(engine.unable.clone()).collect();
        if !lacks.is_empty() {
            checks.failed(
                SUBJECT,
                format!("the engine on {} lacks {}", engine.host, lacks.join(", ")),
                "correct it there: `cketerm config check` and `cketerm doctor` on that host say more",
            );
        }
    }
    if engines.len() == 1 && leadership.lead == LeaderKind::Cketerm {
        checks.warning(
            SUBJECT,
            format!("only one engine runs, on {}", engines.first().map_or("", |engine| engine.host.as_str())),
            "start one on a second host (`systemctl enable --now cketerm`), so that work continues without this one",
        );
    }
}

/// Adds disabled queues and keys that cannot be read.
pub(super) fn queues(store: &StoreView, checks: &mut Checks) {
    const SUBJECT: Subject = Subject::Queues;
    for (kind, remedy) in [
        (QueueKind::Reboot, "run `cketerm reboot-queue enable`"),
        (QueueKind::Repair, "run `cketerm repair-queue enable`"),
    ] {
        if !store.switch(kind).enabled() {
            checks.warning(SUBJECT, format!("the {kind} queue is disabled"), remedy);
        }
        if let Err(why) = store.write_index(kind) {
            checks.failed(SUBJECT, format!("the next index of the {kind} queue: {why}"), "see docs/runbook.md");
        }
    }
    if store.broken.is_empty() {
        checks.good(SUBJECT, "every key can be read");
    } else {
        let keys: Vec<&String> = store.broken.keys().collect();
        checks.failed(
            SUBJECT,
            format!("keys that cannot be read: {}", named(&keys)),
            "`cketerm rq list` and the runbook say what each prevents",
        );
    }
}

/// Adds the Nodes that stay cordoned although their entry is no longer in progress.
pub(super) fn cordons(seen: &Seen, checks: &mut Checks) {
    const SUBJECT: Subject = Subject::Queues;
    for (node, reason) in seen.orphans.iter().take(MAX_NAMES) {
        let remedy = format!("docs/runbook.md; `cketerm nodes uncordon {node}` uncordons it anyway");
        checks.warning(SUBJECT, format!("Node {node} stays cordoned: {reason}"), remedy);
    }
    if let Some(more) = seen.orphans.len().checked_sub(MAX_NAMES).filter(|more| *more > 0) {
        checks.warning(SUBJECT, format!("{more} more Nodes stay cordoned"), "`cketerm nodes list` names them");
    }
}

/// Adds the Nodes on which another program has set conditions that cketerm would set.
pub(super) fn foreign_conditions(snap: &Snapshot, checks: &mut Checks) {
    if !snap.store.policy().node_conditions {
        return;
    }
    let rows = snap.kube.nodes.values();
    let foreign = rows.flat_map(|row| row.lifecycle.iter().filter(|found| !found.is_own()).map(move |f| (row, f)));
    let found: Vec<String> =
        foreign.map(|(row, f)| format!("{} on {} ({})", f.condition, row.name, f.reason)).collect();
    if !found.is_empty() {
        checks.warning(
            Subject::Kubernetes,
            format!("another program has set conditions that cketerm therefore leaves alone: {}", named(&found)),
            "let one program set them, or turn the policy node_conditions off",
        );
    }
}

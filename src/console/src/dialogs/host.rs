//! Dialogs for hosts of Metal3: reboot, hold off, on, off, release, and fencing. These actions take effect at once,
//! without queue or drain, so the cluster's name and the count have to be typed, except for a release.

use std::borrow::Cow;

use cketerm_actions::{FencedNode, HostAction};
use cketerm_model::{
    host::{HostRow, Mode},
    policy::FenceBy,
};

use super::tier;
use crate::state::{
    App, HostId, View,
    dialog::{Dialog, DialogAction, Precondition, ReasonPolicy, pick::Pick, preconditions::fingerprint},
    event::{Action, count},
    host_choice::{CKETERM_KEY, HOLD, OFF, ON, REBOOT},
    queries, short_text,
};

/// Returns the selected hosts, or the reason why there is none.
fn chosen(app: &App) -> Result<Vec<(HostId, &HostRow)>, String> {
    let ids = app.chosen_hosts();
    if ids.is_empty() && app.acting_view() != View::Hosts {
        return Err(format!("only in the Hosts view: press {}, then the key again", app.key("hosts")));
    }
    let found: Vec<(HostId, &HostRow)> =
        ids.into_iter().filter_map(|id| queries::host(&app.seen, &id).map(|host| (id.clone(), &**host))).collect();
    if found.is_empty() { Err(app.nothing_selected("host")) } else { Ok(found) }
}

fn line(app: &App, id: &HostId, host: &HostRow) -> String {
    let asked = short_text::host_requests(host);
    let asked = if asked.is_empty() { String::new() } else { format!("; already requested: {asked}") };
    let node = queries::host_node(&app.seen, id).map(|n| format!("node {}", n.name));
    let node = node.unwrap_or_else(|| "no node known".to_owned());
    short_text::safe(&format!("{} ({node}): {}{asked}", host.full_name(), short_text::host_power(host)))
}

/// Returns warnings about the nodes of these hosts: API servers, and pods that no drain evicts.
fn warnings(app: &App, hosts: &[(HostId, &HostRow)]) -> Vec<String> {
    let nodes: Vec<_> = hosts.iter().filter_map(|(id, _)| queries::host_node(&app.seen, id)).collect();
    let api = nodes.iter().filter(|node| queries::is_api_server(&app.seen, &node.name)).count();
    let mut lines = Vec::new();
    if api > 0 {
        lines.push(format!("! {} among them: queue checks do not apply here", count(api, "API server")));
    }
    let busy: Vec<&str> = nodes
        .iter()
        .filter(|n| app.knowledge.totals.entries_of(&n.name).next().is_some())
        .map(|n| n.name.as_str())
        .collect();
    if !busy.is_empty() {
        lines.push(format!("! a queue has entries of {}", busy.join(", ")));
    }
    lines.push(format!("! immediate, without a drain; {} queues a reboot that drains first", app.key("reboot")));
    lines
}

fn dialog(
    hosts: &[(HostId, &HostRow)],
    title: String,
    verb: impl Into<Cow<'static, str>>,
    action: Option<HostAction>,
) -> Dialog {
    let named = hosts.iter().map(|(_, host)| (host.full_name(), host.uid.clone())).collect();
    let mut dialog = Dialog::new(title, verb, DialogAction::Act(Action::Hosts { hosts: named, action, reason: None }));
    dialog.preconditions = hosts.iter().map(|(id, host)| Precondition::Host(id.clone(), fingerprint(host))).collect();
    dialog
}

/// Names the chosen action on the button.
pub fn follow_choice(dialog: &mut Dialog) {
    let DialogAction::Act(Action::Hosts { hosts, .. }) = &dialog.action else { return };
    let n = count(hosts.len(), "host");
    let verb = match dialog.pick.as_ref().and_then(|pick| pick.machine_type()) {
        Some(REBOOT) => format!("Reboot {n}"),
        Some(HOLD) => format!("Hold off {n}"),
        Some(OFF) => format!("Turn off {n}"),
        Some(ON) => format!("Turn on {n}"),
        _ => return,
    };
    dialog.verb = verb.into();
}

/// Opens the dialog that reboots, holds, or turns on or off.
pub fn power(app: &App) -> Result<Dialog, String> {
    Ok(power_of(app, &chosen(app)?))
}

fn power_of(app: &App, hosts: &[(HostId, &HostRow)]) -> Dialog {
    let n = count(hosts.len(), "host");
    let mut dialog = dialog(hosts, format!("Power of {n}?"), format!("Change power of {n}"), None);
    dialog.expect = tier::confirmation_text(app, "host-power", hosts.len(), 0);
    dialog.lines = warnings(app, hosts);
    for (id, host) in hosts {
        dialog.lines.push(line(app, id, host));
        if let Some(why) = host.hindrance() {
            dialog.lines.push(format!("! {why}"));
        }
    }
    let how = |soft: &str, hard: &str| {
        vec![("soft".to_owned(), vec![soft.to_owned()]), ("hard".to_owned(), vec![hard.to_owned()])]
    };
    let held = format!("held off until {} releases it", app.key("unhold"));
    let online = |what: &str| vec![("spec.online".to_owned(), vec![what.to_owned()])];
    dialog.pick = Some(Pick::from_options(
        ("action", "mode"),
        vec![
            (REBOOT.to_owned(), how("shut down, cut off when that fails, turned on", "cut off at once, turned on")),
            (HOLD.to_owned(), how(&format!("shut down and {held}"), &format!("cut off and {held}"))),
            (OFF.to_owned(), online("off, whatever other requests say (spec.online: false)")),
            (ON.to_owned(), online("on, unless somebody holds it off (spec.online: true)")),
        ],
    ));
    dialog
}

/// Opens the question of an expired dialog about hosts again, for the same hosts. `None` if one of them is gone or is
/// another host now, or if the question makes no sense any more.
pub fn again(app: &App, expired: &Dialog) -> Option<Dialog> {
    let DialogAction::Act(Action::Hosts { hosts: named, action, .. }) = &expired.action else { return None };
    let ids = expired.preconditions.iter().filter_map(|precondition| match precondition {
        Precondition::Host(id, _) => Some(id),
        Precondition::Entry(..)
        | Precondition::Phase(..)
        | Precondition::Hold(..)
        | Precondition::Switch(..)
        | Precondition::Constraints(..)
        | Precondition::Policy(_)
        | Precondition::Pause(..)
        | Precondition::Digest(_)
        | Precondition::ApplyState(..)
        | Precondition::Node(..) => None,
    });
    let hosts: Vec<(HostId, &HostRow)> =
        ids.filter_map(|id| Some((id.clone(), &**queries::host(&app.seen, id)?))).collect();
    let uids: Vec<&str> = hosts.iter().map(|(_, host)| host.uid.as_str()).collect();
    if !uids.iter().copied().eq(named.iter().map(|(_, uid)| uid.as_str())) {
        return None;
    }
    match (action, &expired.pick, hosts.as_slice()) {
        // the proof is about this Node
        (Some(HostAction::Fence(..)), ..) => {
            let (id, host) = hosts.first()?;
            fence_of(app, (id.clone(), host)).ok().filter(|again| again.action == expired.action)
        }
        (_, Some(pick), _) if pick.offers(REBOOT) => Some(power_of(app, &hosts)),
        (_, _, [(id, _)]) => release_of(app, id).ok(),
        _ => None,
    }
}

/// Opens the same dialog with a soft hold chosen.
pub fn hold_off(app: &App) -> Result<Dialog, String> {
    let mut dialog = power(app)?;
    if let Some(pick) = &mut dialog.pick {
        pick.choose(HOLD);
        pick.cycle_operation(true);
    }
    follow_choice(&mut dialog);
    Ok(dialog)
}

/// Formats a hold from the annotation's value: `held off hard by alice@admin1 since 2026-11-21T09:40:00Z`.
fn hold(value: &str) -> String {
    let fields: serde_json::Value = serde_json::from_str(value).unwrap_or_default();
    let word = |name: &str| fields[name].as_str().map(|word| format!(" {name} {word}")).unwrap_or_default();
    let why = fields["why"].as_str().map(|why| format!(": {why}")).unwrap_or_default();
    short_text::safe(&format!("held off {}{}{}{why}", Mode::of(value), word("by"), word("since")))
}

/// Returns the only selected host.
fn single(app: &App) -> Result<(HostId, &HostRow), String> {
    let mut hosts = chosen(app)?;
    match (hosts.pop(), hosts.len()) {
        (Some(only), 0) => Ok(only),
        (_, more) => Err(format!("one host at a time, {} are chosen", more + 1)),
    }
}

/// Opens the dialog that removes one of cketerm's keys.
pub fn release(app: &App) -> Result<Dialog, String> {
    let (id, _) = single(app)?;
    release_of(app, &id)
}

/// Opens the same dialog for this host.
pub fn release_of(app: &App, id: &HostId) -> Result<Dialog, String> {
    let host = queries::host(&app.seen, id).ok_or_else(|| format!("host {}/{} is gone", id.0, id.1))?;
    let (id, host) = (id.clone(), &**host);
    let is_own = |key: &&String| *key == CKETERM_KEY || key.starts_with("cketerm-");
    let keys: Vec<&String> = host.asked.keys.keys().filter(is_own).collect();
    let others: Vec<&str> = host.asked.keys.keys().filter(|key| !is_own(key)).map(String::as_str).collect();
    if keys.is_empty() {
        let by = if others.is_empty() { String::new() } else { format!("; {} holds it off", others.join(", ")) };
        return Err(format!("{} is not held off by cketerm{by}", host.full_name()));
    }
    let last = others.is_empty() && keys.len() == 1;
    let after = if last { "the host is turned on".to_owned() } else { "others still hold it off".to_owned() };
    let hosts = [(id, host)];
    let mut dialog = dialog(&hosts, format!("Release {}?", host.full_name()), "Release 1 host", None);
    dialog.lines = hosts.iter().map(|(id, host)| line(app, id, host)).collect();
    dialog.lines.push(after);
    let held = |key: &String| host.asked.keys.get(key).map(|value| hold(value)).unwrap_or_default();
    let all = keys.into_iter().map(|key| (key.clone(), vec![("release".to_owned(), vec![held(key)])])).collect();
    let pick = Pick::from_options(("key", "what"), all);
    dialog.pick = Some(pick);
    Ok(dialog)
}

/// Opens the dialog that fences a node: its Node is deleted only after the host is proven to be off.
pub fn fence(app: &App) -> Result<Dialog, String> {
    fence_of(app, single(app)?)
}

fn fence_of(app: &App, (id, host): (HostId, &HostRow)) -> Result<Dialog, String> {
    let name = host.full_name();
    if let Some(why) = host.hindrance() {
        return Err(format!("{name}: {why}"));
    }
    let Some((node, by)) = app.seen.snapshot.kube.node_of_host(host) else {
        return Err(format!("no Node matches {name} by address or host name; set its annotation cketerm.io/node"));
    };
    let hosts = [(id, host)];
    let title = format!("Fence node {} of host {name}?", node.name);
    let way = app.seen.snapshot.store.policy().fence;
    let action = HostAction::Fence(FencedNode { name: node.name.clone(), uid: node.uid.clone(), by: way });
    let mut dialog = dialog(&hosts, title, "Fence 1 node", Some(action));
    dialog.expect = tier::confirmation_text(app, "fence", 1, 0);
    dialog.lines = warnings(app, &hosts);
    dialog.lines.extend([
        format!("host {name} is node {} by {by}", node.name),
        "1. the host is held off, hard, under the key cketerm-fence".to_owned(),
        "2. waits up to 15 min for the proof: power went off after the key was set".to_owned(),
        match way {
            FenceBy::Delete => format!("3. Node {} is deleted: its pods start elsewhere", node.name),
            FenceBy::Taint => format!("3. Node {} is tainted out-of-service: its pods start elsewhere", node.name),
        },
        format!(
            "4. the host is released; if 2 or 3 fails, or you quit meanwhile, it stays held ({})",
            app.key("unhold")
        ),
    ]);
    if node.ready {
        dialog.lines.insert(0, "! the Node is Ready: its kubelet runs and its pods may be healthy".to_owned());
    }
    dialog.why = ReasonPolicy::Required;
    dialog.preconditions.push(Precondition::Node(node.name.to_string(), node.uid.clone()));
    Ok(dialog)
}

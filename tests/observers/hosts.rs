//! Metal3's controller role, judged by what happened to BareMetalHosts and to their machines (I44, MET-35 to MET-59).
//! Clients write annotations at any time. Engines write as separate processes.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde_json::Value;

use super::{
    record::{Breach, ObjectChange, Power, PowerEvent},
    view::{View, is_engine, shift},
};

const REBOOT_ANNOTATION: &str = "reboot.metal3.io";
const REBOOT_ANNOTATION_PREFIX: &str = "reboot.metal3.io/";

/// Seconds after which every engine has seen that the policy is switched off: longer than any watch is stale.
const POLICY_DELAY: f64 = 120.0;
/// Seconds within which a BMC carries out a request to turn a machine off.
const BMC_DELAY: f64 = 120.0;

fn requested(host: &Value) -> impl Iterator<Item = &str> {
    let all = host["metadata"]["annotations"].as_object().into_iter().flatten();
    all.map(|(name, _)| name.as_str())
        .filter(|name| *name == REBOOT_ANNOTATION || name.starts_with(REBOOT_ANNOTATION_PREFIX))
}

fn held(host: &Value) -> bool {
    requested(host).any(|name| name != REBOOT_ANNOTATION)
}

fn time(host: &Value, field: &str) -> Option<Timestamp> {
    host["status"]["provisioning"][field].as_str()?.parse().ok()
}

fn pending(host: &Value) -> bool {
    time(host, "pendingRebootSince").is_some_and(|since| time(host, "lastPoweredOn").is_none_or(|last| since > last))
}

fn provisioned(host: &Value) -> bool {
    let state = host["status"]["provisioning"]["state"].as_str().unwrap_or_default();
    matches!(state, "" | "provisioned" | "externally provisioned")
}

/// Changes of each host, and its machine's address.
struct Host<'v> {
    name: String,
    address: String,
    changes: Vec<&'v ObjectChange>,
}

impl<'v> Host<'v> {
    fn at(&self, at: Timestamp) -> Option<&'v Value> {
        let seen = self.changes.iter().take_while(|c| c.at <= at).last()?;
        seen.after.as_ref()
    }

    /// Reports whether the condition held all the time, both ends included.
    fn throughout(&self, from: Timestamp, to: Timestamp, is: impl Fn(&Value) -> bool) -> bool {
        let first = self.at(from).is_some_and(&is);
        let mut meanwhile = self.changes.iter().filter(|c| c.at > from && c.at <= to);
        first && meanwhile.all(|c| c.after.as_ref().is_some_and(&is))
    }

    fn power<'r>(&self, view: &View<'r>) -> Vec<&'r Power> {
        view.record.power.iter().filter(|p| p.address == self.address).collect()
    }
}

fn hosts<'v>(view: &View<'v>) -> Vec<Host<'v>> {
    let mut all: BTreeMap<(&str, &str), Vec<&ObjectChange>> = BTreeMap::new();
    for change in view.record.objects.iter().filter(|c| c.resource == "baremetalhosts") {
        all.entry((&change.namespace, &change.name)).or_default().push(change);
    }
    all.into_iter()
        .map(|((namespace, name), changes)| {
            let first = changes.iter().find_map(|c| c.after.as_ref()?["status"]["hardware"]["nics"][0]["ip"].as_str());
            Host { name: format!("{namespace}/{name}"), address: first.unwrap_or_default().to_owned(), changes }
        })
        .collect()
}

/// I44 and the rules of `docs/spec/metal3.md`, at every action of an engine on a host:
///
/// - An engine's patch of a host names the version and UID that it was decided from. It adds no annotation of the
///   interface and removes none but the basic one, except of a deprovisioned host.
/// - The basic annotation is removed while the host is known to be off.
/// - A host is turned on ("host on" in the audit) only when no key held it off without a break since the state that the
///   engine decided from.
/// - `pendingRebootSince` is set when an annotation is there, the host is on and no request is pending. `lastPoweredOn`
///   is later than it.
/// - `poweredOn` becomes false only of a machine that is down.
/// - A machine goes down through its BMC only if, since it last came up, an annotation was there or a reboot was
///   pending. A request is carried out as soon as the BMC can be reached again. A BMC that obeys late carries out a
///   request from before the machine came up.
/// - While the policy `metal3_controller` is switched off no request is taken up.
pub fn i44(view: &View<'_>) -> Vec<Breach> {
    let mut found = Vec::new();
    let hosts = hosts(view);
    if hosts.is_empty() {
        return found;
    }
    check_patches(view, &hosts, &mut found);
    check_new_requests(view, &mut found);
    let on = audited_actions(view, "host on");
    let off = [audited_actions(view, "host off (soft)"), audited_actions(view, "host off (hard)")].concat();
    for host in &hosts {
        let mut report_breach = |at: Timestamp, what: String| {
            found.push(Breach { code: "I44", at, what: format!("host {}: {what}", host.name) });
        };
        for change in &host.changes {
            check_change(change, &mut report_breach);
        }
        let power = host.power(view);
        let down = |at: Timestamp| power.iter().rev().find(|p| p.at <= at).is_some_and(|p| p.what == PowerEvent::Down);
        for change in &host.changes {
            let is_off = |o: &Option<Value>| o.as_ref().is_some_and(|o| o["status"]["poweredOn"] == false);
            if is_off(&change.after) && !is_off(&change.before) && !down(change.at) {
                report_breach(change.at, "its status says off while its machine is on".to_owned());
            }
        }
        for at in on.iter().filter(|(_, on)| *on == format!("host {}", host.name)).map(|(at, _)| *at) {
            if host.throughout(shift(at, -view.max_kube_delay()), at, held) {
                report_breach(at, "is turned on while somebody's request keeps it off".to_owned());
            }
        }
        let mut up = Timestamp::MIN;
        for power in &power {
            let by_bmc = power.argv.first().is_some_and(|word| word == "redfish");
            match power.what {
                PowerEvent::Up => up = power.at,
                PowerEvent::Down if by_bmc => {
                    let free = |o: &Value| requested(o).next().is_none() && o["spec"]["online"] == true && !pending(o);
                    let late = |at: &Timestamp| (shift(power.at, -BMC_DELAY)..up).contains(at);
                    let audited_actions =
                        off.iter().filter(|(_, on)| *on == format!("host {}", host.name)).map(|(at, _)| *at);
                    let since = audited_actions.filter(late).min().unwrap_or(up);
                    if host.throughout(since.max(host.changes[0].at), power.at, free) {
                        report_breach(
                            power.at,
                            format!("its machine was turned off, but nobody has requested that since {up}"),
                        );
                    }
                }
                _ => {}
            }
        }
    }
    found
}

/// Audit records of this action that were begun: time and host of each.
fn audited_actions(view: &View<'_>, what: &str) -> Vec<(Timestamp, String)> {
    let keys = view.record.keys.iter().filter(|k| k.key.starts_with("cketerm/audit/"));
    let read = keys.filter_map(|k| Some((k.at, serde_json::from_slice::<Value>(k.value.as_ref()?).ok()?)));
    let begun = read.filter(|(_, audit)| audit["what"] == what && audit["result"] == "begun");
    begun.map(|(at, audit)| (at, audit["on"].as_str().unwrap_or_default().to_owned())).collect()
}

/// Requests that were taken up long after the policy was switched off.
fn check_new_requests(view: &View<'_>, found: &mut Vec<Breach>) {
    let steps = view.policies.steps();
    for (at, host) in audited_actions(view, "host reboot asked") {
        let long = shift(at, -POLICY_DELAY);
        let step = steps.iter().take_while(|step| step.at <= at).last();
        let off = step.filter(|step| step.value.as_ref().is_some_and(|policy| !policy.metal3_controller));
        if let Some(step) = off.filter(|step| step.at < long) {
            let what =
                format!("{host}: a request is accepted, although the policy has disabled that since {}", step.at);
            found.push(Breach { code: "I44", at, what });
        }
    }
}

fn check_patches(view: &View<'_>, hosts: &[Host<'_>], found: &mut Vec<Breach>) {
    let writes = view.record.api_requests.iter().filter(|a| a.method != "GET" && is_engine(&a.by));
    for write in writes.filter(|a| a.path.contains("/baremetalhosts/") && !a.query.contains("dryRun")) {
        let mut report_breach = |what: String| {
            let what = format!("{} {} {}: {what}", write.by, write.method, write.path);
            found.push(Breach { code: "I44", at: write.at, what });
        };
        let meta = &write.body["metadata"];
        if write.method != "PATCH" || !meta["resourceVersion"].is_string() || !meta["uid"].is_string() {
            report_breach("is not a patch of the resourceVersion and UID that were read".to_owned());
        }
        let mut place = write.path.rsplit('/').skip_while(|part| *part == "status");
        let name = place.next().unwrap_or_default();
        let matching = hosts.iter().filter(|h| h.name.ends_with(&format!("/{name}")));
        let deprovisioned = matching.filter_map(|h| h.at(write.at)).any(|host| !provisioned(host));
        for (annotation, value) in meta["annotations"].as_object().into_iter().flatten() {
            let base = annotation == REBOOT_ANNOTATION;
            if (base || annotation.starts_with(REBOOT_ANNOTATION_PREFIX))
                && !(value.is_null() && (base || deprovisioned))
            {
                report_breach(format!("changes {annotation}, which is not cketerm's"));
            }
        }
    }
}

/// Breaches that one change of a host shows by itself.
fn check_change(change: &ObjectChange, report_breach: &mut impl FnMut(Timestamp, String)) {
    let (Some(before), Some(after)) = (&change.before, &change.after) else { return };
    let base = |host: &Value| requested(host).any(|name| name == REBOOT_ANNOTATION);
    if base(before) && !base(after) && before["status"]["poweredOn"] != false && provisioned(before) {
        report_breach(change.at, "lost its basic annotation before it was off".to_owned());
    }
    let (pending, last) = (time(after, "pendingRebootSince"), time(after, "lastPoweredOn"));
    if pending != time(before, "pendingRebootSince") {
        let was_pending = time(before, "pendingRebootSince") > time(before, "lastPoweredOn");
        if requested(before).next().is_none() || before["status"]["poweredOn"] != true || was_pending {
            report_breach(change.at, "has a new pendingRebootSince without a new request".to_owned());
        }
        if pending <= last {
            report_breach(
                change.at,
                format!("pendingRebootSince {pending:?} is not later than lastPoweredOn {last:?}"),
            );
        }
    }
    if last != time(before, "lastPoweredOn") && last <= pending {
        report_breach(change.at, format!("lastPoweredOn {last:?} is not later than pendingRebootSince {pending:?}"));
    }
}

/// I44, after faults have ended and all clients have released their hosts. Every request was carried out, where the
/// policy asks for it. Every host runs, whatever the policy is: a machine between off and on does not stay off.
///
/// Not covered: a BMC that obeys when the cycle is over and the controller is switched off.
pub fn i44_at_the_end(view: &View<'_>) -> Vec<Breach> {
    let Some(calm) = view.record.calm_since.filter(|calm| shift(*calm, 900.0) <= view.record.end) else {
        return Vec::new();
    };
    let mut found = Vec::new();
    let switched_off = view.policies.last().is_some_and(|policy| !policy.metal3_controller);
    for host in hosts(view) {
        let Some(last) = host.at(view.record.end) else { continue };
        let mut report_breach = |what: &str| {
            found.push(Breach { code: "I44", at: calm, what: format!("host {}: {what}", host.name) });
        };
        let free = host.throughout(calm, view.record.end, |o| !held(o) && o["spec"]["online"] == true);
        if !free || !provisioned(last) {
            continue;
        }
        let unfinished =
            requested(last).next().is_some() || time(last, "pendingRebootSince") > time(last, "lastPoweredOn");
        if unfinished && !switched_off {
            report_breach("a request was never completed");
        }
        // The BMC obeys long after the cycle has ended, and the controller is disabled before its next check. Without
        // a request it checks once a minute, so no controller sees the machine any more.
        let after_controller_off = |at: Timestamp| {
            let off = view.policies.at(shift(at, 65.0)).is_some_and(|policy| !policy.metal3_controller);
            switched_off && off && host.at(at).is_some_and(|o| !pending(o))
        };
        if host.power(view).last().is_some_and(|p| p.what == PowerEvent::Down && !after_controller_off(p.at)) {
            report_breach("its machine stays off although nobody requested it");
        }
    }
    found
}

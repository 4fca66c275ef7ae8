//! Leadership: which engine may write, and the audit records of its writes (I23, I24, I38).

use cketerm_model::{attempt::parse_attempt_id, reboot::RebootStatus};

use super::{
    power_log,
    record::{Breach, Txn},
    view::{View, in_progress, is_engine, shift, status},
};

/// Keys that an engine's transaction touches.
fn touched(txn: &Txn) -> impl Iterator<Item = &str> {
    txn.puts.iter().chain(&txn.deletes).map(String::as_str)
}

/// Reports whether this is a campaign or a registration, which a key of its own fences.
fn is_election(txn: &Txn) -> bool {
    touched(txn).any(|k| k.starts_with("leader/") || k.starts_with("cketerm/engines/"))
}

/// Reports whether an engine proposes defaults before anybody leads: schema, first policy, identity; each only if
/// absent.
fn is_proposal(txn: &Txn) -> bool {
    let proposed = ["cketerm/schema", "cketerm/identity"];
    touched(txn).any(|k| proposed.contains(&k))
        && touched(txn).all(|k| proposed.contains(&k) || k == "cketerm/policy" || k.starts_with("cketerm/audit/"))
}

/// Reports whether an engine records the outcome of a command that its host ran for a former leader: one result, only
/// if absent, and only while the attempt is as it was read.
fn is_result_report(txn: &Txn) -> bool {
    let results = || txn.puts.iter().filter_map(|k| k.strip_prefix("cketerm/results/"));
    let others = |k: &str| !k.starts_with("cketerm/results/") && !k.starts_with("cketerm/audit/");
    let guarded = |id: &str| {
        let absent = txn.compares.iter().any(|(k, field)| k.ends_with(&format!("results/{id}")) && *field == "mod");
        let attempt = parse_attempt_id(id).map(|(entry, n)| format!("cketerm/attempts/{entry}/{n}"));
        absent && attempt.is_some_and(|key| txn.compares.iter().any(|(k, field)| *k == key && *field == "mod"))
    };
    results().count() == 1 && results().all(guarded) && !touched(txn).any(others) && txn.deletes.is_empty()
}

/// Reports whether an engine repeats an operator's cancel or deletion, which CKE's write had lost, or removes the record
/// of one: one entry, compared with its record, or one record. With the record it may write how the entry of a batch ended,
/// if the batch is as it was read and has no such record.
fn is_cancel_upkeep(txn: &Txn) -> bool {
    let of = |queue: &str| {
        let (records, data) = (format!("cketerm/cancels/{queue}/"), format!("{queue}/data/"));
        let record = |key: &str| key.starts_with(&records);
        let entry = |key: &str| key.starts_with(&data);
        let end = |key: &str| key.starts_with("cketerm/batches/") && key.contains(&format!("/{queue}/"));
        let is_compared = |key: &str| txn.compares.iter().any(|(compared, field)| compared == key && *field == "mod");
        let compared = txn.compares.iter().any(|(key, field)| record(key) && *field == "mod");
        let others = |key: &str| !record(key) && !entry(key) && !end(key) && !key.starts_with("cketerm/audit/");
        let entries = txn.puts.iter().filter(|key| entry(key)).count();
        let ends = txn.puts.iter().all(|key| end(key) && is_compared(key)) && txn.puts.len() <= 1;
        let removes = txn.deletes.len() == 1 && txn.deletes.iter().all(|key| record(key)) && ends;
        let repeats = entries == 1 && txn.deletes.is_empty() && !touched(txn).any(end);
        compared && !touched(txn).any(others) && (removes || repeats)
    };
    of("reboots") || of("repairs")
}

/// I23, at each transaction of an engine that was carried out, except campaigns, proposals, reports of results and
/// repeated cancels or deletions:
///
/// - It compares the create revision of a key in `leader/`. That key leads in this revision, and the same process wrote
///   it.
/// - It compares the `ModRevision` of entries and attempts that it writes or deletes (the counter, of records).
/// - A start (an entry to `draining`, a new attempt) also compares the switch, `cluster`, `constraints` and policy.
/// - Every attempt, and every audit record of an engine, names the lease that led. That lease is also known from times
///   without a listener.
/// - Every patch or update of a Node or of endpoints that an engine requests carries a resourceVersion.
///
/// Not covered: the compared values (I27 and I28 see the consequences of a wrong one).
pub fn i23(view: &View<'_>) -> Vec<Breach> {
    let mut found = Vec::new();
    for txn in view.record.txns.iter().filter(|t| t.succeeded && is_engine(&t.by) && touched(t).next().is_some()) {
        if is_election(txn) || is_proposal(txn) || is_result_report(txn) || is_cancel_upkeep(txn) {
            continue;
        }
        let mut report_breach = |what: String| {
            let what = format!("{} writes {}: {what}", txn.by, touched(txn).collect::<Vec<_>>().join(", "));
            found.push(Breach { code: "I23", at: txn.at, what });
        };
        let fence = txn.compares.iter().find(|(k, field)| k.starts_with("leader/") && *field == "create");
        match (fence, view.leader(txn.revision)) {
            (None, _) => report_breach("compares no key in leader/".to_owned()),
            (Some((key, _)), leads) => {
                let lease = key.trim_start_matches("leader/").trim_start_matches('/');
                match leads {
                    Some(leader) if leader.lease == lease => {
                        if leader.by.as_ref().is_some_and(|by| *by != txn.by) {
                            report_breach(format!("uses the leader key of {:?}", leader.by));
                        }
                    }
                    other => report_breach(format!("uses {key} while {:?} leads", other.map(|c| &c.lease))),
                }
            }
        }
        let compared = |key: &str| txn.compares.iter().any(|(k, field)| k == key && *field != "lease");
        let held = ["reboots/data/", "repairs/data/", "cketerm/attempts/"];
        if let Some(key) = touched(txn).find(|k| held.iter().any(|h| k.starts_with(h)) && !compared(k)) {
            report_breach(format!("does not compare {key}"));
        }
    }
    for step in view.entry_changes().iter().filter(|m| m.starts() && status(m.before) == Some(RebootStatus::Queued)) {
        found.extend(unguarded(view, step.revision, &format!("reboots/{}", step.index)));
    }
    for (&(index, n), line) in &view.attempts {
        let Some(first) = line.steps().first().filter(|s| view.written_by_engine(s.revision)) else { continue };
        let Some(attempt) = &first.value else { continue };
        found.extend(unguarded(view, first.revision, &format!("attempt {n} of reboots/{index}")));
        let lease = format!("{:x}", attempt.lease);
        if view.leader(first.revision).is_none_or(|c| c.lease != lease) {
            let what = format!("attempt {n} of reboots/{index} is written under lease {lease}, which does not lead");
            found.push(Breach { code: "I23", at: first.at, what });
        }
    }
    for request in view.record.api_requests.iter().filter(|a| is_engine(&a.by)) {
        let write = matches!(request.method.as_str(), "PATCH" | "PUT");
        let kinds = ["/nodes/", "/endpoints/", "/endpointslices/"];
        let fenced = request.body["metadata"]["resourceVersion"].is_string();
        if write && !fenced && kinds.iter().any(|k| request.path.contains(k)) {
            let what = format!("{} sends {} {} without a resourceVersion", request.by, request.method, request.path);
            found.push(Breach { code: "I23", at: request.at, what });
        }
    }
    found
}

/// Breach of a transaction that starts work without comparing the conditions of a start.
fn unguarded(view: &View<'_>, revision: i64, what: &str) -> Option<Breach> {
    let txn = view.txn(revision)?;
    let needed = ["reboots/disabled", "cluster", "constraints", "cketerm/policy"];
    let missing: Vec<&str> = needed.iter().copied().filter(|k| !txn.compares.iter().any(|(c, _)| c == k)).collect();
    let what = format!("{what} starts without comparing {}", missing.join(", "));
    (!missing.is_empty()).then_some(Breach { code: "I23", at: txn.at, what })
}

/// I24: each power command begins while the key of its attempt's lease leads, or at most as much later as a command may
/// be late. And no engine patches a Node from a version that carries the record of a later leader: that engine decided
/// from a state that it may not touch any more.
///
/// Not covered: the rest of the lease by the engine's own clock; a request that paused with its process.
pub fn i24(view: &View<'_>) -> Vec<Breach> {
    let mut found = Vec::new();
    for (index, power) in power_log::begins(view) {
        // a withheld attempt that was deleted leaves its number to the next, so the last value written before the
        // command counts
        let written = view.attempt(index, &power.attempt).and_then(|(_, l)| l.at(power.at));
        let Some(attempt) = written else { continue };
        let lease = format!("{:x}", attempt.lease);
        if !view.led(&lease, shift(power.at, -view.late()), power.at) {
            let what = format!("a command of {} begins under lease {lease}, which no longer leads", power.entry);
            found.push(Breach { code: "I24", at: power.at, what });
        }
    }
    for w in view.node_writes.iter().filter(|w| w.engine) {
        let Some(owner) = w.before.owner() else { continue };
        let stamped = format!("{:x}", owner.lease);
        let position = |lease: &str| view.candidates.iter().rposition(|c| c.lease == lease);
        let own =
            view.candidates.iter().rposition(|c| c.by.as_deref() == Some(&w.request.by) && c.from <= w.request.at);
        let newer = position(&stamped).zip(own).filter(|(stamped, own)| stamped > own);
        if let Some((newer, _)) = newer {
            let what = format!(
                "{} patches node {} with the record of {:?}, a later leader",
                w.request.by, w.name, view.candidates[newer].by
            );
            found.push(Breach { code: "I24", at: w.request.at, what });
        }
    }
    found
}

/// I38: the revision that makes an attempt also makes an audit record that names its entry and the engine. So does each
/// revision in which an engine starts, backs off or removes an entry. An attempt without an outcome is only deleted
/// together with the write of a history record that holds it, with an outcome.
///
/// [`super::audit::i38`] judges actions in Kubernetes.
pub fn i38(view: &View<'_>) -> Vec<Breach> {
    let mut found = Vec::new();
    let mut report_breach = |at, what: String| found.push(Breach { code: "I38", at, what });
    let audited = |revision: i64, index: u64| {
        view.audit_at(revision).is_some_and(|a| {
            a["on"] == format!("reboots/{index}") && a["who"]["user"].as_str().is_some_and(|u| !u.is_empty())
        })
    };
    for (&(index, n), line) in &view.attempts {
        let mut before: Option<&cketerm_model::attempt::Attempt> = None;
        for step in line.steps() {
            if !view.written_by_engine(step.revision) && !view.record.txns.is_empty() {
                before = step.value.as_ref();
                continue;
            }
            if step.value.is_some() && before.is_none() && !audited(step.revision, index) {
                report_breach(step.at, format!("attempt {n} of reboots/{index} has no audit record"));
            }
            if let (None, Some(open)) = (&step.value, before.filter(|a| a.open())) {
                let ending = view.endings.get(&index).and_then(|l| l.get(step.revision));
                let kept = ending.is_some_and(|e| e.attempts.iter().any(|a| a.id == open.id && !a.open()));
                if !kept {
                    report_breach(step.at, format!("attempt {n} of reboots/{index} is deleted while it is open"));
                }
            }
            before = step.value.as_ref();
        }
    }
    for step in view.entry_changes().iter().filter(|m| m.engine && matches!(m.before, Some(Ok(_)))) {
        let moved = match (status(step.before), status(step.after)) {
            (before, after) if before != after => {
                in_progress(step.before) || in_progress(step.after) || after.is_none()
            }
            _ => false,
        };
        if moved && !audited(step.revision, step.index) {
            report_breach(step.at, format!("reboots/{} is changed by an engine without an audit record", step.index));
        }
    }
    found
}

/// Heartbeat: an engine whose main loop is stuck gives up its candidacy after max(TTL/2, 10 s), its lease, some seconds
/// of tolerance, and the time for which its process was paused.
pub fn heartbeat(view: &View<'_>) -> Vec<Breach> {
    let mut found = Vec::new();
    for (by, at) in &view.record.stuck {
        let pauses = view.record.paused.iter().filter(|(who, _, to)| who == by && to > at);
        let paused_seconds: f64 = pauses.map(|(_, from, to)| to.duration_since(*from.max(at)).as_secs_f64()).sum();
        let until = shift(*at, (view.ttl() / 2.0).max(10.0) + view.ttl() + 15.0 + paused_seconds);
        let own = view.candidates.iter().filter(|c| c.by.as_deref() == Some(by) && c.from <= *at);
        for held in own.filter(|c| c.deleted.is_none_or(|(_, deleted)| deleted > until) && view.record.end > until) {
            let what = format!("{by} is stuck since {at}, but its lease {} is still alive at {until}", held.lease);
            found.push(Breach { code: "heartbeat", at: until, what });
        }
    }
    found
}

//! Output of one simulation: all events ordered by time, a digest, and the reported reasons.

use std::{collections::BTreeMap, fmt::Write as _};

use crate::observers::{Record, record::EngineReport};

/// Everything that was recorded, a line each, ordered by time, for the search of a cause.
pub fn dump(record: &Record) -> String {
    let mut lines: Vec<(jiff::Timestamp, String)> = Vec::new();
    for c in &record.keys {
        let value = c.value.as_ref().map_or_else(|| "gone".into(), |v| String::from_utf8_lossy(v));
        lines.push((c.at, format!("etcd {} {} = {value}", c.revision, c.key)));
    }
    for a in &record.api_requests {
        if !a.query.contains("watch=") {
            lines.push((a.at, format!("k8s {} {} {}?{} {} {}", a.by, a.method, a.path, a.query, a.body, a.code)));
        }
    }
    for p in &record.power {
        lines.push((p.at, format!("power {:?} {} {} {}", p.what, p.address, p.entry, p.attempt)));
    }
    for m in &record.members {
        let marks = [
            (m.stopped, "stopped"),
            (m.behind, "behind"),
            (m.alarm, "alarm"),
            (m.learner, "learner"),
            (m.unreachable, "unreachable"),
        ];
        let marks: Vec<&str> = marks.iter().filter(|(is, _)| *is).map(|(_, mark)| *mark).collect();
        lines.push((m.at, format!("member {} {marks:?}", m.address)));
    }
    for o in record.objects.iter().filter(|o| o.resource == "nodes") {
        let spec = |n: &Option<serde_json::Value>| {
            n.as_ref().map_or_else(String::new, |n| {
                let ready =
                    n["status"]["conditions"].as_array().and_then(|c| c.iter().find(|c| c["type"] == "Ready").cloned());
                format!(
                    "{} {} {} {}",
                    n["spec"]["unschedulable"],
                    n["metadata"]["annotations"],
                    n["status"]["nodeInfo"]["bootID"],
                    ready.unwrap_or_default()["status"]
                )
            })
        };
        lines.push((o.at, format!("node {} {} -> {}", o.name, spec(&o.before), spec(&o.after))));
    }
    for r in &record.received {
        lines.push((r.at, format!("notice {} {} {} taken {}", r.by, r.notice["id"], r.notice["title"], r.taken)));
    }
    for w in &record.acknowledged {
        lines.push((w.at, format!("acknowledged {} {:?}", w.by, w.command)));
    }
    let mut last = BTreeMap::new();
    for s in record.reports.iter().filter(|s| s.leads) {
        for (index, reason) in s.reasons.iter() {
            if last.insert(*index, reason.clone()).as_ref() != Some(reason) {
                lines.push((s.at, format!("report {} {index} {reason}", s.by)));
            }
        }
    }
    lines.sort_by_key(|(at, _)| *at);
    lines.into_iter().fold(String::new(), |mut text, (at, line)| {
        let _ = writeln!(text, "{at} {line}");
        text
    })
}

pub fn digest(record: &Record) -> u64 {
    use std::hash::{DefaultHasher, Hash, Hasher};
    let mut hasher = DefaultHasher::new();
    // the names of audit records have a random part
    for change in record.keys.iter().filter(|c| !c.key.starts_with("cketerm/audit/")) {
        (change.at, change.revision, &change.key, &change.value).hash(&mut hasher);
    }
    for request in &record.api_requests {
        (request.at, &request.by, &request.method, &request.path, request.code).hash(&mut hasher);
    }
    for power in &record.power {
        (power.at, &power.address, &power.argv).hash(&mut hasher);
    }
    hasher.finish()
}

/// Number of times that each reason was reported: shows the states that the simulation reached.
pub fn states(reports: &[EngineReport]) -> BTreeMap<String, u32> {
    let mut states = BTreeMap::new();
    for report in reports.iter().filter(|s| s.leads) {
        for reason in report.reasons.values() {
            let name = match reason {
                serde_json::Value::String(name) => name.clone(),
                other => other
                    .as_object()
                    .and_then(|o| {
                        o.get("reason")
                            .or_else(|| o.get("kind"))
                            .and_then(|k| k.as_str().map(str::to_owned))
                            .or_else(|| o.keys().next().cloned())
                    })
                    .unwrap_or_default(),
            };
            *states.entry(name).or_default() += 1;
        }
    }
    states
}

//! Text of a history: one line for each transaction, request and command, ordered by time.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::{Debug, Write as _},
};

use cketerm_rules::seen::Seen;
use jiff::Timestamp;
use serde_json::Value;

use crate::observers::{
    Record,
    record::{ApiRequest, KeyChange, PowerEvent, Txn},
};

/// Longest value that is shown whole, in bytes.
const LONGEST_VALUE: usize = 400;

/// Writes down everything that was sent to etcd, Kubernetes and machines, and each reason why an entry waited.
pub fn of(record: &Record, answers: Vec<(Timestamp, String)>) -> String {
    let mut lines = txns(record);
    lines.extend(answers);
    lines.extend(record.api_requests.iter().filter(|r| is_write(r)).map(|r| (r.at, request(r))));
    lines.extend(record.power.iter().map(|p| {
        let what = match p.what {
            PowerEvent::Begin => format!("begins {}", p.argv.join(" ")),
            PowerEvent::End(code) => format!("ended {code:?}"),
            PowerEvent::Down => "is down".to_owned(),
            PowerEvent::Up => "is up".to_owned(),
        };
        (p.at, format!("machine {} {what} {}", p.address, p.entry))
    }));
    lines.extend(
        record.received.iter().map(|n| (n.at, format!("notice by {} {} {}", n.by, n.notice["id"], n.notice["title"]))),
    );
    lines.extend(reasons(record));
    lines.sort_by_key(|(at, _)| *at);
    let began = lines.first().map_or(Timestamp::UNIX_EPOCH, |(at, _)| *at);
    let mut text = String::new();
    for (at, line) in lines {
        let _ = writeln!(text, "{:8.3} {}", at.duration_since(began).as_secs_f64(), without_chance(&line));
    }
    for (read, number) in reads(record) {
        let _ = writeln!(text, "   reads {read}: {number}");
    }
    text
}

/// Transactions with the values that they wrote, and writes outside transactions.
fn txns(record: &Record) -> Vec<(Timestamp, String)> {
    let mut values: BTreeMap<i64, Vec<&KeyChange>> = BTreeMap::new();
    for change in &record.keys {
        values.entry(change.revision).or_default().push(change);
    }
    let mut before: BTreeMap<&str, Value> = BTreeMap::new();
    let mut written: BTreeMap<i64, Vec<String>> = BTreeMap::new();
    for (revision, changes) in &values {
        for change in changes {
            let value = change.value.as_deref().map(parsed);
            let shown = match (&value, before.get(change.key.as_str())) {
                (None, _) => "deleted".to_owned(),
                (Some(value), Some(old)) => difference(old, value),
                (Some(value), None) => bounded(value.to_string()),
            };
            written.entry(*revision).or_default().push(format!("\n           {} {shown}", change.key));
            match value {
                Some(value) => before.insert(&change.key, value),
                None => before.remove(change.key.as_str()),
            };
        }
    }
    let mut lines = Vec::new();
    let mut by_txns = BTreeSet::new();
    for txn in &record.txns {
        let compares: Vec<String> = txn.compares.iter().map(|(key, field)| compare(key, field)).collect();
        if txn.puts.is_empty() && txn.deletes.is_empty() && txn.compares.is_empty() {
            continue;
        }
        let what = if !txn.succeeded {
            format!(" REFUSED {}", written_keys(txn))
        } else if by_txns.insert(txn.revision) {
            written.get(&txn.revision).map(|lines| lines.concat()).unwrap_or_default()
        } else {
            String::new()
        };
        lines.push((txn.at, format!("etcd {} if {}{what}", txn.by, compares.join(", "))));
    }
    for (revision, changes) in &values {
        if !by_txns.contains(revision) {
            lines.push((changes[0].at, format!("etcd{}", written[revision].concat())));
        }
    }
    lines
}

/// The leader key, whose creation every write of an engine compares, is shown without its lease.
fn compare(key: &str, field: &str) -> String {
    if key.starts_with("leader//") && field == "create" { "leads".to_owned() } else { format!("{key} {field}") }
}

fn written_keys(txn: &Txn) -> String {
    let all: Vec<&str> = txn.puts.iter().chain(&txn.deletes).map(String::as_str).collect();
    all.join(", ")
}

fn parsed(value: &[u8]) -> Value {
    serde_json::from_slice(value).unwrap_or_else(|_| Value::String(String::from_utf8_lossy(value).into_owned()))
}

/// The fields of a value that are others than before.
fn difference(old: &Value, new: &Value) -> String {
    let (Some(before), Some(after)) = (old.as_object(), new.as_object()) else { return bounded(new.to_string()) };
    let names: BTreeSet<&String> = before.keys().chain(after.keys()).collect();
    let differ = names.into_iter().filter(|name| before.get(*name) != after.get(*name));
    let all: Vec<String> = differ
        .map(|name| format!("{name}={}", after.get(name).map_or_else(|| "none".to_owned(), |v| bounded(v.to_string()))))
        .collect();
    if all.is_empty() { "unchanged".to_owned() } else { format!("now {}", all.join(" ")) }
}

fn bounded(text: String) -> String {
    use std::hash::{DefaultHasher, Hash, Hasher};
    if text.len() <= LONGEST_VALUE {
        return text;
    }
    let mut hasher = DefaultHasher::new();
    text.hash(&mut hasher);
    let begin: String = text.chars().take(100).collect();
    format!("{begin}… {} bytes, {:x}", text.len(), hasher.finish())
}

fn is_write(request: &ApiRequest) -> bool {
    request.method != "GET"
}

fn request(r: &ApiRequest) -> String {
    let mut body = r.body.clone();
    if let Some(object) = body.as_object_mut() {
        object.remove("apiVersion");
        object.remove("kind");
    }
    let failure = if r.code < 300 { String::new() } else { format!(": {}", r.message) };
    format!("k8s {} {} {}?{} {} -> {}{failure}", r.by, r.method, r.path, r.query, bounded(body.to_string()), r.code)
}

/// Each reason that a leader reported for an entry, when it became another one.
fn reasons(record: &Record) -> Vec<(Timestamp, String)> {
    let mut last: BTreeMap<(&'static str, u64), Value> = BTreeMap::new();
    let mut lines = Vec::new();
    for report in record.reports.iter().filter(|r| r.leads) {
        for (queue, reasons) in [("reboots", &report.reasons), ("repairs", &report.repairs)] {
            for (index, reason) in reasons.iter() {
                if last.insert((queue, *index), reason.clone()).as_ref() != Some(reason) {
                    lines.push((report.at, format!("reason {queue}/{index} {}", bounded(reason.to_string()))));
                }
            }
        }
    }
    lines
}

/// Number of reads of each path by all.
fn reads(record: &Record) -> BTreeMap<String, usize> {
    let mut numbers = BTreeMap::new();
    for r in record.api_requests.iter().filter(|r| !is_write(r)) {
        let watches = if r.query.contains("watch=") { " (watch)" } else { "" };
        *numbers.entry(format!("{} {}{watches}", r.by, r.path)).or_default() += 1;
    }
    numbers
}

/// The parts of an engine's last pass that no write shows: what it knows of other servers, and of itself.
pub fn view(name: &str, seen: &Seen) -> String {
    let snapshot = &seen.snapshot;
    let parts: [(&str, &dyn Debug); 9] = [
        ("engine", &snapshot.engine),
        ("probes", &snapshot.probes),
        ("etcd members", &snapshot.etcd),
        ("start gates", &snapshot.start_gates),
        ("registry", &snapshot.registry),
        ("signals", &snapshot.reboot_signals),
        ("hosts", &snapshot.metal3),
        ("receivers", &seen.notices),
        ("definition", &seen.applying),
    ];
    parts.into_iter().fold(String::new(), |mut text, (part, value)| {
        let _ = writeln!(text, "   view of {name}: {part}: {}", bounded(format!("{value:?}")));
        text
    })
}

/// Replaces the random part of an audit record's name: `01767225600000000000-e96b15049574dd0e`, and this version of cketerm.
fn without_chance(line: &str) -> String {
    let line = line.replace(concat!(r#""version":""#, env!("CARGO_PKG_VERSION"), '"'), r#""version":"VERSION""#);
    let mut text = String::with_capacity(line.len());
    let mut rest = line.as_str();
    while let Some(at) = rest.find("cketerm/audit/") {
        let (before, name) = rest.split_at(at + "cketerm/audit/".len());
        text.push_str(before);
        let digits = name.find(|c: char| !c.is_ascii_digit()).unwrap_or(name.len());
        let random = name[digits..]
            .strip_prefix('-')
            .map_or(0, |tail| tail.find(|c: char| !c.is_ascii_hexdigit()).unwrap_or(tail.len()) + 1);
        text.push('*');
        rest = &name[digits + random..];
    }
    text.push_str(rest);
    text
}

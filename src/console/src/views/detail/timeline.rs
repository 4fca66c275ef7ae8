//! Timeline of an unfinished entry: its phases as a bar, and its events. While CKE leads, CKE's records have its drains.

use cketerm_model::{
    entry::{EntryId, Stored},
    entry_ref::EntryRef,
    reboot::RebootStatus,
    record::Record,
    repair::StepStatus,
};
use cketerm_rules::beside_cke;
use jiff::Timestamp;
use ratatui::text::{Line, Span};

use super::{
    super::bar::{self, Phase, phase},
    Text,
    output::step_suffix,
};
use crate::{
    state::{App, calendar, queries, short_text, when},
    table::wrap,
};

impl Text<'_> {
    /// Adds the phases of an unfinished entry as a bar.
    fn phases(&mut self, id: EntryId) {
        let (seen, mut all) = (&self.app.seen, cke_phases(self.app, id));
        let store = &seen.snapshot.store;
        let requested = store.requests.get(&id).and_then(Stored::get).map(|r| r.at);
        all.extend(requested.map(|at| phase(at, 'q', "queued")));
        let draining_since = match (queries::entry(seen, id), queries::repair(seen, id)) {
            (Some(e), _) => e.last_transition_time.filter(|_| e.status == RebootStatus::Draining),
            (_, Some(e)) => e.last_transition_time.filter(|_| e.unfinished() && e.step_status == StepStatus::Draining),
            _ => None,
        };
        // If an entry reboots already, its drain is known only from the audit records, if they were read.
        let on = id.to_string();
        let read = self.app.knowledge.past.audit.rows.values().filter_map(|audit| audit.as_ref().ok());
        let read: Vec<_> = read.filter(|audit| audit.on == on).collect();
        let of = |what: &'static str| read.iter().filter(move |audit| audit.what == what).map(|audit| audit.at);
        all.extend(draining_since.into_iter().chain(of("drain")).map(|at| phase(at, 'd', "draining")));
        // Between two drains nothing is drained.
        let last_transition = match (queries::entry(seen, id), queries::repair(seen, id)) {
            (Some(e), _) => e.last_transition_time,
            (_, Some(e)) => e.last_transition_time,
            _ => None,
        };
        let backed_off_at = last_transition.filter(|_| queries::backoff_until(seen, id).is_some());
        all.extend(backed_off_at.into_iter().chain(of("back off")).map(|at| phase(at, 'b', "backoff")));
        all.extend(bar::attempts(store.attempts_of(id).filter_map(Stored::get)));
        let end = queries::repair(seen, id).filter(|e| e.finished()).and_then(|e| e.last_transition_time);
        self.bar(all, end.unwrap_or(self.now()));
    }

    /// Adds a bar and its legend.
    pub(super) fn bar(&mut self, phases: Vec<Phase>, end: Timestamp) {
        let look = (&self.app.config.theme, self.app.config.blocks);
        self.lines.extend(bar::phases(phases, end, self.width.saturating_sub(3), look).into_iter().map(|mut line| {
            line.spans.insert(0, Span::raw(" "));
            line
        }));
    }

    /// Adds the known events of an entry, oldest first.
    pub(super) fn timeline(&mut self, id: EntryId, last_transition: Option<Timestamp>, status: &str) {
        let store = &self.app.seen.snapshot.store;
        let mut events: Vec<(Timestamp, String)> = Vec::new();
        if let Some(r) = store.requests.get(&id).and_then(Stored::get) {
            events.push((r.at, format!("queued by {}", r.who)));
        }
        let is_withdrawn = store.entry(id).is_some_and(EntryRef::is_withdrawn);
        if let Some(cancel) = store.cancels.get(&id).and_then(Stored::get).filter(|_| is_withdrawn) {
            let why = cancel.reason.as_ref().map(|why| format!(": {why}")).unwrap_or_default();
            events.push((cancel.at, format!("{status} by {}{why}", cancel.who)));
        }
        // a cancel leaves the time of the transition before it
        if let Some(at) = last_transition.filter(|_| !is_withdrawn) {
            events.push((at, status.to_owned()));
        }
        for a in store.attempts_of(id).filter_map(Stored::get) {
            let of = step_suffix(a);
            events.push((a.start, format!("attempt {}{of} started on {}", a.number, a.host)));
            if let Some(o) = &a.outcome {
                events.push((o.at, format!("attempt {}{of}: {}", a.number, o.end)));
            }
        }
        if let Some(p) = queries::progress(&self.app.seen, id).filter(|p| p.phase != status) {
            events.push((p.since, p.phase.clone()));
        }
        if let Some(o) = store.orders.get(&id).and_then(Stored::get) {
            events.push((o.at, format!("{} ordered by {}", o.verb, o.who)));
        }
        events.extend(cke_records(self.app, id).into_iter().filter_map(|record| cke_event(self.app, id, record)));
        if events.is_empty() {
            return;
        }
        events.sort_by_key(|(at, _)| *at);
        self.heading("Timeline".to_owned());
        self.phases(id);
        for (at, what) in events {
            let line = format!("{:<10} {:>4} ago  {what}", calendar::time(self.app, at), when::age(at, self.now()));
            self.lines.extend(
                wrap(&short_text::safe(&line), self.width.saturating_sub(2))
                    .into_iter()
                    .map(|l| Line::from(format!("  {l}"))),
            );
        }
        if let Some(gap) = cke_gap(self.app, id) {
            let lines = wrap(&short_text::safe(&gap), self.width.saturating_sub(2));
            let muted = self.app.config.theme.muted;
            self.lines.extend(lines.into_iter().map(|line| Line::styled(format!("  {line}"), muted)));
        }
    }
}

/// Operations of CKE's records with which the work on an entry ends.
const ENDS: [&str; 2] = ["reboot-dequeue", "reboot-cancel"];

/// Returns CKE's records about the machine of an entry, oldest first: those since an entry of the machine ended last.
/// Empty unless CKE leads.
fn cke_records(app: &App, id: EntryId) -> Vec<&Record> {
    let store = &app.seen.snapshot.store;
    let Some(entry) = store.entry(id).filter(|_| beside_cke::applies(store)) else { return Vec::new() };
    let address = entry.address().as_str();
    let is_about = |record: &&Record| record.targets.iter().flatten().any(|target| target == address);
    let newest_first = app.knowledge.past.records.rows.values().filter_map(|read| read.as_deref().ok());
    let own = newest_first.filter(is_about).take_while(|record| !ENDS.contains(&record.operation.as_str()));
    let mut own: Vec<&Record> = own.collect();
    own.reverse();
    own
}

/// Reports whether the operation of a record failed on the machine of an entry, although CKE completed it.
fn failed_on(app: &App, id: EntryId, record: &Record) -> bool {
    queries::address_of(&app.seen, id).is_some_and(|address| record.failed_machines().contains(address))
}

/// Returns the event of a record about the machine of an entry.
fn cke_event(app: &App, id: EntryId, record: &Record) -> Option<(Timestamp, String)> {
    let what = match (record.operation.as_str(), failed_on(app, id, record)) {
        ("reboot-drain-start", true) => "drain refused",
        ("reboot-drain-start", false) => "drain began",
        ("reboot-drain-timeout", _) => "drain given up after its time limit",
        ("reboot-reboot", true) => "reboot command failed",
        ("reboot-reboot", false) => "reboot command",
        ("reboot-uncordon", _) => "uncordoned",
        (other, _) => other,
    };
    let took = record.start_at.zip(record.end_at).map(|(start, end)| format!(", took {}", when::age(start, end)));
    let error = if record.error.is_empty() { String::new() } else { format!(": {}", record.error) };
    Some((record.start_at?, format!("CKE: {what}{}{error}", took.unwrap_or_default())))
}

/// Returns the phases that CKE's records about the machine of an entry show.
fn cke_phases(app: &App, id: EntryId) -> Vec<Phase> {
    let of = |record: &Record| match (record.operation.as_str(), record.start_at, record.end_at) {
        ("reboot-drain-start", Some(start), end) => {
            let refused = end.filter(|_| failed_on(app, id, record)).map(|end| phase(end, 'b', "backoff"));
            std::iter::once(phase(start, 'd', "draining")).chain(refused).collect()
        }
        ("reboot-drain-timeout", Some(start), _) => vec![phase(start, 'b', "backoff")],
        ("reboot-reboot", Some(start), end) => {
            let after = end.map(|end| phase(end, 'w', "waiting for the machine"));
            std::iter::once(phase(start, 'c', "command")).chain(after).collect()
        }
        _ => Vec::new(),
    };
    cke_records(app, id).into_iter().flat_map(of).collect()
}

/// Returns why the timeline may lack CKE's work.
fn cke_gap(app: &App, id: EntryId) -> Option<String> {
    if !beside_cke::applies(&app.seen.snapshot.store) {
        return None;
    }
    let records = &app.knowledge.past.records;
    match &records.error {
        Some(why) => Some(format!("CKE's records of its drains cannot be read: {why}")),
        None if !records.loaded => Some("reading CKE's records of its drains ...".to_owned()),
        None if cke_records(app, id).is_empty() => {
            let key = app.key("history");
            Some(format!("CKE's latest records name no work on this machine; {key} has what CKE recorded"))
        }
        None => None,
    }
}

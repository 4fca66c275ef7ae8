//! Timeline of an ended entry: its request, the engine's actions, each attempt and the end, in order. It is made from
//! the history object and the audit records of that time.

use std::collections::BTreeSet;

use jiff::Timestamp;
use serde::Serialize;

use super::{
    attempt::Attempt,
    cketerm_records::{Audit, Ending},
    entry::EntryId,
    secret,
    time::after,
};

/// Assumed time from the request to the end, in seconds, of an entry whose request is not recorded (`ckecli`).
const ASSUMED_LIFETIME: i64 = 7 * 86_400;
/// Time after the end of an entry whose audit records belong to it, in seconds: a leader that keeps the cordon until the
/// reboot is proven uncordons the Node later.
const RECORDS_AFTER_END: i64 = 86_400;
/// Greatest expected difference between the clocks of two hosts, in seconds.
const CLOCK_DIFFERENCE: i64 = 3_600;

/// An event of an entry's life.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct TimelineEntry {
    /// Time of the event.
    pub at: Timestamp,
    /// Description.
    pub what: String,
    /// A user or the engine; none for an attempt that the leader ran by itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub who: Option<String>,
    /// Reason, if one was given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Whether a drain of the entry began with it.
    #[serde(skip)]
    pub drain: bool,
}

/// Audit records that are left out, because the attempts and the ending show them better.
const SKIPPED_ACTIONS: [&str; 5] =
    [Audit::REBOOT_COMMAND, Audit::REPAIR_COMMAND, Audit::SUCCESS_COMMAND, "end", "stamp"];

impl Ending {
    /// Returns true if the entry ended as intended: booted, healthy, or done by an operator's order.
    pub fn good(&self) -> bool {
        self.end.good()
    }

    /// Returns the period of its audit records. Without a recorded request its start is assumed.
    pub fn lifetime(&self) -> (Timestamp, Timestamp) {
        let begin = self.request.as_ref().map_or_else(|| after(self.at, -ASSUMED_LIFETIME), |request| request.at);
        (after(begin, -CLOCK_DIFFERENCE), after(self.at, RECORDS_AFTER_END))
    }

    /// Reports whether it ended so long before this time that no clock can be the reason.
    pub fn ended_before(&self, time: Timestamp) -> bool {
        self.at < after(time, -CLOCK_DIFFERENCE)
    }

    /// Returns its timeline, oldest event first. `audit` may hold records of other entries too.
    pub fn timeline(&self, audit: &[&Audit]) -> Vec<TimelineEntry> {
        let entry = self.entry.to_string();
        let mut moments = Vec::new();
        if let Some(request) = &self.request {
            let (who, reason) = (Some(request.who.to_string()), request.reason.clone());
            moments.push(TimelineEntry { at: request.at, what: "requested".to_owned(), who, reason, drain: false });
        }
        let is_own = |a: &&&Audit| a.on == entry && !SKIPPED_ACTIONS.contains(&a.what.as_str());
        for a in audit.iter().filter(is_own).chain(self.node_audit(audit).iter()) {
            let on = if a.on == entry { String::new() } else { format!(" {}", a.on) };
            let mut what = format!("{}{on}: {}", a.what, secret::masked(&a.result));
            if let Some(repeats) = a.repeats {
                what = format!("{what}, {} times, last at {}", repeats.count, format_seconds(repeats.last));
            }
            moments.push(TimelineEntry {
                at: a.at,
                what,
                who: Some(a.who.to_string()),
                reason: a.reason.clone(),
                drain: a.what == "drain",
            });
        }
        if self.omitted > 0 {
            let at = self.attempts.first().map_or(self.at, |a| a.start);
            let what = format!("{} earlier attempts, not kept", self.omitted);
            moments.push(TimelineEntry { at, what, who: None, reason: None, drain: false });
        }
        for attempt in &self.attempts {
            moments.push(started(attempt));
            moments.extend(ended(attempt));
        }
        moments.push(TimelineEntry {
            at: self.at,
            what: format!("ended: {}", self.outcome),
            who: None,
            reason: None,
            drain: false,
        });
        moments.sort_by_key(|m| m.at);
        moments
    }

    /// Returns the audit records of its Node on its behalf. The cordon names the entry; from then to the end the Node
    /// belonged to the entry.
    fn node_audit<'a>(&self, audit: &[&'a Audit]) -> Vec<&'a Audit> {
        let its_own = |a: &Audit| a.entry == Some(self.entry);
        let cordon = audit.iter().filter(|a| a.what == "cordon" && its_own(a)).min_by_key(|a| a.at);
        let Some(cordon) = cordon else { return Vec::new() };
        let unclaimed = |a: &Audit| a.entry.is_none() && a.at >= cordon.at && a.at <= self.at;
        audit
            .iter()
            .filter(|a| a.on == cordon.on && a.what != "stamp" && (its_own(a) || unclaimed(a)))
            .copied()
            .collect()
    }
}

impl Audit {
    /// Reports whether the timeline of one of these entries may show the record. It names one of them, or none: an
    /// operator's action on a Node.
    pub fn may_concern(&self, ids: &BTreeSet<EntryId>) -> bool {
        let on = self.on.parse().ok();
        let mut named = [self.entry, on].into_iter().flatten().peekable();
        named.peek().is_none() || named.any(|id| ids.contains(&id))
    }
}

/// Returns the time in whole seconds, for display.
fn format_seconds(at: Timestamp) -> String {
    at.strftime("%FT%TZ").to_string()
}

fn name(attempt: &Attempt) -> String {
    let step = attempt.step.map(|step| format!(" of step {}", step.saturating_add(1))).unwrap_or_default();
    let kind = if attempt.success { "success command".to_owned() } else { format!("command{step}") };
    format!("{kind}, attempt {}", attempt.number)
}

fn started(attempt: &Attempt) -> TimelineEntry {
    let what = format!("{} on {}: {}", name(attempt), attempt.host, attempt.command());
    TimelineEntry { at: attempt.start, what, who: attempt.ordered_by.clone(), reason: None, drain: false }
}

fn ended(attempt: &Attempt) -> Option<TimelineEntry> {
    let outcome = attempt.outcome.as_ref()?;
    let last_line = [&outcome.stderr, &outcome.stdout].into_iter().find_map(|text| text.trim().lines().last());
    let last_line = last_line.map(|line| format!(" ({})", secret::masked(line))).unwrap_or_default();
    let what = format!("{}: {}{last_line}", name(attempt), outcome.end);
    Some(TimelineEntry { at: outcome.at, what, who: None, reason: None, drain: false })
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn audit(at: u8, what: &str, on: &str, reason: Option<&str>) -> Audit {
        serde_json::from_value(json!({
            "at": format!("2026-06-01T00:00:{at:02}Z"), "who": {"user": "engine", "host": "boot-0"},
            "what": what, "on": on, "reason": reason, "result": "done",
        }))
        .unwrap()
    }

    fn of(entry: u64, audit: Audit) -> Audit {
        Audit { entry: Some(crate::entry::EntryId::reboot(entry)), ..audit }
    }

    fn ending(outcome: &str) -> Ending {
        let attempt = json!({
            "id": "a", "entry": "reboots/3", "number": 1, "address": "10.0.0.12", "lease": 7, "host": "boot-0",
            "argv": ["ipmi", "10.0.0.12"], "bound_seconds": 60, "start": "2026-06-01T00:00:20Z",
            "outcome": {"end": {"exit": 1}, "at": "2026-06-01T00:00:21Z", "stderr": "no route\n"},
        });
        let value: Value = json!({
            "entry": "reboots/3", "address": "10.0.0.12", "end": outcome, "outcome": outcome, "at": "2026-06-01T00:00:30Z", "last": {},
            "request": {"who": {"user": "anna", "host": "h"}, "at": "2026-06-01T00:00:01Z", "reason": "INC-1"},
            "attempts": [attempt],
        });
        serde_json::from_value(value).unwrap()
    }

    #[test]
    fn a_timeline_is_sorted_and_contains_only_its_own_entry() {
        let all = [
            audit(2, "drain", "reboots/3", None),
            of(3, audit(3, "cordon", "node w12", Some("for reboots/3"))),
            of(3, audit(4, "evict", "node w12", Some("shop/web-1"))),
            audit(5, "evict", "node w13", Some("shop/web-2")),
            audit(6, "reboot cancel", "reboots/4", None),
            audit(20, "power", "reboots/3", None),
            of(3, audit(31, "uncordon", "node w12", Some("after reboots/3"))),
            of(9, audit(25, "cordon", "node w12", Some("for reboots/9"))),
        ];
        let moments = ending("cancelled").timeline(&all.iter().collect::<Vec<_>>());
        let texts: Vec<&str> = moments.iter().map(|m| m.what.as_str()).collect();
        assert_eq!(
            texts,
            [
                "requested",
                "drain: done",
                "cordon node w12: done",
                "evict node w12: done",
                "command, attempt 1 on boot-0: ipmi 10.0.0.12",
                "command, attempt 1: exit 1 (no route)",
                "ended: cancelled",
                "uncordon node w12: done",
            ]
        );
        assert_eq!((moments[0].who.as_deref(), moments[0].reason.as_deref()), (Some("anna@h"), Some("INC-1")));
    }

    #[test]
    fn only_successful_ends_are_good() {
        for (outcome, good) in [
            ("booted", true),
            ("done", true),
            ("succeeded", true),
            ("cancelled", false),
            ("deleted", false),
            ("dequeued", false),
            ("failed", false),
            ("unrecorded", false),
        ] {
            assert_eq!(ending(outcome).good(), good, "{outcome}");
        }
    }
}

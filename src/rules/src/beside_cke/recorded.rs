//! Events that CKE's operation records tell: machines that rebooted, and work that failed.

use std::collections::BTreeMap;

use cketerm_model::{names::Address, record::Record};
use jiff::{SignedDuration, Timestamp};

/// Event of CKE that an operator wants to see without being asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// Number of the record.
    pub record: u64,
    /// Time at which the operation ended.
    pub at: Timestamp,
    /// The machines, by address. A list that CKE does not name is empty.
    pub machines: Vec<Address>,
    /// The event.
    pub kind: Kind,
    /// Number of records of the same event. This is the newest one.
    pub times: usize,
}

/// Kind of an event.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// The machines have booted. Time from the start of the drain, if one machine was rebooted and its record is known.
    Rebooted(Option<SignedDuration>),
    /// Entries left the queue without a reboot: their machines left the definition.
    Removed,
    /// CKE removed cancelled entries.
    Cancelled,
    /// Drains were refused and back off.
    DrainRefused,
    /// Drains took too long and back off.
    DrainTimedOut,
    /// The reboot commands failed.
    RebootFailed,
    /// Repairs have ended.
    RepairEnded,
    /// Another operation ended with this text about what failed: its name and the text.
    Failed(String, String),
}

impl Kind {
    /// Reports whether an operator may have to act.
    pub fn failed(&self) -> bool {
        match self {
            Self::Rebooted(_) | Self::Removed | Self::Cancelled | Self::RepairEnded => false,
            Self::DrainRefused | Self::DrainTimedOut | Self::RebootFailed | Self::Failed(..) => true,
        }
    }
}

/// Reboot of a machine, as far as the records tell it.
#[derive(Clone, Copy, Default)]
struct Reboot {
    drain: Option<Timestamp>,
    commanded: bool,
}

/// Returns the events of these records, the newest first. Records that cketerm wrote are left out, and so is work that
/// runs or that succeeded without being an end. Of the same failure again and again only the newest is an event.
pub fn events<'a>(records: impl IntoIterator<Item = &'a Record>) -> Vec<Event> {
    let mut records: Vec<&Record> = records.into_iter().filter(|record| !record.by_cketerm()).collect();
    records.sort_by_key(|record| record.id);
    let mut reboots: BTreeMap<Address, Reboot> = BTreeMap::new();
    let mut found: Vec<Event> = Vec::new();
    for record in records {
        let targets = targets(record);
        if let Some(event) = event(record, &targets, &reboots) {
            found.push(event);
        }
        for target in targets {
            match record.operation.as_str() {
                "reboot-drain-start" => {
                    reboots.insert(target, Reboot { drain: record.start_at, commanded: false });
                }
                "reboot-reboot" => reboots.entry(target).or_default().commanded = true,
                "reboot-dequeue" | "reboot-cancel" => {
                    reboots.remove(&target);
                }
                _ => {}
            }
        }
    }
    fold(found)
}

fn targets(record: &Record) -> Vec<Address> {
    record.targets.iter().flatten().map(|target| Address::new(target.as_str())).collect()
}

fn event(record: &Record, targets: &[Address], reboots: &BTreeMap<Address, Reboot>) -> Option<Event> {
    let at = record.end_at?;
    let of =
        |machines: &[Address], kind| Some(Event { record: record.id, at, machines: machines.to_vec(), kind, times: 1 });
    let other = |text: &str| of(targets, Kind::Failed(record.operation.clone(), text.to_owned()));
    if !record.error.is_empty() {
        return other(&record.error);
    }
    if record.status != "completed" {
        return None;
    }
    let failed = record.failed_machines();
    match record.operation.as_str() {
        "reboot-dequeue" => {
            let known: Vec<Option<&Reboot>> = targets.iter().map(|target| reboots.get(target)).collect();
            let took = match known[..] {
                [Some(Reboot { drain: Some(drain), .. })] => Some(at.duration_since(*drain)),
                _ => None,
            };
            let rebooted = known.iter().all(|reboot| reboot.is_none_or(|reboot| reboot.commanded));
            of(targets, if rebooted { Kind::Rebooted(took) } else { Kind::Removed })
        }
        "reboot-cancel" => of(targets, Kind::Cancelled),
        "reboot-drain-timeout" => of(targets, Kind::DrainTimedOut),
        "repair-finish" => of(targets, Kind::RepairEnded),
        "reboot-drain-start" if !failed.is_empty() => of(&failed, Kind::DrainRefused),
        "reboot-reboot" if !failed.is_empty() => of(&failed, Kind::RebootFailed),
        _ if !record.info.is_empty() => other(&record.info),
        _ => None,
    }
}

/// Counts failures that are the same, newest first.
fn fold(events: Vec<Event>) -> Vec<Event> {
    let mut places: BTreeMap<(Kind, Vec<Address>), usize> = BTreeMap::new();
    let mut folded: Vec<Event> = Vec::new();
    for event in events.into_iter().rev() {
        if event.kind.failed() {
            let place = *places.entry((event.kind.clone(), event.machines.clone())).or_insert(folded.len());
            if let Some(newest) = folded.get_mut(place) {
                newest.times += 1;
                continue;
            }
        }
        folded.push(event);
    }
    folded
}

#[cfg(test)]
mod tests {
    use super::*;

    const BEGIN: i64 = 1_785_000_000;

    fn record(id: u64, operation: &str, targets: &[&str], info: &str) -> Record {
        let at = |second| Timestamp::from_second(BEGIN + second).unwrap();
        let seconds = i64::try_from(id).unwrap() * 10;
        let mut record = Record::completed(id, operation, "", "", at(seconds), at(seconds + 4));
        record.command.name = "command".to_owned();
        record.targets = Some(targets.iter().map(|target| (*target).to_owned()).collect());
        record.info = info.to_owned();
        record
    }

    fn kinds(records: &[Record]) -> Vec<(u64, Kind, usize)> {
        events(records).into_iter().map(|event| (event.record, event.kind, event.times)).collect()
    }

    #[test]
    fn a_reboot_is_one_event_at_its_end_with_the_time_from_its_last_drain() {
        let a = "10.0.0.11";
        let refused = "failed to drain some nodes: [10.0.0.11]";
        let records = [
            record(1, "reboot-drain-start", &[a], refused),
            record(2, "reboot-uncordon", &[a], ""),
            record(3, "reboot-drain-start", &[a], ""),
            record(4, "reboot-delete-daemonset-pod", &[a], ""),
            record(5, "reboot-reboot", &[a], ""),
            record(6, "reboot-dequeue", &[a], ""),
            record(7, "reboot-uncordon", &[a], ""),
        ];
        let took = SignedDuration::from_secs(34);
        assert_eq!(kinds(&records), [(6, Kind::Rebooted(Some(took)), 1), (1, Kind::DrainRefused, 1)]);
        assert_eq!(kinds(&records[5..]), [(6, Kind::Rebooted(None), 1)], "older records are not read yet");
        let left = [record(3, "reboot-drain-start", &[a], ""), record(4, "reboot-dequeue", &[a], "")];
        assert_eq!(kinds(&left), [(4, Kind::Removed, 1)]);
    }

    #[test]
    fn entries_that_are_removed_together_were_rebooted_only_if_all_were_commanded() {
        let (a, b) = ("10.0.0.11", "10.0.0.12");
        let removed = |commanded: &[&str]| {
            let records = [
                record(1, "reboot-drain-start", &[a, b], ""),
                record(2, "reboot-reboot", commanded, ""),
                record(3, "reboot-dequeue", &[a, b], ""),
            ];
            kinds(&records)
        };
        assert_eq!(removed(&[a, b]), [(3, Kind::Rebooted(None), 1)]);
        assert_eq!(removed(&[a]), [(3, Kind::Removed, 1)]);
    }

    #[test]
    fn the_same_failure_again_is_counted_and_names_its_machines() {
        let refused = "failed to drain some nodes: [10.0.0.12]";
        let mut records: Vec<Record> =
            (1..=50).map(|id| record(id, "reboot-drain-start", &["10.0.0.12", "10.0.0.13"], refused)).collect();
        records.push(record(51, "reboot-reboot", &["10.0.0.13"], "failed to reboot some nodes: [10.0.0.13]"));
        let found = events(&records);
        assert_eq!(kinds(&records), [(51, Kind::RebootFailed, 1), (50, Kind::DrainRefused, 50)]);
        assert_eq!(found[1].machines, [Address::new("10.0.0.12")]);
    }

    #[test]
    fn running_work_and_cketerms_records_are_no_events_and_an_error_is_one() {
        let mut running = record(1, "reboot-dequeue", &["10.0.0.11"], "");
        (running.status, running.end_at) = ("running".to_owned(), None);
        let mut ours = record(2, "reboot-dequeue", &["10.0.0.11"], "");
        ours.command.name = "reboot-dequeue (cketerm)".to_owned();
        let mut failed = record(3, "etcd-boot", &["10.0.0.11"], "");
        (failed.status, failed.error) = ("cancelled".to_owned(), "no SSH".to_owned());
        let mut ended_by_the_next_leader = record(4, "reboot-reboot", &["10.0.0.11"], "");
        ended_by_the_next_leader.status = "cancelled".to_owned();
        let records = [running, ours, failed, ended_by_the_next_leader];
        assert_eq!(kinds(&records), [(3, Kind::Failed("etcd-boot".to_owned(), "no SSH".to_owned()), 1)]);
    }
}

//! How long it takes until a queue is through, by the pace at which its entries ended lately. An estimate: it says from
//! what it was made, and says nothing where there is too little.

use jiff::{SignedDuration, Timestamp};

use super::past::Ended;
use crate::model::entry::QueueKind;

/// From so many entries on a pace is told.
const FEWEST: usize = 3;
/// Most entries that are looked at.
const MOST: usize = 50;
/// Two entries that ended further apart are not of the same work.
const GAP: SignedDuration = SignedDuration::from_hours(1);

/// The pace of a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pace {
    /// From one entry that ended well to the next.
    pub each: SignedDuration,
    /// Made from so many entries.
    pub of: usize,
}

/// From how many entries a pace is told where so many are in work at once: what ends together is no pace.
pub fn fewest(slots: Option<i64>) -> usize {
    slots.and_then(|n| usize::try_from(n).ok()).unwrap_or(1).saturating_mul(2).clamp(FEWEST, MOST / 2)
}

/// The pace of the entries that ended well lately, newest first; none where fewer than `fewest` did.
pub fn pace<'a>(
    ended: impl Iterator<Item = &'a Ended>,
    queue: QueueKind,
    fewest: usize,
    now: Timestamp,
) -> Option<Pace> {
    let mut after = now;
    let mut times: Vec<Timestamp> = Vec::new();
    for at in ended.filter(|e| e.good && e.entry.queue == queue).map(|e| e.at).take(MOST) {
        if after.duration_since(at) > GAP {
            break;
        }
        after = at;
        times.push(at);
    }
    let (newest, oldest) = (times.first()?, times.last()?);
    if times.len() < fewest {
        return None;
    }
    let parts = i32::try_from(times.len()).ok()?;
    let each = newest.duration_since(*oldest) / (parts - 1);
    // nothing has ended for longer than that: it is slower by now
    let each = each.max(now.duration_since(*oldest) / parts);
    (each > SignedDuration::ZERO).then_some(Pace { each, of: times.len() })
}

impl Pace {
    /// How long so many entries take.
    pub fn through(&self, left: usize) -> SignedDuration {
        self.each * i32::try_from(left).unwrap_or(i32::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{entry::EntryId, time::after};

    fn now() -> Timestamp {
        "2026-11-21T10:00:00Z".parse().unwrap()
    }

    fn told(ago: &[i64]) -> Option<Pace> {
        let ended: Vec<Ended> = ago
            .iter()
            .map(|ago| Ended {
                entry: EntryId::reboot(1),
                address: String::new(),
                node: None,
                outcome: "booted".into(),
                good: *ago >= 0,
                at: after(now(), -ago.abs()),
                request: None,
                attempts: 1,
            })
            .collect();
        pace(ended.iter(), QueueKind::Reboot, fewest(Some(1)), now())
    }

    #[test]
    fn the_pace_is_that_of_the_entries_that_ended_well_one_after_the_other() {
        let pace = told(&[60, 180, -200, 300, 420]).unwrap();
        assert_eq!((pace.each.as_secs(), pace.of), (120, 4));
        assert_eq!(pace.through(5).as_secs(), 600);
    }

    #[test]
    fn too_few_or_too_old_ones_tell_nothing() {
        assert_eq!(told(&[]), None);
        assert_eq!(told(&[60, 180]), None);
        assert_eq!(told(&[7200, 7300, 7400]), None, "that was another work");
        assert_eq!(told(&[60, 180, 7200, 7300]), None, "two of this work");
    }

    #[test]
    fn two_waves_at_least_make_a_pace_where_many_are_in_work_at_once() {
        assert_eq!([fewest(None), fewest(Some(1)), fewest(Some(4)), fewest(Some(100))], [3, 3, 8, 25]);
    }

    #[test]
    fn where_nothing_ends_any_more_the_estimate_grows() {
        assert_eq!(told(&[1200, 1260, 1320]).map(|p| p.each.as_secs()), Some(440));
    }
}

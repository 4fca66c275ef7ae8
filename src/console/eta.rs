//! Estimated time until a queue is empty, from the rate at which its entries ended lately. The text shows the data
//! behind the estimate. Without enough data there is no estimate.

use jiff::{SignedDuration, Timestamp};

use super::{event::count, past::Ended, when};
use crate::{
    actions::start::{Bar, Start},
    model::entry::QueueKind,
};

/// Fewest ended entries that give a rate.
const FEWEST: usize = 3;
/// Most ended entries that are counted.
const MOST: usize = 50;
/// Two entries whose ends are further apart do not belong to the same batch of work.
const GAP: SignedDuration = SignedDuration::from_hours(1);

/// Throughput of a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Throughput {
    /// Time from one successful end to the next.
    pub each: SignedDuration,
    /// Time that one entry takes from its command to its end. With several at once, ends follow faster than that.
    pub one: SignedDuration,
    /// Number of entries that it was computed from.
    pub of: usize,
}

/// Returns the fewest ended entries that give a rate for this number of slots. Entries that run at once also end at
/// once, which is not a rate.
pub fn fewest(slots: Option<i64>) -> usize {
    slots.and_then(|n| usize::try_from(n).ok()).unwrap_or(1).saturating_mul(2).clamp(FEWEST, MOST / 2)
}

/// Factor that makes a gap between two ends a pause: the queue was frozen, closed or empty. The gap is a pause if it is
/// longer than the usual gap times this factor, or times `fewest` if that is more.
const PAUSE: usize = 5;

/// Computes the throughput from the entries that succeeded lately, newest first. `None` if fewer than `fewest` did.
///
/// Pauses do not count, nor does the time since the last end while nothing is in progress. `busy` = time since which
/// something is in progress.
pub fn throughput<'a>(
    ended: impl Iterator<Item = &'a Ended>,
    queue: QueueKind,
    fewest: usize,
    now: Timestamp,
    busy: Option<Timestamp>,
) -> Option<Throughput> {
    let mut ended = ended.filter(|e| e.end.good() && e.entry.queue == queue).peekable();
    let newest = ended.peek()?.at;
    let began = busy.map_or(now, |since| since.max(newest));
    let mut after = if busy.is_some() { now } else { newest };
    let (mut times, mut away): (Vec<Timestamp>, Vec<SignedDuration>) = (Vec::new(), Vec::new());
    for one in ended.take(MOST) {
        if after.duration_since(one.at) > GAP {
            break;
        }
        after = one.at;
        times.push(one.at);
        away.extend(one.commanded.map(|began| one.at.duration_since(began)));
    }
    if times.len() < fewest {
        return None;
    }
    let mut gaps: Vec<SignedDuration> = times.windows(2).map(|two| two[0].duration_since(two[1])).collect();
    let usual = mean(&gaps)?;
    gaps.retain(|gap| *gap <= usual * i32::try_from(fewest.max(PAUSE)).unwrap_or(i32::MAX));
    let each = mean(&gaps)?;
    // Nothing has ended for longer than that, so the rate is slower by now.
    gaps.push(now.duration_since(began));
    let each = each.max(mean(&gaps)?);
    let one = mean(&away).unwrap_or_default();
    (each > SignedDuration::ZERO).then_some(Throughput { each, one, of: times.len() })
}

fn mean(gaps: &[SignedDuration]) -> Option<SignedDuration> {
    let parts = i32::try_from(gaps.len()).ok().filter(|n| *n > 0)?;
    Some(gaps.iter().sum::<SignedDuration>() / parts)
}

/// Entries that are left in a queue, their rate, and the time from which they can start.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Left {
    /// Entries that will end without an operator.
    pub left: usize,
    /// Of these, the ones that end even if no other entry may start.
    pub ending: usize,
    /// Entries on hold.
    pub held: usize,
    /// Entries that need an operator.
    pub stuck: usize,
    /// Entries that wait behind another entry of the same machine, which is on hold, backs off or is stuck.
    pub behind: usize,
    /// Number of entries in backoff, and the earliest retry.
    pub backoff: Option<(usize, Timestamp)>,
    /// Of `left`, the API servers: each reboots alone.
    pub alone: usize,
    /// Number of other entries that run at once.
    pub slots: usize,
    /// Throughput of the ended entries.
    pub throughput: Option<Throughput>,
    /// Fewest ended entries that give a rate. `None` until the history was read.
    pub fewest: Option<usize>,
    /// The time from which entries can start.
    pub start: Option<Start>,
}

/// Importance of a piece of text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tone {
    /// Plain fact.
    Plain,
    /// An operator has to wait for it.
    Trouble,
    /// Basis of the estimate.
    Aside,
}

impl Left {
    /// Returns the estimate as text: `about 4m for 8 reboots; 6 on hold (those done by 10:10 UTC, one every 18s as the
    /// last 16)`, `8 reboots not before 04:51 UTC (freeze)`. The most important part comes first, because narrow
    /// screens cut off the end. Empty if nothing is left.
    pub fn said(&self, what: &str, clock: impl Fn(Timestamp) -> String) -> Vec<(String, Tone)> {
        if self.nothing() {
            return Vec::new();
        }
        let shut = self.start.as_ref().and_then(|start| start.bar.as_ref());
        let bar = shut.filter(|_| self.ending < self.left);
        let (left, mut aside) = (count(self.left, what), String::new());
        let mut said = match (bar, &self.throughput) {
            _ if self.left == 0 => vec![match (self.backoff, shut) {
                (Some(_), Some(bar @ (Bar::Disabled | Bar::Not(_) | Bar::Held(_)))) => {
                    (format!("no {what} starts {}", bar.said(&clock)), Tone::Trouble)
                }
                (Some((_, next)), bar) => {
                    let next = if let Some(Bar::Before(at, _)) = bar { next.max(*at) } else { next };
                    (format!("the next {what} is retried {}", clock(next)), Tone::Trouble)
                }
                (None, _) => (format!("no {what} can end on its own"), Tone::Trouble),
            }],
            (Some(bar), _) => {
                let bar = format!("not {}", bar.said(&clock));
                " (no estimate yet)".clone_into(&mut aside);
                match self.ending {
                    0 => vec![(left, Tone::Plain), (format!(" {bar}"), Tone::Trouble)],
                    n => vec![
                        (format!("{} in work, {}", count(n, what), self.left - n), Tone::Plain),
                        (format!(" {bar}"), Tone::Trouble),
                    ],
                }
            }
            (None, Some(throughput)) => {
                vec![(format!("about {} for {left}", when::span(self.work(throughput))), Tone::Plain)]
            }
            (None, None) => {
                aside = self.fewest.map(|n| format!(" (needs {n} completed)")).unwrap_or_default();
                vec![(format!("{left} left; no estimate yet"), Tone::Plain)]
            }
        };
        if let (Some(throughput), true) = (&self.throughput, self.left > 0) {
            let work = self.work(throughput);
            // Entries in progress end even if no other may start: no window applies to them.
            let start = self.start.as_ref().filter(|start| bar.is_some() || start.bar.is_none());
            let end = start.and_then(|start| start.end(work)).map(|(at, openings)| {
                let windows = if openings > 1 { format!(" in {openings} windows") } else { String::new() };
                // Entries on hold, in backoff or stuck are not among them.
                let which = if self.held + self.behind + self.resting() > 0 { "those done by" } else { "done by" };
                format!("{which} {}{windows}", clock(at))
            });
            let then = bar.map(|_| format!("then about {}", when::span(work)));
            let rate = format!("one every {} like the last {}", when::span(throughput.each), throughput.of);
            let told: Vec<String> = then.into_iter().chain(end).chain([rate]).collect();
            aside = format!(" ({})", told.join(", "));
        }
        let mut gap = "; ";
        for (n, how, tone) in [
            (self.held, "on hold", Tone::Plain),
            (self.backoff.map_or(0, |(n, _)| n), "in backoff", Tone::Trouble),
            (self.stuck, "stuck", Tone::Trouble),
            (self.behind, "behind those", Tone::Plain),
        ] {
            if n > 0 {
                said.push((format!("{gap}{n} {how}"), tone));
                gap = ", ";
            }
        }
        if !aside.is_empty() {
            said.push((aside, Tone::Aside));
        }
        said
    }

    /// Returns true if no entry is left in any state.
    pub fn nothing(&self) -> bool {
        self.left + self.held + self.behind + self.resting() == 0
    }

    /// Returns the number of entries that are stuck or in backoff.
    pub fn resting(&self) -> usize {
        self.stuck + self.backoff.map_or(0, |(n, _)| n)
    }

    fn work(&self, throughput: &Throughput) -> SignedDuration {
        throughput.through(as_one_by_one(self.left, self.alone, self.slots))
    }
}

/// Returns how many entries, started one after another, take as long as these. The rate is that of several slots at
/// once, but an API server reboots alone.
pub fn as_one_by_one(entries: usize, alone: usize, slots: usize) -> usize {
    entries + alone.min(entries) * slots.saturating_sub(1)
}

impl Throughput {
    /// Returns the time that so many entries take: at least the time of one.
    pub fn through(&self, left: usize) -> SignedDuration {
        (self.each * i32::try_from(left).unwrap_or(i32::MAX)).max(self.one)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{cketerm_records::EndKind, entry::EntryId, time::after};

    fn now() -> Timestamp {
        "2026-11-21T10:00:00Z".parse().unwrap()
    }

    fn end(ago: i64) -> Ended {
        Ended {
            entry: EntryId::reboot(1),
            address: String::new(),
            node: None,
            outcome: "booted".into(),
            end: if ago >= 0 { EndKind::Booted } else { EndKind::Failed },
            at: after(now(), -ago.abs()),
            request: None,
            commanded: None,
            attempts: 1,
        }
    }

    fn told(ago: &[i64]) -> Option<Throughput> {
        told_of(ago, false)
    }

    fn told_of(ago: &[i64], rests: bool) -> Option<Throughput> {
        let ended: Vec<Ended> = ago.iter().map(|ago| end(*ago)).collect();
        let busy = (!rests).then(|| after(now(), -86_400));
        throughput(ended.iter(), QueueKind::Reboot, fewest(Some(1)), now(), busy)
    }

    #[test]
    fn the_pace_is_that_of_the_entries_that_ended_well_one_after_the_other() {
        let throughput = told(&[60, 180, -200, 300, 420]).unwrap();
        assert_eq!((throughput.each.as_secs(), throughput.of), (120, 4));
        assert_eq!(throughput.through(5).as_secs(), 600);
    }

    /// A single entry takes as long as one entry takes, even if entries run three at once.
    #[test]
    fn one_alone_takes_no_less_than_one_did() {
        let three_at_once = |i: i64| Ended { commanded: Some(after(now(), -60 - 5 * i)), ..end(50 + 5 * i) };
        let ended: Vec<Ended> = (0..6).map(three_at_once).collect();
        let throughput = throughput(ended.iter(), QueueKind::Reboot, 3, now(), None).unwrap();
        assert_eq!((throughput.each.as_secs(), throughput.one.as_secs()), (5, 10));
        assert_eq!([1, 2, 4].map(|n| throughput.through(n).as_secs()), [10, 10, 20]);
    }

    /// An entry behind one on hold must not be promised a start.
    #[test]
    fn what_backs_off_behind_a_closed_queue_is_not_said_to_start() {
        let left = Left { backoff: Some((4, after(now(), 420))), behind: 1, ..Left::default() };
        let told = |bar: Option<Bar>| {
            let start = Some(Start::at(now(), bar));
            let left = Left { start, ..left.clone() };
            left.said("reboot", |at| at.strftime("%H:%M").to_string()).into_iter().map(|(t, _)| t).collect::<String>()
        };
        assert_eq!(told(None), "the next reboot is retried 10:07; 4 in backoff, 1 behind those");
        assert_eq!(
            told(Some(Bar::Disabled)),
            "no reboot starts while the queue is disabled; 4 in backoff, 1 behind those"
        );
        let opens = Bar::Before(after(now(), 3600), "window");
        assert_eq!(told(Some(opens)), "the next reboot is retried 11:00; 4 in backoff, 1 behind those");
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

    /// A freeze of six minutes must not count as work.
    #[test]
    fn a_pause_is_no_work_and_waves_are_no_pauses() {
        let ago = |from: i64, n: i64| (0..n).map(move |i| from + 4 * i);
        let two_batches: Vec<i64> = ago(10, 8).chain(ago(410, 8)).collect();
        assert_eq!(told(&two_batches).map(|p| p.each.as_secs()), Some(4));
        let waves: Vec<i64> = (0..16).map(|i| 60 + i / 4 * 600).collect();
        let busy = Some(after(now(), -60));
        let ended: Vec<Ended> = waves.iter().map(|ago| end(*ago)).collect();
        let throughput = throughput(ended.iter(), QueueKind::Reboot, fewest(Some(4)), now(), busy).unwrap();
        assert_eq!(throughput.each.as_secs(), 120, "four at once in ten minutes");
        assert_eq!(as_one_by_one(5, 3, 4), 14, "two of four at once, and three alone");
    }

    #[test]
    fn a_queue_that_rests_grows_no_slower() {
        assert_eq!(told_of(&[7200, 7260, 7320], true).map(|p| p.each.as_secs()), Some(60));
    }

    /// The estimate names everything that stops the queue.
    #[test]
    fn i8_what_is_left_is_told_with_all_that_stops_it() {
        let throughput = Some(Throughput { each: SignedDuration::from_secs(18), one: SignedDuration::ZERO, of: 16 });
        let frozen = || Bar::Before(after(now(), 6660), "freeze");
        let opens = || Bar::Before("2026-11-23T02:00:00Z".parse().unwrap(), "window");
        let left = |left, held, stuck| Left { left, held, stuck, throughput, fewest: Some(3), ..Left::default() };
        let table: &[(Left, Option<Bar>, &str)] = &[
            (left(0, 0, 0), None, ""),
            (left(8, 0, 0), None, "about 2m for 8 reboots (done by 10:02, one every 18s like the last 16)"),
            (
                left(8, 6, 0),
                None,
                "about 2m for 8 reboots; 6 on hold (those done by 10:02, one every 18s like the last 16)",
            ),
            (
                left(8, 6, 1),
                None,
                "about 2m for 8 reboots; 6 on hold, 1 stuck (those done by 10:02, one every 18s like the last 16)",
            ),
            (left(0, 6, 0), None, "no reboot can end on its own; 6 on hold"),
            (
                Left { backoff: Some((3, after(now(), 420))), ..left(0, 0, 1) },
                None,
                "the next reboot is retried 10:07; 3 in backoff, 1 stuck",
            ),
            (
                Left { alone: 3, slots: 4, ..left(3, 0, 0) },
                None,
                "about 3m for 3 reboots (done by 10:03, one every 18s like the last 16)",
            ),
            (left(0, 6, 2), Some(frozen()), "no reboot can end on its own; 6 on hold, 2 stuck"),
            (
                left(14, 0, 1),
                Some(frozen()),
                "14 reboots not before 11:51 (freeze); 1 stuck (then about 4m, those done by 11:55, one every 18s like the last 16)",
            ),
            (
                left(1, 0, 0),
                Some(opens()),
                "1 reboot not before 02:00 (window) (then about 18s, done by 02:00, one every 18s like the last 16)",
            ),
            (
                Left { ending: 2, ..left(8, 0, 0) },
                Some(frozen()),
                "2 reboots in work, 6 not before 11:51 (freeze) (then about 2m, done by 11:53, one every 18s like the last 16)",
            ),
            (
                Left { ending: 2, ..left(2, 0, 0) },
                Some(frozen()),
                "about 36s for 2 reboots (one every 18s like the last 16)",
            ),
            (
                left(8, 0, 0),
                Some(Bar::Disabled),
                "8 reboots not while the queue is disabled (then about 2m, one every 18s like the last 16)",
            ),
            (
                Left { throughput: None, ..left(8, 1, 0) },
                Some(Bar::Not("while nobody leads")),
                "8 reboots not while nobody leads; 1 on hold (no estimate yet)",
            ),
            (
                Left { throughput: None, ..left(8, 1, 0) },
                None,
                "8 reboots left; no estimate yet; 1 on hold (needs 3 completed)",
            ),
            (Left { throughput: None, fewest: None, ..left(8, 0, 0) }, None, "8 reboots left; no estimate yet"),
        ];
        for (left, bar, want) in table {
            let left = Left { start: Some(Start::at(now(), bar.clone())), ..left.clone() };
            let said = left.said("reboot", |at| at.strftime("%H:%M").to_string());
            let said: String = said.into_iter().map(|(text, _)| text).collect();
            assert_eq!(said, *want, "{left:?}");
        }
    }
}

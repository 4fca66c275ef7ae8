//! How long it takes until a queue is through, by the pace at which its entries ended lately. An estimate: it says from
//! what it was made, and says nothing where there is too little.

use jiff::{SignedDuration, Timestamp};

use super::{event::count, past::Ended, when};
use crate::{
    actions::start::{Bar, Start},
    model::entry::QueueKind,
};

/// From so many entries on a pace is told.
const FEWEST: usize = 3;
/// Most entries that are looked at.
const MOST: usize = 50;
/// Two entries that ended further apart are not of the same work.
const GAP: SignedDuration = SignedDuration::from_hours(1);

/// The pace of a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Throughput {
    /// From one entry that ended well to the next.
    pub each: SignedDuration,
    /// How long one of them takes from its command to its end: several at once end faster one after the other.
    pub one: SignedDuration,
    /// Made from so many entries.
    pub of: usize,
}

/// From how many entries a pace is told where so many are in work at once: what ends together is no pace.
pub fn fewest(slots: Option<i64>) -> usize {
    slots.and_then(|n| usize::try_from(n).ok()).unwrap_or(1).saturating_mul(2).clamp(FEWEST, MOST / 2)
}

/// A time between two ends that is so many times the usual one, or as many times as make the fewest entries, is a pause: the queue
/// was frozen, shut, or empty.
const PAUSE: usize = 5;

/// The pace of the entries that ended well lately, newest first; none where fewer than `fewest` did. Pauses tell nothing of it,
/// nor does the time since the last end while nothing is in work; `busy` = since when something is.
pub fn throughput<'a>(
    ended: impl Iterator<Item = &'a Ended>,
    queue: QueueKind,
    fewest: usize,
    now: Timestamp,
    busy: Option<Timestamp>,
) -> Option<Throughput> {
    let mut ended = ended.filter(|e| e.good && e.entry.queue == queue).peekable();
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
    // nothing has ended for longer than that: it is slower by now
    gaps.push(now.duration_since(began));
    let each = each.max(mean(&gaps)?);
    let one = mean(&away).unwrap_or_default();
    (each > SignedDuration::ZERO).then_some(Throughput { each, one, of: times.len() })
}

fn mean(gaps: &[SignedDuration]) -> Option<SignedDuration> {
    let parts = i32::try_from(gaps.len()).ok().filter(|n| *n > 0)?;
    Some(gaps.iter().sum::<SignedDuration>() / parts)
}

/// What is left of a queue, and how fast and from when on it goes.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Left {
    /// Entries that will still come to their end by themselves.
    pub left: usize,
    /// Of these, those that end whatever keeps the others from starting.
    pub ending: usize,
    /// Entries that a person holds.
    pub held: usize,
    /// Entries that need a person.
    pub stuck: usize,
    /// Entries that wait behind one that does not move: of a machine that is held, backs off or is stuck otherwise.
    pub behind: usize,
    /// Entries that back off and are tried again by themselves, and when the first of them is.
    pub backoff: Option<(usize, Timestamp)>,
    /// Of those that are left, API servers: each goes alone.
    pub alone: usize,
    /// How many of the others go at once.
    pub slots: usize,
    /// The pace of those that ended.
    pub throughput: Option<Throughput>,
    /// From how many a pace is told; none while history was not read.
    pub fewest: Option<usize>,
    /// From when on something starts.
    pub start: Option<Start>,
}

/// How much a piece of text matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tone {
    /// It is so.
    Plain,
    /// It keeps a person waiting.
    Trouble,
    /// What it was made from.
    Aside,
}

impl Left {
    /// `about 4m for 8 reboots; 6 on hold (those done by 10:10 UTC, one every 18s as the last 16)`, `8 reboots not before 04:51 UTC
    /// (freeze)`: what matters first, since narrow screens cut the end. Empty where nothing is left.
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
                    (format!("the next {what} is tried again {}", clock(next)), Tone::Trouble)
                }
                (None, _) => (format!("no {what} will end by itself"), Tone::Trouble),
            }],
            (Some(bar), _) => {
                let bar = format!("not {}", bar.said(&clock));
                " (nobody knows yet how long it takes then)".clone_into(&mut aside);
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
                aside = self.fewest.map(|n| format!(" (fewer than {n} have ended lately)")).unwrap_or_default();
                vec![(format!("not known yet for {left}"), Tone::Plain)]
            }
        };
        if let (Some(throughput), true) = (&self.throughput, self.left > 0) {
            let work = self.work(throughput);
            // what is in work ends, whatever keeps others from starting: no window counts for it
            let start = self.start.as_ref().filter(|start| bar.is_some() || start.bar.is_none());
            let end = start.and_then(|start| start.end(work)).map(|(at, openings)| {
                let windows = if openings > 1 { format!(" in {openings} windows") } else { String::new() };
                // those that rest are not among them
                let which = if self.held + self.behind + self.resting() > 0 { "those done by" } else { "done by" };
                format!("{which} {}{windows}", clock(at))
            });
            let then = bar.map(|_| format!("then about {}", when::span(work)));
            let rate = format!("one every {} as the last {}", when::span(throughput.each), throughput.of);
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

    /// Whether nothing is left, in whatever state.
    pub fn nothing(&self) -> bool {
        self.left + self.held + self.behind + self.resting() == 0
    }

    /// Entries that are stuck or back off.
    pub fn resting(&self) -> usize {
        self.stuck + self.backoff.map_or(0, |(n, _)| n)
    }

    fn work(&self, throughput: &Throughput) -> SignedDuration {
        throughput.through(as_one_by_one(self.left, self.alone, self.slots))
    }
}

/// So many entries take as long as these: with several slots the pace is that of several at once, and an API server goes alone.
pub fn as_one_by_one(entries: usize, alone: usize, slots: usize) -> usize {
    entries + alone.min(entries) * slots.saturating_sub(1)
}

impl Throughput {
    /// How long so many entries take: never less than one does.
    pub fn through(&self, left: usize) -> SignedDuration {
        (self.each * i32::try_from(left).unwrap_or(i32::MAX)).max(self.one)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{entry::EntryId, time::after};

    fn now() -> Timestamp {
        "2026-11-21T10:00:00Z".parse().unwrap()
    }

    fn end(ago: i64) -> Ended {
        Ended {
            entry: EntryId::reboot(1),
            address: String::new(),
            node: None,
            outcome: "booted".into(),
            good: ago >= 0,
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

    /// Review 9 of the operator, 4: "5s each" of machines that are away for ten, three at once.
    #[test]
    fn one_alone_takes_no_less_than_one_did() {
        let three_at_once = |i: i64| Ended { commanded: Some(after(now(), -60 - 5 * i)), ..end(50 + 5 * i) };
        let ended: Vec<Ended> = (0..6).map(three_at_once).collect();
        let throughput = throughput(ended.iter(), QueueKind::Reboot, 3, now(), None).unwrap();
        assert_eq!((throughput.each.as_secs(), throughput.one.as_secs()), (5, 10));
        assert_eq!([1, 2, 4].map(|n| throughput.through(n).as_secs()), [10, 10, 20]);
    }

    /// Review 9 of the operator, 4: what waits behind a held one was "about 5s".
    #[test]
    fn what_backs_off_behind_a_closed_queue_is_not_said_to_start() {
        let left = Left { backoff: Some((4, after(now(), 420))), behind: 1, ..Left::default() };
        let told = |bar: Option<Bar>| {
            let start = Some(Start::at(now(), bar));
            let left = Left { start, ..left.clone() };
            left.said("reboot", |at| at.strftime("%H:%M").to_string()).into_iter().map(|(t, _)| t).collect::<String>()
        };
        assert_eq!(told(None), "the next reboot is tried again 10:07; 4 in backoff, 1 behind those");
        assert_eq!(
            told(Some(Bar::Disabled)),
            "no reboot starts while the queue is disabled; 4 in backoff, 1 behind those"
        );
        let opens = Bar::Before(after(now(), 3600), "window");
        assert_eq!(told(Some(opens)), "the next reboot is tried again 11:00; 4 in backoff, 1 behind those");
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

    /// Review of the operator, 8.2: a freeze of six minutes counted as work.
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

    /// Review of the operator, 2: a time that ignores all that stops the queue.
    #[test]
    fn i8_what_is_left_is_told_with_all_that_stops_it() {
        let throughput = Some(Throughput { each: SignedDuration::from_secs(18), one: SignedDuration::ZERO, of: 16 });
        let frozen = || Bar::Before(after(now(), 6660), "freeze");
        let opens = || Bar::Before("2026-11-23T02:00:00Z".parse().unwrap(), "window");
        let left = |left, held, stuck| Left { left, held, stuck, throughput, fewest: Some(3), ..Left::default() };
        let table: &[(Left, Option<Bar>, &str)] = &[
            (left(0, 0, 0), None, ""),
            (left(8, 0, 0), None, "about 2m for 8 reboots (done by 10:02, one every 18s as the last 16)"),
            (
                left(8, 6, 0),
                None,
                "about 2m for 8 reboots; 6 on hold (those done by 10:02, one every 18s as the last 16)",
            ),
            (
                left(8, 6, 1),
                None,
                "about 2m for 8 reboots; 6 on hold, 1 stuck (those done by 10:02, one every 18s as the last 16)",
            ),
            (left(0, 6, 0), None, "no reboot will end by itself; 6 on hold"),
            (
                Left { backoff: Some((3, after(now(), 420))), ..left(0, 0, 1) },
                None,
                "the next reboot is tried again 10:07; 3 in backoff, 1 stuck",
            ),
            (
                Left { alone: 3, slots: 4, ..left(3, 0, 0) },
                None,
                "about 3m for 3 reboots (done by 10:03, one every 18s as the last 16)",
            ),
            (left(0, 6, 2), Some(frozen()), "no reboot will end by itself; 6 on hold, 2 stuck"),
            (
                left(14, 0, 1),
                Some(frozen()),
                "14 reboots not before 11:51 (freeze); 1 stuck (then about 4m, those done by 11:55, one every 18s as the last 16)",
            ),
            (
                left(1, 0, 0),
                Some(opens()),
                "1 reboot not before 02:00 (window) (then about 18s, done by 02:00, one every 18s as the last 16)",
            ),
            (
                Left { ending: 2, ..left(8, 0, 0) },
                Some(frozen()),
                "2 reboots in work, 6 not before 11:51 (freeze) (then about 2m, done by 11:53, one every 18s as the last 16)",
            ),
            (
                Left { ending: 2, ..left(2, 0, 0) },
                Some(frozen()),
                "about 36s for 2 reboots (one every 18s as the last 16)",
            ),
            (
                left(8, 0, 0),
                Some(Bar::Disabled),
                "8 reboots not while the queue is disabled (then about 2m, one every 18s as the last 16)",
            ),
            (
                Left { throughput: None, ..left(8, 1, 0) },
                Some(Bar::Not("while nobody leads")),
                "8 reboots not while nobody leads; 1 on hold (nobody knows yet how long it takes then)",
            ),
            (
                Left { throughput: None, ..left(8, 1, 0) },
                None,
                "not known yet for 8 reboots; 1 on hold (fewer than 3 have ended lately)",
            ),
            (Left { throughput: None, fewest: None, ..left(8, 0, 0) }, None, "not known yet for 8 reboots"),
        ];
        for (left, bar, want) in table {
            let left = Left { start: Some(Start::at(now(), bar.clone())), ..left.clone() };
            let said = left.said("reboot", |at| at.strftime("%H:%M").to_string());
            let said: String = said.into_iter().map(|(text, _)| text).collect();
            assert_eq!(said, *want, "{left:?}");
        }
    }
}

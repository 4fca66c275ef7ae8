//! Estimated time until a queue is empty, from the rate at which its entries ended lately. The text shows the data
//! behind the estimate. Without enough data there is no estimate.

use cketerm_model::entry::QueueKind;
use cketerm_rules::start::{Bar, Start};
use jiff::{SignedDuration, Timestamp};

use super::{event::count, past::Ended, when};

/// Fewest ended entries that give a rate.
const MIN_SAMPLES: usize = 3;
/// Most ended entries that are counted.
const MAX_SAMPLES: usize = 50;
/// Two entries whose ends are further apart do not belong to the same batch of work.
const MAX_GAP: SignedDuration = SignedDuration::from_hours(1);

/// Throughput of a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Throughput {
    /// Time from one successful end to the next.
    pub interval: SignedDuration,
    /// Time that one entry takes from its command to its end. With several at once, ends follow faster than that.
    pub one: SignedDuration,
    /// Number of entries that it was computed from.
    pub of: usize,
}

/// Returns the fewest ended entries that give a rate for this number of slots. Entries that run at once also end at
/// once, which is not a rate.
pub fn min_samples(slots: Option<i64>) -> usize {
    slots.and_then(|n| usize::try_from(n).ok()).unwrap_or(1).saturating_mul(2).clamp(MIN_SAMPLES, MAX_SAMPLES / 2)
}

/// Factor that makes a gap between two ends a pause: the queue was frozen, closed or empty. The gap is a pause if it is
/// longer than the usual gap times this factor, or times `min_samples` if that is more.
const PAUSE_FACTOR: usize = 5;

/// Computes the throughput from the entries that succeeded lately, newest first. `None` if fewer than `min_samples`
/// did.
///
/// Pauses do not count, nor does the time since the last end while nothing is in progress. `busy` = time since which
/// something is in progress.
pub fn throughput<'a>(
    ended: impl Iterator<Item = &'a Ended>,
    queue: QueueKind,
    min_samples: usize,
    now: Timestamp,
    busy: Option<Timestamp>,
) -> Option<Throughput> {
    let mut ended = ended.filter(|e| e.end.good() && e.entry.queue == queue).peekable();
    let newest = ended.peek()?.at;
    let began = busy.map_or(now, |since| since.max(newest));
    let mut after = if busy.is_some() { now } else { newest };
    let (mut times, mut command_durations): (Vec<Timestamp>, Vec<SignedDuration>) = (Vec::new(), Vec::new());
    for one in ended.take(MAX_SAMPLES) {
        if after.duration_since(one.at) > MAX_GAP {
            break;
        }
        after = one.at;
        times.push(one.at);
        command_durations.extend(one.command_started.map(|began| one.at.duration_since(began)));
    }
    if times.len() < min_samples {
        return None;
    }
    let mut gaps: Vec<SignedDuration> = times.windows(2).map(|two| two[0].duration_since(two[1])).collect();
    let mean_gap = mean(&gaps)?;
    gaps.retain(|gap| *gap <= mean_gap * i32::try_from(min_samples.max(PAUSE_FACTOR)).unwrap_or(i32::MAX));
    let interval = mean(&gaps)?;
    // Nothing has ended for longer than that, so the rate is slower by now.
    gaps.push(now.duration_since(began));
    let interval = interval.max(mean(&gaps)?);
    let one = mean(&command_durations).unwrap_or_default();
    (interval > SignedDuration::ZERO).then_some(Throughput { interval, one, of: times.len() })
}

fn mean(gaps: &[SignedDuration]) -> Option<SignedDuration> {
    let parts = i32::try_from(gaps.len()).ok().filter(|n| *n > 0)?;
    Some(gaps.iter().sum::<SignedDuration>() / parts)
}

/// Entries that are left in a queue, their rate, and the time from which they can start.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RemainingWork {
    /// Entries that will end without an operator.
    pub left: usize,
    /// Of these, the ones that end even if no other entry may start.
    pub finishing: usize,
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
    pub min_samples: Option<usize>,
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

impl RemainingWork {
    /// Returns the estimate as text: `about 4m for 8 reboots; 6 on hold (those done by 10:10 UTC, one every 18s as the
    /// last 16)`, `8 reboots not before 04:51 UTC (freeze)`. The most important part comes first, because narrow
    /// screens cut off the end. Empty if nothing is left.
    pub fn described(&self, what: &str, clock: impl Fn(Timestamp) -> String) -> Vec<(String, Tone)> {
        if self.is_empty() {
            return Vec::new();
        }
        let start_blocker = self.start.as_ref().and_then(|start| start.bar.as_ref());
        let bar = start_blocker.filter(|_| self.finishing < self.left);
        let (left, mut aside) = (count(self.left, what), String::new());
        let mut described = match (bar, &self.throughput) {
            _ if self.left == 0 => vec![match (self.backoff, start_blocker) {
                (Some(_), Some(bar @ (Bar::Disabled | Bar::Not(_) | Bar::Held(_)))) => {
                    (format!("no {what} starts {}", bar.described(&clock)), Tone::Trouble)
                }
                (Some((_, next)), bar) => {
                    let next = if let Some(Bar::Before(at, _)) = bar { next.max(*at) } else { next };
                    (format!("the next {what} is retried {}", clock(next)), Tone::Trouble)
                }
                (None, _) => (format!("no {what} can end on its own"), Tone::Trouble),
            }],
            (Some(bar), _) => {
                let bar = format!("not {}", bar.described(&clock));
                " (no estimate yet)".clone_into(&mut aside);
                match self.finishing {
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
                aside = self.min_samples.map(|n| format!(" (needs {n} completed)")).unwrap_or_default();
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
                let which = if self.held + self.behind + self.stalled() > 0 { "those done by" } else { "done by" };
                format!("{which} {}{windows}", clock(at))
            });
            let then = bar.map(|_| format!("then about {}", when::span(work)));
            let rate = format!("one every {} like the last {}", when::span(throughput.interval), throughput.of);
            let estimate: Vec<String> = then.into_iter().chain(end).chain([rate]).collect();
            aside = format!(" ({})", estimate.join(", "));
        }
        let mut gap = "; ";
        for (n, how, tone) in [
            (self.held, "on hold", Tone::Plain),
            (self.backoff.map_or(0, |(n, _)| n), "in backoff", Tone::Trouble),
            (self.stuck, "stuck", Tone::Trouble),
            (self.behind, "behind those", Tone::Plain),
        ] {
            if n > 0 {
                described.push((format!("{gap}{n} {how}"), tone));
                gap = ", ";
            }
        }
        if !aside.is_empty() {
            described.push((aside, Tone::Aside));
        }
        described
    }

    /// Returns true if no entry is left in any state.
    pub fn is_empty(&self) -> bool {
        self.left + self.held + self.behind + self.stalled() == 0
    }

    /// Returns the number of entries that are stuck or in backoff.
    pub fn stalled(&self) -> usize {
        self.stuck + self.backoff.map_or(0, |(n, _)| n)
    }

    fn work(&self, throughput: &Throughput) -> SignedDuration {
        throughput.total_time(sequential_count(self.left, self.alone, self.slots))
    }
}

/// Returns how many entries, started one after another, take as long as these. The rate is that of several slots at
/// once, but an API server reboots alone.
pub fn sequential_count(entries: usize, alone: usize, slots: usize) -> usize {
    entries + alone.min(entries) * slots.saturating_sub(1)
}

impl Throughput {
    /// Returns the time that so many entries take: at least the time of one.
    pub fn total_time(&self, left: usize) -> SignedDuration {
        (self.interval * i32::try_from(left).unwrap_or(i32::MAX)).max(self.one)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cketerm_model::names::Address;
    use cketerm_model::{cketerm_records::EndKind, entry::EntryId, time::after};
    use cketerm_rules::usual::EndedTimes;

    fn now() -> Timestamp {
        "2026-11-21T10:00:00Z".parse().unwrap()
    }

    fn end(ago: i64) -> Ended {
        let end = if ago >= 0 { EndKind::Booted } else { EndKind::Failed };
        let at = after(now(), -ago.abs());
        Ended {
            times: EndedTimes {
                entry: EntryId::reboot(1),
                address: Address::default(),
                end,
                at,
                control_plane: false,
                machine_type: None,
                operation: None,
                backoffs: 0,
                phases: Vec::new(),
            },
            entry: EntryId::reboot(1),
            address: Address::new(String::new()),
            node: None,
            outcome: "booted".into(),
            end,
            at,
            request: None,
            command_started: None,
            attempts: 1,
        }
    }

    fn estimate(ago: &[i64]) -> Option<Throughput> {
        estimate_of(ago, false)
    }

    fn estimate_of(ago: &[i64], rests: bool) -> Option<Throughput> {
        let ended: Vec<Ended> = ago.iter().map(|ago| end(*ago)).collect();
        let busy = (!rests).then(|| after(now(), -86_400));
        throughput(ended.iter(), QueueKind::Reboot, min_samples(Some(1)), now(), busy)
    }

    #[test]
    fn throughput_counts_only_successful_entries() {
        let throughput = estimate(&[60, 180, -200, 300, 420]).unwrap();
        assert_eq!((throughput.interval.as_secs(), throughput.of), (120, 4));
        assert_eq!(throughput.total_time(5).as_secs(), 600);
    }

    /// A single entry takes as long as one entry takes, even if entries run three at once.
    #[test]
    fn an_estimate_is_at_least_the_duration_of_one_entry() {
        let three_at_once = |i: i64| Ended { command_started: Some(after(now(), -60 - 5 * i)), ..end(50 + 5 * i) };
        let ended: Vec<Ended> = (0..6).map(three_at_once).collect();
        let throughput = throughput(ended.iter(), QueueKind::Reboot, 3, now(), None).unwrap();
        assert_eq!((throughput.interval.as_secs(), throughput.one.as_secs()), (5, 10));
        assert_eq!([1, 2, 4].map(|n| throughput.total_time(n).as_secs()), [10, 10, 20]);
    }

    /// An entry behind one on hold must not be promised a start.
    #[test]
    fn entries_in_backoff_are_not_announced_while_the_queue_is_closed() {
        let left = RemainingWork { backoff: Some((4, after(now(), 420))), behind: 1, ..RemainingWork::default() };
        let estimate = |bar: Option<Bar>| {
            let start = Some(Start::at(now(), bar));
            let left = RemainingWork { start, ..left.clone() };
            left.described("reboot", |at| at.strftime("%H:%M").to_string())
                .into_iter()
                .map(|(t, _)| t)
                .collect::<String>()
        };
        assert_eq!(estimate(None), "the next reboot is retried 10:07; 4 in backoff, 1 behind those");
        assert_eq!(
            estimate(Some(Bar::Disabled)),
            "no reboot starts while the queue is disabled; 4 in backoff, 1 behind those"
        );
        let opens = Bar::Before(after(now(), 3600), "window");
        assert_eq!(estimate(Some(opens)), "the next reboot is retried 11:00; 4 in backoff, 1 behind those");
    }

    #[test]
    fn too_few_or_too_old_entries_give_no_estimate() {
        assert_eq!(estimate(&[]), None);
        assert_eq!(estimate(&[60, 180]), None);
        assert_eq!(estimate(&[7200, 7300, 7400]), None, "all samples are too old");
        assert_eq!(estimate(&[60, 180, 7200, 7300]), None, "only two samples are recent");
    }

    #[test]
    fn the_minimum_sample_count_is_two_waves_of_slots() {
        assert_eq!(
            [min_samples(None), min_samples(Some(1)), min_samples(Some(4)), min_samples(Some(100))],
            [3, 3, 8, 25]
        );
    }

    #[test]
    fn the_estimate_grows_while_no_entry_ends() {
        assert_eq!(estimate(&[1200, 1260, 1320]).map(|p| p.interval.as_secs()), Some(440));
    }

    /// A freeze of six minutes must not count as work.
    #[test]
    fn pauses_are_excluded_from_throughput_and_waves_are_not() {
        let ago = |from: i64, n: i64| (0..n).map(move |i| from + 4 * i);
        let two_batches: Vec<i64> = ago(10, 8).chain(ago(410, 8)).collect();
        assert_eq!(estimate(&two_batches).map(|p| p.interval.as_secs()), Some(4));
        let waves: Vec<i64> = (0..16).map(|i| 60 + i / 4 * 600).collect();
        let busy = Some(after(now(), -60));
        let ended: Vec<Ended> = waves.iter().map(|ago| end(*ago)).collect();
        let throughput = throughput(ended.iter(), QueueKind::Reboot, min_samples(Some(4)), now(), busy).unwrap();
        assert_eq!(throughput.interval.as_secs(), 120, "four at once every ten minutes");
        assert_eq!(sequential_count(5, 3, 4), 14, "two that share the slots, and three alone");
    }

    #[test]
    fn throughput_does_not_decrease_while_the_queue_is_stopped() {
        assert_eq!(estimate_of(&[7200, 7260, 7320], true).map(|p| p.interval.as_secs()), Some(60));
    }

    /// The estimate names everything that stops the queue.
    #[test]
    fn i8_the_remaining_work_is_described_with_everything_that_blocks_it() {
        let throughput =
            Some(Throughput { interval: SignedDuration::from_secs(18), one: SignedDuration::ZERO, of: 16 });
        let frozen = || Bar::Before(after(now(), 6660), "freeze");
        let opens = || Bar::Before("2026-11-23T02:00:00Z".parse().unwrap(), "window");
        let left = |left, held, stuck| RemainingWork {
            left,
            held,
            stuck,
            throughput,
            min_samples: Some(3),
            ..RemainingWork::default()
        };
        let table: &[(RemainingWork, Option<Bar>, &str)] = &[
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
                RemainingWork { backoff: Some((3, after(now(), 420))), ..left(0, 0, 1) },
                None,
                "the next reboot is retried 10:07; 3 in backoff, 1 stuck",
            ),
            (
                RemainingWork { alone: 3, slots: 4, ..left(3, 0, 0) },
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
                RemainingWork { finishing: 2, ..left(8, 0, 0) },
                Some(frozen()),
                "2 reboots in work, 6 not before 11:51 (freeze) (then about 2m, done by 11:53, one every 18s like the last 16)",
            ),
            (
                RemainingWork { finishing: 2, ..left(2, 0, 0) },
                Some(frozen()),
                "about 36s for 2 reboots (one every 18s like the last 16)",
            ),
            (
                left(8, 0, 0),
                Some(Bar::Disabled),
                "8 reboots not while the queue is disabled (then about 2m, one every 18s like the last 16)",
            ),
            (
                RemainingWork { throughput: None, ..left(8, 1, 0) },
                Some(Bar::Not("while nobody leads")),
                "8 reboots not while nobody leads; 1 on hold (no estimate yet)",
            ),
            (
                RemainingWork { throughput: None, ..left(8, 1, 0) },
                None,
                "8 reboots left; no estimate yet; 1 on hold (needs 3 completed)",
            ),
            (
                RemainingWork { throughput: None, min_samples: None, ..left(8, 0, 0) },
                None,
                "8 reboots left; no estimate yet",
            ),
        ];
        for (left, bar, want) in table {
            let left = RemainingWork { start: Some(Start::at(now(), bar.clone())), ..left.clone() };
            let described = left.described("reboot", |at| at.strftime("%H:%M").to_string());
            let described: String = described.into_iter().map(|(text, _)| text).collect();
            assert_eq!(described, *want, "{left:?}");
        }
    }
}

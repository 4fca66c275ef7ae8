//! Estimated end of a queue, and the text that says what is left. The text shows the data behind the estimate. Without
//! enough data there is no estimate.

use cketerm_model::{
    entry::{EntryId, QueueKind},
    names::Address,
};
use cketerm_rules::{
    eta::{Answer, NoEstimate, Part, Question, part_of, text::Detail},
    start::{Bar, Start},
};
use jiff::Timestamp;

use super::{App, event::count, when};

/// Estimates the end of sets of entries of a queue, and of the whole queue as the last one. `added`: machines that would
/// be queued, the set 0. If nothing starts for an unknown time, the estimates are as if it started now.
pub fn answers(
    app: &App,
    queue: QueueKind,
    start: &Start,
    added: &[Address],
    sets: usize,
    set: &dyn Fn(EntryId) -> Option<usize>,
) -> Vec<Answer> {
    let (store, kube, now) = (&app.seen.snapshot.store, &app.seen.snapshot.kube, app.now.wall);
    let unknown = start.bar.as_ref().is_some_and(|bar| !matches!(bar, Bar::Before(..)));
    let at_once = Start::at(now, None);
    let start = if unknown { &at_once } else { start };
    let reason_of = |id: EntryId| app.seen.reasons.get(&id);
    let part: &dyn Fn(EntryId) -> Part = &|id| part_of(store, &reason_of, now, id);
    Question { store, kube, queue, usual: &app.knowledge.usual, start, part, set, sets, added, now }.answers()
}

/// Entries that are left in a queue, the time from which they can start, and the estimated end.
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
    /// Returns the condition that keeps entries from starting, if it keeps any.
    fn bar(&self) -> Option<&Bar> {
        self.start.as_ref().and_then(|start| start.bar.as_ref()).filter(|_| self.finishing < self.left)
    }

    /// Returns the estimated end, if nothing keeps the entries from starting: `done 07:41Z ± 6m`.
    pub fn end(&self, answer: Option<&Answer>, detail: Detail, clock: impl Fn(Timestamp) -> String) -> Option<String> {
        let is_moving = self.left > 0 && self.bar().is_none();
        answer.filter(|_| is_moving)?.as_ref().ok().map(|estimate| estimate.described(detail, clock))
    }

    /// Returns the entries that do not end on their own: `6 on hold`, `1 stuck`.
    pub fn parked(&self) -> Vec<(String, Tone)> {
        // an entry of the other queue may be the one that does not move
        let behind = if self.held + self.stalled() > 0 { "behind those" } else { "behind others" };
        let parts = [
            (self.held, "on hold", Tone::Plain),
            (self.backoff.map_or(0, |(n, _)| n), "in backoff", Tone::Trouble),
            (self.stuck, "stuck", Tone::Trouble),
            (self.behind, behind, Tone::Plain),
        ];
        parts.into_iter().filter(|(n, ..)| *n > 0).map(|(n, how, tone)| (format!("{n} {how}"), tone)).collect()
    }

    /// Returns the estimate as text: `8 reboots done 10:10Z ± 2m; 6 on hold (like the last 16)`, `8 reboots not before
    /// 04:51Z (freeze)`. The most important part comes first, because narrow screens cut off the end. Empty if nothing is
    /// left. `answer` is `None` until the history was read.
    pub fn described(
        &self,
        what: &str,
        answer: Option<&Answer>,
        clock: impl Fn(Timestamp) -> String,
    ) -> Vec<(String, Tone)> {
        if self.is_empty() {
            return Vec::new();
        }
        let start_blocker = self.start.as_ref().and_then(|start| start.bar.as_ref());
        let bar = self.bar();
        let left = count(self.left, what);
        let estimate = answer.and_then(|answer| answer.as_ref().ok());
        let (mut aside, mut end) = (Vec::new(), None);
        match (answer, estimate) {
            (_, Some(estimate)) => {
                end = Some(match start_blocker {
                    // As long as the start is unknown, only the work is known.
                    Some(Bar::Disabled | Bar::Not(_) | Bar::Held(_)) if bar.is_some() || self.left == 0 => {
                        format!("then about {}", when::span(estimate.planned().likely.duration_since(estimate.at)))
                    }
                    Some(_) | None => estimate.described(Detail::Full, &clock),
                });
                aside.push(format!("like the last {}", estimate.samples));
            }
            (Some(Err(NoEstimate::FewSamples { needed, .. })), None) => aside.push(format!("needs {needed} completed")),
            (Some(Err(NoEstimate::NotInSight)), None) => aside.push("the windows are too short".to_owned()),
            (Some(Err(NoEstimate::NothingLeft | NoEstimate::Barred(_)) | Ok(_)) | None, None) => {}
        }
        let mut described = match bar {
            _ if self.left == 0 => {
                aside.splice(0..0, end);
                vec![match (self.backoff, start_blocker) {
                    (Some(_), Some(bar @ (Bar::Disabled | Bar::Not(_) | Bar::Held(_)))) => {
                        (format!("no {what} starts {}", bar.described(&clock)), Tone::Trouble)
                    }
                    (Some((_, next)), bar) => {
                        let next = if let Some(Bar::Before(at, _)) = bar { next.max(*at) } else { next };
                        (format!("the next {what} is retried {}", clock(next)), Tone::Trouble)
                    }
                    (None, _) => (format!("no {what} can end on its own"), Tone::Trouble),
                }]
            }
            Some(bar) => {
                if end.is_none() {
                    aside.insert(0, "no estimate yet".to_owned());
                }
                aside.splice(0..0, end);
                let waiting = self.left - self.finishing.min(self.left);
                let bar = (format!(" {}", waits(bar, waiting, &clock)), Tone::Trouble);
                match self.finishing {
                    0 => vec![(left, Tone::Plain), bar],
                    n => {
                        vec![(format!("{} in work, {waiting}", count(n, what)), Tone::Plain), bar]
                    }
                }
            }
            None => match end {
                Some(end) => vec![(format!("{left} {end}"), Tone::Plain)],
                None => vec![(format!("{left} left; no estimate yet"), Tone::Plain)],
            },
        };
        let mut gap = "; ";
        for (parked, tone) in self.parked() {
            described.push((format!("{gap}{parked}"), tone));
            gap = ", ";
        }
        if !aside.is_empty() {
            described.push((format!(" ({})", aside.join(", ")), Tone::Aside));
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
}

/// Returns what so many entries wait for: `wait: the queue is disabled`, `not before 04:51Z (freeze)`.
fn waits(bar: &Bar, waiting: usize, clock: impl Fn(Timestamp) -> String) -> String {
    let verb = if waiting == 1 { "waits" } else { "wait" };
    match bar {
        Bar::Disabled => format!("{verb}: the queue is disabled"),
        Bar::Not(why) => format!("{verb} {why}"),
        Bar::Held(why) => format!("{verb}: {why}"),
        Bar::Before(..) => format!("not {}", bar.described(clock)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cketerm_model::time::after;
    use cketerm_rules::eta::Estimate;

    fn now() -> Timestamp {
        "2026-11-21T10:00:00Z".parse().unwrap()
    }

    /// An estimate of so many seconds, give or take a quarter.
    fn estimated(answer: Result<i64, NoEstimate>) -> Answer {
        let of = |seconds: i64| Estimate {
            at: now(),
            low: after(now(), seconds * 3 / 4),
            likely: after(now(), seconds),
            high: after(now(), seconds * 5 / 4),
            steady: None,
            samples: 16,
        };
        answer.map(of)
    }

    /// An entry behind one on hold must not be promised a start.
    #[test]
    fn entries_in_backoff_are_not_announced_while_the_queue_is_closed() {
        let left = RemainingWork { backoff: Some((4, after(now(), 420))), behind: 1, ..RemainingWork::default() };
        let estimate = |bar: Option<Bar>| {
            let start = Some(Start::at(now(), bar));
            let left = RemainingWork { start, ..left.clone() };
            left.described("reboot", None, |at| at.strftime("%H:%M").to_string())
                .into_iter()
                .map(|(t, _)| t)
                .collect::<String>()
        };
        assert_eq!(estimate(None), "the next reboot is retried 10:07; 4 in backoff, 1 behind those");
        assert_eq!(
            estimate(Some(Bar::Disabled)),
            "no reboot starts while the queue is disabled; 4 in backoff, 1 behind those"
        );
        let alone = RemainingWork { backoff: None, ..left.clone() };
        assert_eq!(alone.parked(), [("1 behind others".to_owned(), Tone::Plain)]);
        let opens = Bar::Before(after(now(), 3600), "window");
        assert_eq!(estimate(Some(opens)), "the next reboot is retried 11:00; 4 in backoff, 1 behind those");
    }

    /// The estimate names everything that stops the queue.
    #[test]
    fn i8_the_remaining_work_is_described_with_everything_that_blocks_it() {
        let frozen = || Bar::Before(after(now(), 6660), "freeze");
        let left = |left, held, stuck| RemainingWork { left, held, stuck, ..RemainingWork::default() };
        let soon = || Some(estimated(Ok(480)));
        let late = || Some(estimated(Ok(7140)));
        let none = |why| Some(estimated(Err(why)));
        let few = || none(NoEstimate::FewSamples { known: 2, needed: 8 });
        let nothing = || none(NoEstimate::NothingLeft);
        let backing = RemainingWork { backoff: Some((3, after(now(), 420))), ..left(0, 0, 1) };
        let finishing = |finishing, n| RemainingWork { finishing, ..left(n, 0, 0) };
        let table: &[(RemainingWork, Option<Answer>, Option<Bar>, &str)] = &[
            (left(0, 0, 0), soon(), None, ""),
            (left(8, 0, 0), soon(), None, "8 reboots done 10:08 ± 2m (like the last 16)"),
            (left(8, 6, 0), soon(), None, "8 reboots done 10:08 ± 2m; 6 on hold (like the last 16)"),
            (left(8, 6, 1), soon(), None, "8 reboots done 10:08 ± 2m; 6 on hold, 1 stuck (like the last 16)"),
            (left(0, 6, 0), nothing(), None, "no reboot can end on its own; 6 on hold"),
            (
                backing,
                soon(),
                None,
                "the next reboot is retried 10:07; 3 in backoff, 1 stuck (done 10:08 ± 2m, like the last 16)",
            ),
            (left(0, 6, 2), nothing(), Some(frozen()), "no reboot can end on its own; 6 on hold, 2 stuck"),
            (
                left(14, 0, 1),
                late(),
                Some(frozen()),
                "14 reboots not before 11:51 (freeze); 1 stuck (done 11:59 ± 30m, like the last 16)",
            ),
            (
                finishing(2, 8),
                late(),
                Some(frozen()),
                "2 reboots in work, 6 not before 11:51 (freeze) (done 11:59 ± 30m, like the last 16)",
            ),
            (finishing(2, 2), soon(), Some(frozen()), "2 reboots done 10:08 ± 2m (like the last 16)"),
            (
                left(8, 0, 0),
                soon(),
                Some(Bar::Disabled),
                "8 reboots wait: the queue is disabled (then about 8m, like the last 16)",
            ),
            (
                left(8, 1, 0),
                None,
                Some(Bar::Not("while nobody leads")),
                "8 reboots wait while nobody leads; 1 on hold (no estimate yet)",
            ),
            (left(8, 1, 0), few(), None, "8 reboots left; no estimate yet; 1 on hold (needs 8 completed)"),
            (
                left(8, 0, 0),
                none(NoEstimate::NotInSight),
                None,
                "8 reboots left; no estimate yet (the windows are too short)",
            ),
            (left(8, 0, 0), None, None, "8 reboots left; no estimate yet"),
        ];
        for (left, answer, bar, want) in table {
            let left = RemainingWork { start: Some(Start::at(now(), bar.clone())), ..left.clone() };
            let described = left.described("reboot", answer.as_ref(), |at| at.strftime("%H:%M").to_string());
            let end = left.end(answer.as_ref(), Detail::Full, |at| at.strftime("%H:%M").to_string());
            let is_plain = want.starts_with(&format!("{} reboots done", left.left));
            assert_eq!(end.is_some(), is_plain, "a title names only an end that nothing prevents: {end:?}");
            let described: String = described.into_iter().map(|(text, _)| text).collect();
            assert_eq!(described, *want, "{bar:?}");
        }
    }
}

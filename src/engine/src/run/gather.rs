//! Gathering of news before the next pass of the loop, so that passes leave time for everything else.

use std::time::Duration;

use tokio::time::Instant;

/// Time in which the loop gathers answers of health checks before it starts a pass.
pub(super) const GATHER: Duration = Duration::from_millis(5);
/// Factor of the last pass's duration for which the loop gathers news of Kubernetes: of a processor, the passes for
/// hundreds of pods that leave take at most a quarter. Quick passes need no such limit.
const GATHER_PASSES: u32 = 3;
/// Longest time for which it gathers them.
const MAX_GATHER: Duration = Duration::from_millis(50);
/// Number of passes in a row for changes of etcd or outcomes above which these are gathered too, as when thousands of
/// entries are cancelled together. The first ones are somebody's next step and get their passes at once. Answers of
/// health checks do not count.
const PROMPT_PASSES: u32 = 16;
/// Time without such a pass after which they count again from 0.
const BURST_END: Duration = Duration::from_millis(250);

/// Returns the time for which news are gathered after a pass that took `pass`; none after a quick one.
pub(super) fn gather_time(pass: Duration) -> Option<Duration> {
    Some((pass * GATHER_PASSES).min(MAX_GATHER)).filter(|gather| *gather >= GATHER)
}

/// Passes in a row for changes of etcd or outcomes.
#[derive(Default)]
pub(super) struct Burst {
    passes: u32,
    last: Option<Instant>,
}

impl Burst {
    /// Counts a pass. Returns whether there were so many that the news for the next one are gathered.
    pub(super) fn gathers(&mut self, now: Instant) -> bool {
        let goes_on = self.last.is_some_and(|last| now.duration_since(last) < BURST_END);
        self.passes = if goes_on { self.passes.saturating_add(1) } else { 1 };
        self.last = Some(now);
        self.passes > PROMPT_PASSES
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn news_are_gathered_only_after_a_slow_pass_and_never_for_long() {
        let gathered = |micros: u64| gather_time(Duration::from_micros(micros)).map(|time| time.as_micros());
        assert_eq!(gathered(0), None, "a simulation's pass takes no time");
        assert_eq!(gathered(1_600), None);
        assert_eq!(gathered(2_000), Some(6_000));
        assert_eq!(gathered(4_500), Some(13_500), "a quarter of a processor");
        assert_eq!(gathered(3_000_000), Some(50_000), "the process stood still");
    }

    #[test]
    fn only_a_long_row_of_entries_or_outcomes_is_gathered() {
        let (mut burst, begin) = (Burst::default(), Instant::now());
        let mut gathers = |millis: u64| burst.gathers(begin + Duration::from_millis(millis));
        assert!((0..16).all(|pass| !gathers(pass * 10)), "the steps of a few entries");
        assert!((16..40).all(|pass| gathers(pass * 10)), "thousands of them");
        assert!(gathers(390 + 249) && !gathers(390 + 249 + 250), "the next entry gets its passes at once");
    }
}

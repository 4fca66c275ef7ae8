//! Pace of evictions: the number of requests at once follows the answers of the API server. It grows by one after as
//! many quick answers, and is halved by an answer of an overloaded server, or by one that took much longer than the
//! quickest.

use std::sync::{Arc, Mutex, PoisonError};

use cketerm_model::{
    boot_time::Seconds,
    drain::{Undecided, Verdict},
    reason::PodHold,
};
use tokio::sync::Notify;

/// Requests at once in the beginning, at least and at most.
const BEGINNING: usize = 16;
const LEAST: usize = 1;
const MOST: usize = 64;
/// An answer is slow if it took this long, and [`SLOWER`] times as long as the quickest.
const SLOW: Seconds = Seconds::new(0.5);
const SLOWER: f64 = 4.0;
/// Slow answers alone leave so many requests at once.
const LEAST_WHILE_SLOW: usize = 4;
/// Growth of the time of the quickest answer with each further one: a yardstick from quieter days is forgotten.
const FORGETTING: f64 = 1.01;

/// Pace that all drains of a leadership share.
#[derive(Clone, Debug)]
pub struct EvictionPace(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    state: Mutex<State>,
    changed: Notify,
}

#[derive(Debug)]
struct State {
    /// Most requests at once.
    limit: usize,
    in_use: usize,
    /// Quick answers since the last change of the limit.
    quick: usize,
    /// Time of the quickest answer.
    quickest: Option<Seconds>,
}

impl Default for EvictionPace {
    fn default() -> Self {
        let state = State { limit: BEGINNING, in_use: 0, quick: 0, quickest: None };
        Self(Arc::new(Shared { state: Mutex::new(state), changed: Notify::new() }))
    }
}

/// Turn of one request. It ends when it is dropped.
#[derive(Debug)]
pub struct Turn(Arc<Shared>);

impl EvictionPace {
    /// Waits until one more request may be sent.
    pub async fn turn(&self) -> Turn {
        loop {
            let changed = self.0.changed.notified();
            if self.0.with(State::enter) {
                return Turn(Arc::clone(&self.0));
            }
            changed.await;
        }
    }
}

impl Turn {
    /// Records the answer to the request.
    pub fn ended(self, took: Seconds, verdict: &Verdict) {
        if let Some(overloaded) = tells_of_load(verdict) {
            self.0.with(|state| state.answered(took, overloaded));
        }
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        self.0.with(|state| state.in_use = state.in_use.saturating_sub(1));
        self.0.changed.notify_waiters();
    }
}

impl Shared {
    fn with<T>(&self, change: impl FnOnce(&mut State) -> T) -> T {
        change(&mut self.state.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl State {
    fn enter(&mut self) -> bool {
        let enters = self.in_use < self.limit;
        self.in_use += usize::from(enters);
        enters
    }

    fn answered(&mut self, took: Seconds, overloaded: bool) {
        let quickest = self.quickest.map_or(took, |known| took.min(known * FORGETTING));
        self.quickest = Some(quickest);
        let least = if overloaded { LEAST } else { LEAST_WHILE_SLOW.min(self.limit) };
        if overloaded || took >= SLOW && took >= quickest * SLOWER {
            (self.limit, self.quick) = ((self.limit / 2).max(least), 0);
            return;
        }
        self.quick += 1;
        if self.quick >= self.limit && self.limit < MOST {
            (self.limit, self.quick) = (self.limit + 1, 0);
        }
    }
}

/// Reports whether the answer tells of an overloaded server; `None` if it tells nothing about the load, as the answer
/// of a webhook.
fn tells_of_load(verdict: &Verdict) -> Option<bool> {
    match verdict {
        Verdict::Undecided { by: Undecided::Overload | Undecided::Server | Undecided::Silence, .. } => Some(true),
        Verdict::Undecided { by: Undecided::Webhook(_), .. }
        | Verdict::Held { hold: PodHold::Deferred { .. } | PodHold::Denied { .. }, .. } => None,
        Verdict::Accepted | Verdict::Gone | Verdict::Held { .. } | Verdict::Failed(_) => Some(false),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limit(pace: &EvictionPace) -> usize {
        pace.0.with(|state| state.limit)
    }

    fn answer(pace: &EvictionPace, seconds: f64, verdict: &Verdict) {
        pace.0.with(State::enter);
        Turn(Arc::clone(&pace.0)).ended(Seconds::new(seconds), verdict);
    }

    #[test]
    fn quick_answers_raise_the_pace_and_overload_halves_it() {
        let pace = EvictionPace::default();
        (0..BEGINNING).for_each(|_| answer(&pace, 0.01, &Verdict::Accepted));
        assert_eq!(limit(&pace), BEGINNING + 1);
        let overload = Verdict::Undecided { by: Undecided::Overload, answer: String::new(), retry_after: None };
        answer(&pace, 0.01, &overload);
        assert_eq!(limit(&pace), BEGINNING / 2);
        (0..10).for_each(|_| answer(&pace, 3.0, &Verdict::Accepted));
        assert_eq!(limit(&pace), LEAST_WHILE_SLOW, "answers became slow");
        (0..10).for_each(|_| answer(&pace, 0.01, &overload));
        assert_eq!(limit(&pace), LEAST);
        (0..100_000).for_each(|_| answer(&pace, 0.01, &Verdict::Accepted));
        assert_eq!(limit(&pace), MOST);
    }

    #[test]
    fn a_server_that_is_always_slow_is_not_overloaded() {
        let pace = EvictionPace::default();
        (0..BEGINNING).for_each(|_| answer(&pace, 3.0, &Verdict::Accepted));
        assert_eq!(limit(&pace), BEGINNING + 1);
    }

    #[test]
    fn a_slow_webhook_does_not_slow_the_evictions_of_others() {
        let pace = EvictionPace::default();
        let by = Undecided::Webhook("w".to_owned());
        let webhook = Verdict::Undecided { by, answer: "timeout".to_owned(), retry_after: None };
        answer(&pace, 0.01, &Verdict::Accepted);
        (0..10).for_each(|_| answer(&pace, 10.0, &webhook));
        assert_eq!(limit(&pace), BEGINNING);
    }

    #[tokio::test]
    async fn requests_wait_for_their_turn() {
        let pace = EvictionPace::default();
        let mut turns = Vec::new();
        for _ in 0..BEGINNING {
            turns.push(pace.turn().await);
        }
        let waiting = tokio::spawn({
            let pace = pace.clone();
            async move { drop(pace.turn().await) }
        });
        tokio::task::yield_now().await;
        assert!(!waiting.is_finished());
        drop(turns.pop());
        waiting.await.unwrap();
    }
}

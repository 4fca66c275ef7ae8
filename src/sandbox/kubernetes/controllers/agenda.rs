//! A queue of deadlines in which every work item occurs at most once.

use std::collections::BTreeMap;

use tokio::time::Instant;

/// Work items ordered by deadline, then by the time they were planned.
pub(super) struct Agenda<W> {
    places: BTreeMap<W, (Instant, u64)>,
    line: BTreeMap<(Instant, u64), W>,
    count: u64,
}

impl<W: Ord + Clone> Agenda<W> {
    pub(super) fn new() -> Self {
        Self { places: BTreeMap::new(), line: BTreeMap::new(), count: 0 }
    }

    /// Schedules the work at this time, unless it is already scheduled earlier.
    pub(super) fn plan(&mut self, work: W, at: Instant) {
        if self.places.get(&work).is_none_or(|(planned, _)| at < *planned) {
            self.replan(work, at);
        }
    }

    /// Schedules the work at this time, and drops any other schedule of it.
    pub(super) fn replan(&mut self, work: W, at: Instant) {
        self.cancel(&work);
        self.count += 1;
        let place = (at, self.count);
        self.places.insert(work.clone(), place);
        self.line.insert(place, work);
    }

    pub(super) fn cancel(&mut self, work: &W) {
        if let Some(place) = self.places.remove(work) {
            self.line.remove(&place);
        }
    }

    /// Removes and returns the first item that is due.
    pub(super) fn pop(&mut self, now: Instant) -> Option<W> {
        let first = self.line.first_entry().filter(|e| e.key().0 <= now)?.remove();
        self.places.remove(&first);
        Some(first)
    }

    /// Returns the next deadline.
    pub(super) fn next(&self) -> Option<Instant> {
        self.line.first_key_value().map(|((at, _), _)| *at)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn each_work_stands_once_at_its_earliest_time() {
        let (mut agenda, now) = (Agenda::new(), Instant::now());
        let at = |s| now + Duration::from_secs(s);
        agenda.plan("a", at(5));
        agenda.plan("b", at(3));
        agenda.plan("a", at(2));
        agenda.plan("a", at(9));
        agenda.plan("c", at(3));
        agenda.cancel(&"c");
        assert_eq!((agenda.next(), agenda.pop(now)), (Some(at(2)), None));
        assert_eq!([agenda.pop(at(4)), agenda.pop(at(4)), agenda.pop(at(4))], [Some("a"), Some("b"), None]);
        agenda.plan("a", at(1));
        agenda.replan("a", at(7));
        assert_eq!(agenda.next(), Some(at(7)));
    }
}

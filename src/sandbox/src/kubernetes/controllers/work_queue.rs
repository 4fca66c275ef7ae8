//! A queue of deadlines in which every work item occurs at most once.

use std::collections::BTreeMap;

use tokio::time::Instant;

/// Work items ordered by deadline, then by the time they were planned.
pub(super) struct WorkQueue<W> {
    deadlines: BTreeMap<W, (Instant, u64)>,
    by_deadline: BTreeMap<(Instant, u64), W>,
    count: u64,
}

impl<W: Ord + Clone> WorkQueue<W> {
    pub(super) fn new() -> Self {
        Self { deadlines: BTreeMap::new(), by_deadline: BTreeMap::new(), count: 0 }
    }

    /// Schedules the work at this time, unless it is already scheduled earlier.
    pub(super) fn add_at(&mut self, work: W, at: Instant) {
        if self.deadlines.get(&work).is_none_or(|(planned, _)| at < *planned) {
            self.set_at(work, at);
        }
    }

    /// Schedules the work at this time, and drops any other schedule of it.
    pub(super) fn set_at(&mut self, work: W, at: Instant) {
        self.cancel(&work);
        self.count += 1;
        let slot = (at, self.count);
        self.deadlines.insert(work.clone(), slot);
        self.by_deadline.insert(slot, work);
    }

    pub(super) fn cancel(&mut self, work: &W) {
        if let Some(slot) = self.deadlines.remove(work) {
            self.by_deadline.remove(&slot);
        }
    }

    /// Removes and returns the first item that is due.
    pub(super) fn pop(&mut self, now: Instant) -> Option<W> {
        let first = self.by_deadline.first_entry().filter(|e| e.key().0 <= now)?.remove();
        self.deadlines.remove(&first);
        Some(first)
    }

    /// Returns the next deadline.
    pub(super) fn next(&self) -> Option<Instant> {
        self.by_deadline.first_key_value().map(|((at, _), _)| *at)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn each_work_item_is_scheduled_once_at_its_earliest_deadline() {
        let (mut work_queue, now) = (WorkQueue::new(), Instant::now());
        let at = |s| now + Duration::from_secs(s);
        work_queue.add_at("a", at(5));
        work_queue.add_at("b", at(3));
        work_queue.add_at("a", at(2));
        work_queue.add_at("a", at(9));
        work_queue.add_at("c", at(3));
        work_queue.cancel(&"c");
        assert_eq!((work_queue.next(), work_queue.pop(now)), (Some(at(2)), None));
        assert_eq!([work_queue.pop(at(4)), work_queue.pop(at(4)), work_queue.pop(at(4))], [Some("a"), Some("b"), None]);
        work_queue.add_at("a", at(1));
        work_queue.set_at("a", at(7));
        assert_eq!(work_queue.next(), Some(at(7)));
    }
}

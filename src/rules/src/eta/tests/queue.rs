//! Preparation of long queues, and the ends of windows.

use super::{
    super::{Durations, Kind, Openings, Queue, State},
    alternating,
};

#[test]
fn the_last_sixteen_entries_of_a_long_queue_stay_single() {
    for (slots, single) in [(4, 16), (6, 24)] {
        let queue = Queue { slots, ..alternating(1002, 1, None) };
        let (prepared, _) = queue.prepared();
        let at_the_end = prepared.shared.iter().rev().take_while(|job| job.count == 1).count();
        assert_eq!(at_the_end, single, "{slots} slots");
        assert_eq!(prepared.shared.iter().map(|job| job.count).sum::<usize>(), 1002);
    }
}

#[test]
fn the_entries_of_a_group_are_played_one_after_another_those_of_a_group_in_work_first() {
    let mut queue = alternating(6, 1, Some(1));
    for (job, group) in queue.shared.iter_mut().zip([0, 1, 0, 1, 0, 1]) {
        job.group = group;
    }
    let groups = |queue: &Queue| queue.prepared().0.shared.iter().map(|job| job.group).collect::<Vec<_>>();
    assert_eq!(groups(&queue), [0, 0, 0, 1, 1, 1]);
    queue.shared[3].state = State::Draining(5.0);
    assert_eq!(groups(&queue), [1, 1, 1, 0, 0, 0]);
}

/// Six entries of 2 s are played as one. The window of a day is open for exactly two such blocks.
#[test]
fn entries_that_end_exactly_with_their_window_still_end_in_it() {
    let second = || Durations::of(vec![1.0; 20], None, false);
    let day = |n: u32| (f64::from(n) * 86_400.0, f64::from(n) * 86_400.0 + 24.0);
    let queue = Queue {
        windows: vec![Openings((0..60).map(day).collect())],
        kinds: vec![Kind { drain: second(), after: second() }],
        ..alternating(1002, 1, None)
    };
    let days = queue.forecast(1)[0].unwrap().likely / 86_400.0;
    assert!((19.0..24.0).contains(&days), "{days}");
}

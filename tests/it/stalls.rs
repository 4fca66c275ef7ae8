//! Time in which this machine stood still.
//!
//! A machine of continuous integration may get no processor for many seconds (its host is overloaded, or moves it). Then
//! nothing could have happened, so waits of tests do not count that time.

use std::{
    panic::{AssertUnwindSafe, resume_unwind},
    sync::{
        Once,
        atomic::{AtomicU64, Ordering::SeqCst},
    },
    time::{Duration, Instant},
};

use futures::FutureExt;

/// Interval at which the machine is observed.
const STEP: Duration = Duration::from_millis(50);
/// A delay of a step that is no stall: eight tests share two processors.
const USUAL: Duration = Duration::from_millis(500);

/// Largest number of repetitions of a test.
const MAX_REPETITIONS: usize = 4;

/// Milliseconds in which the machine stood still, since the first stopwatch was started.
static STALLED: AtomicU64 = AtomicU64::new(0);

/// A clock of a test that stops while the machine stands still.
#[derive(Clone, Copy)]
pub struct Stopwatch {
    began: Instant,
    stalled: Duration,
}

impl Stopwatch {
    /// Starts at zero.
    pub fn start() -> Self {
        observe();
        Self { began: Instant::now(), stalled: stalled() }
    }

    /// Time since the start, without stalls.
    pub fn elapsed(&self) -> Duration {
        self.began.elapsed().saturating_sub(stalled().saturating_sub(self.stalled))
    }
}

/// All stalls so far.
pub fn stalled() -> Duration {
    Duration::from_millis(STALLED.load(SeqCst))
}

/// Runs a test of time, whose servers count seconds themselves. If it fails and the machine stood still meanwhile, it is
/// repeated; a failure without a stall remains one.
pub async fn undisturbed(test: impl AsyncFn()) {
    observe();
    for _ in 0..MAX_REPETITIONS {
        let before = stalled();
        let Err(failure) = AssertUnwindSafe(Box::pin(test())).catch_unwind().await else { return };
        // the thread that measures notices a stall at its next step
        tokio::time::sleep(2 * USUAL).await;
        if stalled() == before {
            resume_unwind(failure);
        }
        eprintln!("repeated, because this machine stood still");
    }
    Box::pin(test()).await;
}

/// Starts the thread that measures stalls.
fn observe() {
    static STARTED: Once = Once::new();
    STARTED.call_once(|| {
        std::thread::spawn(|| {
            loop {
                let began = Instant::now();
                std::thread::sleep(STEP);
                let late = began.elapsed().saturating_sub(STEP);
                if late > USUAL {
                    let all = STALLED.fetch_add(u64::try_from(late.as_millis()).unwrap(), SeqCst);
                    eprintln!("this machine stood still for {late:?}, {all} ms before");
                }
            }
        });
    });
}

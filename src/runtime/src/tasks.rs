//! Spawning of tasks, directly or behind the gate of the engine that they belong to.
//!
//! A gate simulates a process within this process. In the sandbox each engine runs behind its own gate. If the gate is
//! frozen, none of its tasks moves (like SIGSTOP). If it is killed, each task is dropped at its present await point
//! (like SIGKILL). Tasks spawned by a held task are behind the same gate. Outside the sandbox there is no gate, and
//! this is `tokio::spawn`.

use std::{
    pin::Pin,
    sync::{Arc, Mutex, PoisonError},
    task::{Context, Poll, Waker},
};

use tokio::task::JoinHandle;

tokio::task_local! {
    static GATE: Gate;
}

/// Spawns a task behind the gate of the current task, if it has one.
pub fn spawn<F>(task: F) -> JoinHandle<F::Output>
where
    F: Future<Output: Send> + Send + 'static,
{
    match GATE.try_with(Clone::clone) {
        Ok(gate) => tokio::spawn(gate.hold(task)),
        Err(_) => tokio::spawn(task),
    }
}

/// Spawns the main loop of an engine, the only task that [`Gate::freeze_main`] stops.
pub fn spawn_main<F>(task: F) -> JoinHandle<F::Output>
where
    F: Future<Output: Send> + Send + 'static,
{
    match GATE.try_with(Clone::clone) {
        Ok(gate) => tokio::spawn(gate.hold_as(task, true)),
        Err(_) => tokio::spawn(task),
    }
}

/// Task that is aborted when its owner drops it.
#[must_use = "dropping it aborts the task"]
#[derive(Debug)]
pub struct OwnedTask(JoinHandle<()>);

impl OwnedTask {
    /// Spawns a task like [`spawn`].
    pub fn spawn(task: impl Future<Output = ()> + Send + 'static) -> Self {
        Self(spawn(task))
    }

    /// Reports whether the task has ended.
    pub fn is_finished(&self) -> bool {
        self.0.is_finished()
    }
}

impl Drop for OwnedTask {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Wraps a future like [`spawn`], for a caller that spawns it itself, for example into a `JoinSet`.
pub fn held<F>(task: F) -> Pin<Box<dyn Future<Output = F::Output> + Send>>
where
    F: Future<Output: Send> + Send + 'static,
{
    match GATE.try_with(Clone::clone) {
        Ok(gate) => Box::pin(gate.hold(task)),
        Err(_) => Box::pin(task),
    }
}

/// State of a gate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Open,
    Frozen,
    Dead,
}

/// Gate of one engine's tasks. Cheap to clone; all clones are the same gate.
#[derive(Clone, Debug, Default)]
pub struct Gate(Arc<Mutex<Inner>>);

/// State of the main loop behind a gate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Main {
    Moves,
    /// It waits for ever.
    Waits,
    /// It blocks its thread for ever.
    Busy,
}

#[derive(Debug)]
struct Inner {
    state: State,
    /// State of the main loop alone.
    main: Main,
    waiting: Vec<Waker>,
}

impl Default for Inner {
    fn default() -> Self {
        Self { state: State::Open, main: Main::Moves, waiting: Vec::new() }
    }
}

impl Gate {
    /// Wraps a future so that it runs behind this gate.
    pub fn hold<F: Future>(&self, task: F) -> impl Future<Output = F::Output> + use<F> {
        self.hold_as(task, false)
    }

    fn hold_as<F: Future>(&self, task: F, main: bool) -> impl Future<Output = F::Output> + use<F> {
        GATE.scope(self.clone(), GatedTask { task: Some(Box::pin(task)), gate: self.clone(), main })
    }

    /// Returns the gate of the calling task.
    pub fn current() -> Option<Self> {
        GATE.try_with(Clone::clone).ok()
    }

    /// Stops all tasks behind the gate until [`Gate::thaw`]. Time goes on.
    pub fn freeze(&self) {
        self.set_state(State::Frozen);
    }

    /// Lets all tasks move again.
    pub fn thaw(&self) {
        self.set_state(State::Open);
    }

    /// Stops the main loop (see [`spawn_main`]). All other tasks go on.
    pub fn freeze_main(&self) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).main = Main::Waits;
    }

    /// Stops the main loop and blocks the thread that it runs on.
    pub fn block_main(&self) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).main = Main::Busy;
    }

    /// Drops every task behind the gate at its next poll. Final.
    pub fn kill(&self) {
        self.set_state(State::Dead);
    }

    /// Returns true after [`Gate::kill`].
    pub fn is_dead(&self) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).state == State::Dead
    }

    fn set_state(&self, to: State) {
        let waiting = {
            let mut inner = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            if inner.state != State::Dead {
                inner.state = to;
            }
            std::mem::take(&mut inner.waiting)
        };
        waiting.into_iter().for_each(Waker::wake);
    }
}

struct GatedTask<F> {
    task: Option<Pin<Box<F>>>,
    gate: Gate,
    /// Whether this is the engine's main loop.
    main: bool,
}

impl<F: Future> Future for GatedTask<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        let state = {
            let mut inner = self.gate.0.lock().unwrap_or_else(PoisonError::into_inner);
            let state = match (inner.state, inner.main) {
                (State::Open, Main::Waits) if self.main => State::Frozen,
                (State::Open, Main::Busy) if self.main => {
                    drop(inner);
                    loop {
                        std::thread::park();
                    }
                }
                (state, _) => state,
            };
            if state == State::Frozen {
                inner.waiting.push(cx.waker().clone());
            }
            state
        };
        match (state, self.task.as_mut()) {
            (State::Open, Some(task)) => task.as_mut().poll(cx),
            (State::Dead, _) => {
                // its values are dropped here; no task that could wait for it lives
                self.task = None;
                Poll::Pending
            }
            _ => Poll::Pending,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{
        sync::atomic::{AtomicU32, Ordering::SeqCst},
        time::Duration,
    };

    use tokio::time::sleep;

    use super::*;

    fn counting(gate: &Gate) -> Arc<AtomicU32> {
        let count = Arc::new(AtomicU32::new(0));
        let inner = Arc::clone(&count);
        tokio::spawn(gate.hold(async move {
            // a task started by a task is behind the same gate
            spawn(async move {
                loop {
                    sleep(Duration::from_secs(1)).await;
                    inner.fetch_add(1, SeqCst);
                }
            })
            .await
        }));
        count
    }

    #[tokio::test(start_paused = true)]
    async fn a_frozen_gate_stops_all_tasks_until_it_is_thawed() {
        let gate = Gate::default();
        let count = counting(&gate);
        sleep(Duration::from_millis(3500)).await;
        assert_eq!(count.load(SeqCst), 3);
        gate.freeze();
        sleep(Duration::from_secs(100)).await;
        assert_eq!(count.load(SeqCst), 3);
        gate.thaw();
        sleep(Duration::from_secs(2)).await;
        assert!(count.load(SeqCst) >= 4);
    }

    #[tokio::test(start_paused = true)]
    async fn an_owned_task_ends_when_it_is_dropped() {
        let (count, ended) = (Arc::new(AtomicU32::new(0)), OwnedTask::spawn(async {}));
        let inner = Arc::clone(&count);
        let task = OwnedTask::spawn(async move {
            loop {
                sleep(Duration::from_secs(1)).await;
                inner.fetch_add(1, SeqCst);
            }
        });
        sleep(Duration::from_millis(1500)).await;
        assert_eq!((task.is_finished(), ended.is_finished()), (false, true));
        drop(task);
        sleep(Duration::from_secs(100)).await;
        assert_eq!((count.load(SeqCst), Arc::strong_count(&count)), (1, 1));
    }

    #[tokio::test(start_paused = true)]
    async fn freeze_main_stops_the_main_loop_but_not_its_spawned_tasks() {
        let gate = Gate::default();
        let (turns, count) = (Arc::new(AtomicU32::new(0)), Arc::new(AtomicU32::new(0)));
        let (inner, child) = (Arc::clone(&turns), Arc::clone(&count));
        let main = async move {
            spawn(async move {
                loop {
                    sleep(Duration::from_secs(1)).await;
                    child.fetch_add(1, SeqCst);
                }
            });
            loop {
                sleep(Duration::from_secs(1)).await;
                inner.fetch_add(1, SeqCst);
            }
        };
        gate.hold(async { drop(spawn_main(main)) }).await;
        sleep(Duration::from_millis(3500)).await;
        gate.freeze_main();
        sleep(Duration::from_secs(10)).await;
        assert_eq!((turns.load(SeqCst), count.load(SeqCst)), (3, 13));
        gate.kill();
        gate.thaw();
        sleep(Duration::from_secs(10)).await;
        assert_eq!((turns.load(SeqCst), count.load(SeqCst)), (3, 13));
    }

    #[tokio::test(start_paused = true)]
    async fn a_killed_gate_drops_its_tasks_for_good() {
        let gate = Gate::default();
        let count = counting(&gate);
        sleep(Duration::from_millis(1500)).await;
        gate.kill();
        gate.thaw();
        sleep(Duration::from_secs(100)).await;
        assert_eq!((count.load(SeqCst), Arc::strong_count(&count)), (1, 1));
    }
}

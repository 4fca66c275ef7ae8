//! Where tasks are spawned: plainly, or held by the gate of the engine that they belong to.
//!
//! A gate stands for a process inside one process. In the sandbox each engine runs behind its own: frozen, none of its
//! tasks moves (as after SIGSTOP); killed, each of them is dropped where it stands (as after SIGKILL). Tasks spawned
//! from a held task are held by the same gate. Outside the sandbox there is no gate and this is `tokio::spawn`.

use std::{
    pin::Pin,
    sync::{Arc, Mutex, PoisonError},
    task::{Context, Poll, Waker},
};

use tokio::task::JoinHandle;

tokio::task_local! {
    static GATE: Gate;
}

/// Spawns a task behind the gate of the current one, if it has one.
pub fn spawn<F>(task: F) -> JoinHandle<F::Output>
where
    F: Future<Output: Send> + Send + 'static,
{
    match GATE.try_with(Clone::clone) {
        Ok(gate) => tokio::spawn(gate.hold(task)),
        Err(_) => tokio::spawn(task),
    }
}

/// Spawns the main loop of an engine: the one task that [`Gate::freeze_main`] stops.
pub fn spawn_main<F>(task: F) -> JoinHandle<F::Output>
where
    F: Future<Output: Send> + Send + 'static,
{
    match GATE.try_with(Clone::clone) {
        Ok(gate) => tokio::spawn(gate.hold_as(task, true)),
        Err(_) => tokio::spawn(task),
    }
}

/// [`spawn`] for a future that is spawned otherwise, into a `JoinSet` say.
pub fn held<F>(task: F) -> Pin<Box<dyn Future<Output = F::Output> + Send>>
where
    F: Future<Output: Send> + Send + 'static,
{
    match GATE.try_with(Clone::clone) {
        Ok(gate) => Box::pin(gate.hold(task)),
        Err(_) => Box::pin(task),
    }
}

/// What a gate lets its tasks do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Open,
    Frozen,
    Dead,
}

/// Holds the tasks of one engine. Cheap to clone; all clones are the same gate.
#[derive(Clone, Debug, Default)]
pub struct Gate(Arc<Mutex<Inner>>);

/// How the main loop behind a gate is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Main {
    Moves,
    /// It waits for something that never comes.
    Waits,
    /// It keeps its thread for ever.
    Busy,
}

#[derive(Debug)]
struct Inner {
    state: State,
    /// What the main loop alone does.
    main: Main,
    waiting: Vec<Waker>,
}

impl Default for Inner {
    fn default() -> Self {
        Self { state: State::Open, main: Main::Moves, waiting: Vec::new() }
    }
}

impl Gate {
    /// The future behind this gate.
    pub fn hold<F: Future>(&self, task: F) -> impl Future<Output = F::Output> + use<F> {
        self.hold_as(task, false)
    }

    fn hold_as<F: Future>(&self, task: F, main: bool) -> impl Future<Output = F::Output> + use<F> {
        GATE.scope(self.clone(), Held { task: Some(Box::pin(task)), gate: self.clone(), main })
    }

    /// The gate of the task that asks.
    pub fn current() -> Option<Self> {
        GATE.try_with(Clone::clone).ok()
    }

    /// Nothing behind it moves until [`Gate::thaw`]; time goes on.
    pub fn freeze(&self) {
        self.turn(State::Frozen);
    }

    /// Lets everything move again.
    pub fn thaw(&self) {
        self.turn(State::Open);
    }

    /// The main loop behind it (see [`spawn_main`]) does not move any more; everything else does.
    pub fn freeze_main(&self) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).main = Main::Waits;
    }

    /// The same, and the loop keeps the thread on which it would have moved.
    pub fn block_main(&self) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).main = Main::Busy;
    }

    /// Drops every task behind it the next time that it would move. For ever.
    pub fn kill(&self) {
        self.turn(State::Dead);
    }

    /// Whether [`Gate::kill`] was called.
    pub fn is_dead(&self) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).state == State::Dead
    }

    fn turn(&self, to: State) {
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

struct Held<F> {
    task: Option<Pin<Box<F>>>,
    gate: Gate,
    /// Whether this is the engine's main loop.
    main: bool,
}

impl<F: Future> Future for Held<F> {
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
                // what it held is dropped here; nobody who could wait for it lives
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
            // the task of a task is behind the same gate
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
    async fn frozen_nothing_moves_and_thawed_it_goes_on() {
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
    async fn the_main_loop_alone_stands_still_and_what_it_has_spawned_goes_on() {
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
    async fn killed_everything_it_held_is_dropped_and_it_never_moves_again() {
        let gate = Gate::default();
        let count = counting(&gate);
        sleep(Duration::from_millis(1500)).await;
        gate.kill();
        gate.thaw();
        sleep(Duration::from_secs(100)).await;
        assert_eq!((count.load(SeqCst), Arc::strong_count(&count)), (1, 1));
    }
}

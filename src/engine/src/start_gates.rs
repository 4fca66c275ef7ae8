//! Background requests to Prometheus about the site's gates (policy `start_gates`; REB-65). They are sent only while a
//! reboot waits for its start, and never more often than the policy says.

use std::{sync::Arc, time::Duration};

use cketerm_clients::prometheus::Prometheus;
use cketerm_model::{
    boot_time::{BootTime, Seconds},
    clock::Clock,
    start_gates::{GateAnswer, StartGateView, StartGates},
};
use cketerm_runtime::tasks::OwnedTask;
use futures::StreamExt;
use tokio::sync::{Notify, watch};

/// Shortest wait for the next round. A shorter one would not move a paused clock on.
const MIN_WAIT: Seconds = Seconds::new(0.001);

/// Subject of the requests.
#[derive(Clone, Debug, PartialEq)]
pub struct Target {
    /// The gates.
    pub settings: StartGates,
    /// Start of the leadership. It does not use answers from before.
    pub leading_since: BootTime,
}

/// Background task that asks Prometheus.
pub struct GatePoller {
    target: watch::Sender<Option<Target>>,
    seen: watch::Receiver<Arc<StartGateView>>,
    changed: Arc<Notify>,
    _task: OwnedTask,
}

impl GatePoller {
    /// Starts without requests.
    pub fn start(clock: &Clock, prometheus: Prometheus) -> Self {
        let (target, inbox) = watch::channel(None);
        let (publish, seen) = watch::channel(Arc::default());
        let changed = Arc::new(Notify::new());
        let task = GatePollerTask {
            prometheus,
            publish,
            changed: Arc::clone(&changed),
            clock: clock.clone(),
            view: StartGateView::default(),
            asked: None,
        };
        Self { target, seen, changed, _task: OwnedTask::spawn(task.run(inbox)) }
    }

    /// Sets the subject of the requests; `None` = no requests. A new subject is asked for at once.
    pub fn aim(&self, target: Option<Target>) {
        self.target.send_if_modified(|now| {
            let new = *now != target;
            if new {
                *now = target;
            }
            new
        });
    }

    /// Returns all answers so far.
    pub fn seen(&self) -> Arc<StartGateView> {
        Arc::clone(&self.seen.borrow())
    }

    /// Subscribes to the answers, for the check right before an effect.
    pub fn subscribe(&self) -> watch::Receiver<Arc<StartGateView>> {
        self.seen.clone()
    }

    /// Resolves when there is an answer that no pass has seen.
    pub async fn changed(&self) {
        self.changed.notified().await;
    }
}

struct GatePollerTask {
    prometheus: Prometheus,
    publish: watch::Sender<Arc<StartGateView>>,
    changed: Arc<Notify>,
    clock: Clock,
    view: StartGateView,
    /// Boot time of the last round, and what it asked for.
    asked: Option<(BootTime, Target)>,
}

impl GatePollerTask {
    async fn run(mut self, mut target: watch::Receiver<Option<Target>>) {
        loop {
            let now = target.borrow_and_update().clone();
            let wait = now.as_ref().and_then(|now| self.wait(now));
            if let Some(due) = now.filter(|_| wait.is_none()) {
                self.round(due).await;
                continue;
            }
            let next_round = async {
                match wait {
                    Some(wait) => tokio::time::sleep(wait).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                biased;
                () = next_round => {}
                gone = target.changed() => if gone.is_err() { return },
            }
        }
    }

    /// Returns the time until the next round; none = it is due.
    fn wait(&self, target: &Target) -> Option<Duration> {
        let (asked, last) = self.asked.as_ref()?;
        let next = *asked + Seconds::from(target.settings.interval_seconds.max(1));
        let left = next - self.clock.boot();
        (last == target && left > Seconds::new(0.0)).then(|| Duration::from(left.max(MIN_WAIT)))
    }

    /// Asks for every gate, and publishes each answer as it comes: one that closes a gate counts before the others are
    /// there.
    async fn round(&mut self, target: Target) {
        let asked = self.clock.boot();
        if self.view.settings.as_ref() != Some(&target.settings) {
            self.view = StartGateView { settings: Some(target.settings.clone()), ..StartGateView::default() };
        }
        let mut states = self.prometheus.ask(&target.settings);
        self.asked = Some((asked, target));
        while let Some((gate, state)) = states.next().await {
            self.view.answers.insert(gate, GateAnswer { asked, state });
            self.publish.send_replace(Arc::new(self.view.clone()));
            self.changed.notify_one();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use bytes::Bytes;
    use cketerm_clients::net::Http;
    use cketerm_model::start_gates::GateState;

    use super::*;

    fn target(text: &str, leading_since: f64) -> Target {
        let settings = StartGates::read(&format!("{{prometheus: 'http://p', {text}}}")).unwrap();
        Target { settings, leading_since: BootTime::new(leading_since) }
    }

    fn poller() -> (GatePoller, Arc<AtomicUsize>) {
        let requests = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&requests);
        let http = Http::by(move |_| {
            counted.fetch_add(1, Ordering::SeqCst);
            let empty = r#"{"status":"success","data":{"resultType":"vector","result":[]}}"#;
            Box::pin(async move { Ok(http::Response::new(Bytes::from(empty))) })
        });
        let clock = cketerm_runtime::tokio_clock::starting_at("2026-08-01T12:00:00Z".parse().unwrap());
        (GatePoller::start(&clock, Prometheus::in_process(http)), requests)
    }

    async fn seconds(number: u64) {
        tokio::time::sleep(Duration::from_secs(number)).await;
    }

    #[tokio::test(start_paused = true)]
    async fn requests_follow_the_work_and_keep_their_interval() {
        let (poller, requests) = poller();
        let count = || requests.load(Ordering::SeqCst);
        seconds(100).await;
        assert_eq!(count(), 0, "nothing waits");
        let first = target("alerts: {}, interval_seconds: 30", 0.0);
        poller.aim(Some(first.clone()));
        seconds(1).await;
        assert_eq!(count(), 1, "at once");
        assert_eq!(poller.seen().answers["alerts"].state, GateState::Open);
        seconds(60).await;
        assert_eq!(count(), 3);
        // work that comes and goes causes no more requests
        for _ in 0..20 {
            poller.aim(None);
            seconds(1).await;
            poller.aim(Some(first.clone()));
            seconds(1).await;
        }
        assert!((4..=5).contains(&count()), "{}", count());
        let before = count();
        poller.aim(None);
        seconds(1000).await;
        assert_eq!(count(), before);
    }

    #[tokio::test(start_paused = true)]
    async fn other_gates_and_another_leadership_are_asked_for_at_once() {
        let (poller, requests) = poller();
        let count = || requests.load(Ordering::SeqCst);
        poller.aim(Some(target("alerts: {}", 0.0)));
        seconds(1).await;
        poller.aim(Some(target("queries: [{name: a, query: up}, {name: b, query: up}]", 0.0)));
        seconds(1).await;
        assert_eq!((count(), poller.seen().answers.len()), (3, 2));
        poller.aim(Some(target("queries: [{name: a, query: up}, {name: b, query: up}]", 1.5)));
        seconds(1).await;
        assert_eq!(count(), 5);
        assert!(poller.seen().answers.values().all(|answer| answer.asked >= BootTime::new(1.5)));
    }
}

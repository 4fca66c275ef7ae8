//! Commands of a site whose machines are rebooted by agents: the driver's own order, and its proof of a boot.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use cketerm_clients::power::{AgentOrder, booted::booted};
use cketerm_engine::command::{CommandLine, Commands, Purpose};
use cketerm_model::{attempt::Ended, clock::Clock};
use cketerm_runtime::tasks::Gate;
use cketerm_sandbox::{
    faults::Link,
    machines::{CommandOrigin, PowerEvent},
};
use cketerm_scenario::kube;
use fastrand::Rng;
use futures::{FutureExt, future::BoxFuture};
use jiff::Timestamp;
use tokio::time::{Instant, sleep};

use super::processes::Agents;

/// Time between SIGTERM and SIGKILL of a command whose time is over.
const GRACE: Duration = Duration::from_secs(1);

/// End of a command with its outputs.
type End = (Ended, String, String);

/// Runner of the commands of one engine.
pub struct AgentCommands {
    pub agents: Arc<Agents>,
    /// Clock of the engine's host.
    pub clock: Clock,
    /// Time in which an agent has to answer.
    pub timeout: Duration,
    /// Number of the next command; all engines share it.
    pub next: Arc<AtomicU64>,
    pub seed: u64,
}

fn exited(code: i32, stdout: &str, stderr: String) -> End {
    (Ended::Exit(code), stdout.to_owned(), stderr)
}

impl AgentCommands {
    fn order(&self, address: &str, attempt: &str) -> (AgentOrder, String, Rng) {
        let number = self.next.fetch_add(1, Ordering::SeqCst);
        let mut rng = Rng::with_seed(self.seed ^ (number << 20));
        let connection = Link::new("power-command", Gate::default(), rng.u64(..));
        connection.odds(self.agents.odds(), 0);
        let kube = kube(&self.agents.stage.sandbox, &connection, self.clock.clone());
        let id = format!("order-{number}");
        (AgentOrder::new(kube, address, id.clone(), attempt.to_owned(), self.timeout), id, rng)
    }

    /// `power cycle`.
    fn power(&self, line: CommandLine, address: &str) -> BoxFuture<'static, End> {
        if line.start_before.is_some_and(|at| self.clock.boot() >= at) {
            let withheld = Ended::Withheld("its start deadline had passed".to_owned());
            return std::future::ready((withheld, String::new(), String::new())).boxed();
        }
        let (order, id, mut rng) = self.order(address, &line.attempt);
        // some sites wrap the command in a script that runs it again when it fails, with the same attempt
        let (second, second_id, _) = self.order(address, &line.attempt);
        let is_repeated = rng.bool();
        let (agents, address, bound) = (Arc::clone(&self.agents), address.to_owned(), Duration::from_secs(line.bound));
        // kill -9, or a host that fails: the order stays
        let is_killed = !agents.is_calm() && rng.u32(0..5) == 0;
        let killed_after = Duration::from_millis(rng.u64(500..20_000));
        let task = tokio::spawn(async move {
            let machines = &agents.stage.sandbox.machines;
            let origin = CommandOrigin { argv: line.argv, entry: line.entry.clone(), attempt: line.attempt };
            agents.entries.lock().unwrap().extend([(id, line.entry.clone()), (second_id, line.entry)]);
            machines.record_command(&address, &origin, PowerEvent::Begin);
            let began = Instant::now();
            let given = async {
                match order.give(&|_| {}, sleep(bound)).await {
                    Err(_) if is_repeated => second.give(&|_| {}, sleep(bound.saturating_sub(began.elapsed()))).await,
                    result => result,
                }
            };
            let (ended, code) = tokio::select! {
                biased;
                () = sleep(killed_after), if is_killed => ((Ended::Signal(9), String::new(), String::new()), None),
                () = sleep(bound + GRACE) => (timed_out(line.bound), None),
                result = given => match result {
                    _ if began.elapsed() >= bound => (timed_out(line.bound), None),
                    Ok(()) => (exited(0, "", String::new()), Some(0)),
                    Err(e) => (exited(1, "", e.to_string()), Some(1)),
                },
            };
            machines.record_command(&address, &origin, PowerEvent::End(code));
            ended
        });
        let lost = |e| (Ended::Unknown(format!("the helper ended: {e}")), String::new(), String::new());
        async move { task.await.unwrap_or_else(lost) }.boxed()
    }

    /// `power booted`.
    fn check(&self, line: &CommandLine, address: &str, since: Timestamp) -> BoxFuture<'static, End> {
        let (order, ..) = self.order(address, "");
        let (sandbox, clock) = (&self.agents.stage.sandbox, self.clock.clone());
        let connection = Link::new("power-command", Gate::default(), 0);
        let (kube, address) = (kube(sandbox, &connection, clock.clone()), address.to_owned());
        let answer = async move {
            let machine = match order.machine().await {
                Ok(machine) => machine,
                Err(e) => return exited(1, "", e.to_string()),
            };
            match kube.node_at(&address).await {
                Ok(Ok(node)) => {
                    let (yes, why) = booted(&machine, Some(&node), since, clock.wall(), false);
                    exited(0, if yes { "true\n" } else { "false\n" }, why)
                }
                Ok(Err(why)) => exited(1, "", why),
                Err(e) => exited(1, "", e.to_string()),
            }
        };
        let bound = line.bound;
        async move {
            tokio::time::timeout(Duration::from_secs(bound), answer).await.unwrap_or_else(|_| timed_out(bound))
        }
        .boxed()
    }
}

fn timed_out(bound: u64) -> End {
    (Ended::TimedOut(bound), String::new(), String::new())
}

impl Commands for AgentCommands {
    fn has(&self, _: &str) -> bool {
        true
    }

    fn run(&self, line: CommandLine) -> BoxFuture<'static, End> {
        let words: Vec<String> = line.argv.clone();
        match (line.purpose, words.iter().map(String::as_str).collect::<Vec<_>>().as_slice()) {
            (Purpose::Power, [.., "reboot", address]) => self.power(line, address),
            (Purpose::Check, [.., "check", address, since]) => {
                let since = since.parse().ok().and_then(|since| Timestamp::from_second(since).ok());
                self.check(&line, address, since.unwrap_or_default())
            }
            (Purpose::Power | Purpose::Check, other) => {
                std::future::ready(exited(2, "", format!("unknown command {other:?}"))).boxed()
            }
        }
    }
}

//! The commands of a definition, answered by the machines with the same argv.
//!
//! The last argument is the address, and the one before it is the verb. For boot checks, the Unix time of the entry's
//! transition follows the address. Arguments before the verb are ignored.

use std::{future::Future, net::IpAddr, time::Duration};

use cketerm_model::{attempt::Ended, output::OutputTails};
use tokio::{
    sync::{oneshot, watch},
    time::sleep,
};

use super::{
    CommandOrigin, HealthCheck, Machines, OnBoot, OnCheck, OnCommand, OnHook, PowerEvent, State, duration_from_secs,
};

/// End of a command, its standard output and its standard error.
pub type CommandEnd = (Ended, String, String);

/// Time between two lines that a power command prints while it waits. A shorter one prints only its result.
const LINE_INTERVAL: Duration = Duration::from_secs(3);

/// Output of a power command while it waits for its machine.
struct Output {
    stderr: String,
    /// Receiver of the output so far.
    printed: Option<watch::Sender<OutputTails>>,
}

impl Output {
    /// Prints a line at regular intervals until `end`. `line` gets the seconds since the beginning.
    async fn print_until(&mut self, end: impl Future<Output = ()>, line: impl Fn(u64) -> String) {
        let mut end = std::pin::pin!(end);
        for seconds in (LINE_INTERVAL.as_secs()..).step_by(3) {
            tokio::select! {
                biased;
                () = &mut end => return,
                () = sleep(LINE_INTERVAL) => {}
            }
            let tails = OutputTails::bounded("", &format!("{}{}", self.stderr, line(seconds)));
            self.stderr.clone_from(&tails.stderr);
            if let Some(printed) = &self.printed {
                printed.send_replace(tails);
            }
        }
    }
}

/// A parsed command line.
struct ParsedCommand<'a> {
    verb: &'a str,
    address: &'a str,
    since: i64,
}

fn parse_argv(argv: &[String]) -> Option<ParsedCommand<'_>> {
    let address = |at: usize| argv.get(at).map(String::as_str).filter(|a| a.parse::<IpAddr>().is_ok());
    let last = argv.len().checked_sub(1)?;
    let (at, since) = match address(last) {
        Some(_) => (last, 0),
        None => (last.checked_sub(1)?, argv[last].parse().ok()?),
    };
    Some(ParsedCommand { verb: argv.get(at.checked_sub(1)?)?, address: address(at)?, since })
}

fn exited(code: i32, stdout: &str, stderr: &str) -> CommandEnd {
    (Ended::Exit(code), stdout.to_owned(), stderr.to_owned())
}

impl Machines {
    /// Runs a command line to its end, without a timeout. If the future is dropped, a power command that would end by
    /// itself goes on; a hanging one is killed.
    pub async fn command(&self, argv: &[String], env: &[(String, String)]) -> CommandEnd {
        self.command_within(argv, env, None, None).await
    }

    /// Runs a command line with a timeout. The command is killed at the timeout, whether or not anybody still waits for
    /// it. `printed` receives its output while it runs.
    pub async fn command_within(
        &self,
        argv: &[String],
        env: &[(String, String)],
        bound: Option<Duration>,
        printed: Option<watch::Sender<OutputTails>>,
    ) -> CommandEnd {
        let Some(ParsedCommand { verb, address, since }) = parse_argv(argv) else {
            return exited(2, "", "usage: VERB ADDRESS [UNIX-TIME]\n");
        };
        if !self.lock().by_address.contains_key(address) {
            return exited(1, "", &format!("{address}: no such machine\n"));
        }
        match verb {
            "reboot" | "off" | "on" | "repair" | "reinstall" => {
                let of = |name: &str| env.iter().find(|(n, _)| n == name).map(|(_, v)| v.clone()).unwrap_or_default();
                let origin =
                    CommandOrigin { argv: argv.to_vec(), entry: of("CKETERM_ENTRY"), attempt: of("CKETERM_ATTEMPT") };
                let (mut sender, receiver) = oneshot::channel();
                let (machines, verb, address) = (self.clone(), verb.to_owned(), address.to_owned());
                let mut output = Output { stderr: String::new(), printed };
                tokio::spawn(async move {
                    let answer = machines.power(&verb, &address, &origin, bound, &mut sender, &mut output).await;
                    let answer = (answer.0, answer.1, format!("{}{}", output.stderr, answer.2));
                    // The engine that ran the command may be gone.
                    let _ = sender.send(answer);
                });
                let lost = |_| (Ended::Unknown("the sandbox ended".to_owned()), String::new(), String::new());
                receiver.await.unwrap_or_else(lost)
            }
            "check" | "health" | "status" => {
                let check = self.check(verb, address, since);
                match bound {
                    Some(bound) => tokio::time::timeout(bound, check).await.unwrap_or_else(|_| timed_out(bound)),
                    None => check.await,
                }
            }
            "hook" => {
                let hook = self.hook(address);
                match bound {
                    Some(bound) => tokio::time::timeout(bound, hook).await.unwrap_or_else(|_| timed_out(bound)),
                    None => hook.await,
                }
            }
            other => exited(2, "", &format!("{other}: unknown verb\n")),
        }
    }

    #[allow(clippy::too_many_arguments)] // each is a part of the command
    async fn power(
        &self,
        verb: &str,
        address: &str,
        origin: &CommandOrigin,
        bound: Option<Duration>,
        sender: &mut oneshot::Sender<CommandEnd>,
        output: &mut Output,
    ) -> CommandEnd {
        let (takes, mode, failure) = {
            let mut inner = self.lock();
            self.log_event(&mut inner, origin, address, PowerEvent::Begin);
            let Some(runtime) = inner.by_address.get_mut(address) else { return exited(1, "", "no such machine\n") };
            let takes = self.durations.command.draw(&mut runtime.rng);
            let behaviour = &mut runtime.behaviour;
            let takes = behaviour.command_seconds.map_or(takes, duration_from_secs);
            let code = if behaviour.exit_code == 0 { 1 } else { behaviour.exit_code };
            let failure = (behaviour.fails > 0).then_some(code);
            behaviour.fails = behaviour.fails.saturating_sub(1);
            (takes, behaviour.command, failure)
        };
        let sent = |seconds| format!("{address}: {verb} sent, waiting for the BMC ({seconds}s)\n");
        let silent = |seconds| format!("{address}: no answer from the BMC, retrying ({seconds}s)\n");
        let hangs = failure.is_none() && mode == OnCommand::Hangs;
        if let Some(bound) = bound.filter(|b| hangs || *b < takes) {
            output.print_until(sleep(bound), silent).await;
            self.log_event(&mut self.lock(), origin, address, PowerEvent::End(None));
            return timed_out(bound);
        }
        if hangs {
            output.print_until(sender.closed(), silent).await;
            self.log_event(&mut self.lock(), origin, address, PowerEvent::End(None));
            return (Ended::Signal(9), String::new(), String::new());
        }
        output.print_until(sleep(takes), sent).await;
        let answer = match failure {
            Some(code) => exited(code, "", "Error: Unable to establish IPMI v2 / RMCP+ session\n"),
            None => self.execute(verb, address, origin, mode == OnCommand::Ignores),
        };
        let code = if let Ended::Exit(code) = answer.0 { Some(code) } else { None };
        self.log_event(&mut self.lock(), origin, address, PowerEvent::End(code));
        answer
    }

    fn execute(&self, verb: &str, address: &str, origin: &CommandOrigin, ignored: bool) -> CommandEnd {
        let text = match verb {
            "reboot" => "Chassis Power Control: Cycle\n",
            "off" => "Chassis Power Control: Down/Off\n",
            "on" => "Chassis Power Control: Up/On\n",
            "reinstall" => "boot device set to PXE\nChassis Power Control: Cycle\n",
            _ => "repaired\n",
        };
        if !ignored && let Some(runtime) = self.lock().by_address.get_mut(address) {
            let behaviour = &mut runtime.behaviour;
            if behaviour.cure.as_deref().unwrap_or("repair") == verb {
                behaviour.ill = behaviour.ill.saturating_sub(1);
                if behaviour.boot == OnBoot::Never && behaviour.cure.is_some() {
                    behaviour.boot = OnBoot::Back;
                }
            }
        }
        match verb {
            _ if ignored => {}
            "reboot" | "reinstall" => {
                self.down(address, origin);
                self.boot(address, origin);
            }
            "off" => self.down(address, origin),
            "on" => self.boot(address, origin),
            _ => {}
        }
        exited(0, text, "")
    }

    /// Answers a hook of the site for a machine.
    async fn hook(&self, address: &str) -> CommandEnd {
        let (takes, mode) = {
            let mut inner = self.lock();
            let Some(runtime) = inner.by_address.get_mut(address) else { return exited(1, "", "no such machine\n") };
            (self.durations.check.draw(&mut runtime.rng), runtime.behaviour.hook)
        };
        sleep(takes).await;
        match mode {
            OnHook::Succeeds => exited(0, "done\n", ""),
            OnHook::Fails => exited(1, "", "the site does not agree\n"),
            OnHook::Hangs => std::future::pending().await,
        }
    }

    async fn check(&self, verb: &str, address: &str, since: i64) -> CommandEnd {
        let (takes, mode) = {
            let mut inner = self.lock();
            let Some(runtime) = inner.by_address.get_mut(address) else { return exited(1, "", "no such machine\n") };
            let drawn = (self.durations.check.draw(&mut runtime.rng), runtime.behaviour.check);
            if let Some(checks) = inner.health_checks.as_mut().filter(|_| verb == "health") {
                checks.push(HealthCheck { at: self.clock.wall(), address: address.to_owned() });
            }
            drawn
        };
        sleep(takes).await;
        match mode {
            OnCheck::Honest => {}
            OnCheck::Yes => return exited(0, "true\n", ""),
            OnCheck::No => return exited(0, "false\n", ""),
            OnCheck::Silent => std::future::pending().await,
        }
        let inner = self.lock();
        let Some(runtime) = inner.by_address.get(address) else { return exited(1, "", "no such machine\n") };
        let yes = |yes: bool| exited(0, if yes { "true\n" } else { "false\n" }, "");
        match (verb, runtime.state) {
            ("status", State::Off) => exited(0, "off\n", ""),
            ("status", State::Booting) => exited(0, "booting\n", ""),
            ("status", State::Up) => exited(0, "up\n", ""),
            (_, State::Off | State::Booting) => {
                exited(255, "", &format!("ssh: connect to host {address} port 22: No route to host\n"))
            }
            ("health", State::Up) => match &runtime.behaviour.says {
                Some(word) if runtime.behaviour.ill == 0 => exited(0, &format!("{word}\n"), ""),
                _ => yes(runtime.behaviour.ill == 0),
            },
            (_, State::Up) => yes(runtime.booted_at.as_second() >= since),
        }
    }
}

fn timed_out(bound: Duration) -> CommandEnd {
    (Ended::TimedOut(bound.as_secs()), String::new(), String::new())
}

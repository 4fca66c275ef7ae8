//! The commands of a definition, answered by the machines with the same argv.
//!
//! The last argument is the address, and the one before it is the verb. For boot checks, the Unix time of the entry's
//! transition follows the address. Arguments before the verb are ignored.

use std::{net::IpAddr, time::Duration};

use tokio::{sync::oneshot, time::sleep};

use super::{Machines, OnBoot, OnCheck, OnCommand, Order, State, What, length};
use crate::model::attempt::Ended;

/// End of a command, its standard output and its standard error.
pub type Answer = (Ended, String, String);

/// A parsed command line.
struct Asked<'a> {
    verb: &'a str,
    address: &'a str,
    since: i64,
}

fn asked(argv: &[String]) -> Option<Asked<'_>> {
    let address = |at: usize| argv.get(at).map(String::as_str).filter(|a| a.parse::<IpAddr>().is_ok());
    let last = argv.len().checked_sub(1)?;
    let (at, since) = match address(last) {
        Some(_) => (last, 0),
        None => (last.checked_sub(1)?, argv[last].parse().ok()?),
    };
    Some(Asked { verb: argv.get(at.checked_sub(1)?)?, address: address(at)?, since })
}

fn said(code: i32, stdout: &str, stderr: &str) -> Answer {
    (Ended::Exit(code), stdout.to_owned(), stderr.to_owned())
}

impl Machines {
    /// Runs a command line to its end, without a timeout. If the future is dropped, a power command that would end by
    /// itself goes on; a hanging one is killed.
    pub async fn command(&self, argv: &[String], env: &[(String, String)]) -> Answer {
        self.command_within(argv, env, None).await
    }

    /// Runs a command line with a timeout. The command is killed at the timeout, whether or not anybody still waits for
    /// it.
    pub async fn command_within(&self, argv: &[String], env: &[(String, String)], bound: Option<Duration>) -> Answer {
        let Some(Asked { verb, address, since }) = asked(argv) else {
            return said(2, "", "usage: VERB ADDRESS [UNIX-TIME]\n");
        };
        if !self.lock().racks.contains_key(address) {
            return said(1, "", &format!("{address}: no such machine\n"));
        }
        match verb {
            "reboot" | "off" | "on" | "repair" | "reinstall" => {
                let of = |name: &str| env.iter().find(|(n, _)| n == name).map(|(_, v)| v.clone()).unwrap_or_default();
                let order = Order { argv: argv.to_vec(), entry: of("CKETERM_ENTRY"), attempt: of("CKETERM_ATTEMPT") };
                let (mut tell, told) = oneshot::channel();
                let (machines, verb, address) = (self.clone(), verb.to_owned(), address.to_owned());
                tokio::spawn(async move {
                    let answer = machines.power(&verb, &address, &order, bound, &mut tell).await;
                    // The engine that ran the command may be gone.
                    let _ = tell.send(answer);
                });
                let lost = |_| (Ended::Unknown("the sandbox ended".to_owned()), String::new(), String::new());
                told.await.unwrap_or_else(lost)
            }
            "check" | "health" | "status" => {
                let check = self.check(verb, address, since);
                match bound {
                    Some(bound) => tokio::time::timeout(bound, check).await.unwrap_or_else(|_| timed_out(bound)),
                    None => check.await,
                }
            }
            other => said(2, "", &format!("{other}: unknown verb\n")),
        }
    }

    async fn power(
        &self,
        verb: &str,
        address: &str,
        order: &Order,
        bound: Option<Duration>,
        tell: &mut oneshot::Sender<Answer>,
    ) -> Answer {
        let (takes, way, failure) = {
            let mut inner = self.lock();
            self.note(&mut inner, order, address, What::Begin);
            let Some(standing) = inner.racks.get_mut(address) else { return said(1, "", "no such machine\n") };
            let takes = self.pace.command.draw(&mut standing.rng);
            let behaviour = &mut standing.behaviour;
            let takes = behaviour.command_seconds.map_or(takes, length);
            let code = if behaviour.exit_code == 0 { 1 } else { behaviour.exit_code };
            let failure = (behaviour.fails > 0).then_some(code);
            behaviour.fails = behaviour.fails.saturating_sub(1);
            (takes, behaviour.command, failure)
        };
        let hangs = failure.is_none() && way == OnCommand::Hangs;
        if let Some(bound) = bound.filter(|b| hangs || *b < takes) {
            sleep(bound).await;
            self.note(&mut self.lock(), order, address, What::End(None));
            return timed_out(bound);
        }
        if hangs {
            tell.closed().await;
            self.note(&mut self.lock(), order, address, What::End(None));
            return (Ended::Signal(9), String::new(), String::new());
        }
        sleep(takes).await;
        let answer = match failure {
            Some(code) => said(code, "", "Error: Unable to establish IPMI v2 / RMCP+ session\n"),
            None => self.obey(verb, address, order, way == OnCommand::Ignores),
        };
        let code = if let Ended::Exit(code) = answer.0 { Some(code) } else { None };
        self.note(&mut self.lock(), order, address, What::End(code));
        answer
    }

    fn obey(&self, verb: &str, address: &str, order: &Order, ignored: bool) -> Answer {
        let text = match verb {
            "reboot" => "Chassis Power Control: Cycle\n",
            "off" => "Chassis Power Control: Down/Off\n",
            "on" => "Chassis Power Control: Up/On\n",
            "reinstall" => "boot device set to PXE\nChassis Power Control: Cycle\n",
            _ => "repaired\n",
        };
        if !ignored && let Some(standing) = self.lock().racks.get_mut(address) {
            let behaviour = &mut standing.behaviour;
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
                self.down(address, order);
                self.boot(address, order);
            }
            "off" => self.down(address, order),
            "on" => self.boot(address, order),
            _ => {}
        }
        said(0, text, "")
    }

    async fn check(&self, verb: &str, address: &str, since: i64) -> Answer {
        let (takes, way) = {
            let mut inner = self.lock();
            let Some(standing) = inner.racks.get_mut(address) else { return said(1, "", "no such machine\n") };
            (self.pace.check.draw(&mut standing.rng), standing.behaviour.check)
        };
        sleep(takes).await;
        match way {
            OnCheck::Honest => {}
            OnCheck::Yes => return said(0, "true\n", ""),
            OnCheck::No => return said(0, "false\n", ""),
            OnCheck::Silent => std::future::pending().await,
        }
        let inner = self.lock();
        let Some(standing) = inner.racks.get(address) else { return said(1, "", "no such machine\n") };
        let yes = |yes: bool| said(0, if yes { "true\n" } else { "false\n" }, "");
        match (verb, standing.state) {
            ("status", State::Off) => said(0, "off\n", ""),
            ("status", State::Booting) => said(0, "booting\n", ""),
            ("status", State::Up) => said(0, "up\n", ""),
            (_, State::Off | State::Booting) => {
                said(255, "", &format!("ssh: connect to host {address} port 22: No route to host\n"))
            }
            ("health", State::Up) => match &standing.behaviour.says {
                Some(word) if standing.behaviour.ill == 0 => said(0, &format!("{word}\n"), ""),
                _ => yes(standing.behaviour.ill == 0),
            },
            (_, State::Up) => yes(standing.booted_at.as_second() >= since),
        }
    }
}

fn timed_out(bound: Duration) -> Answer {
    (Ended::TimedOut(bound.as_secs()), String::new(), String::new())
}

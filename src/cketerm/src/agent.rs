//! The agent of one node: it reports the sentinel and the boot id as annotations of its Node, and reboots the machine when
//! an order is there. The decisions are `cketerm_model::agent` and `cketerm_rules::agent`.

mod answer;
mod logind;
mod reboot;
mod record;
mod sentinel;

use std::{path::PathBuf, time::Duration};

use cketerm_clients::kubernetes::{Carry, Kube, Watched, agent_annotations};
use cketerm_model::{
    agent::{Report, report_changes},
    kube::NodeRow,
    names::NodeName,
};
use cketerm_rules::agent::{Judgement, Refusal, judge};
use futures::future::{Fuse, FusedFuture, FutureExt};
use tokio::{
    signal::unix::{SignalKind, signal},
    sync::watch,
    time::{MissedTickBehavior, interval},
};

use self::record::Record;
pub use self::{reboot::RebootMethod, sentinel::Sentinel};

/// Settings of an agent.
#[derive(Debug)]
pub struct AgentSettings {
    /// Its Node.
    pub node: NodeName,
    /// Signs that the machine needs a reboot.
    pub sentinel: Sentinel,
    /// Interval between two looks for the sentinel.
    pub poll: Duration,
    /// Directory of the record of obeyed orders.
    pub state_directory: PathBuf,
    /// File with the machine's boot id.
    pub boot_id_file: PathBuf,
    /// Way to reboot the machine.
    pub reboot: RebootMethod,
}

/// A running agent.
struct Agent<'a> {
    kube: Kube,
    settings: AgentSettings,
    record: Record,
    report: Report,
    /// Receiver of a line for people.
    tell: &'a (dyn Fn(&str) + Sync),
    /// The last failure, which is not printed again.
    last_failure: String,
}

/// Runs an agent until SIGTERM or SIGINT. Errors: it cannot begin.
pub async fn run(kube: Kube, settings: AgentSettings, tell: &(dyn Fn(&str) + Sync)) -> Result<(), String> {
    let boot_id_file = settings.boot_id_file.display();
    let boot_id = std::fs::read_to_string(&settings.boot_id_file).map_err(|e| format!("{boot_id_file}: {e}"))?;
    let boot_id = boot_id.trim().to_owned();
    if boot_id.is_empty() {
        return Err(format!("{boot_id_file} is empty"));
    }
    let no_signals = |e: std::io::Error| format!("signals cannot be received: {e}");
    let mut stop = signal(SignalKind::terminate()).map_err(no_signals)?;
    let mut interrupt = signal(SignalKind::interrupt()).map_err(no_signals)?;
    let record = Record::open(&settings.state_directory)?;
    let version = env!("CARGO_PKG_VERSION").to_owned();
    tell(&format!("agent of Node {}: boot {boot_id}; {}", settings.node, settings.reboot));
    let (node, poll) = (settings.node.clone(), settings.poll);
    let (to, mut seen) = watch::channel(Watched::default());
    let follower = kube.clone();
    let mut follow = std::pin::pin!(follower.follow_node(&node, &to));
    let mut agent =
        Agent { kube, settings, record, report: Report { boot_id, version }, tell, last_failure: String::new() };
    let mut polls = interval(poll);
    polls.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let sentinel = agent.settings.sentinel.clone();
    // A slow command must not keep an order waiting.
    let mut check = std::pin::pin!(Fuse::terminated());
    let mut cause = None;
    loop {
        tokio::select! {
            biased;
            _ = stop.recv() => return Ok(()),
            _ = interrupt.recv() => return Ok(()),
            _ = polls.tick(), if check.is_terminated() => {
                check.set(sentinel.check().fuse());
                continue;
            }
            found = &mut check => match found {
                Ok(found) => cause = found,
                // An unknown state changes nothing.
                Err(why) => agent.fail(&why),
            },
            _ = seen.changed() => {}
            () = &mut follow => return Err("the watch of the Node ended".to_owned()),
        }
        let state = seen.borrow_and_update().clone();
        match state {
            Watched::Starting => {}
            Watched::Failed(why) => agent.fail(&why),
            Watched::Missing => agent.fail(&format!("there is no Node {node}")),
            Watched::Present(row) => agent.step(&row, cause.as_deref()).await,
        }
    }
}

impl Agent<'_> {
    /// Does what is due for this state of the Node.
    async fn step(&mut self, node: &NodeRow, cause: Option<&str>) {
        let annotations = agent_annotations(node);
        let obeyed = self.record.read();
        let now = self.kube.clock().wall();
        let judgement = judge(&annotations, &self.report.boot_id, now, obeyed.as_ref().map_err(String::as_str));
        match (judgement, obeyed) {
            (Judgement::Nothing, _) => {}
            (Judgement::Refuse(attempt, why), _) => return self.refuse(node, &attempt, &why).await,
            (Judgement::Obey(order), Ok(obeyed)) => {
                // The record comes first: an agent that ends right after it never obeys this order again.
                let next = obeyed.and(&order.attempt, &self.report.boot_id);
                if let Err(why) = self.record.write(&next) {
                    return self.refuse(node, &order.attempt, &Refusal::NoRecord(why)).await;
                }
                return self.obey(node, &order).await;
            }
            // Without a record nothing is obeyed.
            (Judgement::Obey(_), Err(why)) => self.fail(&why),
        }
        let changes = report_changes(&annotations, &self.report, cause);
        if changes.is_empty() {
            return self.last_failure.clear();
        }
        match self.kube.annotate_node(node, &changes, Carry::Out).await {
            Ok(_) => (self.tell)(&format!("reported: {}", cause.unwrap_or("no reboot is needed"))),
            // The change that came in between is on its way.
            Err(cketerm_clients::kubernetes::WriteError::Conflict) => {}
            Err(e) => self.fail(&format!("the report was not written: {e}")),
        }
    }

    /// Prints a failure once.
    fn fail(&mut self, why: &str) {
        if self.last_failure != why {
            (self.tell)(why);
            why.clone_into(&mut self.last_failure);
        }
    }
}

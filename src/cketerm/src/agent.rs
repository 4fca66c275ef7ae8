//! The agent of one node: it reports the sentinel and the boot id as annotations of its Node, and reboots the machine when
//! an order is there. The decisions are `cketerm_model::agent` and `cketerm_rules::agent`.

mod logind;
mod protocol;
mod reboot;
mod record;
mod sentinel;

use std::{path::PathBuf, time::Duration};

use cketerm_clients::kubernetes::{Kube, Watched};
use cketerm_model::{
    agent::{Order, Report},
    names::NodeName,
};
use cketerm_rules::agent::Obeyed;
use futures::future::{Fuse, FusedFuture, FutureExt};
use tokio::{
    signal::unix::{SignalKind, signal},
    sync::watch,
    time::{MissedTickBehavior, interval},
};

use self::{
    protocol::{Agent, Machine},
    record::Record,
};
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

/// This host.
struct Host {
    record: Record,
    method: RebootMethod,
}

impl Machine for Host {
    fn obeyed(&self) -> Result<Obeyed, String> {
        self.record.read()
    }

    fn record(&self, obeyed: &Obeyed) -> Result<(), String> {
        self.record.write(obeyed)
    }

    async fn may_reboot(&self) -> Result<(), String> {
        self.method.is_possible().await
    }

    async fn reboot(&self, _: &Order) -> Result<(), String> {
        self.method.run().await
    }
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
    let AgentSettings { sentinel, reboot, .. } = settings;
    let mut agent = Agent::new(kube, Host { record, method: reboot }, Report { boot_id, version }, tell);
    let mut polls = interval(poll);
    polls.set_missed_tick_behavior(MissedTickBehavior::Delay);
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

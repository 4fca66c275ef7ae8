//! Histories of the sandbox's own scenarios, on fewer nodes.

use cketerm_scenario::Scenario;

use super::{History, Play, block_on};

/// All of them.
pub const HISTORIES: &[History] = &[
    History { name: "calm", play: || of_sandbox("calm", 4, 700) },
    History { name: "budget", play: || of_sandbox("budget", 6, 300) },
    History { name: "dead-api-server", play: || of_sandbox("dead-api-server", 4, 900) },
    History { name: "flaky-bmc", play: || of_sandbox("flaky-bmc", 8, 500) },
    History { name: "hosts", play: || of_sandbox("hosts", 9, 400) },
    History { name: "interference", play: || of_sandbox("interference", 7, 300) },
    History { name: "registry", play: || of_sandbox("registry", 30, 400) },
    History { name: "repairs", play: || of_sandbox("repairs", 7, 300) },
    History { name: "windows", play: || of_sandbox("windows", 6, 600) },
    History { name: "beside-cke", play: || of_sandbox("beside-cke", 5, 300) },
];

/// Plays a scenario of the sandbox on so many nodes for so many seconds.
fn of_sandbox(name: &str, nodes: u32, seconds: u64) -> String {
    block_on(async {
        let play = Play::set(Scenario::named(name).unwrap(), Some(nodes)).await;
        play.stage.play().await;
        play.until(seconds).await;
        play.history()
    })
}

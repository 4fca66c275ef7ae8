//! The etcd members behind the API servers of a simulation. In one seed of four, engines query them and they have
//! faults.

use std::time::Duration;

use cketerm::sandbox::{
    Sandbox,
    members::{Members, Trouble},
};
use fastrand::Rng;
use tokio::time::{Instant, sleep};

use crate::{keep::Keep, ticks::Ticks};

/// Name of these faults in counts and pairs.
pub const WORD: &str = "etcd-member";

/// Separate random generator for a seed whose engines query the members. None: the operator is responsible for the
/// quorum there.
pub fn dice(seed: u64) -> Option<Rng> {
    let mut dice = Rng::with_seed(seed ^ 0x7175_6f72_756d);
    (dice.u8(0..4) == 0).then_some(dice)
}

/// Makes one member after another stop, become unreachable, fall behind, run out of space or lose its vote, for a
/// while. Some faults overlap.
pub async fn trouble(sandbox: &Sandbox, mut dice: Rng, began: Instant, keep: &Keep) {
    let members = sandbox.members.clone();
    let addresses: Vec<String> = members.list().into_iter().map(|member| member.address).collect();
    let mut ticks = Ticks::new(began, 5_000..90_000);
    while let Some(n) = ticks.next(&mut dice).await {
        let (address, seconds) = (addresses[dice.usize(..addresses.len())].clone(), dice.u64(10..180));
        let trouble = match dice.u8(0..10) {
            0..4 => Trouble { stopped: true, ..Trouble::default() },
            4 => {
                // another one goes down meanwhile, so two of three members are affected
                let other = addresses.iter().find(|other| **other != address).unwrap().clone();
                if keep.has(&format!("m{n}")) {
                    befall(&members, other, Trouble { stopped: true, ..Trouble::default() }, seconds);
                }
                Trouble { unreachable: true, ..Trouble::default() }
            }
            5..7 => Trouble { behind: true, ..Trouble::default() },
            7 => Trouble { alarm: true, ..Trouble::default() },
            8 => Trouble { learner: true, ..Trouble::default() },
            // this member becomes the leader of etcd
            _ => {
                members.lead(&address);
                continue;
            }
        };
        if !keep.has(&format!("m{n}")) {
            continue;
        }
        befall(&members, address, trouble, seconds);
    }
}

fn befall(members: &Members, address: String, trouble: Trouble, seconds: u64) {
    members.trouble(&address, trouble);
    let members = members.clone();
    tokio::spawn(async move {
        sleep(Duration::from_secs(seconds)).await;
        members.trouble(&address, Trouble::default());
    });
}

/// Makes all members healthy.
pub fn heal(sandbox: &Sandbox) {
    for member in sandbox.members.list() {
        sandbox.members.trouble(&member.address, Trouble::default());
    }
}

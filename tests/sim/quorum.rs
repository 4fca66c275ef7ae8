//! The members of etcd behind the API servers of a simulation: in one seed of four they are asked, and have troubles.

use std::time::Duration;

use cketerm::sandbox::{
    Sandbox,
    members::{Members, Trouble},
};
use fastrand::Rng;
use tokio::time::{Instant, sleep};

use crate::{keep::Keep, ticks::Ticks};

/// What it is called in counts and pairs.
pub const WORD: &str = "etcd-member";

/// Dice of its own for a seed whose engines ask the members; none = a person answers for the quorum there.
pub fn dice(seed: u64) -> Option<Rng> {
    let mut dice = Rng::with_seed(seed ^ 0x7175_6f72_756d);
    (dice.u8(0..4) == 0).then_some(dice)
}

/// One member after another stops, cannot be reached, falls behind, runs out of space or loses its vote, for a while; some overlap.
pub async fn trouble(sandbox: &Sandbox, mut dice: Rng, began: Instant, keep: &Keep) {
    let members = sandbox.members.clone();
    let addresses: Vec<String> = members.list().into_iter().map(|member| member.address).collect();
    let mut ticks = Ticks::new(began, 5_000..90_000);
    while let Some(n) = ticks.next(&mut dice).await {
        let (address, seconds) = (addresses[dice.usize(..addresses.len())].clone(), dice.u64(10..180));
        let trouble = match dice.u8(0..10) {
            0..4 => Trouble { stopped: true, ..Trouble::default() },
            4 => {
                // another one goes down meanwhile: those two are all that is left of three
                let other = addresses.iter().find(|other| **other != address).unwrap().clone();
                if keep.has(&format!("m{n}")) {
                    befall(&members, other, Trouble { stopped: true, ..Trouble::default() }, seconds);
                }
                Trouble { unreachable: true, ..Trouble::default() }
            }
            5..7 => Trouble { behind: true, ..Trouble::default() },
            7 => Trouble { alarm: true, ..Trouble::default() },
            8 => Trouble { learner: true, ..Trouble::default() },
            // another one leads
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

/// All members are well.
pub fn heal(sandbox: &Sandbox) {
    for member in sandbox.members.list() {
        sandbox.members.trouble(&member.address, Trouble::default());
    }
}

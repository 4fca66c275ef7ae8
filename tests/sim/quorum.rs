//! The etcd members behind the API servers of a simulation. In one seed of four, engines query them and they have
//! faults.

use std::time::Duration;

use cketerm_sandbox::{
    Sandbox,
    members::{MemberFaults, Members},
};
use fastrand::Rng;
use tokio::time::{Instant, sleep};

use crate::{selection::Selection, ticks::Ticks};

/// Name of these faults in counts and pairs.
pub const FAULT_NAME: &str = "etcd-member";

/// Separate random generator for a seed whose engines query the members. None: the operator is responsible for the
/// quorum there.
pub fn random(seed: u64) -> Option<Rng> {
    let mut random = Rng::with_seed(seed ^ 0x7175_6f72_756d);
    (random.u8(0..4) == 0).then_some(random)
}

/// Makes one member after another stop, become unreachable, fall behind, run out of space or lose its vote, for a
/// while. Some faults overlap.
pub async fn trouble(sandbox: &Sandbox, mut random: Rng, began: Instant, selection: &Selection) {
    let members = sandbox.members.clone();
    let addresses: Vec<String> = members.list().into_iter().map(|member| member.address).collect();
    let mut ticks = Ticks::new(began, 5_000..90_000);
    while let Some(n) = ticks.next(&mut random).await {
        let (address, seconds) = (addresses[random.usize(..addresses.len())].clone(), random.u64(10..180));
        let trouble = match random.u8(0..10) {
            0..4 => MemberFaults { stopped: true, ..MemberFaults::default() },
            4 => {
                // another member goes down meanwhile, so two of three are affected
                let other = addresses.iter().find(|other| **other != address).unwrap().clone();
                if selection.has(&format!("m{n}")) {
                    apply_for(&members, other, MemberFaults { stopped: true, ..MemberFaults::default() }, seconds);
                }
                MemberFaults { unreachable: true, ..MemberFaults::default() }
            }
            5..7 => MemberFaults { behind: true, ..MemberFaults::default() },
            7 => MemberFaults { alarm: true, ..MemberFaults::default() },
            8 => MemberFaults { learner: true, ..MemberFaults::default() },
            // this member becomes the leader of etcd
            _ => {
                members.set_leader(&address);
                continue;
            }
        };
        if !selection.has(&format!("m{n}")) {
            continue;
        }
        apply_for(&members, address, trouble, seconds);
    }
}

fn apply_for(members: &Members, address: String, trouble: MemberFaults, seconds: u64) {
    members.trouble(&address, trouble);
    let members = members.clone();
    tokio::spawn(async move {
        sleep(Duration::from_secs(seconds)).await;
        members.trouble(&address, MemberFaults::default());
    });
}

/// Makes all members healthy.
pub fn heal(sandbox: &Sandbox) {
    for member in sandbox.members.list() {
        sandbox.members.trouble(&member.address, MemberFaults::default());
    }
}

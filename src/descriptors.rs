//! File descriptors of this process: as many as the host allows, and some kept for the definition's commands.

use std::sync::OnceLock;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// What connections and files take: pages over HTTP, watches of etcd and Kubernetes, logs, receivers.
const OTHERS: u64 = 192;
/// What one command takes in this process: pipes, and what starts it.
const COMMAND: u64 = 8;
/// Commands of power and repair that are always possible beside the checks.
const POWER: u64 = 16;
/// Checks at once, however many descriptors there are.
const MOST_CHECKS: u64 = 4096;

/// The soft limit that this process was started with.
static INHERITED: OnceLock<Option<u64>> = OnceLock::new();

/// Raises the soft limit to the hard one. Commands get the inherited one back: [`lower`].
pub fn raise() {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    let _ = INHERITED.set(current);
    // a limit that cannot be raised is no reason not to work
    let _ = setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum });
}

/// The soft limit before [`raise`], for programs that walk through all descriptors there could be.
pub fn inherited() -> Option<u64> {
    INHERITED.get().copied().flatten()
}

/// Sets the soft limit of this process and of what it starts.
pub fn lower(soft: u64) {
    let maximum = getrlimit(Resource::Nofile).maximum;
    let _ = setrlimit(Resource::Nofile, Rlimit { current: Some(soft), maximum });
}

/// How many checks may run at once, so that a command of power or repair always finds its descriptors.
pub fn checks_at_once() -> usize {
    checks_within(getrlimit(Resource::Nofile).current)
}

fn checks_within(limit: Option<u64>) -> usize {
    let spare = limit.map_or(u64::MAX, |limit| limit.saturating_sub(OTHERS + POWER * COMMAND) / COMMAND);
    usize::try_from(spare.clamp(4, MOST_CHECKS)).unwrap_or(4)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checks_leave_descriptors_for_power_commands() {
        assert_eq!(checks_within(None), 4096);
        assert_eq!(checks_within(Some(524_288)), 4096);
        assert_eq!(checks_within(Some(1024)), 88);
        assert_eq!(checks_within(Some(256)), 4);
        let taken = |limit| OTHERS + COMMAND * (POWER + checks_within(Some(limit)) as u64);
        for limit in [512, 1024, 4096] {
            assert!(taken(limit) <= limit, "{limit}");
        }
    }
}

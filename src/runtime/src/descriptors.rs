//! File descriptors of this process: the limit is raised to what the host allows, and some are reserved for the
//! definition's commands.

use std::sync::OnceLock;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Descriptors for connections and files: HTTP pages, watches of etcd and Kubernetes, logs, receivers.
const RESERVED_FOR_CONNECTIONS: u64 = 192;
/// Descriptors that one command takes in this process, for its pipes and its start.
const PER_COMMAND: u64 = 8;
/// Number of power and repair commands that can always run beside the checks.
const POWER_COMMANDS: u64 = 16;
/// Upper bound of concurrent checks.
const MOST_CHECKS: u64 = 4096;

/// The soft limit at the start of this process.
static INHERITED: OnceLock<Option<u64>> = OnceLock::new();

/// Raises the soft limit to the hard one. Commands get the inherited one back, see [`lower`].
pub fn raise() {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    let _ = INHERITED.set(current);
    // cketerm also works with a limit that cannot be raised
    let _ = setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum });
}

/// Returns the soft limit before [`raise`], for programs that iterate over all possible descriptors.
pub fn inherited() -> Option<u64> {
    INHERITED.get().copied().flatten()
}

/// Sets the soft limit of this process and of the programs that it starts.
pub fn lower(soft: u64) {
    let maximum = getrlimit(Resource::Nofile).maximum;
    let _ = setrlimit(Resource::Nofile, Rlimit { current: Some(soft), maximum });
}

/// Returns the number of checks that may run at once, so that a power or repair command always has descriptors left.
pub fn checks_at_once() -> usize {
    checks_within(getrlimit(Resource::Nofile).current)
}

fn checks_within(limit: Option<u64>) -> usize {
    let spare = limit.map_or(u64::MAX, |limit| {
        limit.saturating_sub(RESERVED_FOR_CONNECTIONS + POWER_COMMANDS * PER_COMMAND) / PER_COMMAND
    });
    usize::try_from(spare.clamp(4, MOST_CHECKS)).unwrap_or(4)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checks_leave_file_descriptors_for_power_commands() {
        assert_eq!(checks_within(None), 4096);
        assert_eq!(checks_within(Some(524_288)), 4096);
        assert_eq!(checks_within(Some(1024)), 88);
        assert_eq!(checks_within(Some(256)), 4);
        let taken =
            |limit| RESERVED_FOR_CONNECTIONS + PER_COMMAND * (POWER_COMMANDS + checks_within(Some(limit)) as u64);
        for limit in [512, 1024, 4096] {
            assert!(taken(limit) <= limit, "{limit}");
        }
    }
}

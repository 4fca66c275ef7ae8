//! Parts of the simulation and of the checker, from cheap to dear.

/// One part: a name and the variables that select it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Part {
    /// Name in the results.
    pub name: String,
    /// Variables.
    pub variables: Vec<(String, String)>,
}

/// Kinds of stories (`STORIES` in tests/sim/main.rs): variable and the number that `make test` plays.
const STORIES: [(&str, u64); 12] = [
    ("AGENTS", 7),
    ("BREAKER", 5),
    ("DRAINERS", 7),
    ("GATES", 5),
    ("HANDOVERS", 14),
    ("HOOKS", 5),
    ("MAINTENANCE", 7),
    ("MEMBERSHIP", 10),
    ("NEEDED", 10),
    ("REFUSALS", 20),
    ("REQUESTS", 5),
    ("SIGNS", 5),
];

/// Histories (tests/sim/histories), each a part of its own.
const HISTORIES: [&str; 39] = [
    "calm",
    "budget",
    "dead-api-server",
    "flaky-bmc",
    "hosts",
    "interference",
    "registry",
    "repairs",
    "windows",
    "beside-cke",
    "conditions",
    "failover",
    "removed-machine",
    "shutdown",
    "handover",
    "maintenance",
    "maintenance-requests",
    "hooks",
    "reboot-needed",
    "etcd-members",
    "start-gates",
    "membership",
    "automatic-repair",
    "breaker",
    "queue-commands",
    "setting-commands",
    "node-commands",
    "lost-answers",
    "lost-lock",
    "cut-off",
    "watches",
    "not-ready-to-lead",
    "stuck",
    "pages",
    "migration",
    "lost-writes",
    "interrupted-hosts",
    "failing-receiver",
    "writers",
];

/// Seeds that are a part of their own.
const SINGLE_SEEDS: u64 = 40;

/// Seeds of the simulation in one part: the first one, and the number. They also play the fixed scenarios. All of them are
/// fewer than `make test` plays.
const SEEDS: [(u64, u64); 1] = [(41, 20)];

/// States of each world of the checker.
const STATES: u64 = 2000;

/// Parts of the simulation.
pub fn simulation() -> Vec<Part> {
    let variables =
        |all: &[(&str, u64)]| all.iter().map(|(name, value)| ((*name).to_owned(), value.to_string())).collect();
    let seeds = (1..=SINGLE_SEEDS).map(|seed| (seed, 1)).chain(SEEDS).map(|(from, seeds)| Part {
        name: format!("SEEDS={seeds} SEED_FROM={from}"),
        variables: variables(&[("SEEDS", seeds), ("SEED_FROM", from), ("SIM_THREADS", 1)]),
    });
    // one story alone, because it is quick, then all
    let stories = STORIES.iter().flat_map(|(name, number)| [(name, 1), (name, *number)]).map(|(name, number)| Part {
        name: format!("{name}={number}"),
        variables: variables(&[(name, number), ("SEED_FROM", 1), ("SIM_THREADS", 1)]),
    });
    let histories = HISTORIES.iter().map(|name| Part {
        name: format!("HISTORIES={name}"),
        variables: vec![("HISTORIES".to_owned(), (*name).into())],
    });
    histories.chain(seeds).chain(stories).collect()
}

/// Parts of the checker.
pub fn checker() -> Vec<Part> {
    let variables = [("STATES", STATES), ("THREADS", 1)].map(|(name, value)| (name.to_owned(), value.to_string()));
    vec![Part { name: format!("STATES={STATES}"), variables: variables.into() }]
}

/// Text that tells of a failure: the code of a broken invariant, or that a seed failed.
pub fn failure(line: &str) -> Option<String> {
    if let Some(seed) = line.strip_suffix(" make sim").and_then(|line| line.split(" FAILED; again").next()) {
        return line.starts_with("seed ").then(|| seed.to_owned());
    }
    line.strip_prefix("BREACH ").map(|rest| rest.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_of_the_simulation_are_recognised() {
        assert_eq!(failure("seed 5 FAILED; again: SEEDS=1 SEED_FROM=5 make sim").as_deref(), Some("seed 5"));
        assert_eq!(failure("BREACH     I23: 4 seeds").as_deref(), Some("I23: 4 seeds"));
        assert_eq!(failure("failed     0"), None);
    }

    #[test]
    fn every_history_is_kept() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../sim/histories/kept");
        let kept = std::fs::read_dir(folder).unwrap().map(|file| file.unwrap().file_name().into_string().unwrap());
        let mut kept: Vec<String> = kept.map(|name| name.replace(".txt", "")).collect();
        let mut listed = HISTORIES.map(str::to_owned).to_vec();
        kept.sort();
        listed.sort();
        assert_eq!(listed, kept);
    }

    #[test]
    fn every_kind_of_stories_exists() {
        for (name, _) in STORIES {
            let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../sim");
            let quoted = format!("\"{name}\"");
            let files = std::fs::read_dir(folder)
                .unwrap()
                .filter_map(|entry| std::fs::read_to_string(entry.unwrap().path()).ok());
            assert!(files.into_iter().any(|text| text.contains(&quoted)), "{name}");
        }
    }
}

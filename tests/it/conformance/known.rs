//! Where the sandbox is known to answer otherwise, and why. The report says which of them agree now
//! and can leave this list.

/// Case and reason.
pub const KNOWN: &[(&str, &str)] = &[
    ("server: without_a_token", "to be mended"),
    ("server: with_a_wrong_token", "to be mended"),
    ("kubectl: drain_against_a_budget", "to be mended"),
    ("kubectl: create_and_apply", "to be mended"),
    ("kubectl: rights", "to be mended"),
    ("controllers: a_replica_set_is_scaled", "to be mended"),
    ("controllers: orphans_of_a_replica_set", "to be mended"),
];

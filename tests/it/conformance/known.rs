//! Where the sandbox is known to answer otherwise, and why. The report says which of them agree now
//! and can leave this list.

/// Case and reason.
pub const KNOWN: &[(&str, &str)] = &[
    ("evict: a_body_that_does_not_fit", "to be mended"),
    ("delete: without_grace", "to be mended"),
    ("delete: finalizers", "to be mended"),
    ("create: defaults_that_clients_read", "to be mended"),
    ("create: another_kind", "to be mended"),
    ("create: a_version_of_ones_own", "to be mended"),
    ("create: both_numbers_in_a_budget", "to be mended"),
    ("patch: strategic_deletes_items", "to be mended"),
    ("patch: json_that_fails", "to be mended"),
    ("patch: versions_of_the_caller", "to be mended"),
    ("patch: a_body_that_is_no_patch", "to be mended"),
    ("list: bad_label_selectors", "to be mended"),
    ("list: a_table_of_pods", "to be mended"),
    ("server: without_a_token", "to be mended"),
    ("server: with_a_wrong_token", "to be mended"),
    ("server: endpoints", "to be mended"),
    ("kubectl: get_pods", "to be mended"),
    ("kubectl: drain_against_a_budget", "to be mended"),
    ("kubectl: create_and_apply", "to be mended"),
    ("kubectl: rights", "to be mended"),
    ("controllers: a_replica_set_is_scaled", "to be mended"),
    ("controllers: orphans_of_a_replica_set", "to be mended"),
];

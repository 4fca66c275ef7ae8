//! Tests of the fingerprints: the checker itself has no harness.

#[allow(dead_code)] // only the fingerprint is tested here
#[path = "canon.rs"]
mod canon;

use canon::{Canon, FIRST_BOOT};

#[test]
fn a_fingerprint_depends_on_ages_and_the_order_of_revisions_only() {
    let of = |now: i64, at: f64, wall: &str, revisions: [i64; 2]| {
        let mut canon = Canon::new(now);
        canon.add(&(at, wall, revisions[0], revisions[1].to_string()));
        canon.fingerprint()
    };
    let first = of(60, FIRST_BOOT + 30.0, "2026-08-01T06:00:10Z", [1_000_001, 1_000_002]);
    assert_eq!(first, of(160, FIRST_BOOT + 130.0, "2026-08-01T06:01:50Z", [1_000_005, 1_000_009]));
    assert_ne!(first, of(60, FIRST_BOOT + 31.0, "2026-08-01T06:00:10Z", [1_000_001, 1_000_002]));
    assert_ne!(first, of(60, FIRST_BOOT + 30.0, "2026-08-01T06:00:11Z", [1_000_001, 1_000_002]));
    assert_ne!(first, of(60, FIRST_BOOT + 30.0, "2026-08-01T06:00:10Z", [1_000_002, 1_000_001]));
}

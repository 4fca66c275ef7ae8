//! Outcomes of commands whose leader is gone.

use serde_json::json;

use super::{
    super::record::PowerEvent,
    scene::{LEASE, Scene},
};

const ATTEMPT_KEY: &str = "cketerm/attempts/reboots/0/1";

/// The leader that began a command is gone, another one leads on the command's host, and the machine is back. The
/// outcome is recorded at once, or never.
fn after_a_failover(keeps: bool, recorded: bool) -> Scene {
    let mut s = Scene::new();
    s.record.keeps_results = keeps;
    s.add(0, "w1");
    s.moves(0, "draining");
    s.cordon(0, "w1");
    s.advance(2.0);
    let mut attempt = s.powers(0, "w1");
    attempt["host"] = json!("engine-1");
    s.engine("power", &[(ATTEMPT_KEY, attempt.clone())], &[]);
    s.advance(1.0);
    s.set_key(&format!("leader//{LEASE:x}"), None);
    s.lead(1, 9);
    s.advance(1.0);
    s.power(PowerEvent::End(Some(0)), 0, 1, "w1");
    if recorded {
        s.engine("power", &[(ATTEMPT_KEY, Scene::ended(&attempt, 0, s.now))], &[]);
    }
    s.reports(60, &[], &[]);
    for report in &mut s.record.reports {
        report.by = "engine-1".to_owned();
    }
    s
}

#[test]
fn i47_a_result_that_is_never_recorded_is_reported_where_hosts_keep_results() {
    assert!(after_a_failover(true, false).codes().contains(&"I47"));
    assert!(!after_a_failover(true, true).codes().contains(&"I47"));
    assert!(!after_a_failover(false, false).codes().contains(&"I47"), "no host keeps results");
    let mut silent = after_a_failover(true, false);
    silent.record.reports.retain(|report| report.at.as_second() % 20 < 10);
    assert!(!silent.codes().contains(&"I47"), "no engine ran on its host throughout");
}

#[test]
fn i47_a_recorded_outcome_that_differs_from_the_machine_log_is_reported() {
    for (code, seen) in [(0, false), (7, true)] {
        let mut s = Scene::new();
        s.record.keeps_results = true;
        s.add(0, "w1");
        s.moves(0, "draining");
        s.cordon(0, "w1");
        s.advance(2.0);
        let attempt = s.powers(0, "w1");
        s.advance(1.0);
        s.power(PowerEvent::End(Some(0)), 0, 1, "w1");
        s.engine("power", &[(ATTEMPT_KEY, Scene::ended(&attempt, code, s.now))], &[]);
        assert_eq!(s.codes().contains(&"I47"), seen, "{code}");
    }
}

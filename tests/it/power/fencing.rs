//! Fencing by the BMC's own answer, where other keys already hold the host off and no change can be observed (MET-23,
//! I44).

use std::time::Duration;

use cketerm_model::boot_time::Seconds;
use cketerm_sandbox::machines::{Behaviour, OnBmc, State};
use serde_json::Value;

use super::sandbox::{Site, row};

const HARD: &str = r#"{"mode":"hard"}"#;
const OTHERS: &str = "reboot.metal3.io/other";

/// A site of the upstream operator, where another client has held `w1` off for long.
async fn held_by_another() -> Site {
    let site = Site::new("upstream", false).await;
    site.until("all hosts are known", |s| s.snapshot.kube.hosts.len() == 7).await;
    site.annotate("w1", OTHERS, HARD);
    site.until("w1 is off", |s| row(s, "w1").powered_on == Some(false)).await;
    tokio::time::sleep(Duration::from_mins(10)).await;
    site
}

#[tokio::test(start_paused = true)]
async fn i44_a_host_held_off_by_others_is_fenced_by_its_bmcs_answer() {
    let site = held_by_another().await;
    let (done, state) = site.fence_and_look("w1").await;
    let message = done.unwrap();
    assert!(
        message.contains("was off according to its BMC, node w1 is deleted, the host is still held by other"),
        "{message}"
    );
    assert_eq!(state, Some(State::Off), "the Node must be deleted while the machine is off");
    assert_eq!(site.host("w1")["metadata"]["annotations"][OTHERS], HARD, "keys of other clients must not be removed");
    assert_eq!(site.power_events("w1").len(), 1, "fencing must not change the power: {:?}", site.power_events("w1"));
}

#[tokio::test(start_paused = true)]
async fn i44_a_silent_bmc_is_no_proof_and_the_node_stays() {
    let site = held_by_another().await;
    site.behave("w1", Behaviour { bmc: OnBmc::Mute, ..Behaviour::default() });
    let (done, gone) = site.fence_and_look("w1").await;
    let why = done.unwrap_err();
    assert!(why.contains("node w1 was NOT deleted") && why.contains("bmc-w1.sandbox does not answer"), "{why}");
    assert!(why.contains("metal3/w1 stays held under cketerm-fence"), "{why}");
    assert_eq!(gone, None);
    // The BMC answers again: the existing hold suffices, and the proof is new.
    site.behave("w1", Behaviour::default());
    let (done, state) = site.fence_and_look("w1").await;
    assert!(done.is_ok(), "{done:?}");
    assert_eq!(state, Some(State::Off));
}

#[tokio::test(start_paused = true)]
async fn i44_the_bmcs_off_is_no_proof_while_a_power_on_may_be_in_progress() {
    let site = held_by_another().await;
    // The BMC accepts `On` and turns the machine on 40 s later, after cketerm has set its key.
    site.behave("w1", Behaviour { bmc_seconds: Seconds::new(40.0), ..Behaviour::default() });
    site.annotate("w1", OTHERS, "");
    site.unannotate("w1", OTHERS);
    tokio::time::sleep(Duration::from_secs(5)).await;
    assert_eq!(site.state("w1"), State::Off, "the power-on must still be in progress");
    let (done, state) = site.fence_and_look("w1").await;
    assert_eq!(state, Some(State::Off), "the Node must be deleted while the machine is off: {done:?}");
    assert_eq!(
        site.power_events("w1").len(),
        3,
        "expected off for the other client, on, off for cketerm: {:?}",
        site.power_events("w1")
    );
}

#[tokio::test(start_paused = true)]
async fn i44_a_bmc_that_reports_off_for_a_live_node_is_not_trusted() {
    // cketerm's own controller also knows only the BMC's answer.
    let site = Site::new("none", true).await;
    site.until("w1 is on", |s| s.snapshot.kube.hosts.len() == 7 && row(s, "w1").powered_on == Some(true)).await;
    site.annotate("w1", OTHERS, HARD);
    site.behave("w1", Behaviour { bmc: OnBmc::SaysOff, ..Behaviour::default() });
    site.until("w1 is reported off", |s| row(s, "w1").powered_on == Some(false)).await;
    let (done, gone) = site.fence_and_look("w1").await;
    let why = done.unwrap_err();
    assert!(why.contains("node w1 was NOT deleted") && why.contains("reports off, but the Node is Ready"), "{why}");
    assert_eq!((gone, site.state("w1")), (None, State::Up));
    assert!(site.host("w1")["metadata"]["annotations"]["reboot.metal3.io/cketerm-fence"] != Value::Null);
}

#[tokio::test(start_paused = true)]
async fn i44_a_host_with_status_off_whose_bmc_reports_on_is_not_fenced() {
    let site = held_by_another().await;
    // The machine was turned on by its power button, and the operator has not noticed it yet.
    let machines = &site.stage.sandbox.machines;
    machines.request_reset(&machines.address_of("w1").unwrap(), "On");
    tokio::time::sleep(Duration::from_mins(5)).await;
    let (done, gone) = site.fence_and_look("w1").await;
    let why = done.unwrap_err();
    assert!(why.contains("node w1 was NOT deleted") && why.contains("reports on"), "{why}");
    assert_eq!(gone, None);
}

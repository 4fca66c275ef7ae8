//! Fencing by the BMC's own answer, where other keys already hold the host off and no change can be observed (MET-23,
//! I44).

use std::time::Duration;

use cketerm::sandbox::machines::{Behaviour, OnBmc, State};
use serde_json::Value;

use super::sandbox::{Place, row};

const HARD: &str = r#"{"mode":"hard"}"#;
const OTHERS: &str = "reboot.metal3.io/other";

/// A site of the upstream operator, where another client has held `w1` off for long.
async fn held_by_another() -> Place {
    let place = Place::new("upstream", false).await;
    place.until("hosts are seen", |s| s.snapshot.kube.hosts.len() == 7).await;
    place.annotate("w1", OTHERS, HARD);
    place.until("w1 is off", |s| row(s, "w1").powered_on == Some(false)).await;
    tokio::time::sleep(Duration::from_mins(10)).await;
    place
}

#[tokio::test(start_paused = true)]
async fn i44_a_host_that_others_hold_off_is_fenced_by_its_bmcs_word() {
    let place = held_by_another().await;
    let (done, state) = place.fence_and_look("w1").await;
    let said = done.unwrap();
    assert!(
        said.contains("was off according to its BMC, node w1 is deleted, the host is still held by other"),
        "{said}"
    );
    assert_eq!(state, Some(State::Off), "the Node went while the machine was off");
    assert_eq!(place.host("w1")["metadata"]["annotations"][OTHERS], HARD, "others' keys are never removed");
    assert_eq!(place.went("w1").len(), 1, "nothing was turned on or off for it: {:?}", place.went("w1"));
}

#[tokio::test(start_paused = true)]
async fn i44_a_bmc_that_does_not_answer_is_no_proof_and_the_node_stays() {
    let place = held_by_another().await;
    place.behave("w1", Behaviour { bmc: OnBmc::Mute, ..Behaviour::default() });
    let (done, gone) = place.fence_and_look("w1").await;
    let why = done.unwrap_err();
    assert!(why.contains("node w1 was NOT deleted") && why.contains("bmc-w1.sandbox does not answer"), "{why}");
    assert!(why.contains("metal3/w1 stays held under cketerm-fence"), "{why}");
    assert_eq!(gone, None);
    // It answers again: the existing hold is enough, the proof is new.
    place.behave("w1", Behaviour::default());
    let (done, state) = place.fence_and_look("w1").await;
    assert!(done.is_ok(), "{done:?}");
    assert_eq!(state, Some(State::Off));
}

#[tokio::test(start_paused = true)]
async fn i44_off_by_the_bmcs_word_is_no_proof_while_a_power_on_may_be_under_way() {
    let place = held_by_another().await;
    // It accepts `On` and turns the machine on 40 s later, when cketerm's key is already there.
    place.behave("w1", Behaviour { bmc_seconds: 40.0, ..Behaviour::default() });
    place.annotate("w1", OTHERS, "");
    place.unannotate("w1", OTHERS);
    tokio::time::sleep(Duration::from_secs(5)).await;
    assert_eq!(place.state("w1"), State::Off, "on its way");
    let (done, state) = place.fence_and_look("w1").await;
    assert_eq!(state, Some(State::Off), "the Node went while the machine was off: {done:?}");
    assert_eq!(place.went("w1").len(), 3, "off for the other, on, off for us: {:?}", place.went("w1"));
}

#[tokio::test(start_paused = true)]
async fn i44_a_bmc_that_lies_about_the_power_of_a_node_that_lives_is_not_believed() {
    // cketerm's own controller has only the BMC's answer too.
    let place = Place::new("none", true).await;
    place.until("w1 is on", |s| s.snapshot.kube.hosts.len() == 7 && row(s, "w1").powered_on == Some(true)).await;
    place.annotate("w1", OTHERS, HARD);
    place.behave("w1", Behaviour { bmc: OnBmc::SaysOff, ..Behaviour::default() });
    place.until("w1 is said to be off", |s| row(s, "w1").powered_on == Some(false)).await;
    let (done, gone) = place.fence_and_look("w1").await;
    let why = done.unwrap_err();
    assert!(why.contains("node w1 was NOT deleted") && why.contains("reports off, but the Node is Ready"), "{why}");
    assert_eq!((gone, place.state("w1")), (None, State::Up));
    assert!(place.host("w1")["metadata"]["annotations"]["reboot.metal3.io/cketerm-fence"] != Value::Null);
}

#[tokio::test(start_paused = true)]
async fn i44_a_host_that_is_said_to_be_off_and_whose_bmc_says_on_stays() {
    let place = held_by_another().await;
    // Somebody pressed the button, and the operator has not seen it yet.
    let machines = &place.stage.sandbox.machines;
    machines.press(&machines.address_of("w1").unwrap(), "On");
    tokio::time::sleep(Duration::from_mins(5)).await;
    let (done, gone) = place.fence_and_look("w1").await;
    let why = done.unwrap_err();
    assert!(why.contains("node w1 was NOT deleted") && why.contains("reports on"), "{why}");
    assert_eq!(gone, None);
}

//! Fuzz target: hosts with any content, as the state machine gets them.

use std::time::Duration;

use cketerm_fuzz::{Fuzz, Took};
use cketerm_model::{host::HostRow, power_state::PowerState};
use jiff::Timestamp;

use super::controller::{Limits, Sent, decide};

#[test]
fn any_host_gets_a_step() {
    let now: Timestamp = "2026-08-01T12:00:00Z".parse().unwrap();
    let limits = Limits { soft: Duration::from_secs(1), hard: Duration::from_secs(1), on: Duration::from_secs(1) };
    let asked = HostRow {
        name: "m1".to_owned(),
        namespace: "metal3".to_owned(),
        online: true,
        powered_on: Some(true),
        pending_reboot_since: Some(now),
        last_powered_on: Some(now),
        ..HostRow::default()
    };
    let seeds = [HostRow::default(), asked].map(|row| serde_json::to_string(&row).unwrap());
    Fuzz::new("host-decision", 500).seeds(seeds).run(|bytes| {
        let read = serde_json::from_slice::<HostRow>(bytes);
        if let Ok(row) = &read {
            for power in [PowerState::On, PowerState::Off, PowerState::Unknown] {
                let _ = decide(row, &power, &Sent::default(), &limits, now);
            }
        }
        Ok(Took::of(&read))
    });
}

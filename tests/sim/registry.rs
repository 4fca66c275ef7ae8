//! sabakan beside the simulated site: its data about the machines, and automatic repair, which acts on it.

use std::time::Duration;

use cketerm_actions::Operator;
use cketerm_model::stored::keys::SwitchName;
use cketerm_sandbox::{
    Sandbox,
    machines::{self, Machine},
    sabakan::{Record, State},
};
use cketerm_scenario::SABAKAN;
use fastrand::Rng;
use tokio::time::{Instant, sleep};

use crate::plan::FAULT_PERIOD;

/// Seconds after which sabakan learns that a machine is down, or up again.
const DETECTION_SECONDS: u64 = 20;

/// Registers the machines, and enables automatic repair with a cap that is soon reached.
pub async fn settle(sandbox: &Sandbox, operator: &Operator, machines: &[Machine], cap: u64) {
    for machine in machines {
        sandbox.sabakan.put(Record {
            serial: machine.name.clone(),
            role: "cs".to_owned(),
            ipv4: vec![machine.address.clone()],
            bmc_ipv4: machine.address.replacen("10.", "172.", 1),
            register_date: "2025-01-01T00:00:00Z".to_owned(),
            retire_date: "2030-01-01T00:00:00Z".to_owned(),
            bmc_type: "sim".to_owned(),
            state: State::Healthy,
            since: sandbox.objects.clock().wall(),
            ..Record::default()
        });
    }
    operator.set_sabakan_url(SABAKAN, None).await.unwrap();
    operator.set_constraint("maximum-repair-queue-entries", &cap.to_string(), None).await.unwrap();
    operator.set_constraint("wait-seconds-to-repair-rebooting", "120", None).await.unwrap();
    operator.set_policy("sabakan_poll_seconds", "5", None).await.unwrap();
    operator.set_switch(SwitchName::AutoRepair, true, None).await.unwrap();
}

/// Sets the state of a machine in sabakan.
pub fn update_state(sandbox: &Sandbox, address: &str, state: State) {
    if let Some(record) = sandbox.sabakan.by_address(address) {
        // sabakan may refuse the change
        let _ = sandbox.sabakan.set_state(&record.serial, state);
    }
}

/// Updates the machines' states in sabakan a little late, and switches automatic repair off and on now and then.
pub async fn watch(sandbox: &Sandbox, operator: Operator, addresses: &[String], mut rng: Rng, began: Instant) {
    let mut down: Vec<Option<Instant>> = vec![None; addresses.len()];
    let mut next_switch = began + Duration::from_secs(rng.u64(60..600));
    while began.elapsed() < FAULT_PERIOD {
        sleep(Duration::from_secs(DETECTION_SECONDS / 4)).await;
        for (address, since) in addresses.iter().zip(&mut down) {
            let Some(seen) = sandbox.machines.machine_status(address) else { continue };
            if seen.state != machines::State::Up {
                let since = *since.get_or_insert_with(Instant::now);
                if since.elapsed() >= Duration::from_secs(DETECTION_SECONDS) {
                    update_state(sandbox, address, State::Unreachable);
                }
                continue;
            }
            *since = None;
            let ill = sandbox.machines.behaviour(address).is_some_and(|b| b.ill > 0);
            update_state(sandbox, address, if ill { State::Unhealthy } else { State::Healthy });
        }
        if Instant::now() >= next_switch {
            let on = rng.bool();
            let _ = operator.set_switch(SwitchName::AutoRepair, on, None).await;
            next_switch = Instant::now() + Duration::from_secs(rng.u64(30..240));
        }
    }
    while operator.set_switch(SwitchName::AutoRepair, false, None).await.is_err() {
        sleep(Duration::from_secs(1)).await;
    }
}

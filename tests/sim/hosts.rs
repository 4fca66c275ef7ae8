//! Two machines outside the cluster that Metal3's controller role manages. Clients hold them off and request reboots as
//! `kubectl annotate` does, their BMCs misbehave, and an administrator switches the controller off and on.

use std::time::Duration;

use cketerm_actions::Operator;
use cketerm_model::boot_time::Seconds;
use cketerm_sandbox::{
    Sandbox, bmc,
    kubernetes::resource::BARE_METAL_HOSTS,
    machines::{Behaviour, Machine, OnBmc, State},
    metal3::NAMESPACE,
};
use fastrand::Rng;
use jiff::Timestamp;
use serde_json::json;
use tokio::time::{Instant, sleep, sleep_until};

use crate::{plan::FAULT_PERIOD, selection::Selection};

/// Names and addresses; they sort after all others in every list.
const HOSTS: [(&str, &str); 2] = [("zz1", "10.99.0.1"), ("zz2", "10.99.0.2")];
const REBOOT: &str = "reboot.metal3.io";

/// Adds the hosts to the sandbox.
pub fn add_hosts(sandbox: &Sandbox) {
    for (name, address) in HOSTS {
        let (name, address) = (name.to_owned(), address.to_owned());
        let host = json!({
            "apiVersion": "metal3.io/v1alpha1", "kind": "BareMetalHost",
            "metadata": {"name": name, "namespace": NAMESPACE},
            "spec": {
                "online": true, "externallyProvisioned": true,
                "bmc": {"address": format!("{}/redfish/v1/Systems/1", bmc::origin(&name))},
            },
            "status": {"hardware": {"hostname": name, "nics": [{"ip": address}]}},
        });
        sandbox.machines.rack(Machine { name, address, apart: true, ..Machine::default() });
        let made = sandbox.objects.create(&BARE_METAL_HOSTS, NAMESPACE, host);
        made.map_err(|e| e.message).unwrap();
    }
}

/// Adds, in a share of the seeds and with a random generator of its own, hosts whose BMC is configured outside the
/// networks of the BMCs: by its address or by a name that resolves to such an address.
pub fn add_hosts_with_foreign_bmcs(sandbox: &Sandbox, seed: u64) {
    let mut random = Rng::with_seed(seed ^ 0x7374_7261_6e67);
    if random.u8(0..3) > 0 {
        return;
    }
    let stranger = bmc::FOREIGN_ADDRESS.to_string();
    for (n, to) in [stranger.as_str(), bmc::FOREIGN_HOST_NAME].into_iter().enumerate() {
        let form = ["https://", "redfish+http://", "redfish-virtualmedia+https://"][random.usize(..3)];
        let host = json!({
            "apiVersion": "metal3.io/v1alpha1", "kind": "BareMetalHost",
            "metadata": {"name": format!("zzz{n}"), "namespace": NAMESPACE},
            "spec": {
                "online": true, "externallyProvisioned": true,
                "bmc": {"address": format!("{form}{to}/redfish/v1/Systems/1"), "disableCertificateVerification": random.bool()},
            },
        });
        let made = sandbox.objects.create(&BARE_METAL_HOSTS, NAMESPACE, host);
        made.map_err(|e| e.message).unwrap();
    }
}

fn annotate(sandbox: &Sandbox, name: &str, annotation: &str, value: Option<&str>) {
    let _ = sandbox.objects.update(&BARE_METAL_HOSTS, NAMESPACE, name, |host| {
        match (value, host["metadata"]["annotations"].as_object_mut()) {
            (Some(value), _) => host["metadata"]["annotations"][annotation] = json!(value),
            (None, Some(all)) => {
                all.remove(annotation);
            }
            (None, None) => {}
        }
        Ok(())
    });
}

/// One client: requests a reboot, or holds a host off under its own key for a while. It releases everything in the end.
pub async fn client(sandbox: &Sandbox, key: &str, mut rng: Rng, began: Instant, selection: &Selection) {
    let (mut at, mut n) = (began, 0);
    loop {
        at += Duration::from_millis(rng.u64(5_000..120_000));
        if at >= began + FAULT_PERIOD {
            return;
        }
        sleep_until(at).await;
        let mut random = rng.fork();
        if selection.has(&format!("h{key}{n}")) {
            let (name, _) = HOSTS[random.usize(..HOSTS.len())];
            let value = ["", r#"{"mode":"hard"}"#, r#"{"mode":"soft"}"#, "uid-of-a-machine"][random.usize(..4)];
            if random.bool() {
                annotate(sandbox, name, REBOOT, Some(value));
            } else {
                let annotation = format!("{REBOOT}/{key}");
                annotate(sandbox, name, &annotation, Some(value));
                sleep(Duration::from_millis(random.u64(500..60_000))).await;
                annotate(sandbox, name, &annotation, None);
            }
        }
        n += 1;
    }
}

/// Makes their BMCs late, refusing, wrong or silent for a while.
pub async fn trouble(sandbox: &Sandbox, mut rng: Rng, began: Instant, selection: &Selection) {
    let (mut at, mut n) = (began, 0);
    loop {
        at += Duration::from_millis(rng.u64(20_000..240_000));
        if at >= began + FAULT_PERIOD {
            return;
        }
        sleep_until(at).await;
        let mut random = rng.fork();
        if selection.has(&format!("ht{n}")) {
            let (_, address) = HOSTS[random.usize(..HOSTS.len())];
            let mut behaviour = Behaviour::default();
            match random.u32(0..6) {
                0 => behaviour.bmc_seconds = Seconds::new(random.f64() * 40.0),
                1 => behaviour.fails = random.u32(1..4),
                2 => behaviour.bmc = OnBmc::Deaf,
                3 => behaviour.bmc = OnBmc::Refuses,
                4 => behaviour.bmc = OnBmc::Lies,
                _ => behaviour.bmc = OnBmc::Mute,
            }
            sandbox.machines.behave(address, behaviour);
            sleep(Duration::from_millis(random.u64(1_000..90_000))).await;
            sandbox.machines.behave(address, Behaviour::default());
        }
        n += 1;
    }
}

/// Switches the controller off and on again, as an administrator at the worst moments: when a request has just been
/// taken up. In the end it is off for good, or on, as `last` says.
pub async fn administrator(
    sandbox: &Sandbox,
    operator: &Operator,
    mut rng: Rng,
    began: Instant,
    last: bool,
    selection: &Selection,
) {
    let switch = async |on: bool| {
        while operator.set_policy("metal3_controller", &on.to_string(), None).await.is_err() {
            sleep(Duration::from_secs(1)).await;
        }
    };
    let mut n = 0;
    while began.elapsed() < FAULT_PERIOD {
        sleep(Duration::from_millis(rng.u64(10_000..180_000))).await;
        n += 1;
        if !selection.has(&format!("hs{n}")) {
            continue;
        }
        while began.elapsed() < FAULT_PERIOD && !HOSTS.iter().any(|(name, _)| pending(sandbox, name)) {
            sleep(Duration::from_millis(500)).await;
        }
        sleep(Duration::from_millis(rng.u64(0..15_000))).await;
        switch(false).await;
        if last || began.elapsed() < FAULT_PERIOD {
            sleep(Duration::from_millis(rng.u64(500..120_000))).await;
            switch(true).await;
        }
    }
    switch(last).await;
}

fn pending(sandbox: &Sandbox, name: &str) -> bool {
    let Some(host) = sandbox.objects.get(&BARE_METAL_HOSTS, NAMESPACE, name) else { return false };
    let time = |field: &str| {
        let text: Option<Timestamp> = host["status"]["provisioning"][field].as_str().and_then(|t| t.parse().ok());
        text
    };
    time("pendingRebootSince") > time("lastPoweredOn")
}

/// Ends all faults of the hosts.
pub fn heal(sandbox: &Sandbox) {
    for (_, address) in HOSTS {
        sandbox.machines.behave(address, Behaviour::default());
    }
}

/// Waits until no request is left for any host and all run. If nothing carries requests out any more: until all run.
pub async fn settle(sandbox: &Sandbox, requests_carried_out: bool) {
    let well = |(name, address): (&str, &str)| {
        let Some(host) = sandbox.objects.get(&BARE_METAL_HOSTS, NAMESPACE, name) else { return false };
        let requested = host["metadata"]["annotations"].as_object();
        let requested = requested.is_some_and(|all| all.keys().any(|key| key.starts_with(REBOOT)));
        let waits = requests_carried_out && (requested || pending(sandbox, name));
        let on = host["status"]["poweredOn"] == true;
        !waits && on && sandbox.machines.machine_status(address).is_some_and(|m| m.state == State::Up)
    };
    while !HOSTS.into_iter().all(well) {
        sleep(Duration::from_secs(5)).await;
    }
}

//! BareMetalHosts of the machines. If the site has one, also the upstream operator (baremetal-operator), with the
//! behaviour that MET-62 to MET-66 describe.

use std::{collections::BTreeMap, time::Duration};

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use super::{
    bmc,
    kubernetes::{
        ObjectError, Objects,
        resource::{BARE_METAL_HOSTS, LEASES},
    },
    machines::{Machines, State},
};

/// Namespace of the BareMetalHosts.
pub const NAMESPACE: &str = "metal3";
/// Namespace of the operator.
const SYSTEM: &str = "baremetal-operator-system";
const REBOOT: &str = "reboot.metal3.io";
/// Interval between two passes of the operator.
const INTERVAL: Duration = Duration::from_millis(500);
/// Age of the power state that the operator reports. A key that is set in between finds `poweredOn: false` while the
/// host runs (MET-22).
const STATUS_DELAY: Duration = Duration::from_secs(3);

/// Metal3 at a site.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Metal3 {
    /// Controller of the reboot interface.
    pub operator: Operator,
    /// URL of the service that holds all BMCs, if they are behind ports.
    #[serde(skip)]
    pub redfish: Option<String>,
}

impl Metal3 {
    /// Returns `spec.bmc.address` for the machine with this name.
    fn bmc(&self, name: &str) -> String {
        match &self.redfish {
            Some(url) => format!("redfish+{url}/redfish/v1/Systems/{name}"),
            None => format!("{}/redfish/v1/Systems/1", bmc::origin(name)),
        }
    }
}

/// Controller of the reboot interface.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Operator {
    /// None: cketerm may be the controller.
    #[default]
    None,
    /// The upstream operator.
    Upstream,
    /// An old upstream operator that removes the keys of all clients at power-off.
    Old,
}

/// State of the operator for one host.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Phase {
    Idle,
    PoweringOff(Instant),
    Off,
    PoweringOn(Instant),
}

/// Creates a BareMetalHost for each machine.
pub fn create_objects(site: &Metal3, objects: &Objects, machines: &Machines) -> Result<(), ObjectError> {
    let has_operator = site.operator != Operator::None;
    for machine in machines.list() {
        let mut status = json!({"hardware": {"hostname": machine.name, "nics": [{"ip": machine.address}]}});
        if has_operator {
            status["poweredOn"] = json!(true);
            status["provisioning"] = json!({"state": "externally provisioned"});
        }
        let host = json!({
            "apiVersion": "metal3.io/v1alpha1", "kind": "BareMetalHost",
            "metadata": {"name": machine.name, "namespace": NAMESPACE},
            "spec": {
                "online": true, "externallyProvisioned": true,
                "bmc": {"address": site.bmc(&machine.name)},
            },
            "status": status,
        });
        objects.create(&BARE_METAL_HOSTS, NAMESPACE, host)?;
    }
    Ok(())
}

/// The operator. Stops when its task is dropped.
pub struct BaremetalOperator {
    old: bool,
    objects: Objects,
    machines: Machines,
    phases: BTreeMap<String, Phase>,
}

impl BaremetalOperator {
    /// Returns the site's operator, if the site has one.
    pub fn new(site: &Metal3, objects: Objects, machines: Machines) -> Option<Self> {
        let old = site.operator == Operator::Old;
        (site.operator != Operator::None).then(|| Self { old, objects, machines, phases: BTreeMap::new() })
    }

    /// Runs until it is dropped.
    pub async fn run(mut self) {
        loop {
            self.renew_lease();
            let (hosts, _) = self.objects.list(&BARE_METAL_HOSTS, NAMESPACE);
            for host in hosts {
                self.reconcile(&host);
            }
            sleep(INTERVAL).await;
        }
    }

    /// Renews the operator's Lease, by which others recognise it (MET-29).
    fn renew_lease(&self) {
        let spec = json!({
            "holderIdentity": "baremetal-operator-7d9f", "leaseDurationSeconds": 15, "renewTime": self.objects.stamp(),
        });
        let renewed = self.objects.update(&LEASES, SYSTEM, OPERATOR, |lease| {
            lease["spec"] = spec.clone();
            Ok(())
        });
        if renewed.is_err() {
            let lease = json!({
                "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
                "metadata": {"name": OPERATOR, "namespace": SYSTEM}, "spec": spec,
            });
            // If this fails, the Lease existed and the update failed for another reason. The next pass tries again.
            let _ = self.objects.create(&LEASES, SYSTEM, lease);
        }
    }

    fn reconcile(&mut self, host: &Value) {
        let name = host["metadata"]["name"].as_str().unwrap_or_default().to_owned();
        let Some(address) = self.machines.address_of(&name) else { return };
        let Some(on) = self.machines.machine_status(&address).map(|seen| seen.state != State::Off) else { return };
        let annotations = host["metadata"]["annotations"].as_object();
        let has = |prefix: &str| annotations.is_some_and(|all| all.keys().any(|key| key.starts_with(prefix)));
        if has("baremetalhost.metal3.io/") {
            return;
        }
        let (reboot_requested, has_client_key, now) = (has(REBOOT), has("reboot.metal3.io/"), Instant::now());
        let online = host["spec"]["online"] == true;
        let hard = annotations.is_some_and(|all| {
            let values = all.iter().filter(|(key, _)| key.starts_with(REBOOT)).filter_map(|(_, v)| v.as_str());
            values.into_iter().any(|text| text.contains("hard"))
        });
        let phase = self.phases.get(&name).copied().unwrap_or(Phase::Idle);
        let next = match phase {
            Phase::Idle if on && (reboot_requested || !online) => {
                self.machines.request_reset(&address, if hard { "ForceOff" } else { "GracefulShutdown" });
                Phase::PoweringOff(now)
            }
            Phase::PoweringOff(since) if !on && now - since >= STATUS_DELAY => {
                self.write(&name, false, true);
                Phase::Off
            }
            Phase::Off if online && !has_client_key => {
                self.machines.request_reset(&address, "On");
                Phase::PoweringOn(now)
            }
            // The operator reports power-on late too.
            Phase::PoweringOn(since) if on && now - since >= STATUS_DELAY => {
                self.write(&name, true, false);
                Phase::Idle
            }
            other => other,
        };
        self.phases.insert(name, next);
    }

    /// Writes the power state. At power-off (`powered_off`) removes the basic annotation; an old operator removes all
    /// of them.
    fn write(&self, name: &str, on: bool, powered_off: bool) {
        let old = self.old;
        // The host may have been deleted meanwhile.
        let _ = self.objects.update(&BARE_METAL_HOSTS, NAMESPACE, name, |host| {
            host["status"]["poweredOn"] = json!(on);
            if let Some(all) = host["metadata"]["annotations"].as_object_mut().filter(|_| powered_off) {
                all.retain(|key, _| key != REBOOT && !(old && key.starts_with(REBOOT)));
            }
            Ok(())
        });
    }
}

const OPERATOR: &str = "baremetal-operator";

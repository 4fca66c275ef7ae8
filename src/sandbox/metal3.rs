//! BareMetalHosts of the machines, and the upstream operator with its habits (spec/metal3.md, How baremetal-operator
//! really behaves), where the site has one.

use std::{collections::BTreeMap, time::Duration};

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use super::{
    bmc,
    kubernetes::{
        Objects, Refusal,
        resource::{BARE_METAL_HOSTS, LEASES},
    },
    machines::{Machines, State},
};

/// Where the hosts are.
pub const NAMESPACE: &str = "metal3";
/// Where the operator runs.
const SYSTEM: &str = "baremetal-operator-system";
const REBOOT: &str = "reboot.metal3.io";
/// Between two looks of the operator.
const LOOK: Duration = Duration::from_millis(500);
/// What it sees of a machine is that old: a key that comes meanwhile finds `poweredOn: false` while the host runs.
const LATE: Duration = Duration::from_secs(3);

/// Metal3 at a site.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Metal3 {
    /// Who carries the reboot interface out.
    pub operator: Operator,
    /// Where the BMCs are one service, its URL: behind ports.
    #[serde(skip)]
    pub redfish: Option<String>,
}

impl Metal3 {
    /// `spec.bmc.address` of the machine with this name.
    fn bmc(&self, name: &str) -> String {
        match &self.redfish {
            Some(url) => format!("redfish+{url}/redfish/v1/Systems/{name}"),
            None => format!("{}/redfish/v1/Systems/1", bmc::origin(name)),
        }
    }
}

/// Who carries the reboot interface out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Operator {
    /// Nobody: cketerm may.
    #[default]
    None,
    /// The upstream operator.
    Upstream,
    /// An old one that clears everybody's keys at power-off.
    Old,
}

/// Where the operator is with a host.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Phase {
    Idle,
    GoingOff(Instant),
    Off,
    GoingOn(Instant),
}

/// A host for each machine that there is.
pub fn settle(site: &Metal3, objects: &Objects, machines: &Machines) -> Result<(), Refusal> {
    let watched = site.operator != Operator::None;
    for machine in machines.list() {
        let mut status = json!({"hardware": {"hostname": machine.name, "nics": [{"ip": machine.address}]}});
        if watched {
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

/// The operator. It works until this is dropped.
pub struct Bmo {
    old: bool,
    objects: Objects,
    machines: Machines,
    phases: BTreeMap<String, Phase>,
}

impl Bmo {
    /// The site's operator, where it has one.
    pub fn new(site: &Metal3, objects: Objects, machines: Machines) -> Option<Self> {
        let old = site.operator == Operator::Old;
        (site.operator != Operator::None).then(|| Self { old, objects, machines, phases: BTreeMap::new() })
    }

    /// Goes on and on.
    pub async fn run(mut self) {
        loop {
            self.renew();
            let (hosts, _) = self.objects.list(&BARE_METAL_HOSTS, NAMESPACE);
            for host in hosts {
                self.mind(&host);
            }
            sleep(LOOK).await;
        }
    }

    /// Its Lease: what others know it by.
    fn renew(&self) {
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
            // it was there, and something else is wrong with it: the next look tries again
            let _ = self.objects.create(&LEASES, SYSTEM, lease);
        }
    }

    fn mind(&mut self, host: &Value) {
        let name = host["metadata"]["name"].as_str().unwrap_or_default().to_owned();
        let Some(address) = self.machines.address_of(&name) else { return };
        let Some(on) = self.machines.look(&address).map(|seen| seen.state != State::Off) else { return };
        let annotations = host["metadata"]["annotations"].as_object();
        let has = |prefix: &str| annotations.is_some_and(|all| all.keys().any(|key| key.starts_with(prefix)));
        if has("baremetalhost.metal3.io/") {
            return;
        }
        let (asked, held, now) = (has(REBOOT), has("reboot.metal3.io/"), Instant::now());
        let online = host["spec"]["online"] == true;
        let hard = annotations.is_some_and(|all| {
            let values = all.iter().filter(|(key, _)| key.starts_with(REBOOT)).filter_map(|(_, v)| v.as_str());
            values.into_iter().any(|text| text.contains("hard"))
        });
        let phase = self.phases.get(&name).copied().unwrap_or(Phase::Idle);
        let next = match phase {
            Phase::Idle if on && (asked || !online) => {
                self.machines.press(&address, if hard { "ForceOff" } else { "GracefulShutdown" });
                Phase::GoingOff(now)
            }
            Phase::GoingOff(since) if !on && now - since >= LATE => {
                self.write(&name, false, true);
                Phase::Off
            }
            Phase::Off if online && !held => {
                self.machines.press(&address, "On");
                Phase::GoingOn(now)
            }
            // What it says of the power is late here too.
            Phase::GoingOn(since) if on && now - since >= LATE => {
                self.write(&name, true, false);
                Phase::Idle
            }
            other => other,
        };
        self.phases.insert(name, next);
    }

    /// Writes the power, and takes the basic annotation off at power-off; an old one takes all.
    fn write(&self, name: &str, on: bool, ends: bool) {
        let old = self.old;
        // somebody may have deleted it
        let _ = self.objects.update(&BARE_METAL_HOSTS, NAMESPACE, name, |host| {
            host["status"]["poweredOn"] = json!(on);
            if let Some(all) = host["metadata"]["annotations"].as_object_mut().filter(|_| ends) {
                all.retain(|key, _| key != REBOOT && !(old && key.starts_with(REBOOT)));
            }
            Ok(())
        });
    }
}

const OPERATOR: &str = "baremetal-operator";

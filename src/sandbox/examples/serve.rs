//! A data centre on real ports, for any program that speaks with etcd or Kubernetes:
//!
//!     cargo run -p cketerm-sandbox --example serve

use std::error::Error;

use cketerm_model::clock::Clock;
use cketerm_sandbox::{Sandbox, durations::Durations, kubernetes::api::ApiOptions, serve::Ports, workload::Population};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let ports = Ports::bind().await?;
    let (population, seed) = (Population { nodes: 12, control_planes: 3, ..Population::default() }, 1);
    let sandbox = Sandbox::new(&population, Durations::default(), ApiOptions::default(), Clock::host(), seed)?;
    let mut served = ports.serve(&sandbox)?;
    let (etcd, kubernetes, redfish) = (served.etcd, served.kubernetes, served.redfish);
    for line in [
        format!("etcdctl --endpoints http://{etcd} get --prefix /"),
        format!("kubectl --server http://{kubernetes} get nodes,pods -A"),
        format!("curl http://{redfish}/redfish/v1"),
    ] {
        println!("{line}");
    }
    served.ended().await;
    Ok(())
}

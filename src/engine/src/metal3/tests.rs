//! Hosts, and the state of a controller whose servers never answer, for tests.

use std::sync::Arc;

use cketerm_clients::power::BmcClients;
use cketerm_model::{host::HostRow, policy::Policy, stored::view::StoreView};
use jiff::Timestamp;
use tokio::sync::watch;

use super::Shared;
use crate::tests::{self, with_policy};

/// Networks of the BMCs, and their login.
const INVENTORY: &str = "networks: [10.1.0.0/16]\ndefaults: {username: admin, password: x}\n";

/// Returns the state of a controller. The policy enables or disables the role.
pub(super) async fn shared(enabled: bool) -> (Arc<Shared>, watch::Sender<Arc<StoreView>>) {
    let views = watch::channel(view(enabled)).0;
    let reach = BmcClients::in_process(tests::http(), INVENTORY, |_| Vec::new());
    let shared = Shared::new(tests::actor(&views).await, reach, Arc::default());
    (Arc::new(shared), views)
}

/// Returns a copy of etcd whose policy enables or disables the role.
pub(super) fn view(enabled: bool) -> Arc<StoreView> {
    with_policy(Policy { metal3_controller: enabled, ..Policy::default() })
}

/// Returns a host that is on.
pub(super) fn host() -> HostRow {
    HostRow {
        namespace: "metal".to_owned(),
        name: "w1".to_owned(),
        uid: "u".to_owned(),
        online: true,
        powered_on: Some(true),
        provisioning: "provisioned".to_owned(),
        bmc_address: "redfish://10.1.0.1/redfish/v1/Systems/1".to_owned(),
        ..HostRow::default()
    }
}

/// Returns a host that is on, with a reboot request of this second that is not over.
pub(super) fn requested(second: i64) -> HostRow {
    HostRow { pending_reboot_since: Some(Timestamp::from_second(second).unwrap()), ..host() }
}

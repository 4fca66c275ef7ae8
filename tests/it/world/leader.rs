//! The leader in etcd, and a test's actions on it.

use etcd_client::{Client, GetOptions, PutOptions, SortOrder, SortTarget};

fn with<T>(etcd: &str, ask: impl AsyncFnOnce(Client) -> Option<T>) -> Option<T> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async { ask(Client::connect([etcd], None).await.ok()?).await })
}

/// Lease of the leading key in `leader/`, and the process that registered under it, if it is an engine of cketerm.
pub fn now(etcd: &str) -> Option<(i64, Option<u32>)> {
    with(etcd, async |mut client| {
        let options = GetOptions::new().with_prefix().with_sort(SortTarget::Create, SortOrder::Ascend).with_limit(1);
        let got = client.get("/cke/leader/", Some(options)).await.ok()?;
        let hex = got.kvs().first()?.key_str().ok()?.rsplit('/').next()?.to_owned();
        let lease = i64::from_str_radix(&hex, 16).ok()?;
        let got = client.get(format!("/cke/cketerm/engines/{hex}"), None).await.ok()?;
        let registered: Option<serde_json::Value> =
            got.kvs().first().and_then(|kv| serde_json::from_slice(kv.value()).ok());
        let pid = registered.and_then(|r| r["pid"].as_u64()).and_then(|pid| pid.try_into().ok());
        Some((lease, pid))
    })
}

/// Revokes a lease.
pub fn revoke(etcd: &str, lease: i64) {
    with(etcd, async |mut client| client.lease_revoke(lease).await.ok()).expect("a lease is revoked");
}

/// Campaigns as CKE does, without a cketerm registration; returns the lease of the key.
pub fn campaign_as_cke(etcd: &str) -> i64 {
    let campaign = async |mut client: Client| {
        let lease = client.lease_grant(60, None).await.ok()?.id();
        let options = PutOptions::new().with_lease(lease);
        client.put(format!("/cke/leader//{lease:x}"), "cke-host", Some(options)).await.ok()?;
        Some(lease)
    };
    with(etcd, campaign).expect("a candidate")
}

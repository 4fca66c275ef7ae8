//! Every revision of etcd from the first to now, read by a watch from the beginning (nothing compacts in a test).

use std::time::Duration;

use etcd_client::{Client, EventType, WatchOptions};

/// One change of one key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// Revision of the change.
    pub revision: i64,
    /// The key.
    pub key: String,
    /// New value; none if deleted.
    pub value: Option<String>,
}

impl Change {
    /// The value as JSON.
    pub fn json(&self) -> serde_json::Value {
        self.value.as_deref().and_then(|v| serde_json::from_str(v).ok()).unwrap_or_default()
    }
}

/// All changes below `prefix` since the first revision.
pub fn changes(etcd: &str, prefix: &str) -> Vec<Change> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(read(etcd, prefix))
}

/// Present value of one key.
pub fn value(etcd: &str, key: &str) -> Option<String> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let mut client = Client::connect([etcd], None).await.expect("etcd is reachable");
        let got = client.get(key, None).await.expect("a read");
        got.kvs().first().map(|kv| String::from_utf8_lossy(kv.value()).into_owned())
    })
}

/// Writes one key as another program would.
pub fn put(etcd: &str, key: &str, value: &str) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let mut client = Client::connect([etcd], None).await.expect("etcd is reachable");
        client.put(key, value, None).await.expect("a write");
    });
}

async fn read(etcd: &str, prefix: &str) -> Vec<Change> {
    let mut client = Client::connect([etcd], None).await.expect("etcd is reachable");
    // a write that marks the last event for the watch
    let end_marker = format!("{prefix}~end");
    let last = client.put(end_marker.as_str(), "", None).await.expect("a write").header().expect("a header").revision();
    let options = WatchOptions::new().with_prefix().with_start_revision(1);
    let mut stream = client.watch(prefix, Some(options)).await.expect("a watch");
    let mut all = Vec::new();
    loop {
        let answer =
            tokio::time::timeout(Duration::from_secs(20), stream.message()).await.expect("the history arrives in time");
        let answer = answer.expect("the watch works").expect("the watch continues");
        for event in answer.events() {
            let kv = event.kv().expect("a key");
            let (key, revision) = (String::from_utf8_lossy(kv.key()).into_owned(), kv.mod_revision());
            if revision >= last {
                return all;
            }
            if key != end_marker {
                let put = event.event_type() == EventType::Put;
                let value = put.then(|| String::from_utf8_lossy(kv.value()).into_owned());
                all.push(Change { revision, key, value });
            }
        }
    }
}

//! Programs that observe beside CKE: a daemon that stands by, and a console with `--observe`. Both report reasons, write
//! nothing but what they may, and repeat a cancel that CKE's write lost.

use std::{collections::BTreeMap, path::Path, thread::sleep, time::Duration};

use serde_json::Value;

use crate::{
    commands::rig::Rig,
    console::terminal::Console,
    world::{
        program::{Daemon, cketerm},
        sandbox::Served,
        wait_for,
    },
};

/// Entry that CKE cannot read: its passes fail as long as it is there, and it keeps its lock.
const UNREADABLE: &str = "/cke/reboots/data/00000000000000ff";
/// Verbs of the API server that change nothing.
const READS: [&str; 3] = ["get", "list", "watch"];

struct Site {
    served: Served,
    rig: Rig,
}

impl Site {
    async fn start() -> Self {
        let served = Served::start(&["--scenario", "beside-cke", "--nodes", "20"]);
        let rig = Rig::on(served.facts["etcd"].as_str().unwrap()).await;
        Self { served, rig }
    }

    fn config(&self) -> &Path {
        Path::new(self.served.facts["config"].as_str().unwrap())
    }

    /// Index of an entry whose reason names a pod, and the reason.
    fn blocked(&self) -> (u64, Value) {
        wait_for("a reason names a pod", 90, || {
            let listed = cketerm(self.config(), &["rq", "list"]);
            let entries: Vec<Value> = serde_json::from_str(&listed.stdout).ok()?;
            entries.iter().filter_map(|entry| entry["index"].as_str()?.parse::<u64>().ok()).find_map(|index| {
                let why = cketerm(self.config(), &["rq", "why", &index.to_string(), "-o", "json"]);
                let why: Value = serde_json::from_str(&why.stdout).ok()?;
                let text = why.to_string();
                (text.contains("BlockedBy") || text.contains("PDBNeverAllows")).then_some((index, why))
            })
        })
    }

    /// Changes of Kubernetes that programs of cketerm requested.
    fn changes(&self) -> Vec<String> {
        let requests = self.served.get("/apiserver/audit").into_iter();
        let ours = requests.filter(|request| request["userAgent"].as_str().is_some_and(|a| a.contains("cketerm")));
        let of = |request: &Value, field: &str| request[field].as_str().unwrap_or_default().to_owned();
        let requested = ours.map(|request| (of(&request, "verb"), of(&request, "requestURI")));
        let changes = requested.filter(|(verb, uri)| !READS.contains(&verb.as_str()) && !uri.contains("accessreviews"));
        changes.map(|(verb, uri)| format!("{verb} {uri}")).collect()
    }

    /// Keys of cketerm, with their `ModRevision`s.
    async fn own_keys(&self) -> BTreeMap<String, i64> {
        let all = Some(etcd_client::GetOptions::new().with_prefix());
        let got = self.rig.client.kv_client().get("/cke/cketerm/", all).await.unwrap();
        got.kvs().iter().map(|kv| (kv.key_str().unwrap().to_owned(), kv.mod_revision())).collect()
    }

    /// Cancels a queued entry, and overwrites the cancel as CKE does. CKE itself fails its passes meanwhile.
    async fn lose_a_cancel(&self) -> (u64, String) {
        self.rig.put(UNREADABLE, "no JSON").await;
        // the pass that runs ends
        sleep(Duration::from_secs(5));
        let entries = self.rig.keys().await;
        let is_queued = |(key, (value, _)): &(&String, &(String, i64))| {
            key.starts_with("/cke/reboots/data/") && value.contains("\"queued\"")
        };
        let (key, (before, _)) = entries.iter().rev().find(is_queued).expect("a queued entry");
        let index = u64::from_str_radix(key.rsplit('/').next().unwrap(), 16).unwrap();
        let cancelled =
            cketerm(self.config(), &["rq", "cancel", "--wait=false", "--reason", "wrong rack", &index.to_string()]);
        assert_eq!(cancelled.code, 0, "{cancelled:?}");
        self.rig.put(key, before).await;
        (index, key.clone())
    }

    /// Waits until the lost cancel is repeated, and until CKE has removed the entry.
    async fn expect_repeat(&self, index: u64, key: &str) {
        let mut repeated = false;
        for _ in 0..100 {
            repeated = self.rig.get(key).await.is_some_and(|entry| entry.contains("\"cancelled\""));
            if repeated {
                break;
            }
            sleep(Duration::from_millis(100));
        }
        assert!(repeated, "the cancel of {index} was not repeated: {:?}", self.rig.get(key).await);
        let audit = cketerm(self.config(), &["audit", "-n", "5", "-o", "json"]);
        assert!(audit.stdout.contains("reboot cancel repeated") && audit.stdout.contains("wrong rack"), "{audit:?}");
        self.rig.delete(UNREADABLE).await;
        for _ in 0..100 {
            if self.rig.get(key).await.is_none() {
                return;
            }
            sleep(Duration::from_millis(100));
        }
        panic!("CKE did not remove the entry: {:?}", self.rig.get(key).await);
    }
}

/// Returns the keys that were written or removed, without those that an observer may write.
fn written(before: &BTreeMap<String, i64>, after: &BTreeMap<String, i64>) -> Vec<String> {
    let all = before.keys().chain(after.keys()).filter(|key| before.get(*key) != after.get(*key));
    all.cloned().collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_daemon_beside_cke_reports_reasons_writes_nothing_and_repeats_a_lost_cancel() {
    let site = Site::start().await;
    let daemon = Daemon::start(&site.served.dir, site.config(), "standby");
    daemon.ready();
    let (_, why) = site.blocked();
    assert_eq!(why["reading"], "cke", "{why}");
    let before = site.own_keys().await;
    // entries by reason are a leader's metric: daemons that stand by would count them twice
    let (code, page) = daemon.page("/metrics");
    assert!(code == 200 && !page.contains("cketerm_entries{"), "{page}");
    let status = cketerm(site.config(), &["status"]);
    assert!(status.code == 0 && status.stdout.contains("\"phase\""), "{status:?}");
    sleep(Duration::from_secs(5));
    assert_eq!(written(&before, &site.own_keys().await), [] as [String; 0]);
    let (lost, key) = site.lose_a_cancel().await;
    site.expect_repeat(lost, &key).await;
    assert_eq!(site.changes(), [] as [String; 0]);
    let (ended, _) = daemon.terminate();
    assert!(ended.success(), "{ended}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_console_with_observe_beside_cke_shows_reasons_writes_nothing_and_repeats_a_lost_cancel() {
    let site = Site::start().await;
    site.blocked();
    let before = site.own_keys().await;
    let config = site.config().display().to_string();
    let mut console = Console::of(&["--config", &config, "--observe", "--view", "reboots"], 120, 36);
    console.wait_for_text("CKE on boot-0 leads", 30);
    console.wait_for_text("mysql-1", 60);
    sleep(Duration::from_secs(5));
    assert_eq!(written(&before, &site.own_keys().await), [] as [String; 0]);
    let (lost, key) = site.lose_a_cancel().await;
    site.expect_repeat(lost, &key).await;
    console.wait_for_text("cancel of", 20);
    assert_eq!(site.changes(), [] as [String; 0]);
    assert_eq!(console.quit(20), 0);
}

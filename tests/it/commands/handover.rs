//! `engine take` and `engine give`, with an engine and a CKE that is only a key in the election.

use std::{
    fs::File,
    path::{Path, PathBuf},
    process::{Child, Stdio},
};

use etcd_client::PutOptions;
use serde_json::Value;

use super::rig::Rig;
use crate::world::{
    program::{Daemon, cketerm, command},
    sandbox::Served,
    wait_for,
};

/// CKE's key in the election, and its lease.
struct Cke {
    lease: i64,
    key: String,
}

impl Cke {
    async fn start(rig: &Rig) -> Self {
        let mut client = rig.client.clone();
        let lease = client.lease_grant(600, None).await.unwrap().id();
        let key = format!("/cke/leader//{lease:x}");
        let options = PutOptions::new().with_lease(lease);
        client.put(key.as_str(), "boot-0", Some(options)).await.unwrap();
        Self { lease, key }
    }

    async fn stop(&self, rig: &Rig) {
        let mut client = rig.client.clone();
        let kept = client.get(self.key.as_str(), None).await.unwrap();
        assert_eq!((kept.count(), kept.kvs()[0].version()), (1, 1), "nobody else writes CKE's key");
        let left = client.lease_time_to_live(self.lease, None).await.unwrap();
        assert!(left.ttl() > 0, "nobody else revokes CKE's lease");
        client.lease_revoke(self.lease).await.unwrap();
    }
}

/// A command that runs, and what it has said so far.
struct Running {
    child: Child,
    messages: PathBuf,
}

impl Running {
    fn start(config: &Path, args: &[&str]) -> Self {
        let messages = config.with_file_name(format!("{}.messages", args.join("-")));
        let file = File::create(&messages).unwrap();
        let child = command().arg("--config").arg(config).args(args).stdin(Stdio::null()).stderr(file).spawn().unwrap();
        Self { child, messages }
    }

    fn wait_for(&self, words: &str) {
        wait_for(words, 60, || self.said().contains(words).then_some(()));
    }

    fn said(&self) -> String {
        std::fs::read_to_string(&self.messages).unwrap()
    }

    /// Waits until it ends with success; returns its messages.
    fn succeeds(mut self) -> String {
        let status = wait_for("the command ends", 120, || self.child.try_wait().unwrap());
        assert!(status.success(), "{status}: {}", self.said());
        self.said()
    }
}

fn policy(config: &Path) -> String {
    let shown: Value = serde_json::from_str(&cketerm(config, &["policy", "show", "-o", "json"]).stdout).unwrap();
    shown["engine"].as_str().unwrap().to_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_queues_are_taken_from_cke_and_given_back_without_touching_its_key() {
    let served = Served::start(&["--nodes", "5"]);
    let config = Path::new(served.facts["config"].as_str().unwrap());
    let rig = Rig::on(served.facts["etcd"].as_str().unwrap()).await;
    assert_eq!(cketerm(config, &["policy", "set", "engine", "cke"]).code, 0);
    let cke = Cke::start(&rig).await;

    // with the identity of another cluster nothing is taken
    let identity = rig.get("/cke/cketerm/identity").await.unwrap();
    let other: Value = serde_json::from_str(&identity).unwrap();
    rig.put("/cke/cketerm/identity", &identity.replace(other["uid"].as_str().unwrap(), "another-cluster")).await;
    let refused = cketerm(config, &["engine", "take"]);
    assert_eq!(refused.code, 1, "{refused:?}");
    assert!(refused.stderr.contains("BLOCKER: identity: MISMATCH"), "{refused:?}");
    assert!(refused.stderr.contains("nothing was changed") && policy(config) == "cke", "{refused:?}");
    rig.put("/cke/cketerm/identity", &identity).await;
    let refused = cketerm(config, &["engine", "take"]);
    assert!(refused.code == 1 && refused.stderr.contains("BLOCKER: no cketerm daemon has ever led"), "{refused:?}");

    let daemon = Daemon::start(&served.dir, config, "engine");
    daemon.ready();
    // the commands find this host's daemon by `engine.http`
    let text = std::fs::read_to_string(config).unwrap();
    assert!(text.contains("engine: {"), "{text}");
    let local = config.with_file_name("local.yaml");
    std::fs::write(&local, text.replacen("engine: {", &format!("engine: {{http: \"{}\", ", daemon.http), 1)).unwrap();
    let config = local.as_path();
    let checked = cketerm(config, &["engine", "take", "--check", "-o", "json"]);
    assert_eq!(checked.code, 0, "{checked:?}");
    let checked: Value = serde_json::from_str(&checked.stdout).unwrap();
    let end = format!("{:x}", cke.lease);
    assert_eq!(checked["cke"][0], format!("boot-0 (lease …{})", &end[end.len() - 4..]), "{checked}");
    assert_eq!((&checked["possible"], policy(config).as_str()), (&Value::Bool(true), "cke"), "{checked}");

    let early = cketerm(config, &["engine", "take", "--timeout-seconds", "1"]);
    assert_eq!(early.code, 1, "{early:?}");
    assert!(early.stderr.contains("not finished in time: CKE on boot-0 leads"), "{early:?}");
    assert!(early.stderr.contains("`cketerm policy set engine cke` to undo it"), "{early:?}");

    assert_eq!(cketerm(config, &["policy", "set", "engine", "cke"]).code, 0);

    let taking = Running::start(config, &["engine", "take"]);
    taking.wait_for("stop CKE on boot-0 (lease …");
    assert_eq!(policy(config), "cketerm");
    cke.stop(&rig).await;
    let taken = taking.succeeds();
    for words in ["certificates are not renewed", "cketerm on ", "`cketerm engine give`"] {
        assert!(taken.contains(words), "{words}: {taken}");
    }
    let again = cketerm(config, &["engine", "take"]);
    assert!(again.code == 0 && again.stderr.contains("nothing to do: cketerm on "), "{again:?}");

    let checked = cketerm(config, &["engine", "take", "--check", "-o", "json"]);
    let checked: Value = serde_json::from_str(&checked.stdout).unwrap_or_else(|e| panic!("{e}: {checked:?}"));
    assert_eq!((&checked["done"], &checked["possible"]), (&Value::Bool(true), &Value::Bool(true)), "{checked}");

    let giving = Running::start(config, &["engine", "give"]);
    giving.wait_for("start CKE where it is to run");
    let back = Cke::start(&rig).await;
    let given = giving.succeeds();
    for words in ["CKE on boot-0 leads", "`cketerm engine take`"] {
        assert!(given.contains(words), "{words}: {given}");
    }
    assert_eq!(policy(config), "cke");
    back.stop(&rig).await;
}

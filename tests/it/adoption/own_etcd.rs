//! An etcd of cketerm's own, by the commands of its guide: certificates, members, backup and restore.

use std::{
    fs::File,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
};

use super::{Reader, commands};
use crate::world::{Etcd, EtcdVersion, built, wait_for};

const GUIDE: &str = include_str!("../../../docs/how-to/own-etcd.md");
const UNIT: &str = include_str!("../../../docs/examples/own-etcd/cketerm-etcd.service");
const POD: &str = include_str!("../../../docs/examples/own-etcd/static-pod.yaml");

/// Three members, started by the unit's own command.
pub(super) struct OwnEtcd {
    dir: PathBuf,
    /// First three parts of the members' addresses.
    network: String,
    running: Vec<Child>,
}

impl OwnEtcd {
    /// Replacements for a site whose members have the addresses `NETWORK.1` to `.3`.
    pub(super) fn here(dir: &Path, network: &str) -> Vec<(String, String)> {
        let text = |path: &str| dir.join(path).display().to_string();
        let mut all = vec![
            ("/etc/cketerm-etcd".to_owned(), text("cketerm-etcd")),
            ("/var/lib/cketerm-etcd".to_owned(), text("data")),
        ];
        all.extend((1..=3).map(|i| (format!("10.0.0.1{i}"), format!("{network}.{i}"))));
        all
    }

    /// Makes the certificates and starts the members, as the guide says.
    pub(super) fn start(dir: &Path, network: &str) -> Option<(Self, Reader)> {
        let here = Self::here(dir, network);
        let here: Vec<(&str, &str)> = here.iter().map(|(from, to)| (&**from, &**to)).collect();
        let mut reader = Reader::new(dir, &here)?;
        reader.run_all(&commands(GUIDE, "1. Make the certificates"));
        let [member] = &commands(GUIDE, "2. Start the members")[..] else { panic!("one command for each host") };
        let mut etcd = Self { dir: dir.to_owned(), network: network.to_owned(), running: Vec::new() };
        for (name, i) in Self::names() {
            // each host has a file of its own
            let line = member
                .replace("NAME=a\\nADDRESS=10.0.0.11", &format!("NAME={name}\\nADDRESS=10.0.0.1{i}"))
                .replace("/member", &format!("/member-{name}"));
            reader.run(&line);
        }
        etcd.start_all();
        etcd.wait_until_healthy(&mut reader);
        Some((etcd, reader))
    }

    fn names() -> [(&'static str, u8); 3] {
        [("a", 1), ("b", 2), ("c", 3)]
    }

    fn start_all(&mut self) {
        for (name, _) in Self::names() {
            self.start_one(name);
        }
    }

    /// Runs the unit's command with the variables of its file, as systemd does.
    fn start_one(&mut self, name: &str) {
        let text = UNIT.replace("\\\n", " ");
        let line = text.lines().find_map(|line| line.strip_prefix("ExecStart=/usr/bin/etcd ")).expect("a command");
        let file = self.dir.join(format!("cketerm-etcd/member-{name}"));
        let variables = std::fs::read_to_string(&file).expect("the file of the member");
        let mut line = line.to_owned();
        for (variable, value) in variables.lines().filter_map(|line| line.split_once('=')) {
            line = line.replace(&format!("${{{variable}}}"), value);
        }
        let line = line
            .replace("/etc/cketerm-etcd", &self.dir.join("cketerm-etcd").display().to_string())
            .replace("/var/lib/cketerm-etcd", &self.data(name).display().to_string());
        assert!(!line.contains("${"), "{line}");
        let log = File::options().create(true).append(true).open(self.dir.join(format!("{name}.log"))).expect("a log");
        let mut command = Command::new(built("etcd").expect("etcd was built"));
        command.args(line.split_whitespace()).arg("--unsafe-no-fsync");
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
        self.running.push(command.spawn().expect("etcd starts"));
    }

    fn data(&self, name: &str) -> PathBuf {
        self.dir.join(format!("data-{name}"))
    }

    /// Number of connections without a certificate that the members have rejected.
    fn rejections(&self) -> usize {
        let logs = Self::names().map(|(name, _)| self.dir.join(format!("{name}.log")));
        let rejected = |log: &PathBuf| {
            let text = std::fs::read_to_string(log).expect("a log");
            text.matches("client didn't provide a certificate").count()
        };
        logs.iter().map(rejected).sum()
    }

    fn wait_until_healthy(&self, reader: &mut Reader) {
        let check = commands(GUIDE, "Check");
        reader.run_all(&check[..2]);
        // a member that has just started may not have a leader yet
        wait_for("all members are healthy", 60, || {
            let healthy = |line: &&str| line.contains("is healthy");
            let text = reader.attempt(&check[2]).ok()?;
            (text.lines().filter(healthy).count() == 3).then_some(())
        });
        assert!(reader.exported.contains(&self.network), "the guide exports the endpoints");
    }

    fn stop(&mut self) {
        for mut child in self.running.drain(..) {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

impl Drop for OwnEtcd {
    fn drop(&mut self) {
        self.stop();
    }
}

#[test]
fn an_etcd_of_its_own_is_started_backed_up_and_restored_by_its_guide() {
    // its folder is kept if the test fails
    let Some(host) = Etcd::start(EtcdVersion::V36) else { return };
    let Some((mut etcd, mut reader)) = OwnEtcd::start(host.dir(), "127.0.47") else { return };
    reader.run("etcdctl put /cke/before 1");

    // nobody without a certificate of this authority: the member logs why, the client's words depend on its version
    let before = etcd.rejections();
    let refused = reader.run("! env -u ETCDCTL_CERT -u ETCDCTL_KEY etcdctl get /cke/before 2>&1");
    assert!(etcd.rejections() > before && !refused.lines().any(|line| line == "1"), "{refused}");
    // one member may be down
    let mut third = etcd.running.pop().expect("three members");
    let _ = third.kill();
    let _ = third.wait();
    // if it led, a write before the next election is lost with it
    wait_for("the other two accept a write", 60, || {
        reader.attempt("ETCDCTL_ENDPOINTS=https://10.0.0.11:12379 etcdctl put /cke/during 1").ok()
    });
    etcd.start_one("c");
    etcd.wait_until_healthy(&mut reader);

    let saved = reader.run_all(&commands(GUIDE, "Back up"));
    assert!(saved.contains("saved"), "{saved}");
    reader.run("etcdctl put /cke/after 1");
    etcd.stop();
    let [restore] = &commands(GUIDE, "Restore")[..] else { panic!("one command for each host") };
    for (name, i) in OwnEtcd::names() {
        let line = restore.replace("--name a", &format!("--name {name}")).replace(
            "--initial-advertise-peer-urls https://10.0.0.11",
            &format!("--initial-advertise-peer-urls https://10.0.0.1{i}"),
        );
        reader.run(&line);
        let data = etcd.data(name);
        std::fs::rename(&data, data.with_extension("old")).expect("the old data");
        std::fs::rename(host.dir().join("data.restored"), &data).expect("the restored data");
    }
    etcd.start_all();
    etcd.wait_until_healthy(&mut reader);
    let keys = reader.run("etcdctl get --prefix --keys-only /cke/");
    assert_eq!(keys.split_whitespace().collect::<Vec<_>>(), ["/cke/before", "/cke/during"]);
}

/// Unit and static Pod start etcd with the same options.
#[test]
fn the_static_pod_has_the_options_of_the_unit() {
    let pod: serde_json::Value = serde_yaml::from_str(POD).expect("YAML");
    let command = pod["spec"]["containers"][0]["command"].as_array().expect("a command");
    let mut of_pod: Vec<String> = command[1..].iter().filter_map(|o| Some(o.as_str()?.replace('=', " "))).collect();
    let text = UNIT.replace("\\\n", " ").replace("${", "").replace('}', "");
    let line = text.lines().find_map(|line| line.strip_prefix("ExecStart=/usr/bin/etcd ")).expect("a command");
    let mut of_unit: Vec<String> =
        line.split("--").filter(|o| !o.trim().is_empty()).map(|o| format!("--{}", o.trim())).collect();
    of_pod.sort();
    of_unit.sort();
    assert_eq!(of_pod, of_unit);
}

//! Power with the real `ipmitool` and `OpenIPMI`'s `ipmi_sim` as the BMC.

use std::{
    fs,
    net::UdpSocket,
    path::Path,
    process::{Child, Command, Stdio},
};

use tempfile::TempDir;

use super::{config, power};
use crate::world::{skipped, wait_for};

/// A BMC whose machine's power is a file. It ends with this.
struct Simulator {
    child: Child,
    dir: TempDir,
    port: u16,
}

/// Carries out requests of the simulator, as its manual describes, and records those that change the power.
const CHASSIS: &str = r#"#!/bin/sh
cd DIR
shift
command=$1; shift
case $command in
get) for name; do test "$name" = power && echo "power:$(cat power)" || echo "$name:0"; done;;
set) echo "$@" >> changes
  case $1 in power) echo $2 > power;; shutdown) test -e deaf || echo 0 > power;; esac;;
esac
exit 0
"#;

impl Simulator {
    fn start() -> Option<Self> {
        for program in ["ipmitool", "ipmi_sim"] {
            if !Command::new("sh").args(["-c", &format!("command -v {program}")]).output().unwrap().status.success() {
                return skipped(&format!("no {program}: no IPMI BMC"));
            }
        }
        let dir = TempDir::new().unwrap();
        let port = UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let path = dir.path().display().to_string();
        let write = |name: &str, text: &str| fs::write(dir.path().join(name), text).unwrap();
        write("chassis.sh", &CHASSIS.replace("DIR", &path));
        write("power", "1\n");
        write(
            "lan.conf",
            &format!(
                "name \"one\"\nset_working_mc 0x20\nstartlan 1\naddr 127.0.0.1 {port}\npriv_limit admin\n\
                 allowed_auths_admin none md2 md5 straight\nguid a123456789abcdefa123456789abcdef\nendlan\n\
                 chassis_control \"/bin/sh {path}/chassis.sh 0x20\"\n\
                 user 2 true \"admin\" \"hunter2\" admin 10 none md2 md5 straight\n"
            ),
        );
        write(
            "one.emu",
            "mc_setbmc 0x20\nmc_add 0x20 0 no-device-sdrs 0x23 9 8 0x9f 0x1291 0xf02 persist_sdr\nmc_enable 0x20\n",
        );
        write("bmc.password", "hunter2\n");
        write("wrong.password", "nope\n");
        let chmod =
            Command::new("chmod").args(["600", "bmc.password", "wrong.password"]).current_dir(dir.path()).status();
        assert!(chmod.unwrap().success());
        let child = Command::new("ipmi_sim")
            .args(["-c", "lan.conf", "-f", "one.emu", "-s", "state", "-n"])
            .current_dir(dir.path())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        Some(Self { child, dir, port })
    }

    fn path(&self) -> &Path {
        self.dir.path()
    }

    /// The requests that change the power, in order.
    fn changes(&self) -> Vec<String> {
        let changes = fs::read_to_string(self.path().join("changes")).unwrap_or_default();
        changes.lines().map(str::to_owned).collect()
    }
}

impl Drop for Simulator {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn a_machine_behind_ipmi_is_tested_and_cycled_with_the_real_ipmitool() {
    let Some(bmc) = Simulator::start() else { return };
    let port = bmc.port;
    let config = &config(
        bmc.path(),
        &format!(
            "defaults: {{username: admin, password-file: bmc.password, soft-seconds: 3, poll-seconds: 1}}\nbmcs:\n\
             \x20 10.0.0.1: {{driver: ipmi, settings: {{host: 127.0.0.1, port: {port}, cipher-suite: 3}}}}\n\
             \x20 10.0.0.2:\n    driver: ipmi\n    username: admin\n    password-file: wrong.password\n\
             \x20   settings: {{host: 127.0.0.1, port: {port}, cipher-suite: 3}}\n"
        ),
    );
    wait_for("the BMC answers", 30, || (power(config, &["status", "10.0.0.1"]).stdout == "on\n").then_some(()));
    let tested = power(config, &["test", "10.0.0.1"]);
    assert_eq!(tested.status, 0, "{tested:?}");
    assert!(tested.stdout.contains(&format!("login       ok     BMC ipmi://127.0.0.1:{port} answers")), "{tested:?}");
    let both = power(config, &["test", "--all", "-o", "json"]);
    assert!(
        both.status == 1 && both.stderr.contains("1 of 2 machines failed a check; nothing was switched"),
        "{both:?}"
    );
    let json: serde_json::Value = serde_json::from_str(&both.stdout).unwrap();
    assert_eq!((&json[0]["ok"], &json[1]["ok"]), (&true.into(), &false.into()), "{json}");
    let message = json[1]["checks"][0]["message"].as_str().unwrap();
    assert!(message.contains("refused the user name or password: check them"), "{json}");
    assert!(bmc.changes().is_empty(), "a test switches nothing: {:?}", bmc.changes());

    let cycled = power(config, &["cycle", "10.0.0.1"]);
    assert!(cycled.status == 0 && cycled.stderr.contains("the machine is on again"), "{cycled:?}");
    assert_eq!(bmc.changes(), ["shutdown 1", "power 1"], "each change is requested once");
    fs::write(bmc.path().join("deaf"), "").unwrap();
    let off = power(config, &["off", "10.0.0.1"]);
    assert!(off.status == 0 && off.stderr.contains("its power was cut"), "{off:?}");
    assert_eq!(bmc.changes()[2..], ["shutdown 1", "power 0"]);
    assert_eq!(power(config, &["status", "10.0.0.1"]).stdout, "off\n");
}

use std::{path::Path, process::Command};

use cketerm_model::names::Address;

use super::*;
use crate::power::{BmcClients, BmcInventory, Evidence, Off, Timeouts, switch};

/// A BMC in a folder: `ipmitool` there records its calls and answers with the texts and exit statuses of version 1.8.19.
struct Site(tempfile::TempDir);

const FAKE: &str = r#"#!/bin/sh
cd DIR
echo "$@" >> calls
case "$IPMITOOL_PASSWORD" in
silent) echo 'Get Auth Capabilities error
Error issuing Get Channel Authentication Capabilities request
Error: Unable to establish IPMI v2 / RMCP+ session' >&2; exit 1;;
hunter2) ;;
*) echo 'Loading IANA PEN Registry...
> RAKP 2 HMAC is invalid
Error: Unable to establish IPMI v2 / RMCP+ session' >&2; exit 1;;
esac
echo 'Running Get VSO Capabilities my_addr 0x20, transit 0, target 0x20
Invalid completion code received: Invalid command' >&2
for last; do :; done
case "$last" in
status) echo "Chassis Power is $(cat power)";;
soft) echo 'Chassis Power Control: Soft'; test ! -e deaf && echo off > power;;
off) test -e weak && { echo 'Set Chassis Power Control to Down/Off failed: Insufficient privilege level' >&2; exit 1; }
  echo 'Chassis Power Control: Down/Off'; echo off > power;;
on) echo 'Chassis Power Control: Up/On'; echo on > power;;
esac
exit 0
"#;

impl Site {
    fn new(password: &str) -> Self {
        let site = Self(tempfile::tempdir().unwrap());
        let (path, dir) = (site.path(), site.path().display().to_string());
        std::fs::write(path.join("fake"), FAKE.replace("DIR", &dir)).unwrap();
        std::fs::write(path.join("power"), "on\n").unwrap();
        std::fs::write(path.join("pw"), password).unwrap();
        // Another process writes the program: a file that this one has written may count as busy.
        let install = "install -m 755 fake ipmitool; chmod 600 pw";
        assert!(Command::new("sh").args(["-c", install]).current_dir(path).status().unwrap().success());
        site
    }

    fn path(&self) -> &Path {
        self.0.path()
    }

    fn touch(&self, name: &str) {
        std::fs::write(self.path().join(name), "").unwrap();
    }

    fn entry(&self, more: &str) -> String {
        let tool = self.path().join("ipmitool");
        format!(
            "defaults: {{username: admin, password-file: pw}}\nbmcs:\n  10.0.0.1:\n    driver: ipmi\n    \
             settings: {{host: 10.1.0.1, program: {}{more}}}\n",
            tool.display()
        )
    }

    fn find(&self, text: &str) -> Result<Found, InventoryError> {
        let file = self.path().join("bmcs.yaml");
        std::fs::write(&file, text).unwrap();
        let found = BmcInventory::read(&file)?.find(&Address::new("10.0.0.1"), BmcClients::network(None).connector());
        found.map(Option::unwrap)
    }

    fn calls(&self) -> Vec<String> {
        let calls = std::fs::read_to_string(self.path().join("calls")).unwrap_or_default();
        calls.lines().map(str::to_owned).collect()
    }

    /// Returns the last word of each call.
    fn commands(&self) -> Vec<String> {
        self.calls().iter().filter_map(|call| Some(call.rsplit(' ').next()?.to_owned())).collect()
    }
}

const NO_REPORT: switch::Report<'_> = &|_| {};

fn quick() -> Timeouts {
    let poll = Duration::from_millis(5);
    Timeouts { soft: poll, off: poll, on: poll, poll }
}

#[tokio::test]
async fn a_cycle_sends_off_and_on_once_and_the_password_is_in_no_argument() {
    let site = Site::new("hunter2\n");
    let found = site.find(&site.entry(", cipher-suite: 17, port: 624, privilege: operator")).unwrap();
    assert_eq!(found.driver.target().to_string(), "BMC ipmi://10.1.0.1:624");
    assert_eq!(switch::cycle(&*found.driver, Mode::Soft, &quick(), NO_REPORT).await.unwrap(), Off::Graceful);
    let changes: Vec<String> = site.commands().into_iter().filter(|command| command != "status").collect();
    assert_eq!(changes, ["soft", "on"], "each change is requested once");
    let first = &site.calls()[0];
    assert_eq!(first, "-v -I lanplus -H 10.1.0.1 -p 624 -C 17 -L OPERATOR -U admin -E chassis power status");
    assert!(!format!("{:?} {found:?}", site.calls()).contains("hunter2"));
    assert_eq!(found.driver.evidence(), Evidence::Reported, "a program never proves that a machine is off");
}

#[tokio::test]
async fn a_machine_that_ignores_the_soft_request_is_cut_off() {
    let site = Site::new("hunter2");
    site.touch("deaf");
    let found = site.find(&site.entry("")).unwrap();
    assert_eq!(switch::off(&*found.driver, Mode::Soft, &quick(), NO_REPORT).await.unwrap(), Off::Hard);
    assert_eq!(found.driver.read().await.unwrap().power, PowerState::Off);
}

#[tokio::test]
async fn each_failure_names_its_remedy_and_a_refused_login_is_not_repeated() {
    for (password, expected, refused) in [
        ("wrong", "BMC ipmi://10.1.0.1 refused the user name or password: check them", true),
        ("silent", "BMC ipmi://10.1.0.1 does not answer: check `host`, its network, and that IPMI over LAN", false),
    ] {
        let site = Site::new(password);
        let found = site.find(&site.entry("")).unwrap();
        let e = switch::cycle(&*found.driver, Mode::Hard, &quick(), NO_REPORT).await.unwrap_err();
        assert!(e.to_string().starts_with(expected) && e.to_string().contains("IPMI v2 / RMCP+"), "{e}");
        assert_eq!(matches!(e, PowerError::Unauthorized(_)), refused, "{e}");
        assert_eq!(site.commands(), ["status"], "nothing else is sent");
    }
    let site = Site::new("hunter2");
    site.touch("weak");
    let found = site.find(&site.entry("")).unwrap();
    let e = switch::off(&*found.driver, Mode::Hard, &quick(), NO_REPORT).await.unwrap_err();
    assert!(e.to_string().contains("give the user the privilege level administrator"), "{e}");
    assert_eq!(site.commands().iter().filter(|command| *command == "off").count(), 1, "it is not repeated");
}

#[test]
fn a_missing_program_and_wrong_settings_are_known_before_a_drain() {
    let site = Site::new("hunter2");
    let text = site.entry("").replace("/ipmitool", "/nope");
    site.find(&text).unwrap();
    let inventory = BmcInventory::read(&site.path().join("bmcs.yaml")).unwrap();
    assert!(inventory.refused()["10.0.0.1"].contains("/nope cannot be run: there is no such file; install it"));
    assert!(inventory.names_programs());
    for (more, expected) in [
        (", hots: 1", "settings: unknown field `hots`; the keys are host, port, cipher-suite"),
        (", privilege: root", "privilege: write operator or administrator"),
        (", port: 70000", "port: write a UDP port"),
        (", timeout-seconds: 0", "must be 1 to 600"),
    ] {
        let why = site.find(&site.entry(more)).unwrap_err().to_string();
        assert!(why.contains("10.0.0.1: ") && why.contains(expected), "{more}: {why}");
    }
    for (text, expected) in [
        (site.entry("").replace("10.1.0.1", "bmc-1"), "host: write the BMC's IP address"),
        (site.entry("").replace("driver: ipmi", "driver: ipmi\n    url: x"), "url belongs to the driver redfish"),
        (format!("networks: [10.2.0.0/16]\n{}", site.entry("")), "outside the networks"),
        (site.entry("").replace("program: ", "program: ./"), "is no absolute path"),
    ] {
        let why = site.find(&text).unwrap_err().to_string();
        assert!(why.contains(expected), "{text}: {why}");
    }
    std::fs::write(site.path().join("pw"), "a password that is too long").unwrap();
    let why = site.find(&site.entry("")).unwrap_err().to_string();
    assert!(why.contains("longer than 20 bytes") && !why.contains("too long"), "{why}");
}

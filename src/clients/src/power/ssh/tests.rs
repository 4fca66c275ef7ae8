use std::{path::Path, process::Command};

use cketerm_model::{host::Mode, names::Address};

use super::*;
use crate::power::{BmcClients, BmcInventory, Rebooted, Timeouts, switch, test::test};

/// A host in a folder: `ssh` there records its calls and answers with the texts and exit statuses of OpenSSH 9.2.
struct Site(tempfile::TempDir);

const FAKE: &str = r#"#!/bin/sh
cd DIR
for last; do :; done
echo "$@" >> calls
case "$(cat how)" in
refused) echo 'ssh: connect to host 10.0.0.1 port 22: Connection refused' >&2; exit 255;;
unknown) echo 'No ED25519 host key is known for 10.0.0.1 and you have requested strict checking.
Host key verification failed.' >&2; exit 255;;
denied) echo 'core@10.0.0.1: Permission denied (publickey).' >&2; exit 255;;
esac
case "$last" in
cat*) echo 0d5b8ba5-3d5c-4e92-a5b8-5a5c1a1f0c11; echo '3600.25 7000.00';;
"echo cketerm-reboots && sleep 1 && "*)
  case "$(cat how)" in
  closed) echo cketerm-reboots; echo 'Connection to 10.0.0.1 closed by remote host.' >&2; exit 255;;
  polkit) echo cketerm-reboots; echo 'Failed to set wall message, ignoring: Interactive authentication required.
Call to Reboot failed: Interactive authentication required.' >&2; exit 1;;
  *) echo cketerm-reboots;;
  esac;;
"sudo -n -l -- systemctl reboot") test "$(cat how)" != polkit || { echo 'sudo: a password is required' >&2; exit 1; };;
"id -u "*) cat uid;;
busctl*) test "$(cat how)" = polkit && echo 's "challenge"' || echo 's "yes"';;
esac
"#;

impl Site {
    fn new(how: &str) -> Self {
        let site = Self(tempfile::tempdir().unwrap());
        let (path, dir) = (site.path(), site.path().display().to_string());
        std::fs::write(path.join("fake"), FAKE.replace("DIR", &dir)).unwrap();
        std::fs::write(path.join("how"), how).unwrap();
        std::fs::write(path.join("uid"), "0\n").unwrap();
        // Another process writes the program: a file that this one has written may count as busy.
        assert!(
            Command::new("install").args(["-m", "755", "fake", "ssh"]).current_dir(path).status().unwrap().success()
        );
        site
    }

    fn path(&self) -> &Path {
        self.0.path()
    }

    fn entry(&self, more: &str) -> String {
        let program = self.path().join("ssh");
        format!("bmcs: {{10.0.0.1: {{driver: ssh, settings: {{program: {}{more}}}}}}}\n", program.display())
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

    async fn reboot(&self, text: &str) -> Result<Rebooted, PowerError> {
        let found = self.find(text).unwrap();
        switch::reboot(&*found.driver, Mode::Soft, &Timeouts::default(), &|_| {}).await
    }
}

#[tokio::test]
async fn a_reboot_is_one_command_and_the_host_key_is_checked() {
    let site = Site::new("");
    let more = ", user: core, port: 2222, identity-file: id, known-hosts-file: known, command: [sudo, -n, 'a b']";
    assert_eq!(site.reboot(&site.entry(more)).await.unwrap(), Rebooted::Restarting);
    let dir = site.path().display();
    let expected = format!(
        "-T -o BatchMode=yes -o StrictHostKeyChecking=yes -o ControlMaster=no -o ControlPath=none \
         -o ServerAliveInterval=5 -o ServerAliveCountMax=3 -o ConnectTimeout=10 -o UserKnownHostsFile={dir}/known \
         -o IdentitiesOnly=yes -i {dir}/id -p 2222 -l core -- 10.0.0.1 echo cketerm-reboots && sleep 1 && sudo -n 'a b'"
    );
    assert_eq!(site.calls(), [expected]);
}

#[tokio::test]
async fn a_connection_that_the_reboot_closes_is_a_success_and_any_other_failure_is_not() {
    let site = Site::new("closed");
    assert_eq!(site.reboot(&site.entry("")).await.unwrap(), Rebooted::Restarting);
    for (how, expected, login) in [
        ("refused", "SSH host 10.0.0.1 cannot be reached; nothing was rebooted: check host, port and network", false),
        ("unknown", "SSH host 10.0.0.1: its host key is not known; add the right one", true),
        ("denied", "SSH host 10.0.0.1 refused the login: check user and identity-file", true),
        ("polkit", "SSH host 10.0.0.1: the command failed there (exit status: 1): Failed to set", false),
    ] {
        let site = Site::new(how);
        let e = site.reboot(&site.entry("")).await.unwrap_err();
        assert!(e.to_string().starts_with(expected), "{how}: {e}");
        assert_eq!(matches!(e, PowerError::Unauthorized(_)), login, "{how}: {e}");
        assert_eq!(site.calls().len(), 1, "{how}: it is tried once");
    }
}

#[tokio::test]
async fn a_machine_on_ssh_is_on_and_its_uptime_is_the_age_of_its_boot() {
    let site = Site::new("");
    let found = site.find(&site.entry("")).unwrap();
    let machine = found.driver.read().await.unwrap();
    assert_eq!((machine.power, machine.reset_age.map(|age| age.as_secs())), (PowerState::On, Some(3600)));
    let e = switch::off(&*found.driver, Mode::Hard, &Timeouts::default(), &|_| {}).await.unwrap_err();
    assert!(e.to_string().contains("offers no reset type to turn off the machine; it offers: reboot"), "{e}");
}

#[tokio::test]
async fn a_test_reboots_nothing_and_names_a_missing_right() {
    for (how, uid, more, failed) in [
        ("", "0", "", None),
        ("", "1000", "", None),
        ("", "1000", ", command: [sudo, -n, systemctl, reboot]", None),
        ("polkit", "1000", "", Some("log in as root, or set command to [sudo, -n, systemctl, reboot]")),
        ("polkit", "1000", ", command: [sudo, -n, systemctl, reboot]", Some("sudo: a password is required")),
        ("denied", "0", "", Some("refused the login")),
    ] {
        let site = Site::new(how);
        std::fs::write(site.path().join("uid"), uid).unwrap();
        let found = site.find(&site.entry(more)).unwrap();
        let (checks, boot_id) = test(&*found.driver).await;
        let failures: Vec<String> = checks.into_iter().filter_map(|check| check.result.err()).collect();
        assert_eq!(boot_id.is_some(), how != "denied", "a login shows the boot id");
        assert_eq!(failures.len(), usize::from(failed.is_some()), "{how} {uid} {more}: {failures:?}");
        assert!(failed.is_none_or(|text| failures[0].contains(text)), "{failures:?}");
        assert!(site.calls().iter().all(|call| !call.contains(MARK)), "{:?}", site.calls());
    }
}

#[test]
fn one_entry_describes_all_other_machines() {
    let site = Site::new("");
    let text = format!(
        "others: {{driver: ssh, settings: {{program: {}/ssh, host: 'n-{{address}}'}}}}\n",
        site.path().display()
    );
    let found = site.find(&text).unwrap();
    assert_eq!(found.driver.target().to_string(), "SSH host n-10.0.0.1");
    let machines = [Address::new("10.0.0.1"), Address::new("10.0.0.2")];
    let inventory = BmcInventory::parse(&text).unwrap();
    assert_eq!((inventory.driver_name("10.0.0.9"), inventory.confined()), (Some("ssh"), None));
    assert!(inventory.refused_among(&machines).is_empty() && inventory.warnings().is_empty());
    let inventory = BmcInventory::parse(&text.replace("/ssh", "/nope")).unwrap();
    assert_eq!(inventory.refused_among(&machines).len(), 2, "a missing program stops all of them before a drain");
    assert!(BmcInventory::parse("others: {driver: ssh}").unwrap().errors().is_empty());
    for (text, expected) in [
        ("others: {driver: redfish}", "others: its driver must reach many machines: choose one of command, ssh"),
        ("others: {}", "others: its driver must reach many machines"),
        ("others: {driver: nope}", "others: its driver must reach many machines"),
    ] {
        assert!(BmcInventory::parse(text).unwrap_err().contains(expected), "{text}");
    }
    for more in [", host: '-oProxyCommand=x'", ", user: 'a b'", ", command: []"] {
        assert!(site.find(&site.entry(more)).is_err(), "{more}");
    }
}

use std::{
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
};

use cketerm_model::names::Address;

use super::*;
use crate::power::{BmcClients, BmcInventory, Evidence, Off, Timeouts, switch};

/// A machine in a folder: its power state is the content of the file `power`.
struct Site(tempfile::TempDir);

impl Site {
    fn new(power: &str) -> Self {
        let site = Self(tempfile::tempdir().unwrap());
        site.write("power", 0o600, power);
        site
    }

    fn path(&self) -> &Path {
        self.0.path()
    }

    fn write(&self, name: &str, mode: u32, text: &str) -> PathBuf {
        let path = self.path().join(name);
        std::fs::write(&path, text).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
        path
    }

    /// Writes a script and returns its path. Tests give it to a shell: while another test starts a process, a file that
    /// was just written may count as busy and cannot be executed itself.
    fn script(&self, name: &str, body: &str) -> String {
        self.write(name, 0o600, &format!("cd {}\n{body}\n", self.path().display())).display().to_string()
    }

    fn read(&self, name: &str) -> String {
        std::fs::read_to_string(self.path().join(name)).unwrap_or_default()
    }

    fn find(&self, mode: u32, text: &str) -> Result<Option<Found>, InventoryError> {
        let file = self.write("bmcs.yaml", mode, text);
        BmcInventory::read(&file)?.find(&Address::new("10.0.0.1"), BmcClients::network(None).connector())
    }

    /// Returns the driver of this site's scripts; `more` are further settings.
    fn driver(&self, on: &str, off: &str, state: &str, more: &str) -> Found {
        let (on, off, state) = (self.script("on", on), self.script("off", off), self.script("state", state));
        let text = format!(
            "bmcs:\n  10.0.0.1:\n    driver: command\n    settings: {{on: [/bin/sh, {on}, '{{address}}'], \
             off: [/bin/sh, {off}], state: [/bin/sh, {state}]{more}}}\n"
        );
        self.find(0o600, &text).unwrap().unwrap()
    }
}

const SWITCH_ON: &str = "echo on > power; echo \"$@\" > given";
const SWITCH_OFF: &str = "echo off > power";
const STATE: &str = "cat power";
const NO_REPORT: switch::Report<'_> = &|_| {};

fn quick() -> Timeouts {
    let poll = Duration::from_millis(5);
    Timeouts { soft: poll, off: poll, on: poll, poll }
}

#[tokio::test]
async fn a_machine_is_turned_off_and_on_by_its_programs() {
    let site = Site::new("on");
    let found = site.driver(SWITCH_ON, SWITCH_OFF, STATE, "");
    let driver = &*found.driver;
    let machine = driver.read().await.unwrap();
    assert_eq!((machine.power, machine.id.as_str()), (PowerState::On, "10.0.0.1"));
    assert_eq!(machine.requests.soft_off, None);
    assert_eq!(switch::off(driver, Mode::Soft, &quick(), NO_REPORT).await.unwrap(), Off::Hard);
    assert_eq!(site.read("power"), "off\n");
    assert!(switch::on(driver, &quick(), NO_REPORT).await.unwrap());
    assert_eq!((site.read("power").as_str(), site.read("given").as_str()), ("on\n", "10.0.0.1\n"));
    assert_eq!(driver.evidence(), Evidence::Reported, "a program never proves that a machine is off");
}

#[tokio::test]
async fn a_soft_off_comes_first_where_the_site_has_one() {
    let site = Site::new("on");
    let soft = site.script("soft", "echo off > power");
    let found = site.driver(SWITCH_ON, "exit 9", STATE, &format!(", soft-off: [/bin/sh, {soft}]"));
    assert_eq!(switch::off(&*found.driver, Mode::Soft, &quick(), NO_REPORT).await.unwrap(), Off::Graceful);
}

#[tokio::test]
async fn only_the_words_on_and_off_are_states() {
    for (printed, expected) in [
        ("on", PowerState::On),
        (" off ", PowerState::Off),
        ("", PowerState::Unknown),
        ("Chassis Power is off", PowerState::Other("Chassis Power is off".to_owned())),
        ("offline", PowerState::Other("offline".to_owned())),
        ("on\noff", PowerState::Other("on off".to_owned())),
    ] {
        let site = Site::new(printed);
        let found = site.driver(SWITCH_ON, SWITCH_OFF, STATE, "");
        assert_eq!(found.driver.read().await.unwrap().power, expected, "{printed:?}");
    }
}

#[tokio::test]
async fn a_failed_program_is_no_state_and_its_error_is_short_and_masked() {
    let site = Site::new("off");
    let failing = "cat power; echo 'login --password=hunter2 failed' >&2; yes | head -c 100000 >&2; exit 3";
    let found = site.driver(SWITCH_ON, failing, failing, "");
    let text = found.driver.read().await.unwrap_err().to_string();
    assert!(text.contains("/bin/sh failed (exit status: 3): login") && !text.contains("hunter2"), "{text}");
    assert!(text.len() < 600, "{}", text.len());
    let e = found.driver.request(PowerRequest::Off(Mode::Hard)).await.unwrap_err();
    assert!(matches!(e, PowerError::Failed(_)), "{e}");
}

#[tokio::test]
async fn a_program_that_hangs_is_killed_and_a_killed_request_counts_as_sent() {
    let site = Site::new("on");
    let found = site.driver("exec sleep 60", "echo off > power; exec sleep 60", STATE, ", timeout-seconds: 1");
    assert_eq!(found.driver.request(PowerRequest::Off(Mode::Hard)).await.unwrap(), "off");
    assert_eq!(found.driver.read().await.unwrap().power, PowerState::Off);
    let hanging = site.driver(SWITCH_ON, SWITCH_OFF, "echo off; exec sleep 60", ", timeout-seconds: 1");
    let text = hanging.driver.read().await.unwrap_err().to_string();
    assert!(text.contains("10.0.0.1: state: /bin/sh did not end within 1 s and was killed"), "{text}");
}

#[tokio::test]
async fn output_is_bounded_and_the_environment_is_clean() {
    let site = Site::new("on");
    let found = site.driver("env > given", SWITCH_OFF, "yes off | head -c 100000", "");
    let text = found.driver.read().await.unwrap_err().to_string();
    assert!(text.contains("10.0.0.1: state: /bin/sh printed more than 65536 bytes"), "{text}");
    found.driver.request(PowerRequest::On).await.unwrap();
    let environment = site.read("given");
    let names: Vec<&str> = environment.lines().filter_map(|line| Some(line.split_once('=')?.0)).collect();
    let known = |name: &&str| ["PATH", "LANG", "PWD", "OLDPWD", "SHLVL", "_"].contains(name);
    assert!(names.iter().all(known), "{names:?}");
}

/// Programs at which a power-on fails, with the reason.
const NO_POWER_ON: [(&str, u32, &str); 3] = [
    ("missing", 0, "there is no such file"),
    ("plain", 0o600, "this user may not execute it; chmod +x"),
    ("open", 0o707, "everyone can write it; chmod o-w"),
];

#[tokio::test]
async fn a_machine_that_cannot_be_turned_on_again_is_not_turned_off() {
    for (name, mode, why) in NO_POWER_ON {
        let site = Site::new("on");
        if mode != 0 {
            site.write(name, mode, "#!/bin/sh\n");
        }
        let (off, state) = (site.script("off", SWITCH_OFF), site.script("state", STATE));
        let on = site.path().join(name).display().to_string();
        let text = format!(
            "bmcs:\n  10.0.0.1:\n    driver: command\n    settings: {{on: [{on}], off: [/bin/sh, {off}], \
             state: [/bin/sh, {state}]}}\n"
        );
        let found = site.find(0o600, &text).unwrap().unwrap();
        for mode in [Mode::Soft, Mode::Hard] {
            let e = switch::cycle(&*found.driver, mode, &quick(), NO_REPORT).await.unwrap_err();
            let text = e.to_string();
            assert!(matches!(e, PowerError::Refused(_)), "{e:?}");
            assert!(text.contains("bmcs.yaml: 10.0.0.1: on: ") && text.contains(why), "{text}");
            assert_eq!(site.read("power"), "on", "{text}");
        }
        let reports = std::sync::Mutex::new(Vec::new());
        let report = |text: &str| reports.lock().unwrap().push(text.to_owned());
        site.write("power", 0o600, "off");
        switch::on(&*found.driver, &quick(), &report).await.unwrap_err();
        assert!(reports.lock().unwrap().is_empty(), "a missing program is tried once: {reports:?}");
        let text = switch::cycle(&*found.driver, Mode::Hard, &quick(), NO_REPORT).await.unwrap_err().to_string();
        assert!(text.starts_with("the machine is off; power-on failed: ") && text.contains(why), "{text}");
    }
}

#[test]
fn programs_that_cannot_be_run_are_known_before_a_drain_and_by_config_check() {
    let site = Site::new("on");
    let settings = "settings: {on: [/nope/on], off: [/bin/sh], state: [/bin/sh], soft-off: [/nope/soft]}";
    let text = format!("bmcs:\n  10.0.0.1: {{driver: command, {settings}}}\n  10.0.0.2: {{url: 'https://10.1.0.2'}}\n");
    let file = site.write("bmcs.yaml", 0o600, &text);
    let inventory = BmcInventory::read(&file).unwrap();
    let why = "10.0.0.1: on: /nope/on cannot be run: there is no such file; install it, or correct its path";
    assert_eq!(inventory.refused()["10.0.0.1"], format!("{}: {why}", file.display()));
    assert_eq!(inventory.refused().len(), 1);
    assert!(inventory.names_programs() && inventory.errors().is_empty(), "it may be installed later");
    let soft = why.replace("on: /nope/on", "soft-off: /nope/soft");
    assert_eq!(inventory.warnings(), [why.to_owned(), soft]);
    // Without the soft power-off, the power is cut.
    let on = site.write("on", 0o700, "");
    site.write("bmcs.yaml", 0o600, &text.replace("/nope/on", &on.display().to_string()));
    assert!(BmcInventory::read(&file).unwrap().refused().is_empty());
}

#[tokio::test]
async fn a_cycle_whose_power_on_fails_says_that_the_machine_is_off() {
    let site = Site::new("on");
    let found = site.driver("echo no fuse >&2; exit 4", SWITCH_OFF, STATE, "");
    let text = switch::cycle(&*found.driver, Mode::Hard, &quick(), NO_REPORT).await.unwrap_err().to_string();
    assert!(text.starts_with("the machine is off; power-on failed: "), "{text}");
    assert!(text.contains("bmcs.yaml: 10.0.0.1: on: /bin/sh failed (exit status: 4): no fuse"), "{text}");
}

#[tokio::test]
async fn a_missing_soft_off_is_replaced_and_a_missing_off_is_tried_once() {
    let site = Site::new("on");
    let found = site.driver(SWITCH_ON, SWITCH_OFF, STATE, ", soft-off: [/nope]");
    let reports = std::sync::Mutex::new(Vec::new());
    let report = |text: &str| reports.lock().unwrap().push(text.to_owned());
    assert_eq!(switch::off(&*found.driver, Mode::Soft, &quick(), &report).await.unwrap(), Off::Hard);
    assert!(reports.lock().unwrap()[0].contains("10.0.0.1: soft-off: /nope cannot be run"), "{reports:?}");
}

#[tokio::test]
async fn a_missing_or_writable_program_is_not_run() {
    let site = Site::new("off");
    let state = site.write("state", 0o707, "#!/bin/sh\necho off\n");
    let settings = format!("settings: {{on: [/a], off: [/b], state: [{}]}}", state.display());
    let text = format!("bmcs: {{10.0.0.1: {{driver: command, {settings}}}}}");
    let found = site.find(0o600, &text).unwrap().unwrap();
    let text = found.driver.read().await.unwrap_err().to_string();
    assert!(text.contains(": state: ") && text.contains("cannot be run: everyone can write it; chmod o-w"), "{text}");
    std::fs::remove_file(site.path().join("state")).unwrap();
    let text = found.driver.read().await.unwrap_err().to_string();
    assert!(text.contains("/state cannot be run: there is no such file"), "{text}");
}

#[test]
fn unsafe_or_incomplete_settings_are_refused_and_show_no_value() {
    let site = Site::new("on");
    let entry = |rest: &str| format!("bmcs: {{10.0.0.1: {{driver: command, {rest}}}}}\n");
    let settings = |rest: &str| entry(&format!("settings: {{on: [/a], off: [/b], {rest}}}"));
    for (text, expected) in [
        (settings("state: [power, hunter2]"), "state: the program is no absolute path"),
        (settings("state: []"), "state: no program"),
        (settings("state: [/c, '{host}']"), "state: {host} is no placeholder"),
        (settings("state: ['/c/{address}']"), "must not contain {address}"),
        (settings("soft-off: []"), "state is missing"),
        (
            settings("state: [/c], shell: hunter2"),
            "unknown field `shell`; the keys are state, on, off, soft-off, timeout-seconds",
        ),
        (settings("state: [/c], HUNTER: 1"), "settings: unknown field; the keys are state"),
        (settings("state: hunter2"), "10.0.0.1: state: write a list [/path/of/program, argument, …]"),
        (settings("state: [hunter2: 1]"), "10.0.0.1: state: write a list [/path/of/program, argument, …]"),
        (settings("state: [/c], soft-off: /bin/true"), "10.0.0.1: soft-off: write a list"),
        (settings("state: [/c], timeout-seconds: hunter2"), "timeout-seconds: write a number of seconds, 1 to 600"),
        (settings("state: [/c], timeout-seconds: 0"), "must be 1 to 600"),
        (entry("settings: hunter2"), "settings: write keys with values: {key: value, …}; the keys are state, on"),
        (entry("url: 'https://bmc'"), "url belongs to the driver redfish"),
        (entry("on-seconds: 1"), "settings is missing"),
        (
            "bmcs: {10.0.0.1: {driver: hunter2}}".to_owned(),
            "unknown driver; choose one of redfish, ipmi, command, bare-metal-host, ssh, agent",
        ),
        ("bmcs: {10.0.0.1: {url: bmc, settings: {a: hunter2}}}".to_owned(), "settings belongs to the other drivers"),
        ("defaults: {driver: command}".to_owned(), "defaults: driver and settings belong to one BMC"),
    ] {
        let why = site.find(0o600, &text).unwrap_err().to_string();
        assert!(why.contains(expected) && why.contains("bmcs.yaml") && !why.contains("hunter2"), "{text}: {why}");
        if let Ok(inventory) = BmcInventory::parse(&text) {
            assert!(inventory.refused().contains_key("10.0.0.1"), "the engine starts no drain: {text}");
            assert!(!inventory.errors().is_empty(), "`config check` fails: {text}");
        }
    }
    let good = settings("state: [/c, '{address}', '{\"json\": 1}']");
    let why = site.find(0o602, &good).unwrap_err().to_string();
    assert!(why.contains("everyone can write it; chmod o-w"), "{why}");
    let two =
        "bmcs:\n  10.0.0.1: &one {driver: command, settings: {on: [/a], off: [/b], state: [/c]}}\n  10.0.0.2: *one\n";
    let file = site.write("bmcs.yaml", 0o602, two);
    let errors = BmcInventory::read(&file).unwrap().errors();
    assert_eq!(errors, [format!("the file names programs and everyone can write it; chmod o-w {}", file.display())]);
    assert!(site.find(0o644, &good).unwrap().is_some());
}

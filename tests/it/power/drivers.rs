//! Machines whose power the site's own programs read and change: no BMC and no server is needed.

use std::{fs, os::unix::fs::PermissionsExt as _, path::Path};

use crate::commands::rig::run;

/// Writes a program, or a file with this mode.
fn write(dir: &Path, name: &str, mode: u32, text: &str) -> String {
    let path = dir.join(name);
    fs::write(&path, text).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
    path.display().to_string()
}

#[test]
fn a_machine_whose_power_on_program_cannot_be_run_is_not_turned_off() {
    let dir = tempfile::TempDir::new().unwrap();
    let dir = dir.path();
    let power = write(dir, "power", 0o600, "on\n");
    let off = write(dir, "off", 0o600, &format!("echo off > {power}\n"));
    let on = write(dir, "on", 0o600, &format!("echo on > {power}\n"));
    let config = write(dir, "config.yaml", 0o600, "power: {bmcs: bmcs.yaml}\n");
    let bmcs = |on: &str| {
        let text = format!(
            "bmcs:\n  10.1.3.11:\n    driver: command\n    poll-seconds: 1\n    settings:\n      on: {on}\n      off: \
             [/bin/sh, {off}]\n      state: [/bin/cat, {power}]\n"
        );
        write(dir, "bmcs.yaml", 0o600, &text)
    };
    let cketerm = |args: &[&str]| run(&[&["--config", &config], args].concat(), "");
    let file = bmcs("[/nope/on]");
    let why = "10.1.3.11: on: /nope/on cannot be run: there is no such file; install it, or correct its path";
    let cycled = cketerm(&["power", "cycle", "--hard", "10.1.3.11"]);
    assert_eq!(cycled.status, 1, "{cycled:?}");
    assert!(cycled.stderr.contains(&format!("{file}: {why}")), "{cycled:?}");
    assert_eq!(fs::read_to_string(&power).unwrap(), "on\n", "the machine is still on");
    let checked = cketerm(&["config", "check"]);
    assert!(checked.status == 0, "the program may be installed later: {checked:?}");
    assert!(checked.stdout.contains(&format!("warning: power.bmcs: {file}: {why}\n")), "{checked:?}");
    // A file that was just written may not be executed, so the program is a shell.
    bmcs(&format!("[/bin/sh, {on}]"));
    let cycled = cketerm(&["power", "cycle", "--hard", "10.1.3.11"]);
    assert!(cycled.status == 0 && cycled.stderr.contains("on again"), "{cycled:?}");
    let status = cketerm(&["-v", "power", "status", "10.1.3.11"]);
    assert_eq!((status.status, status.stdout.as_str()), (0, "on\n"), "{status:?}");
    assert!(status.stderr.contains(&format!("using the entry 10.1.3.11 of {file} (driver command)")), "{status:?}");
    bmcs("[/bin/sh, -c, 'echo no fuse >&2; exit 1']");
    let cycled = cketerm(&["power", "cycle", "--hard", "10.1.3.11"]);
    let last = cycled.stderr.lines().last().unwrap_or_default();
    assert!(cycled.status == 1 && last.contains("the machine is off; power-on failed: "), "{cycled:?}");
    assert!(last.contains("10.1.3.11: on: /bin/sh failed (exit status: 1): no fuse"), "{cycled:?}");
    // An entry that can never work is an error.
    bmcs("/bin/true");
    let checked = cketerm(&["config", "check"]);
    let why = format!("error: power.bmcs: {file}: 10.1.3.11: on: write a list [/path/of/program, argument, …]\n");
    assert!(checked.status == 1 && checked.stdout.contains(&why), "{checked:?}");
}

use std::{os::unix::fs::PermissionsExt, path::PathBuf};

use cketerm_model::names::Address;

use super::*;
use crate::power::BmcClients;

struct Directory(tempfile::TempDir);

impl Directory {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn file(&self, name: &str, mode: u32, text: &str) -> PathBuf {
        let path = self.0.path().join(name);
        std::fs::write(&path, text).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
        path
    }

    fn find(&self, mode: u32, text: &str) -> Result<Option<Found>, InventoryError> {
        BmcInventory::read(&self.file("bmcs.yaml", mode, text))?
            .find(&Address::new("10.0.0.1"), BmcClients::network(None).connector())
    }
}

#[test]
fn an_entry_inherits_missing_fields_from_the_defaults() {
    let directory = Directory::new();
    directory.file("pw", 0o600, "hunter2\n");
    let text = "defaults: {username: root, password-file: pw, soft-seconds: 300}\n\
                bmcs:\n  10.0.0.1: {url: 'redfish://bmc-1', system: '1', on-seconds: 9}\n";
    let found = directory.find(0o644, text).unwrap().unwrap();
    assert_eq!(found.driver.target().name, "https://bmc-1");
    assert_eq!((found.timeouts.soft.as_secs(), found.timeouts.on.as_secs()), (300, 9));
    assert!(found.warning.is_none());
    let inventory = BmcInventory::read(&directory.0.path().join("bmcs.yaml")).unwrap();
    assert!(inventory.find(&Address::new("10.0.0.2"), BmcClients::network(None).connector()).unwrap().is_none());
    assert!(!format!("{inventory:?} {found:?}").contains("hunter2"));
}

#[test]
fn a_secret_that_everyone_can_read_is_refused() {
    let directory = Directory::new();
    let inline = "bmcs: {10.0.0.1: {url: bmc, username: root, password: hunter2}}";
    let e = directory.find(0o644, inline).unwrap_err().to_string();
    assert!(e.contains("everyone can read it; chmod 600") && !e.contains("hunter2"), "{e}");
    assert!(directory.find(0o600, inline).unwrap().is_some());
    directory.file("pw", 0o604, "hunter2");
    let e = directory
        .find(0o644, "bmcs: {10.0.0.1: {url: bmc, username: root, password-file: pw}}")
        .unwrap_err()
        .to_string();
    assert!(e.contains("pw can be read by everyone"), "{e}");
}

#[test]
fn errors_name_the_problem_and_show_no_password() {
    let directory = Directory::new();
    for (text, expected) in [
        ("bmcs: {10.0.0.1: {username: root}}", "10.0.0.1: url is missing"),
        ("bmcs: {10.0.0.1: {url: 'ipmi://bmc'}}", "only Redfish is supported"),
        ("bmcs: {10.0.0.1: {url: bmc, username: root}}", "a username without a password"),
        ("bmcs: {10.0.0.1: {url: bmc, pasword: hunter2}}", "unknown field `pasword`"),
        (
            "bmcs: {10.0.0.1: {url: bmc, pasword: hunter2}}",
            "bmcs.10.0.0.1: unknown field `pasword`; the keys are url, ",
        ),
        ("bmcs: {10.0.0.1: {url: bmc, HUNTER: hunter2}}", "bmcs.10.0.0.1: unknown field; the keys are url, "),
        ("bmcs: {hunter2: {url: 1, HUNTER2: 1}}", "bmcs: unknown field; the keys are url, "),
        (
            "bmc: {10.0.0.1: {url: bmc}}",
            "not a BMC file: unknown field `bmc`; the keys are networks, defaults, bmcs, others",
        ),
        ("bmcs: {10.0.0.1: hunter2}", "bmcs.10.0.0.1: write keys with values: {key: value, …} (error at line 1)"),
        ("bmcs: {'fd00::1': hunter2}", "bmcs.fd00::1: write keys with values"),
        ("bmcs: hunter2", "bmcs: write the BMC of each address"),
        ("others: {driver: ssh, settings: {host: bastion}}", "would be the same machine for all"),
        (
            "others: {driver: command, settings: {'on': [/bin/a, '{address}'], 'off': [/bin/b, all], state: [/bin/c, '{address}']}}",
            "off: no argument has {address}",
        ),
        (
            "bmcs:\n  10.0.0.1: {url: bmc}\n  10.1.3.11: {soft-seconds: -1}",
            "bmcs.10.1.3.11.soft-seconds: write a whole number of seconds (error at line 3)",
        ),
        ("bmcs: {10.0.0.1: {password: {a: hunter2}}}", "bmcs.10.0.0.1.password: write a text (error at line 1)"),
        ("bmcs: {hunter2: {insecure: hunter2}}", "bmcs.insecure: write true or false (error at line 1)"),
        ("defaults: {on-seconds: hunter2}", "defaults.on-seconds: write a whole number of seconds (error at line 1)"),
        ("defaults: {sign-in: hunter2}", "defaults.sign-in: write auto, basic or session (error at line 1)"),
        ("networks: hunter2", "networks: write a list of networks"),
        ("hunter2", "not a BMC file (error at line 1)"),
        ("bmcs: {10.0.0.1: {url: bmc, insecure: true, ca-file: x}}", "give only one"),
        ("bmcs: {10.0.0.1: {url: bmc, ca-file: nope}}", "nope"),
        ("bmcs: {10.0.0.1: {url: 'https://root:hunter2@bmc'}}", "must not contain a user name"),
    ] {
        let e = directory.find(0o600, text).unwrap_err().to_string();
        assert!(e.contains(expected) && e.contains("bmcs.yaml") && !e.contains("hunter2"), "{text}: {e}");
    }
}

#[test]
fn a_password_over_plain_http_is_warned_about() {
    let directory = Directory::new();
    let text = "bmcs: {10.0.0.1: {url: 'http://10.1.0.1', username: u, password: p}}";
    assert!(directory.find(0o600, text).unwrap().unwrap().warning.unwrap().contains("plain HTTP"));
    let text = "bmcs: {10.0.0.1: {url: 'https://10.1.0.1', insecure: true, username: u, password: p}}";
    assert!(directory.find(0o600, text).unwrap().unwrap().warning.unwrap().contains("not verified"));
}

const LOGIN: &str = "defaults: {username: root, password: hunter2}\n";

/// Judges an address that a BareMetalHost names. Returns the warning, or the refusal.
fn other(file: &str, url: &str, any_certificate: bool) -> Result<Option<String>, InventoryError> {
    let inventory = BmcInventory::parse(&format!("{file}{LOGIN}")).unwrap();
    Ok(inventory.other("default/w1", url, None, any_certificate, BmcClients::network(None).connector())?.warning)
}

#[test]
fn i50_an_address_from_elsewhere_gets_a_login_only_in_an_allowed_network() {
    const LIST: &str = "networks: [10.1.0.0/16, {cidr: 10.2.0.0/16, http: true, insecure: true}, 'fd00:1::/64']\n";
    let outside_error = "outside the networks";
    let plain = "uses plain HTTP";
    for (file, url, refused) in [
        (LIST, "https://10.1.2.3", None),
        (LIST, "redfish://10.1.2.3/redfish/v1/Systems/1", None),
        (LIST, "https://[fd00:1::5]:8443", None),
        (LIST, "https://[::ffff:10.1.2.3]", None),
        (LIST, "http://10.2.0.9", None),
        (LIST, "https://203.0.113.7", Some(outside_error)),
        (LIST, "redfish-virtualmedia+https://203.0.113.7/redfish/v1/Systems/1", Some(outside_error)),
        (LIST, "https://[fd00:2::5]", Some(outside_error)),
        (LIST, "https://[::ffff:203.0.113.7]", Some(outside_error)),
        (LIST, "https://10.1.2.3.:443", Some("unusual")),
        (LIST, "https://169.254.169.254", Some(outside_error)),
        (LIST, "http://203.0.113.7", Some(outside_error)),
        (LIST, "http://10.1.2.3", Some(plain)),
        (LIST, "redfish+http://10.1.2.3/redfish/v1/Systems/1", Some(plain)),
        // forms that the HTTP client parses as an address
        (LIST, "https://2130706433", Some("unusual")),
        (LIST, "https://0x7f.1", Some("unusual")),
        (LIST, "https://127.1", Some("unusual")),
        (LIST, "https://10.1.2.3\\.evil.example", Some("no host")),
        (LIST, "https://10.1.2.3?.evil.example", Some("no host")),
        (LIST, "https://10.1.2.3#.evil.example", Some("no host")),
        (LIST, "https://10.1.2.3@203.0.113.7", Some("must not contain a user name")),
        // without a list
        ("", "https://10.1.2.3", Some("no BMC network is allowed")),
        ("", "https://bmc.example", Some("no BMC network is allowed")),
        ("bmcs: {10.0.0.1: {url: 'https://10.1.2.3'}}\n", "https://10.1.2.3", Some("no BMC network is allowed")),
    ] {
        let answer = other(file, url, false).map_err(|e| e.to_string());
        match (refused, answer) {
            (None, Ok(_)) => {}
            (Some(expected), Err(why)) => assert!(why.contains(expected) && !why.contains("hunter2"), "{url}: {why}"),
            (_, answer) => panic!("{url}: {answer:?}"),
        }
    }
    // a host's request to skip verification counts only where the file allows it
    assert_eq!(other(LIST, "https://10.1.2.3", true).unwrap(), None, "the certificate is still verified");
    assert!(other(LIST, "https://10.2.0.9", true).unwrap().unwrap().contains("not verified"));
    assert_eq!(other(LIST, "https://bmc.example", true).unwrap(), None, "a name's certificate is verified");
}

#[test]
fn i50_entries_of_the_file_must_be_inside_its_networks_too() {
    for (text, refused) in [
        ("bmcs: {10.0.0.1: {url: 'https://10.1.0.1'}}", None),
        ("bmcs: {10.0.0.1: {url: 'http://10.1.0.1'}}", None),
        ("bmcs: {10.0.0.1: {url: 'https://bmc.example'}}", None),
        ("bmcs: {10.0.0.1: {url: 'http://bmc.example'}}", Some("needs `networks`")),
        ("bmcs: {10.0.0.1: {url: 'https://bmc.example', insecure: true}}", Some("needs `networks`")),
        ("bmcs: {10.0.0.1: {url: 'https://bmc.example', ca-file: x, insecure: true}}", Some("give only one")),
        ("bmcs: {10.0.0.1: {system: '1'}}", Some("url is missing")),
        ("networks: [10.1.0.0/16]\nbmcs: {10.0.0.1: {url: 'https://bmc.example', insecure: true}}", None),
        ("networks: [10.1.0.0/16]\nbmcs: {10.0.0.1: {url: 'http://10.1.0.1'}}", None),
        ("networks: [10.1.0.0/16]\nbmcs: {10.0.0.1: {url: 'http://bmc.example'}}", None),
        ("networks: [10.1.0.0/16]\nbmcs: {10.0.0.1: {url: 'https://10.9.0.1'}}", Some("outside the networks")),
    ] {
        let inventory = BmcInventory::parse(&format!("{text}\n{LOGIN}")).unwrap();
        let found = inventory.find(&Address::new("10.0.0.1"), BmcClients::network(None).connector());
        let failed = inventory.errors();
        match (refused, found) {
            (None, Ok(Some(_))) => assert!(inventory.refused().is_empty(), "{text}"),
            (Some(expected), Err(why)) => {
                assert_eq!(inventory.refused().get("10.0.0.1"), Some(&why.to_string()), "the engine refuses the BMC");
                assert!(why.to_string().contains(expected), "{text}: {why}");
                assert!(failed.iter().any(|w| w.contains(expected)), "`config check` fails: {failed:?}");
            }
            (_, found) => panic!("{text}: {found:?}"),
        }
    }
}

/// An entry that disables verification, and the same by the defaults.
#[test]
fn i50_a_host_name_without_a_verified_certificate_needs_networks() {
    for insecure in [
        "defaults: {insecure: true}\nbmcs: {10.0.0.1: {url: 'redfish://bmc.example'}}",
        "bmcs: {10.0.0.1: {url: 'redfish://bmc.example', insecure: true}}",
    ] {
        let inventory = BmcInventory::parse(insecure).unwrap();
        let why =
            inventory.find(&Address::new("10.0.0.1"), BmcClients::network(None).connector()).unwrap_err().to_string();
        assert!(why.contains("needs `networks`"), "{why}");
        assert_eq!(inventory.refused().get("10.0.0.1"), Some(&why));
        assert!(inventory.errors().contains(&why), "{:?}", inventory.errors());
    }
    let own = "defaults: {insecure: true}\nbmcs: {10.0.0.1: {url: 'redfish://bmc.example', insecure: false}}";
    assert!(BmcInventory::parse(own).unwrap().refused().is_empty(), "the BMC's own setting overrides the defaults");
}

#[test]
fn a_key_that_is_no_address_is_warned_about() {
    let inventory = BmcInventory::parse("bmcs: {w34: {url: 'https://10.1.0.1'}, 'fd00::1': {url: 'https://10.1.0.2'}}");
    let warnings = inventory.unwrap().warnings();
    assert_eq!(warnings, ["bmcs: \"w34\" is no IP address, so no machine has it; write the node's address"]);
}

#[test]
fn a_file_without_networks_is_warned_about_and_allows_only_its_own_entries() {
    let inventory = BmcInventory::parse(&format!("{LOGIN}bmcs: {{10.0.0.1: {{url: 'https://10.1.0.1'}}}}")).unwrap();
    assert!(inventory.warnings()[0].contains("no `networks`"), "{:?}", inventory.warnings());
    assert_eq!(inventory.confined().unwrap().into_iter().collect::<Vec<_>>(), ["10.0.0.1"]);
    let inventory = BmcInventory::parse("networks: [0.0.0.0/0]\ndefaults: {username: root}\n").unwrap();
    assert!(inventory.confined().is_none() && inventory.warnings()[0].contains("allows every address"));
    for text in ["networks: [bmc.example]", "networks: [{cidr: 10.0.0.0/8, https: true}]", "networks: 10.0.0.0/8"] {
        assert!(BmcInventory::parse(text).is_err(), "{text}");
    }
}

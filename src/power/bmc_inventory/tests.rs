use std::os::unix::fs::PermissionsExt;

use super::*;

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

    fn find(&self, mode: u32, text: &str) -> Result<Option<Found>, BookError> {
        BmcInventory::read(&self.file("bmcs.yaml", mode, text))?.find("10.0.0.1", &BmcClients::network(None))
    }
}

#[test]
fn an_entry_takes_what_it_does_not_say_from_the_defaults() {
    let desk = Directory::new();
    desk.file("pw", 0o600, "hunter2\n");
    let text = "defaults: {username: root, password-file: pw, soft-seconds: 300}\n\
                bmcs:\n  10.0.0.1: {url: 'redfish://bmc-1', system: '1', on-seconds: 9}\n";
    let found = desk.find(0o644, text).unwrap().unwrap();
    assert_eq!(found.bmc.origin(), "https://bmc-1");
    assert_eq!((found.patience.soft.as_secs(), found.patience.on.as_secs()), (300, 9));
    assert!(found.warning.is_none());
    let book = BmcInventory::read(&desk.0.path().join("bmcs.yaml")).unwrap();
    assert!(book.find("10.0.0.2", &BmcClients::network(None)).unwrap().is_none());
    assert!(!format!("{book:?} {found:?}").contains("hunter2"));
}

#[test]
fn a_secret_that_everyone_can_read_is_refused() {
    let desk = Directory::new();
    let inline = "bmcs: {10.0.0.1: {url: bmc, username: root, password: hunter2}}";
    let e = desk.find(0o644, inline).unwrap_err().to_string();
    assert!(e.contains("everyone can read it; chmod 600") && !e.contains("hunter2"), "{e}");
    assert!(desk.find(0o600, inline).unwrap().is_some());
    desk.file("pw", 0o604, "hunter2");
    let e =
        desk.find(0o644, "bmcs: {10.0.0.1: {url: bmc, username: root, password-file: pw}}").unwrap_err().to_string();
    assert!(e.contains("pw can be read by everyone"), "{e}");
}

#[test]
fn what_is_wrong_is_named_and_no_password_is_shown() {
    let desk = Directory::new();
    for (text, said) in [
        ("bmcs: {10.0.0.1: {username: root}}", "10.0.0.1: url is missing"),
        ("bmcs: {10.0.0.1: {url: 'ipmi://bmc'}}", "only Redfish is supported"),
        ("bmcs: {10.0.0.1: {url: bmc, username: root}}", "a username without a password"),
        ("bmcs: {10.0.0.1: {url: bmc, pasword: hunter2}}", "unknown field `pasword`"),
        ("bmcs: {10.0.0.1: hunter2}", "error at line 1"),
        ("bmcs: {10.0.0.1: {url: bmc, insecure: true, ca-file: x}}", "give only one"),
        ("bmcs: {10.0.0.1: {url: bmc, ca-file: nope}}", "nope"),
        ("bmcs: {10.0.0.1: {url: 'https://root:hunter2@bmc'}}", "must not contain a user name"),
    ] {
        let e = desk.find(0o600, text).unwrap_err().to_string();
        assert!(e.contains(said) && e.contains("bmcs.yaml") && !e.contains("hunter2"), "{text}: {e}");
    }
}

#[test]
fn a_password_over_plain_http_is_said() {
    let desk = Directory::new();
    let text = "bmcs: {10.0.0.1: {url: 'http://10.1.0.1', username: u, password: p}}";
    assert!(desk.find(0o600, text).unwrap().unwrap().warning.unwrap().contains("plain HTTP"));
    let text = "bmcs: {10.0.0.1: {url: 'https://10.1.0.1', insecure: true, username: u, password: p}}";
    assert!(desk.find(0o600, text).unwrap().unwrap().warning.unwrap().contains("not verified"));
}

const LOGIN: &str = "defaults: {username: root, password: hunter2}\n";

/// Judges an address that a BareMetalHost names. Returns the warning, or the refusal.
fn other(file: &str, url: &str, any_certificate: bool) -> Result<Option<String>, BookError> {
    let book = BmcInventory::parse(&format!("{file}{LOGIN}")).unwrap();
    Ok(book.other("default/w1", url, None, any_certificate, &BmcClients::network(None))?.warning)
}

#[test]
fn i50_an_address_that_others_name_gets_a_login_only_in_an_allowed_network() {
    const LIST: &str = "networks: [10.1.0.0/16, {cidr: 10.2.0.0/16, http: true, insecure: true}, 'fd00:1::/64']\n";
    let foreign = "outside the networks";
    let plain = "uses plain HTTP";
    for (file, url, refused) in [
        (LIST, "https://10.1.2.3", None),
        (LIST, "redfish://10.1.2.3/redfish/v1/Systems/1", None),
        (LIST, "https://[fd00:1::5]:8443", None),
        (LIST, "https://[::ffff:10.1.2.3]", None),
        (LIST, "http://10.2.0.9", None),
        (LIST, "https://203.0.113.7", Some(foreign)),
        (LIST, "redfish-virtualmedia+https://203.0.113.7/redfish/v1/Systems/1", Some(foreign)),
        (LIST, "https://[fd00:2::5]", Some(foreign)),
        (LIST, "https://[::ffff:203.0.113.7]", Some(foreign)),
        (LIST, "https://10.1.2.3.:443", Some("unusual")),
        (LIST, "https://169.254.169.254", Some(foreign)),
        (LIST, "http://203.0.113.7", Some(foreign)),
        (LIST, "http://10.1.2.3", Some(plain)),
        (LIST, "redfish+http://10.1.2.3/redfish/v1/Systems/1", Some(plain)),
        // forms that the HTTP client takes for an address
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
            (Some(said), Err(why)) => assert!(why.contains(said) && !why.contains("hunter2"), "{url}: {why}"),
            (_, answer) => panic!("{url}: {answer:?}"),
        }
    }
    // a host's request to skip verification counts only where the file allows it
    assert_eq!(other(LIST, "https://10.1.2.3", true).unwrap(), None, "verified all the same");
    assert!(other(LIST, "https://10.2.0.9", true).unwrap().unwrap().contains("not verified"));
    assert_eq!(other(LIST, "https://bmc.example", true).unwrap(), None, "a name's certificate is verified");
}

#[test]
fn i50_the_operators_own_entries_stay_inside_the_list_too() {
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
        let book = BmcInventory::parse(&format!("{text}\n{LOGIN}")).unwrap();
        let found = book.find("10.0.0.1", &BmcClients::network(None));
        let warned = book.warnings();
        match (refused, found) {
            (None, Ok(Some(_))) => assert!(book.refused().is_empty(), "{text}"),
            (Some(said), Err(why)) => {
                assert_eq!(book.refused().get("10.0.0.1"), Some(&why.to_string()), "the engine starts nothing");
                assert!(why.to_string().contains(said), "{text}: {why}");
                assert!(warned.iter().any(|w| w.contains(said)), "`config check` says it: {warned:?}");
            }
            (_, found) => panic!("{text}: {found:?}"),
        }
    }
}

/// An entry that disables verification, and the same by the defaults.
#[test]
fn i50_a_name_whose_certificate_nobody_verifies_is_refused_without_a_list_whoever_says_so() {
    for insecure in [
        "defaults: {insecure: true}\nbmcs: {10.0.0.1: {url: 'redfish://bmc.example'}}",
        "bmcs: {10.0.0.1: {url: 'redfish://bmc.example', insecure: true}}",
    ] {
        let book = BmcInventory::parse(insecure).unwrap();
        let why = book.find("10.0.0.1", &BmcClients::network(None)).unwrap_err().to_string();
        assert!(why.contains("needs `networks`"), "{why}");
        assert_eq!(book.refused().get("10.0.0.1"), Some(&why));
        assert!(book.warnings().contains(&why), "{:?}", book.warnings());
    }
    let own = "defaults: {insecure: true}\nbmcs: {10.0.0.1: {url: 'redfish://bmc.example', insecure: false}}";
    assert!(BmcInventory::parse(own).unwrap().refused().is_empty(), "its own word wins over the defaults");
}

#[test]
fn a_file_without_a_list_is_warned_of_and_confines_the_engine_to_its_own_entries() {
    let book = BmcInventory::parse(&format!("{LOGIN}bmcs: {{10.0.0.1: {{url: 'https://10.1.0.1'}}}}")).unwrap();
    assert!(book.warnings()[0].contains("no `networks`"), "{:?}", book.warnings());
    assert_eq!(book.confined().unwrap().into_iter().collect::<Vec<_>>(), ["10.0.0.1"]);
    let book = BmcInventory::parse("networks: [0.0.0.0/0]\ndefaults: {username: root}\n").unwrap();
    assert!(book.confined().is_none() && book.warnings()[0].contains("allows every address"));
    for text in ["networks: [bmc.example]", "networks: [{cidr: 10.0.0.0/8, https: true}]", "networks: 10.0.0.0/8"] {
        assert!(BmcInventory::parse(text).is_err(), "{text}");
    }
}

use super::*;

fn host() -> HostRow {
    HostRow {
        name: "h".to_owned(),
        online: true,
        powered_on: Some(true),
        provisioning: "provisioned".to_owned(),
        ..HostRow::default()
    }
}

fn with(mut host: HostRow, annotations: &[(&str, &str)]) -> HostRow {
    let all: BTreeMap<String, String> = annotations.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
    host.asked = RebootAnnotations::from_annotations(&all);
    host
}

#[test]
fn only_annotations_of_the_reboot_interface_are_read() {
    let all = with(
        host(),
        &[
            ("reboot.metal3.io", ""),
            ("reboot.metal3.io/a", "uid"),
            ("reboot.metal3.io.example", "x"),
            ("reboot.metal3.iox/b", "x"),
            ("metal3.io/BareMetalHost", "x"),
        ],
    );
    assert_eq!(all.asked.base.as_deref(), Some(""));
    assert_eq!(all.asked.keys, BTreeMap::from([("a".to_owned(), "uid".to_owned())]));
}

#[test]
fn the_default_mode_is_soft_and_hard_takes_priority() {
    for (value, mode) in [
        ("", Mode::Soft),
        ("uid-of-a-machine", Mode::Soft),
        ("{'mode':'hard'}", Mode::Soft), // single quotes are not JSON
        (r#"{"mode":"soft"}"#, Mode::Soft),
        (r#"{"mode":"HARD"}"#, Mode::Soft),
        (r#"["hard"]"#, Mode::Soft),
        (r#"{"mode":"hard","by":"x"}"#, Mode::Hard),
    ] {
        assert_eq!(Mode::of(value), mode, "{value}");
    }
    let two = with(host(), &[("reboot.metal3.io/a", ""), ("reboot.metal3.io/b", r#"{"mode":"hard"}"#)]);
    assert_eq!(two.asked.mode(), Mode::Hard);
    assert_eq!(RebootAnnotations::default().mode(), Mode::Soft);
}

#[test]
fn a_host_that_cannot_be_rebooted_names_its_hindrance() {
    assert_eq!(host().hindrance(), None);
    assert_eq!(HostRow { provisioning: "externally provisioned".to_owned(), ..host() }.hindrance(), None);
    for (host, hindrance) in [
        (HostRow { deleting: true, ..host() }, Hindrance::Deleting),
        (HostRow { paused: true, ..host() }, Hindrance::Paused),
        (HostRow { detached: true, ..host() }, Hindrance::Detached),
        (HostRow { provisioning: "available".to_owned(), ..host() }, Hindrance::NotProvisioned("available".to_owned())),
        (HostRow { online: false, ..host() }, Hindrance::Offline),
        (HostRow { disable_power_off: true, ..host() }, Hindrance::PowerOffDisabled),
        (
            HostRow { error_type: "power management error".to_owned(), error: "no BMC".to_owned(), ..host() },
            Hindrance::Error("no BMC".to_owned()),
        ),
    ] {
        assert_eq!(host.hindrance(), Some(hindrance));
    }
}

#[test]
fn a_cycle_needs_a_host_that_nothing_keeps_off() {
    let held = |keys: &[&str]| {
        let keys = keys.iter().map(|key| ((*key).to_owned(), String::new())).collect();
        HostRow { asked: RebootAnnotations { base: None, keys }, ..host() }
    };
    assert_eq!(host().cycle_obstacle(), None);
    assert_eq!(held(&[POWER_KEY, "capbm"]).cycle_obstacle(), None, "an earlier cycle has yet to release the host");
    let name = host().full_name();
    for (keys, until) in [
        (&["cketerm"][..], format!("`cketerm hosts release {name}`")),
        (&["cketerm-foo"], format!("`cketerm hosts release {name} --as foo`")),
        (
            &["capbm", "cketerm-a"],
            format!(
                "the owner of capbm removes the annotation reboot.metal3.io/capbm and `cketerm hosts release {name} \
                 --as a`"
            ),
        ),
    ] {
        let text = format!("BareMetalHost {name} is held off by {}: it stays off until {until}", keys.join(", "));
        assert_eq!(held(keys).cycle_obstacle(), Some(text));
    }
    let paused = HostRow { paused: true, ..host() }.cycle_obstacle().unwrap();
    assert!(paused.starts_with(&format!("BareMetalHost {name}: the host is paused")), "{paused}");
}

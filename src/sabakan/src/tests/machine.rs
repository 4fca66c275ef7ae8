use serde_json::{Value, json};

use super::*;

fn raw(serial: &str, address: &str) -> Value {
    json!({
        "spec": {"serial": serial, "labels": null, "rack": 3, "indexInRack": 4, "role": "cs", "ipv4": [address, "10.9.9.9"],
            "registerDate": "2026-11-21T02:48:51.939561894Z", "retireDate": "2025-12-31T00:00:00+09:00",
            "bmc": {"bmcType": "iDRAC-9", "ipv4": "10.16.1.4"}},
        "status": {"state": "UNREACHABLE", "timestamp": "2026-11-21T02:48:52.077348251Z", "duration": 1.319_282_369},
    })
}

fn changed(pointer: &str, value: Value) -> Value {
    let mut machine = raw("c2", "10.64.0.196");
    *machine.pointer_mut(pointer).unwrap() = value;
    machine
}

fn why(list: &Value) -> String {
    read(&list.to_string()).unwrap_err().to_string()
}

#[test]
fn every_form_of_a_sabakan_answer_is_parsed() {
    let list = json!([raw("c2", "10.64.0.196")]);
    let machines = read(&list.to_string()).unwrap();
    let m = &machines.list[0];
    assert_eq!((m.serial.as_str(), m.address.as_str(), m.rack, m.index_in_rack), ("c2", "10.64.0.196", 3, 4));
    assert_eq!((m.labels.len(), m.state, m.bmc_type.as_str()), (0, State::Unreachable, "iDRAC-9"));
    assert!((m.duration.get() - 1.319_282_369).abs() < 1e-9);
    assert_eq!(m.since.unwrap().to_string(), "2026-11-21T02:48:52.077348251Z");
    for form in [
        json!({"data": {"searchMachines": list}}),
        json!({"searchMachines": list}),
        json!({"data": {"searchMachines": list}, "errors": []}),
    ] {
        assert_eq!(read(&form.to_string()).unwrap(), machines);
    }
}

#[test]
fn dates_keep_their_zone_and_drop_fractions_like_go() {
    for (text, written, month) in [
        ("2026-11-21T02:48:51.939561894Z", "2026-11-21T02:48:51Z", "2026-11"),
        ("2025-12-31T00:00:00+09:00", "2025-12-31T00:00:00+09:00", "2025-12"),
        ("2026-01-01T00:30:00.5-03:30", "2026-01-01T00:30:00-03:30", "2026-01"),
        ("2026-01-01T00:00:00+00:00", "2026-01-01T00:00:00Z", "2026-01"),
        ("0001-01-01T00:00:00Z", "0001-01-01T00:00:00Z", "0001-01"),
    ] {
        let date = Date::parse(text).unwrap();
        assert_eq!((date.to_string(), date.month()), (written.to_owned(), month.to_owned()), "{text}");
    }
}

#[test]
fn a_machine_without_ipv4_is_ignored_with_a_warning() {
    for none in [json!([]), json!(null), json!([""])] {
        let machines = read(&json!([changed("/spec/ipv4", none), raw("c3", "10.0.0.3")]).to_string()).unwrap();
        assert_eq!(machines.list.len(), 1);
        assert_eq!(machines.warnings, ["machine c2 has no IPv4 address and is ignored"]);
    }
}

#[test]
fn two_machines_with_the_same_address_are_an_error_that_names_both() {
    let text = why(&json!([raw("c2", "10.0.0.1"), raw("c3", "10.0.0.1")]));
    assert!(text.contains("c2 and c3 both have the address 10.0.0.1"), "{text}");
}

#[test]
fn an_unparsable_machine_is_an_error_with_its_serial_and_field() {
    for (pointer, value, word) in [
        ("/spec/retireDate", json!("06/05/2030"), "retireDate: \"06/05/2030\""),
        ("/spec/retireDate", json!(null), "retireDate is missing"),
        ("/spec/registerDate", json!("2026-13-01T00:00:00Z"), "registerDate"),
        ("/status/timestamp", json!("soon"), "status.timestamp"),
        ("/status/state", json!("BROKEN"), "state: \"BROKEN\" is not known; known: UNINITIALIZED, HEALTHY"),
        ("/spec/ipv4", json!(["10.0.0"]), "ipv4: \"10.0.0\""),
        ("/spec/rack", json!("three"), "expected i64"),
    ] {
        let text = why(&json!([changed(pointer, value)]));
        assert!(text.starts_with("machine c2: ") && text.contains(word), "{text}");
    }
}

#[test]
fn errors_of_sabakan_are_reported_and_never_read_as_an_empty_list() {
    let text = why(&json!({"errors": [{"message": "boom"}], "data": {"searchMachines": [raw("c2", "10.0.0.1")]}}));
    assert!(text.contains("boom"), "{text}");
    for odd in
        [json!({"data": null}), json!({}), json!({"data": {}}), json!(3), json!({"error": "not found", "status": 404})]
    {
        assert!(read(&odd.to_string()).is_err(), "{odd}");
    }
    assert!(read("not json").is_err());
}

/// SAB-26: whole days, truncated toward zero. A threshold must be exceeded.
#[test]
fn lifetimes_are_whole_days_rounded_toward_zero() {
    let now: Timestamp = "2026-06-01T00:00:00Z".parse().unwrap();
    let mut m = read(&json!([raw("c2", "10.0.0.1")]).to_string()).unwrap().list.remove(0);
    for (days, steps) in [
        (0.0, 0),
        (250.0, 0),
        (250.9, 0),
        (251.0, 1),
        (500.5, 1),
        (501.0, 2),
        (1000.0, 2),
        (1001.0, 3),
        (-250.9, 0),
        (-251.0, -1),
        (-501.0, -2),
        (-1000.0, -2),
        (-1001.0, -3),
    ] {
        let by = jiff::SignedDuration::from_secs_f64(days * 86_400.0);
        m.retire_date = Date::utc(now.checked_add(by).unwrap());
        assert_eq!(m.lifetime_steps(now), steps, "{days}");
    }
}

//! Tests of the end of the controller role.

use cketerm_model::host::RebootAnnotations;

use super::{super::tests as fixture, *};

fn held(host: HostRow) -> HostRow {
    let keys = BTreeMap::from([("reboot.metal3.io/site".to_owned(), String::new())]);
    HostRow { asked: RebootAnnotations { base: None, keys }, ..host }
}

#[test]
fn a_machine_that_must_still_be_turned_off_or_on_delays_a_resignation() {
    let on = fixture::requested(1);
    let off = HostRow { powered_on: Some(false), ..on.clone() };
    let moving = [
        ("to be turned off and on", on.clone()),
        ("to be turned off, and to stay off", HostRow { online: false, ..on.clone() }),
        ("on, and to be held off", held(on)),
        ("to be turned on", off.clone()),
        ("the last known power-on failed", HostRow { error_type: "power management error".to_owned(), ..off.clone() }),
    ];
    for (what, host) in moving {
        assert_eq!(InterruptedPowerCycle::of(&host), Some(InterruptedPowerCycle::Moving), "{what}");
    }
    assert_eq!(InterruptedPowerCycle::of(&HostRow { online: false, ..off }), None, "it is off, as it must be");
}

#[test]
fn a_machine_that_no_engine_may_turn_on_delays_no_resignation() {
    let off = HostRow { powered_on: Some(false), ..fixture::requested(1) };
    for (host, why) in [
        (held(off.clone()), "held off by reboot.metal3.io/site"),
        (HostRow { paused: true, ..off.clone() }, "paused"),
        (HostRow { detached: true, ..off.clone() }, "detached"),
        (HostRow { disable_power_off: true, ..off }, "disablePowerOff"),
    ] {
        let state = InterruptedPowerCycle::of(&host);
        assert!(matches!(&state, Some(InterruptedPowerCycle::Stays(text)) if text.contains(why)), "{state:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn hosts_are_informed_once_when_the_role_ends_and_once_when_it_is_back() {
    let (shared, views) = fixture::shared(true).await;
    let mut signal = shared.shutdown_signal.subscribe();
    for (enabled, informs) in [(true, false), (false, true), (false, false), (true, true)] {
        views.send_replace(fixture::view(enabled));
        assert_eq!(shared.signal_shutdown(), !enabled);
        assert_eq!((signal.has_changed().unwrap(), *signal.borrow_and_update()), (informs, !enabled));
    }
}

#[tokio::test(start_paused = true)]
async fn only_the_request_that_waits_is_known_to_have_had_no_power_off() {
    let (shared, _views) = fixture::shared(false).await;
    assert!(!shared.never_began(&fixture::requested(5)));
    shared.note_waiting(&fixture::requested(5));
    assert!(shared.never_began(&fixture::requested(5)));
    assert!(!shared.never_began(&fixture::requested(6)), "a later request");
    assert!(!shared.never_began(&HostRow { name: "w2".to_owned(), ..fixture::requested(5) }), "another host");
}

//! Every rule of the proposal, and a simulated machine that the steps act on, with crashes between any two.

use std::collections::BTreeMap;

use cketerm_model::host::RebootAnnotations;

use super::*;

const LIMITS: Limits =
    Limits { soft: Duration::from_mins(1), hard: Duration::from_secs(30), on: Duration::from_secs(30) };
const HARD: &str = r#"{"mode":"hard"}"#;

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(1_000_000 + second).unwrap()
}

/// A provisioned host that is on, with these annotations: `""` is the basic one.
fn host(asked: &[(&str, &str)]) -> HostRow {
    let mut all = RebootAnnotations::default();
    for (key, value) in asked {
        if key.is_empty() {
            all.base = Some((*value).to_owned());
        } else {
            all.keys.insert((*key).to_owned(), (*value).to_owned());
        }
    }
    HostRow {
        online: true,
        powered_on: Some(true),
        provisioning: "provisioned".to_owned(),
        last_powered_on: Some(at(-100)),
        asked: all,
        ..HostRow::default()
    }
}

fn pending(asked: &[(&str, &str)]) -> HostRow {
    HostRow { pending_reboot_since: Some(at(0)), ..host(asked) }
}

fn seen_off(asked: &[(&str, &str)]) -> HostRow {
    HostRow { powered_on: Some(false), ..pending(asked) }
}

fn step(host: &HostRow, power: &PowerState) -> Step {
    decide(host, power, &Sent::default(), &LIMITS, at(5))
}

#[test]
fn each_rule_of_the_reboot_proposal_is_implemented() {
    let (on, off) = (PowerState::On, PowerState::Off);
    let held = |keys: &[&str]| Step::Wait(Why::Held(keys.iter().map(|k| (*k).to_owned()).collect()));
    for (sentence, host, power, expected) in [
        (
            "the basic form triggers the controller to power cycle the Host",
            host(&[("", "")]),
            &on,
            Step::Pending(at(5)),
        ),
        ("… or any key", host(&[("k", "uid")]), &on, Step::Pending(at(5))),
        (
            "pendingRebootSince is empty",
            HostRow { last_powered_on: None, ..host(&[("", "")]) },
            &on,
            Step::Pending(at(5)),
        ),
        (
            "… or earlier than lastPoweredOn",
            HostRow { pending_reboot_since: Some(at(-200)), ..host(&[("", "")]) },
            &on,
            Step::Pending(at(5)),
        ),
        ("pendingRebootSince later than lastPoweredOn: power off", pending(&[("", "")]), &on, Step::Off(Mode::Soft)),
        ("… regardless of Spec.Online", HostRow { online: false, ..pending(&[("", "")]) }, &on, Step::Off(Mode::Soft)),
        ("… also when the client withdrew its request", pending(&[]), &on, Step::Off(Mode::Soft)),
        ("hard: immediate reboot via hard shutdown", pending(&[("", HARD)]), &on, Step::Off(Mode::Hard)),
        ("hard takes priority over soft", pending(&[("", ""), ("a", ""), ("b", HARD)]), &on, Step::Off(Mode::Hard)),
        ("the default mode is soft", pending(&[("", "{'mode':'hard'}")]), &on, Step::Off(Mode::Soft)),
        ("once the Host is powered off (the fact is written first)", pending(&[("", "")]), &off, Step::SeenOff),
        ("remove the suffixless annotation", seen_off(&[("", "")]), &off, Step::RemoveBase),
        (
            "… if Spec.Online is true",
            HostRow { online: false, ..seen_off(&[("", "")]) },
            &off,
            Step::Wait(Why::StaysOff),
        ),
        ("… also while keys remain", seen_off(&[("", ""), ("k", "")]), &off, Step::RemoveBase),
        (
            "wait for all keys to be removed before powering on",
            seen_off(&[("a", ""), ("b", "")]),
            &off,
            held(&["a", "b"]),
        ),
        ("no annotations: the existing logic powers it on", seen_off(&[]), &off, Step::On),
        ("… and updates lastPoweredOn", seen_off(&[]), &on, Step::SeenOn(Some(at(5)))),
        (
            "deprovisioned",
            HostRow { provisioning: "deprovisioning".to_owned(), ..host(&[("k", "")]) },
            &on,
            Step::RemoveAll,
        ),
        (
            "deprovisioned",
            HostRow { provisioning: "available".to_owned(), ..seen_off(&[("", "")]) },
            &off,
            Step::RemoveAll,
        ),
        ("no request", host(&[]), &on, Step::Wait(Why::Idle)),
        (
            "the Online flag is managed in the same place",
            HostRow { online: false, ..host(&[]) },
            &on,
            Step::Off(Mode::Soft),
        ),
        ("… and on again", HostRow { powered_on: Some(false), ..host(&[]) }, &off, Step::On),
        (
            "the BMC's power state is unknown",
            pending(&[("", HARD)]),
            &PowerState::Unknown,
            Step::Wait(Why::UnknownPower),
        ),
        ("the request is still recorded", host(&[("", "")]), &PowerState::Unknown, Step::Pending(at(5))),
        (
            "the power button is pressed while a key remains: the state is recorded first",
            seen_off(&[("k", HARD)]),
            &on,
            Step::SeenOn(Some(at(5))),
        ),
        ("never written", HostRow { powered_on: None, ..host(&[]) }, &on, Step::SeenOn(None)),
    ] {
        assert_eq!(step(&host, power), expected, "{sentence}");
    }
}

#[test]
fn only_provisioned_unpaused_hosts_are_acted_on() {
    let asked = || pending(&[("", HARD)]);
    for host in [
        HostRow { paused: true, ..asked() },
        HostRow { detached: true, ..asked() },
        HostRow { deleting: true, ..asked() },
        HostRow { disable_power_off: true, ..asked() },
        HostRow { provisioning: "inspecting".to_owned(), ..asked() },
        HostRow { provisioning: String::new(), ..asked() },
        HostRow { provisioning: String::new(), externally_provisioned: true, paused: true, ..asked() },
    ] {
        let step = step(&host, &PowerState::On);
        assert!(matches!(step, Step::Wait(Why::Hindered(_))), "{host:?}: {step:?}");
    }
    let external = HostRow { provisioning: "externally provisioned".to_owned(), ..asked() };
    assert_eq!(step(&external, &PowerState::On), Step::Off(Mode::Hard));
    let unregistered = HostRow { provisioning: String::new(), externally_provisioned: true, ..asked() };
    assert_eq!(step(&unregistered, &PowerState::On), Step::Register);
    // A past error does not prevent a further try.
    let error = HostRow { error_type: "power management error".to_owned(), ..asked() };
    assert_eq!(step(&error, &PowerState::On), Step::Off(Mode::Hard));
}

#[test]
fn a_failed_soft_power_off_becomes_hard_and_no_request_repeats_before_its_timeout() {
    let seconds = |n| Some(Duration::from_secs(n));
    let soft = pending(&[("", "")]);
    let late = |sent: Sent, now| decide(&soft, &PowerState::On, &sent, &LIMITS, at(now));
    let asked = |what| Step::Wait(Why::Requested(what));
    for (what, sent, now, expected) in [
        ("soft, still pending", Sent { soft: seconds(59), ..Sent::default() }, 59, asked("a soft power-off")),
        ("soft, timed out", Sent { soft: seconds(60), ..Sent::default() }, 60, Step::Off(Mode::Hard)),
        ("hard, still pending", Sent { soft: seconds(70), hard: seconds(9), on: None }, 70, asked("a hard power-off")),
        ("hard, timed out", Sent { soft: seconds(99), hard: seconds(30), on: None }, 99, Step::Off(Mode::Hard)),
        ("taken over early", Sent::default(), 30, Step::Off(Mode::Soft)),
        ("taken over late", Sent::default(), 60, Step::Off(Mode::Hard)),
    ] {
        assert_eq!(late(sent, now), expected, "{what}");
    }
    // A hard key that arrives while a soft request is pending takes effect at once.
    let hard = pending(&[("", ""), ("k", HARD)]);
    let sent = Sent { soft: seconds(1), ..Sent::default() };
    assert_eq!(decide(&hard, &PowerState::On, &sent, &LIMITS, at(5)), Step::Off(Mode::Hard));
    let on =
        |ago| decide(&seen_off(&[]), &PowerState::Off, &Sent { on: seconds(ago), ..Sent::default() }, &LIMITS, at(5));
    assert_eq!((on(29), on(30)), (asked("On"), Step::On));
}

#[test]
fn times_are_whole_seconds_and_later_than_a_recorded_time_in_the_future() {
    let same = HostRow { last_powered_on: Some(at(5)), ..host(&[("", "")]) };
    assert_eq!(
        step(&same, &PowerState::On),
        Step::Pending(at(6)),
        "a request of the same second still counts as later"
    );
    let ahead = HostRow { last_powered_on: Some(at(400)), ..host(&[("", "")]) };
    assert_eq!(step(&ahead, &PowerState::On), Step::Pending(at(401)));
    let ahead = HostRow { pending_reboot_since: Some(at(400)), ..seen_off(&[]) };
    assert_eq!(step(&ahead, &PowerState::On), Step::SeenOn(Some(at(401))), "lastPoweredOn is at least a second later");
    let future = HostRow { pending_reboot_since: Some(at(400)), ..pending(&[("", "")]) };
    assert_eq!(
        step(&future, &PowerState::On),
        Step::Off(Mode::Soft),
        "a request from the future is not escalated to hard"
    );
    // A client's time is never read.
    let client = host(&[("k", r#"{"since":"1999-01-01T00:00:00Z"}"#)]);
    assert_eq!(step(&client, &PowerState::On), Step::Pending(at(5)));
}

#[test]
fn a_foreign_power_write_blocks_the_controller_for_ten_minutes() {
    let by = |manager: &str, second| HostRow { power_writers: vec![(manager.to_owned(), at(second))], ..host(&[]) };
    assert!(foreign_writer(&by("baremetal-operator", 0), at(599)).unwrap().contains("baremetal-operator wrote"));
    assert_eq!(foreign_writer(&by("baremetal-operator", 0), at(600)), None);
    assert_eq!(foreign_writer(&by(MANAGER, 0), at(1)), None);
    assert_eq!(foreign_writer(&host(&[]), at(1)), None);
}

/// A host and its simulated machine. The steps act on both.
struct Simulation {
    host: HostRow,
    on: bool,
    sent: BTreeMap<&'static str, i64>,
    now: i64,
    /// Whether the operating system ignores a shutdown request.
    ignores_soft: bool,
    boots: usize,
    power_offs: usize,
}

impl Simulation {
    fn new(host: HostRow) -> Self {
        Self { host, on: true, sent: BTreeMap::new(), now: 0, ignores_soft: false, boots: 0, power_offs: 0 }
    }

    /// Decides and carries out one step. Returns the step.
    fn tick(&mut self) -> Step {
        self.now += 1;
        let ago = |what| self.sent.get(what).map(|at| Duration::from_secs((self.now - at).unsigned_abs()));
        let sent = Sent { soft: ago("soft"), hard: ago("hard"), on: ago("on") };
        let power = if self.on { PowerState::On } else { PowerState::Off };
        let step = decide(&self.host, &power, &sent, &LIMITS, at(self.now));
        match &step {
            Step::Pending(time) => {
                self.host.pending_reboot_since = Some(*time);
                self.sent.clear();
            }
            Step::SeenOff => {
                self.host.powered_on = Some(false);
                self.sent.clear();
            }
            Step::SeenOn(time) => {
                self.host.powered_on = Some(true);
                self.host.last_powered_on = time.or(self.host.last_powered_on);
                self.sent.clear();
            }
            Step::Off(mode) => {
                self.sent.insert(mode.as_str(), self.now);
                if *mode == Mode::Hard || !self.ignores_soft {
                    self.power_offs += usize::from(self.on);
                    self.on = false;
                }
            }
            Step::On => {
                assert!(self.host.asked.keys.is_empty(), "I44: never powered on while a key remains");
                self.sent.insert("on", self.now);
                self.boots += usize::from(!self.on);
                self.on = true;
            }
            Step::Register => self.host.provisioning = "externally provisioned".to_owned(),
            Step::RemoveBase => self.host.asked.base = None,
            Step::RemoveAll => self.host.asked = RebootAnnotations::default(),
            Step::Wait(_) => {}
        }
        step
    }

    fn run_to_end(&mut self) {
        for _ in 0..300 {
            self.tick();
        }
    }
}

#[test]
fn a_crash_after_any_step_neither_loses_nor_repeats_a_power_cycle() {
    for ignores_soft in [false, true] {
        for crash in 0..12 {
            let mut simulation = Simulation::new(host(&[("", "")]));
            simulation.ignores_soft = ignores_soft;
            for n in 0..300 {
                if n == crash {
                    simulation.sent.clear();
                }
                simulation.tick();
            }
            assert_eq!(
                (simulation.power_offs, simulation.boots),
                (1, 1),
                "ignores soft power-off: {ignores_soft}, crash after step {crash}"
            );
            assert!(
                simulation.on
                    && simulation.host.asked.is_empty()
                    && simulation.host.last_powered_on > simulation.host.pending_reboot_since
            );
        }
    }
}

#[test]
fn i44_a_host_held_by_two_clients_is_powered_on_after_both_release_it() {
    let mut simulation = Simulation::new(host(&[("a", ""), ("b", HARD), ("", "")]));
    simulation.run_to_end();
    assert_eq!((simulation.on, simulation.power_offs, simulation.boots), (false, 1, 0));
    assert_eq!(simulation.host.asked.keys.len(), 2, "keys are removed by their originators only");
    assert!(simulation.host.asked.base.is_none());
    simulation.host.asked.keys.remove("a");
    simulation.run_to_end();
    assert!(!simulation.on);
    // An operator presses the power button in between.
    simulation.on = true;
    simulation.run_to_end();
    assert!(!simulation.on);
    simulation.host.asked.keys.remove("b");
    simulation.run_to_end();
    assert_eq!((simulation.on, simulation.boots), (true, 1));
    assert!(simulation.host.last_powered_on > simulation.host.pending_reboot_since);
}

#[test]
fn a_withdrawn_request_still_cycles_and_one_during_boot_is_kept() {
    let mut simulation = Simulation::new(host(&[("k", "")]));
    simulation.tick();
    simulation.host.asked.keys.clear();
    simulation.run_to_end();
    assert_eq!((simulation.power_offs, simulation.boots, simulation.on), (1, 1, true));
    // The machine is on again, but that is not recorded yet. The processes of this boot must end too.
    let mut simulation = Simulation { on: true, ..Simulation::new(seen_off(&[("", "")])) };
    simulation.run_to_end();
    assert_eq!((simulation.power_offs, simulation.boots, simulation.on), (1, 1, true));
    assert!(simulation.host.asked.is_empty());
}

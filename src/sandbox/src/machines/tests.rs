//! Tests of the machines on a paused clock.

use std::time::Duration;

use cketerm_model::{attempt::Ended, boot_time::Seconds};
use tokio::time::{sleep, timeout};

use super::*;

fn clock() -> Clock {
    cketerm_runtime::tokio_clock::starting_at("2026-11-21T00:00:00Z".parse().unwrap())
}

fn machines(behaviour: &Behaviour) -> Machines {
    let one = |n: u32, control_plane| Machine {
        name: format!("m{n}"),
        address: format!("10.0.0.{n}"),
        control_plane,
        behaviour: behaviour.clone(),
        ..Machine::default()
    };
    Machines::new(vec![one(1, true), one(2, false)], Durations::demo(), clock(), 7)
}

fn argv(text: &str) -> Vec<String> {
    text.split(' ').map(str::to_owned).collect()
}

async fn run(machines: &Machines, text: &str) -> (Ended, String) {
    let env = [("CKETERM_ENTRY".to_owned(), "r/0".to_owned()), ("CKETERM_ATTEMPT".to_owned(), "a1".to_owned())];
    let (end, out, _) = machines.command(&argv(text), &env).await;
    (end, out.trim().to_owned())
}

fn power_events(machines: &Machines) -> Vec<PowerEvent> {
    machines.power_log().iter().map(|p| p.what).collect()
}

async fn seconds(n: u64) {
    sleep(Duration::from_secs(n)).await;
}

#[tokio::test(start_paused = true)]
async fn a_reboot_powers_the_machine_off_and_boots_it_with_a_new_boot_id() {
    let machines = machines(&Behaviour::default());
    let (before, now) = (machines.machine_status("10.0.0.1").unwrap(), machines.clock.wall().as_second());
    let check = format!("x check 10.0.0.1 {now}");
    assert_eq!(run(&machines, &check).await, (Ended::Exit(0), "false".to_owned()));
    assert_eq!(machines.readyz("10.0.0.1"), Some(200));
    assert_eq!(run(&machines, "x reboot 10.0.0.1").await.0, Ended::Exit(0));
    assert_eq!((machines.readyz("10.0.0.1"), machines.readyz("10.0.0.2")), (None, None));
    assert_eq!(run(&machines, &check).await.0, Ended::Exit(255));
    let mut log = machines.subscribe();
    log.wait_for(|n| *n == 4).await.unwrap();
    assert_eq!(machines.readyz("10.0.0.1"), Some(500));
    assert_eq!(run(&machines, &check).await, (Ended::Exit(0), "true".to_owned()));
    seconds(2).await;
    assert_eq!(machines.readyz("10.0.0.1"), Some(200));
    assert_eq!(
        power_events(&machines),
        [PowerEvent::Begin, PowerEvent::Down, PowerEvent::End(Some(0)), PowerEvent::Up]
    );
    let line = &machines.power_log()[0];
    assert_eq!((line.entry.as_str(), line.attempt.as_str(), line.argv.len()), ("r/0", "a1", 3));
    assert_ne!(machines.machine_status("10.0.0.1").unwrap().boot_id, before.boot_id);
}

#[tokio::test(start_paused = true)]
async fn a_reboot_continues_after_its_caller_is_dropped() {
    let machines = machines(&Behaviour::default());
    assert!(timeout(Duration::from_millis(10), run(&machines, "reboot 10.0.0.2")).await.is_err());
    seconds(30).await;
    assert_eq!(
        power_events(&machines),
        [PowerEvent::Begin, PowerEvent::Down, PowerEvent::End(Some(0)), PowerEvent::Up]
    );
}

#[tokio::test(start_paused = true)]
async fn a_hanging_command_is_killed_at_its_timeout_or_with_its_caller() {
    let machines = machines(&Behaviour { command: OnCommand::Hangs, ..Behaviour::default() });
    let bound = Some(Duration::from_secs(20));
    let (end, ..) = machines.command_within(&argv("reboot 10.0.0.2"), &[], bound, None).await;
    assert_eq!(end, Ended::TimedOut(20));
    assert!(timeout(Duration::from_secs(5), run(&machines, "reboot 10.0.0.2")).await.is_err());
    seconds(30).await;
    assert_eq!(
        power_events(&machines),
        [PowerEvent::Begin, PowerEvent::End(None), PowerEvent::Begin, PowerEvent::End(None)]
    );
}

#[tokio::test(start_paused = true)]
async fn power_commands_can_be_ignored_or_fail() {
    let machines = machines(&Behaviour { command: OnCommand::Ignores, ..Behaviour::default() });
    assert_eq!(run(&machines, "reboot 10.0.0.2").await.0, Ended::Exit(0));
    assert_eq!(machines.machine_status("10.0.0.2").unwrap().state, State::Up);
    machines.behave("10.0.0.2", Behaviour { fails: 2, exit_code: 7, ..Behaviour::default() });
    for end in [7, 7, 0] {
        assert_eq!(run(&machines, "reboot 10.0.0.2").await.0, Ended::Exit(end));
    }
    assert_eq!(machines.machine_status("10.0.0.2").unwrap().state, State::Booting);
}

#[tokio::test(start_paused = true)]
async fn a_boot_can_be_late_hang_or_keep_the_boot_id() {
    let machines =
        machines(&Behaviour { late_seconds: Seconds::new(100.0), boot: OnBoot::SameId, ..Behaviour::default() });
    let before = machines.machine_status("10.0.0.2").unwrap().boot_id;
    run(&machines, "reboot 10.0.0.2").await;
    seconds(100).await;
    assert_eq!(machines.machine_status("10.0.0.2").unwrap().state, State::Booting);
    seconds(20).await;
    let seen = machines.machine_status("10.0.0.2").unwrap();
    assert_eq!((seen.state, seen.boot_id), (State::Up, before));
    machines.behave("10.0.0.2", Behaviour { boot: OnBoot::Never, ..Behaviour::default() });
    run(&machines, "reboot 10.0.0.2").await;
    seconds(10_000).await;
    assert_eq!(machines.machine_status("10.0.0.2").unwrap().state, State::Booting);
    machines.behave("10.0.0.2", Behaviour::default());
    run(&machines, "off 10.0.0.2").await;
    assert_eq!(run(&machines, "status 10.0.0.2").await.1, "off");
    run(&machines, "on 10.0.0.2").await;
    seconds(20).await;
    assert_eq!(run(&machines, "status 10.0.0.2").await.1, "up");
}

#[tokio::test(start_paused = true)]
async fn checks_can_report_wrong_results_and_repairs_restore_health() {
    let machines = machines(&Behaviour { check: OnCheck::Yes, ..Behaviour::default() });
    run(&machines, "off 10.0.0.2").await;
    assert_eq!(run(&machines, "check 10.0.0.2 99999999999").await.1, "true");
    machines.behave("10.0.0.1", Behaviour { ill: 2, ..Behaviour::default() });
    for healthy in ["false", "false", "true"] {
        assert_eq!(run(&machines, "health 10.0.0.1").await.1, healthy);
        run(&machines, "repair 10.0.0.1").await;
    }
    let cure = Some("reinstall".to_owned());
    machines.behave("10.0.0.1", Behaviour { ill: 1, boot: OnBoot::Never, cure, ..Behaviour::default() });
    for (command, healthy) in [("repair", "false"), ("reinstall", "true")] {
        run(&machines, &format!("{command} 10.0.0.1")).await;
        seconds(60).await;
        assert_eq!(run(&machines, "health 10.0.0.1").await.1, healthy, "{command}");
    }
    machines.behave("10.0.0.1", Behaviour { says: Some("OK".to_owned()), ..Behaviour::default() });
    assert_eq!(run(&machines, "health 10.0.0.1").await.1, "OK");
    assert_eq!(run(&machines, "check 10.0.0.9 1").await.0, Ended::Exit(1));
    assert_eq!(run(&machines, "check").await.0, Ended::Exit(2));
}

#[tokio::test(start_paused = true)]
async fn the_same_seed_gives_the_same_boots() {
    let boots = || async {
        let machines = machines(&Behaviour::default());
        run(&machines, "reboot 10.0.0.2").await;
        seconds(30).await;
        let log: Vec<_> = machines.power_log().iter().map(|p| p.at).collect();
        (log, machines.machine_status("10.0.0.2").unwrap().boot_id)
    };
    assert_eq!(boots().await, boots().await);
}

#[tokio::test(start_paused = true)]
async fn an_added_machine_boots_and_uses_its_own_command_duration() {
    let machines = machines(&Behaviour::default());
    let mut log = machines.subscribe();
    let one = |name: &str, address: &str| Machine {
        name: name.to_owned(),
        address: address.to_owned(),
        behaviour: Behaviour { command_seconds: Some(Seconds::new(40.0)), ..Behaviour::default() },
        ..Machine::default()
    };
    assert!(!machines.rack(one("m1", "10.0.0.3")) && !machines.rack(one("m3", "10.0.0.1")));
    assert!(machines.rack(one("m3", "10.0.0.3")));
    assert!(log.has_changed().unwrap());
    log.mark_unchanged();
    assert_eq!(
        (power_events(&machines), machines.machine_status("10.0.0.3").unwrap().state),
        (vec![PowerEvent::Up], State::Up)
    );
    let began = Instant::now();
    assert_eq!(run(&machines, "reboot 10.0.0.3").await.0, Ended::Exit(0));
    assert_eq!(began.elapsed().as_secs(), 40);
    assert_eq!(machines.any_api_server(), Some(true));
    run(&machines, "off 10.0.0.1").await;
    assert_eq!(machines.any_api_server(), Some(false));
}

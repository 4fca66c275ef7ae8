//! Injects faults into the running site.

use std::{sync::Arc, time::Duration};

use cketerm_sandbox::{
    faults::{Odds, State},
    machines::{self, Behaviour},
    sabakan,
};
use cketerm_scenario::Stage;
use tokio::time::sleep;

use crate::{engines::Engines, plan::Fault, registry};

/// Injects one fault, for its whole duration.
pub fn inject(fault: Fault, engines: &Engines, stage: &Arc<Stage>, addresses: &[String]) {
    let (engines, stage, addresses) = (Arc::clone(engines), Arc::clone(stage), addresses.to_vec());
    let all = Arc::clone(&engines);
    let slot = move |i: usize| {
        let slots = engines.lock().unwrap();
        (slots[i].gate.clone(), slots[i].links.clone(), slots[i].clock.clone())
    };
    tokio::spawn(async move {
        let later = |seconds: u64| sleep(Duration::from_secs(seconds));
        match fault {
            Fault::Odds { engine, odds, crashes, seconds } => {
                let (_, links, _) = slot(engine);
                links.etcd.odds(odds, crashes);
                links.kubernetes.odds(odds, crashes);
                later(seconds).await;
                links.etcd.odds(Odds::default(), 0);
                links.kubernetes.odds(Odds::default(), 0);
            }
            Fault::Kill(engine) => slot(engine).0.kill(),
            Fault::Freeze { engine, seconds } => {
                let (gate, ..) = slot(engine);
                gate.freeze();
                later(seconds).await;
                gate.thaw();
            }
            Fault::Link { engine, etcd, state, seconds } => {
                let (_, links, _) = slot(engine);
                let link = if etcd { links.etcd } else { links.kubernetes };
                link.set_state(state);
                later(seconds).await;
                link.set_state(State::Open);
            }
            Fault::SlowApi { engine, seed, seconds } => {
                let (_, links, _) = slot(engine);
                links.kubernetes.slow(Some((Duration::from_secs(1), Duration::from_secs(8))), seed);
                later(seconds).await;
                links.kubernetes.slow(None, 0);
            }
            Fault::SilentWatch { engine, path, later: new_ones, seconds } => {
                let (_, links, _) = slot(engine);
                links.kubernetes.mute(Some(path), new_ones);
                later(seconds).await;
                links.kubernetes.mute(None, false);
            }
            Fault::CutWatches { etcd: true } => stage.sandbox.etcd.cut_watches(),
            Fault::CutWatches { etcd: false } => stage.sandbox.api.cut_watches(),
            Fault::StaleWatches { etcd, seconds } => {
                let stall =
                    |on| if etcd { stage.sandbox.etcd.stall_watches(on) } else { stage.sandbox.api.stall_watches(on) };
                stall(true);
                later(seconds).await;
                stall(false);
            }
            Fault::Compact => {
                let _ = stage.sandbox.etcd.compact(stage.sandbox.etcd.revision());
                stage.sandbox.objects.compact();
                stage.sandbox.etcd.cut_watches();
                stage.sandbox.api.cut_watches();
            }
            Fault::Expire => {
                if let Some(lease) = stage.sandbox.etcd.leases().first() {
                    stage.sandbox.etcd.expire_lease(*lease);
                }
            }
            Fault::Step { engine, by, seconds } => {
                let (_, _, clock) = slot(engine);
                clock.step(jiff::SignedDuration::from_secs(by));
                later(seconds).await;
                clock.step(jiff::SignedDuration::from_secs(-by));
            }
            Fault::Machine { machine, behaviour } => {
                stage.sandbox.machines.behave(&addresses[machine], behaviour);
            }
            Fault::Outage { machines: all, seconds } => {
                let machines = &stage.sandbox.machines;
                let off = |i: &usize| {
                    machines.machine_status(&addresses[*i]).is_some_and(|m| m.state == machines::State::Off)
                };
                for i in &all {
                    machines.request_reset(&addresses[*i], "ForceOff");
                }
                later(seconds.max(5)).await;
                // until an operator has turned all of them on
                while all.iter().any(off) {
                    all.iter().filter(|i| off(i)).for_each(|i| machines.request_reset(&addresses[*i], "On"));
                    later(10).await;
                }
            }
            Fault::Aimed { aim, request_fault } => {
                for slot in all.lock().unwrap().iter() {
                    let link = if aim.path.contains(".KV/") { &slot.links.etcd } else { &slot.links.kubernetes };
                    link.aim(aim, request_fault);
                }
            }
            Fault::Ill { machine, repairs } => {
                let (address, machines) = (&addresses[machine], &stage.sandbox.machines);
                machines.behave(address, Behaviour { ill: repairs, ..Behaviour::default() });
                registry::update_state(&stage.sandbox, address, sabakan::State::Unhealthy);
            }
            Fault::Restart { etcd, seconds } => {
                let set_state = |state| {
                    for slot in all.lock().unwrap().iter() {
                        let link = if etcd { &slot.links.etcd } else { &slot.links.kubernetes };
                        link.set_state(state);
                    }
                };
                if etcd {
                    stage.sandbox.etcd.cut_watches();
                } else {
                    stage.sandbox.api.cut_watches();
                }
                set_state(State::Cut);
                later(seconds).await;
                set_state(State::Open);
            }
            Fault::BrokenEntry { seconds } => {
                let key = "/cke/reboots/data/00000000000fffff";
                stage.sandbox.etcd.put(key, "{\"index\":\"1048575\",\"node\":");
                later(seconds).await;
                stage.sandbox.etcd.delete(key);
            }
        }
    });
}

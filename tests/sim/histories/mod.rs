//! Histories: what engines do in fixed scenarios without chance, request by request, compared with a kept text. A change
//! of any write, its conditions, its order or its reason shows as a difference to read.
//!
//! The observers judge rules, whatever an engine does otherwise. A history also pins what no rule demands: an audit record,
//! a condition of a write that only matters in a race, an Event, the number of reads.
//!
//! `HISTORIES=all make sim SEEDS=1` plays only these, `HISTORIES=NAME` one. `UPDATE_HISTORIES=1` writes the kept texts
//! again: look at the difference before you commit it.

mod commands;
mod faults;
mod features;
mod records;
mod scenarios;
mod text;

use std::{
    fmt::Debug,
    panic::{AssertUnwindSafe, catch_unwind},
    path::PathBuf,
    sync::{Arc, Mutex},
    time::Duration,
};

use cketerm_actions::Operator;
use cketerm_model::{clock::Clock, names::Address};
use cketerm_sandbox::{kubernetes::Resource, machines::Behaviour};
use cketerm_scenario::{Options, Scenario, Stage};
use fastrand::Rng;
use jiff::Timestamp;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep, sleep_until};

use crate::{
    engine_reports::sample,
    engines::{Engines, Slot},
    gather,
    observers::record::EngineReport,
    runtime,
    webhook_receiver::WebhookReceiver,
};

/// Variable that plays only histories: the name of one, or `all`.
pub const VARIABLE: &str = "HISTORIES";
/// Seed of everything that has to be drawn, such as the clocks of the engines' hosts.
const SEED: u64 = 5;
/// Number of lines of a difference that are printed.
const SHOWN: usize = 40;

/// One history.
pub struct History {
    name: &'static str,
    play: fn() -> String,
}

/// A scenario under way: two engines, and everything is recorded.
pub struct Play {
    began: Instant,
    clock: Clock,
    stage: Arc<Stage>,
    engines: Engines,
    receiver: WebhookReceiver,
    reports: Arc<Mutex<Vec<EngineReport>>>,
    answers: Mutex<Vec<(Timestamp, String)>>,
}

impl Play {
    /// Sets the stage.
    async fn set(scenario: Scenario, nodes: Option<u32>) -> Self {
        let (began, start) = (Instant::now(), "2026-10-01T12:00:00Z".parse().unwrap());
        let clock = cketerm_runtime::tokio_clock::starting_at(start);
        let mut options = Options { seed: SEED, nodes, ..Options::default() };
        options.api.audit = usize::MAX;
        let stage = Arc::new(Box::pin(Stage::set(scenario, options, clock.clone())).await.unwrap());
        stage.sandbox.objects.keep_everything();
        stage.sandbox.etcd.record_txns();
        let receiver = WebhookReceiver::new(Rng::with_seed(SEED), clock.clone());
        receiver.heal();
        let engines: Engines = Arc::default();
        let mut rng = Rng::with_seed(SEED);
        for i in 0..2 {
            let slot = Slot::new(&format!("engine-{i}"), &clock, 10, &mut rng).with_hook(&receiver).with_disk(true);
            engines.lock().unwrap().push(slot);
            Slot::start(&engines, i, &stage).await;
        }
        let reports = Arc::default();
        tokio::spawn(sample(Arc::clone(&engines), Arc::clone(&reports), clock.clone()));
        Self { began, clock, stage, engines, receiver, reports, answers: Mutex::default() }
    }

    /// Sets the stage from the text of a scenario.
    async fn parse(scenario: &str) -> Self {
        Self::set(Scenario::parse(scenario).unwrap(), None).await
    }

    /// Waits until so many seconds have passed since the beginning.
    async fn until(&self, seconds: u64) {
        sleep_until(self.began + Duration::from_secs(seconds)).await;
    }

    /// Returns the seconds since the beginning.
    fn seconds(&self) -> u64 {
        self.began.elapsed().as_secs()
    }

    /// Waits until the command of a machine begins.
    async fn until_command_begins(&self, name: &str) {
        let address = self.addresses(&[name])[0].to_string();
        let begun = || self.stage.sandbox.machines.power_log().iter().any(|p| p.address == address);
        while !begun() {
            sleep(Duration::from_millis(100)).await;
        }
    }

    /// Returns the addresses of machines by name.
    fn addresses(&self, names: &[&str]) -> Vec<Address> {
        let machines = self.stage.sandbox.machines.list();
        let address = |name: &&str| machines.iter().find(|m| m.name == **name).map(|m| Address::new(&m.address));
        names.iter().map(|name| address(name).unwrap()).collect()
    }

    /// Queues reboots.
    async fn add(&self, names: &[&str]) {
        self.operator("alice").add_reboots(&self.addresses(names), Some("kernel")).await.unwrap();
    }

    /// Sets the behaviour of a machine.
    fn behave(&self, name: &str, behaviour: Behaviour) {
        self.stage.sandbox.machines.behave(self.addresses(&[name])[0].as_str(), behaviour);
    }

    /// Changes an object as an administrator.
    fn change(&self, resource: &'static Resource, name: &str, change: impl Fn(&mut Value)) {
        let changed = self.stage.sandbox.objects.update(resource, "", name, |object| {
            change(object);
            Ok(())
        });
        changed.map_err(|e| e.message).unwrap();
    }

    /// Deletes an object, as the API server does: with finalizers it only gets a time.
    fn delete(&self, resource: &'static Resource, name: &str) {
        let objects = &self.stage.sandbox.objects;
        let now = objects.stamp();
        self.change(resource, name, |object| object["metadata"]["deletionTimestamp"] = json!(now));
        let found = objects.get(resource, "", name);
        if found.is_some_and(|o| o["metadata"]["finalizers"].as_array().is_none_or(Vec::is_empty)) {
            let _ = objects.remove(resource, "", name, |_| Ok(()));
        }
    }

    /// Writes down the answer to a command.
    fn say(&self, command: &str, answer: &impl Debug) {
        self.answers.lock().unwrap().push((self.clock.wall(), format!("answer to {command}: {answer:?}")));
    }

    /// Returns an operator with this name.
    fn operator(&self, name: &str) -> Operator {
        self.stage.operator(name)
    }

    /// Kills an engine.
    fn kill(&self, engine: usize) {
        self.engines.lock().unwrap()[engine].gate.kill();
    }

    /// Starts an engine again.
    async fn start(&self, engine: usize) {
        Slot::start(&self.engines, engine, &self.stage).await;
    }

    /// Stops an engine in good order.
    async fn stop(&self, engine: usize) {
        let handle = self.engines.lock().unwrap()[engine].handle.take();
        if let Some(handle) = handle {
            handle.stop().await;
        }
    }

    /// Returns the history so far.
    fn history(&self) -> String {
        let mut record = gather::record(&self.stage.sandbox);
        record.received = self.receiver.received();
        record.reports = std::mem::take(&mut *self.reports.lock().unwrap());
        let mut text = text::of(&record, std::mem::take(&mut *self.answers.lock().unwrap()));
        for slot in self.engines.lock().unwrap().iter() {
            let Some(handle) = slot.handle.as_ref().filter(|_| !slot.gate.is_dead()) else { continue };
            text.push_str(&text::view(&slot.name, &handle.seen().borrow()));
        }
        text
    }
}

/// Plays a scenario on a paused clock.
fn block_on<F: Future<Output = String>>(play: F) -> String {
    runtime::seeded(SEED).block_on(play)
}

fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("histories/kept")
}

/// Plays the histories that the variable names, or all without it. Reports whether all are as they are kept.
pub fn run(wanted: Option<&str>) -> bool {
    let all = [scenarios::HISTORIES, features::HISTORIES, faults::HISTORIES, commands::HISTORIES, records::HISTORIES];
    let all = all.into_iter().flatten();
    let chosen: Vec<&History> = all.filter(|h| wanted.is_none_or(|name| name == "all" || name == h.name)).collect();
    if chosen.is_empty() {
        println!("histories  there is none with this name");
        return false;
    }
    let (clock, number) = (std::time::Instant::now(), chosen.len());
    let differ = chosen.into_iter().filter(|history| !is_as_kept(history)).count();
    println!("histories  {number} played, {differ} differ, in {:.1} s", clock.elapsed().as_secs_f64());
    differ == 0
}

fn is_as_kept(history: &History) -> bool {
    // never kept, or a broken scenario would count as expected
    let Ok(played) = catch_unwind(AssertUnwindSafe(history.play)) else {
        println!("BREACH     history {}", history.name);
        println!("  it panicked, see above");
        return false;
    };
    let path = folder().join(format!("{}.txt", history.name));
    if std::env::var("UPDATE_HISTORIES").is_ok_and(|value| value == "1") {
        std::fs::write(&path, &played).unwrap();
        return true;
    }
    let kept = std::fs::read_to_string(&path).unwrap_or_default();
    if played == kept {
        return true;
    }
    println!("BREACH     history {}", history.name);
    println!("  it differs from {}", path.display());
    let diff = similar::TextDiff::from_lines(&kept, &played);
    let text = diff.unified_diff().context_radius(1).to_string();
    for line in text.lines().take(SHOWN) {
        println!("  {line}");
    }
    false
}

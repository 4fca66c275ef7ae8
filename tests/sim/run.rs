//! One simulation: one seed, one paused clock, one scenario.

use std::{
    collections::BTreeMap,
    fmt::Write as _,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{Arc, Mutex},
    time::Duration,
};

use cketerm::{
    actions::Operator,
    clock::Clock,
    sandbox::{
        faults::{Fate, Odds, State},
        machines::Behaviour,
        members::Trouble,
    },
    scenario::{Lines, Options, Scenario, Stage, backends},
    tasks::Gate,
};
use fastrand::Rng;
use tokio::time::{Instant, sleep, sleep_until};

use crate::{
    cke,
    cover::{self, Pairs},
    disturb::disturb,
    editor,
    engine_reports::sample,
    engines::{Engines, LONG, Slot, disks, stood_still},
    gather,
    hook::Hook,
    hosts,
    keep::Keep,
    observers::{
        self,
        record::{Breach, Said},
    },
    people::{self, Person},
    plan::{Fault, Plan, TROUBLE},
    policy_editor, quorum, registry,
    settle::settle,
    stuck::{self, Stuck},
    tell::{digest, dump, states},
    ticks::Ticks,
    viewer, webhooks,
};

/// Time within which everything ends after the people stopped: all entries one after another, each with its boots and
/// settling.
const REST: Duration = Duration::from_hours(1);

/// Result of one seed.
pub struct Outcome {
    pub seed: u64,
    pub virtual_minutes: f64,
    pub hits: BTreeMap<String, u32>,
    pub states: BTreeMap<String, u32>,
    pub breaches: Vec<Breach>,
    /// Number of times that each fault met each state.
    pub pairs: Pairs,
    /// Faults by kind of effect.
    pub aimed: Pairs,
    /// Names of faults, actions and queued machines: the parts that can be left out.
    pub met: Vec<String>,
    pub trace: Vec<String>,
    /// Digest of everything that was recorded. The same seed gives the same digest.
    pub digest: u64,
}

impl Outcome {
    pub fn report(&self) -> String {
        let mut text = format!("seed {} FAILED; again: SEEDS=1 SEED_FROM={} make sim\n", self.seed, self.seed);
        for line in &self.trace {
            let _ = writeln!(text, "  {line}");
        }
        for breach in self.breaches.iter().take(20) {
            let _ = writeln!(text, "  {} at {}: {}", breach.code, breach.at, breach.what);
        }
        text
    }
}

const POPULATION: &str = "
name: simulation
about: A small site in which everything goes wrong.
population: {nodes: 8, pods_per_node: 4}
pace: {boot: {seconds: 15, jitter: 30}, command: {seconds: 1, jitter: 3}, check: {seconds: 0.1, jitter: 0.5},
  kubelet_start: {seconds: 1, jitter: 3}, node_ready: {seconds: 1, jitter: 5}, api_settle: 5, node_monitor_grace: 10,
  pod_start: {seconds: 1, jitter: 4}, pod_stop: {seconds: 0.5, jitter: 8}, lag: 0.1, budget_lag: 0.3}
reboot: {eviction_timeout_seconds: 60, command_timeout_seconds: 15, command_interval: 3, evict_retries: 1, evict_interval: 3}
policy: {stuck_seconds: 120, metal3_controller: true}
racks: 2
outside: 1
repair:
  max_concurrent_repairs: 2
  eviction_timeout_seconds: 60
  evict_retries: 1
  evict_interval: 3
  repair_procedures:
  - machine_types: [sim]
    repair_operations:
    - operation: restart
      health_check_command: [sandbox-machine, health]
      command_timeout_seconds: 15
      success_command: [sandbox-machine, 'on']
      success_command_timeout: 15
      repair_steps:
      - {repair_command: [sandbox-machine, repair], command_timeout_seconds: 15, command_retries: 1, command_interval: 3, watch_seconds: 20}
      - {repair_command: [sandbox-machine, reinstall], need_drain: true, command_timeout_seconds: 15, watch_seconds: 90}
    - operation: unhealthy
      health_check_command: [sandbox-machine, health]
      command_timeout_seconds: 15
      success_command: [sandbox-machine, 'on']
      success_command_timeout: 15
      repair_steps:
      - {repair_command: [sandbox-machine, repair], command_timeout_seconds: 15, watch_seconds: 30}
    - operation: unreachable
      health_check_command: [sandbox-machine, health]
      command_timeout_seconds: 15
      repair_steps:
      - {repair_command: [sandbox-machine, reboot], command_timeout_seconds: 15, command_retries: 1, command_interval: 3, watch_seconds: 60}
    - operation: drained
      health_check_command: [sandbox-machine, health]
      command_timeout_seconds: 15
      repair_steps:
      - {repair_command: [sandbox-machine, reboot], need_drain: true, command_timeout_seconds: 15, command_retries: 2, watch_seconds: 60}
";

type Trace = Arc<Mutex<Vec<String>>>;

/// Runs one seed on a runtime of its own. A panic anywhere is a breach too.
pub fn seed(seed: u64) -> Outcome {
    seed_with(seed, &Keep::all())
}

/// Same as [`seed`], with a selection of its scenario.
pub fn seed_with(seed: u64, keep: &Arc<Keep>) -> Outcome {
    let trace: Trace = Arc::default();
    let told = Arc::clone(&trace);
    let ran = catch_unwind(AssertUnwindSafe(|| {
        let mut builder = tokio::runtime::Builder::new_current_thread();
        // tokio draws random numbers of its own, for example for the order of wake-ups; unseeded, a seed would not
        // repeat exactly
        #[cfg(tokio_unstable)]
        builder.rng_seed(tokio::runtime::RngSeed::from_bytes(&seed.to_le_bytes()));
        let runtime = builder.enable_time().start_paused(true).build().unwrap();
        runtime.block_on(story(seed, keep, &told))
    }));
    let mut outcome = ran.unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().cloned().unwrap_or_else(|| "a panic".to_owned());
        let breach = Breach { code: "panic", at: jiff::Timestamp::UNIX_EPOCH, what: text };
        Outcome {
            seed,
            virtual_minutes: 0.0,
            hits: BTreeMap::new(),
            states: BTreeMap::new(),
            breaches: vec![breach],
            pairs: Pairs::new(),
            aimed: Pairs::new(),
            met: Vec::new(),
            trace: Vec::new(),
            digest: 0,
        }
    });
    outcome.trace = std::mem::take(&mut *trace.lock().unwrap());
    outcome.met = keep.met();
    outcome
}

async fn story(seed: u64, keep: &Arc<Keep>, trace: &Trace) -> Outcome {
    let mut rng = Rng::with_seed(seed);
    let began = Instant::now();
    let clock = Clock::tokio("2026-01-01T00:00:00Z".parse().unwrap());
    let plan = Plan::draw(&mut rng, 8);
    let say = |text: String| trace.lock().unwrap().push(format!("{:8.3} {text}", began.elapsed().as_secs_f64()));
    say(format!("{} engines, TTL {} s, {} at once, {} retries", plan.engines, plan.ttl, plan.concurrent, plan.retries));
    let stage = Arc::new(Box::pin(stage(&plan, seed, clock.clone())).await);
    let store = stage.operator("watcher").store;

    // a separate generator, so that the rest of the seed's scenario does not change
    let hook = Hook::new(Rng::with_seed(seed ^ 0x686f_6f6b), clock.clone());
    let engines: Engines = Arc::default();
    for i in 0..plan.engines {
        let slot =
            Slot::new(&format!("engine-{i}"), &clock, plan.ttl, &mut rng).with_hook(&hook).with_disk(disks(seed));
        engines.lock().unwrap().push(slot);
        Slot::start(&engines, i, &stage).await;
    }
    let hits: Arc<Mutex<BTreeMap<String, u32>>> = Arc::default();
    let said: Arc<Mutex<Vec<Said>>> = Arc::default();
    let told = Arc::default();
    let sampler = tokio::spawn(sample(Arc::clone(&engines), Arc::clone(&said), clock.clone()));
    let reviver = tokio::spawn(revive(Arc::clone(&engines), Arc::clone(&stage), rng.fork(), Arc::clone(trace), began));

    let machines = stage.sandbox.machines.list();
    let addresses: Vec<String> = machines.iter().map(|m| m.address.clone()).collect();
    let names: Vec<String> = machines.iter().map(|m| m.name.clone()).collect();
    let mut crowd = Vec::new();
    for i in 0..2 {
        let mut rng = rng.fork();
        let lines = Lines::new(&format!("console-{i}"), &Gate::default(), rng.u64(..));
        let light = Odds { delay_request: 10, delay_reply: 20, lose_reply: 10, ..Odds::default() };
        lines.etcd.odds(light, 0);
        let backends = backends(&stage.sandbox, "console", clock.clone(), &lines);
        let name = format!("person-{i}");
        let who = people::who(&name);
        let operator = Operator { store: backends.store, kube: backends.kube, who, bmcs: None, handover: false };
        let mut person = Person {
            name,
            operator,
            rng: Rng::new(),
            told: Arc::clone(&told),
            addresses: addresses.clone(),
            clock: clock.clone(),
            keep: Arc::clone(keep),
            act: String::new(),
        };
        let (store, keep) = (store.clone(), Arc::clone(keep));
        crowd.push(tokio::spawn(async move {
            let mut ticks = Ticks::new(began, 100..60_000);
            while let Some(n) = ticks.next(&mut rng).await {
                (person.rng, person.act) = (rng.fork(), format!("p{i}.{n}"));
                if keep.has(&person.act) {
                    person.act(&store).await;
                }
            }
        }));
    }
    {
        let (stage, store, mut rng, addresses) = (Arc::clone(&stage), store.clone(), rng.fork(), addresses.clone());
        let (names, keep) = (names.clone(), Arc::clone(keep));
        crowd.push(tokio::spawn(async move {
            let mut ticks = Ticks::new(began, 1_000..90_000);
            while let Some(n) = ticks.next(&mut rng).await {
                let (cke, mut dice) = (rng.bool(), rng.fork());
                if !keep.has(&format!("{}{n}", if cke { "c" } else { "k" })) {
                    continue;
                }
                if cke {
                    people::ckecli(&store, &mut dice, &addresses).await;
                } else {
                    people::administrator(&stage.sandbox, &mut dice, &names).await;
                }
            }
        }));
    }
    hosts::bring(&stage.sandbox);
    hosts::bring_strangers(&stage.sandbox, seed);
    // separate generators, so that the rest of the seed's scenario does not change
    let mut dice = Rng::with_seed(seed ^ 0x686f_7374);
    for key in ["a", "b"] {
        let (stage, rng, keep) = (Arc::clone(&stage), dice.fork(), Arc::clone(keep));
        crowd.push(tokio::spawn(async move { hosts::client(&stage.sandbox, key, rng, began, &keep).await }));
    }
    // half of the seeds have a policy editor
    let office = dice.bool().then(|| stage.operator("office"));
    if let Some(operator) = office.clone() {
        let (rng, keep) = (dice.fork(), Arc::clone(keep));
        crowd.push(tokio::spawn(async move { Box::pin(policy_editor::work(operator, rng, began, &keep)).await }));
    }
    {
        let (stage, rng, keep) = (Arc::clone(&stage), dice.fork(), Arc::clone(keep));
        crowd.push(tokio::spawn(async move { hosts::trouble(&stage.sandbox, rng, began, &keep).await }));
    }
    // in half of the seeds, no controller carries requests out at the end
    let carried_out = dice.bool();
    {
        let (stage, rng, keep) = (Arc::clone(&stage), dice.fork(), Arc::clone(keep));
        let operator = stage.operator("administrator");
        crowd.push(tokio::spawn(async move {
            hosts::administrator(&stage.sandbox, &operator, rng, began, carried_out, &keep).await;
        }));
    }
    // half of the seeds have a registry, and half have an editor of the definition
    if dice.bool() {
        let (stage, rng, addresses) = (Arc::clone(&stage), dice.fork(), addresses.clone());
        let operator = stage.operator("registrar");
        registry::settle(&stage.sandbox, &operator, &machines, dice.u64(3..9)).await;
        crowd.push(tokio::spawn(Box::pin(async move {
            Box::pin(registry::watch(&stage.sandbox, operator, &addresses, rng, began)).await;
        })));
    }
    if dice.bool() {
        let (operator, definition) = (stage.operator("editor"), stage.definition());
        let (rng, keep) = (dice.fork(), Arc::clone(keep));
        crowd.push(tokio::spawn(async move { Box::pin(editor::edit(operator, definition, rng, began, &keep)).await }));
    }
    {
        let lines = Lines::new(viewer::VIEWER, &Gate::default(), 0);
        let backends = backends(&stage.sandbox, viewer::VIEWER, clock.clone(), &lines);
        let (rng, names, keep) = (dice.fork(), names.clone(), Arc::clone(keep));
        let (store, kube) = (backends.store, backends.kube.unwrap());
        crowd.push(tokio::spawn(async move { Box::pin(viewer::look(store, kube, names, rng, began, &keep)).await }));
    }
    {
        let (stage, names, rng, keep) = (Arc::clone(&stage), names.clone(), dice.fork(), Arc::clone(keep));
        crowd.push(tokio::spawn(async move { people::volumes(&stage.sandbox, &names, rng, began, &keep).await }));
    }
    crowd.extend(webhooks::start(seed, &stage, began, keep, &hits));
    if let Some(dice) = quorum::dice(seed) {
        let (stage, keep) = (Arc::clone(&stage), Arc::clone(keep));
        crowd.push(tokio::spawn(async move { quorum::trouble(&stage.sandbox, dice, began, &keep).await }));
    }
    let stuck = Stuck::default();
    {
        let (stuck, engines, keep) = (stuck.clone(), Arc::clone(&engines), Arc::clone(keep));
        crowd.push(tokio::spawn(stuck.befall(seed, engines, keep, clock.clone(), began)));
    }
    if let Some(dice) = cke::beside(seed) {
        let (stage, keep) = (Arc::clone(&stage), Arc::clone(keep));
        crowd.push(tokio::spawn(async move { cke::stand(&stage.operator("cke").store, dice, began, &keep).await }));
    }
    // in a quarter of the seeds a person changes their mind at the end
    let changes_mind = dice.u8(0..4) == 0;
    let mut happened: Vec<(jiff::Timestamp, &'static str)> = Vec::new();
    for (at, label, fault) in &plan.all_faults(seed) {
        if !keep.has(label) {
            continue;
        }
        sleep_until(began + *at).await;
        say(format!("{fault:?}"));
        if !matches!(fault, Fault::Odds { .. } | Fault::Aimed { .. }) {
            *hits.lock().unwrap().entry(fault.word().to_owned()).or_default() += 1;
            happened.push((clock.wall(), fault.word()));
        }
        disturb(fault.clone(), &engines, &stage, &addresses);
    }
    for one in crowd {
        one.await.unwrap();
    }
    sleep_until(began + TROUBLE + Duration::from_mins(1)).await;
    // faults end here: every connection is open, every machine obeys, every engine runs
    for slot in engines.lock().unwrap().iter() {
        slot.gate.thaw();
        for line in [&slot.lines.etcd, &slot.lines.kubernetes] {
            line.odds(Odds::default(), 0);
            line.disarm();
            line.mute(None, false);
            line.slow(None, 0);
            line.turn(State::Open);
        }
    }
    stage.sandbox.etcd.stall_watches(false);
    stage.sandbox.api.stall_watches(false);
    for address in &addresses {
        stage.sandbox.machines.behave(address, Behaviour::default());
    }
    hosts::heal(&stage.sandbox);
    quorum::heal(&stage.sandbox);
    hook.heal();
    say("people go home".to_owned());
    let last = Person {
        name: "person-last".to_owned(),
        operator: stage.operator("person-last"),
        rng: rng.fork(),
        told: Arc::clone(&told),
        addresses: addresses.clone(),
        clock: clock.clone(),
        keep: Keep::all(),
        act: String::new(),
    };
    last.tidy(&store).await;
    if let Some(operator) = &office {
        policy_editor::go_home(operator).await;
    }
    let calm = clock.wall();
    let all = async {
        if changes_mind {
            people::change_of_mind(&last, &store, plan.ttl).await;
        }
        tokio::join!(settle(&last, &engines, &stage), hosts::settle(&stage.sandbox, carried_out));
    };
    let empty = tokio::time::timeout(REST, all).await.is_ok();
    // clean-up after the last entry: cordons, progress
    sleep(Duration::from_mins(2)).await;
    // a sender whose tries all failed waits five minutes for the next one
    let _ = tokio::time::timeout(Duration::from_mins(10), crate::hook::delivered(&store)).await;
    say(format!("ends, {}", if empty { "the queue empty" } else { "the queue not empty" }));

    sampler.abort();
    reviver.abort();
    let mut record = gather::record(&stage.sandbox);
    record.acknowledged = std::mem::take(&mut *told.lock().unwrap());
    record.said = std::mem::take(&mut *said.lock().unwrap());
    record.received = hook.received();
    record.keeps_results = disks(seed);
    record.calm_since = Some(calm);
    let start: jiff::Timestamp = "2026-01-01T00:00:00Z".parse().unwrap();
    record.frozen = plan
        .faults
        .iter()
        .enumerate()
        .filter(|(i, _)| keep.has(&format!("f{i}")))
        .filter_map(|(_, (at, fault))| match fault {
            Fault::Freeze { engine, seconds } => {
                let from = start + *at;
                Some((format!("engine-{engine}"), from, from + Duration::from_secs(*seconds)))
            }
            _ => None,
        })
        .collect();
    record.ttl_seconds = u32::try_from(plan.ttl).unwrap();
    record.stuck = stuck.all();
    record.frozen.extend(stuck::silent(&record.stuck, plan.ttl));
    let mut aimed = Pairs::new();
    let mut all: BTreeMap<String, u32> = hits.lock().unwrap().clone();
    for change in stage.sandbox.members.log().iter().filter(|c| c.trouble != Trouble::default()) {
        *all.entry(quorum::WORD.to_owned()).or_default() += 1;
        happened.push((change.at, quorum::WORD));
    }
    all.extend((!record.stuck.is_empty()).then(|| ("stuck".to_owned(), 1)));
    let mut births: BTreeMap<String, Vec<jiff::Timestamp>> = BTreeMap::new();
    for slot in engines.lock().unwrap().iter_mut() {
        births.insert(slot.name.clone(), slot.births.iter().map(|at| start + at.duration_since(began)).collect());
        for (name, count) in slot.all_hits() {
            *all.entry(name.to_owned()).or_default() += count;
        }
        for met in slot.met() {
            let at = start + met.at.duration_since(began);
            happened.push((at, met.fate.word()));
            if let Some(what) = met.aim {
                *aimed.entry((met.fate.word(), what)).or_default() += 1;
            }
            if let Fate::PauseBefore(long) | Fate::PauseAfter(long) = met.fate {
                record.frozen.push((slot.name.clone(), at, at + long));
            }
        }
    }
    if let Ok(path) = std::env::var("SIM_DUMP") {
        std::fs::write(path, dump(&record)).unwrap();
    }
    record.frozen = stood_still(record.frozen, &births);
    let view = observers::View::of(&record);
    let breaches = observers::judge(&view);
    Outcome {
        seed,
        virtual_minutes: began.elapsed().as_secs_f64() / 60.0,
        hits: all,
        states: states(&record.said),
        breaches,
        pairs: cover::pairs(&view, &happened),
        aimed,
        met: Vec::new(),
        trace: Vec::new(),
        digest: digest(&record),
    }
}

async fn stage(plan: &Plan, seed: u64, clock: Clock) -> Stage {
    let mut scenario = Scenario::parse(POPULATION).unwrap();
    scenario.reboot.insert("max_concurrent_reboots".to_owned(), plan.concurrent.into());
    scenario.reboot.insert("command_retries".to_owned(), plan.retries.into());
    if disks(seed) {
        scenario.reboot.insert("command_timeout_seconds".to_owned(), LONG.into());
    }
    if plan.api_servers_first {
        scenario.policy.insert("api_server_order".to_owned(), "first".into());
    }
    // otherwise no engine queries etcd members behind these control planes
    if quorum::dice(seed).is_none() {
        scenario.policy.insert("etcd_members".to_owned(), "none".into());
    }
    let mut options = Options { seed, ..Options::default() };
    options.api.streaming = plan.streaming;
    options.api.audit = usize::MAX;
    let stage = Stage::set(scenario, options, clock).await.unwrap();
    stage.sandbox.objects.keep_everything();
    stage.sandbox.etcd.listen();
    stage
}

/// Restarts engines that died, as a systemd unit does.
async fn revive(engines: Engines, stage: Arc<Stage>, mut rng: Rng, trace: Trace, began: Instant) {
    loop {
        sleep(Duration::from_secs(1)).await;
        let dead = engines.lock().unwrap().iter().position(|slot| slot.gate.is_dead());
        if let Some(i) = dead {
            sleep(Duration::from_millis(rng.u64(0..30_000))).await;
            trace.lock().unwrap().push(format!("{:8.3} engine-{i} starts again", began.elapsed().as_secs_f64()));
            Slot::start(&engines, i, &stage).await;
        }
    }
}

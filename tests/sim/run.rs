//! One simulation: one seed, one paused clock, one scenario.

use std::{
    collections::BTreeMap,
    fmt::Write as _,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{Arc, Mutex},
    time::Duration,
};

use cketerm_actions::Operator;
use cketerm_runtime::tasks::Gate;
use cketerm_sandbox::{
    faults::{Odds, RequestFault, State},
    machines::Behaviour,
    members::MemberFaults,
};
use cketerm_scenario::{Links, Stage, backends};
use fastrand::Rng;
use tokio::time::{Instant, sleep, sleep_until};

use crate::{
    admission_webhooks, batch_operator, cke,
    coverage::{self, Pairs},
    definition_editor,
    engine_reports::sample,
    engines::{Engines, Slot, hosts_keep_results},
    gather, hosts,
    inject::inject,
    observers::{
        self,
        record::{Breach, EngineReport},
    },
    output::{digest, dump, states},
    pauses,
    people::{self, Person},
    plan::{FAULT_PERIOD, Fault, Plan},
    policy_editor, quorum, registry, runtime,
    selection::Selection,
    settle::settle,
    site,
    stuck::Stuck,
    ticks::Ticks,
    viewer,
    webhook_receiver::WebhookReceiver,
};

/// Time within which everything ends after the people stopped: all entries one after another, each with its boots and
/// settling.
const SETTLE_TIMEOUT: Duration = Duration::from_hours(1);

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
    pub effect_pairs: Pairs,
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

type Trace = Arc<Mutex<Vec<String>>>;

/// Runs one seed on a runtime of its own. A panic anywhere is a breach too.
pub fn seed(seed: u64) -> Outcome {
    seed_with(seed, &Selection::all())
}

/// Same as [`seed`], with a selection of its scenario.
pub fn seed_with(seed: u64, selection: &Arc<Selection>) -> Outcome {
    let trace: Trace = Arc::default();
    let shared_trace = Arc::clone(&trace);
    let ran =
        catch_unwind(AssertUnwindSafe(|| runtime::seeded(seed).block_on(run_scenario(seed, selection, &shared_trace))));
    let mut outcome = ran.unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().cloned().unwrap_or_else(|| "panic without a text".to_owned());
        let breach = Breach { code: "panic", at: jiff::Timestamp::UNIX_EPOCH, what: text };
        Outcome {
            seed,
            virtual_minutes: 0.0,
            hits: BTreeMap::new(),
            states: BTreeMap::new(),
            breaches: vec![breach],
            pairs: Pairs::new(),
            effect_pairs: Pairs::new(),
            met: Vec::new(),
            trace: Vec::new(),
            digest: 0,
        }
    });
    outcome.trace = std::mem::take(&mut *trace.lock().unwrap());
    outcome.met = selection.met();
    outcome
}

async fn run_scenario(seed: u64, selection: &Arc<Selection>, trace: &Trace) -> Outcome {
    let mut rng = Rng::with_seed(seed);
    let began = Instant::now();
    let clock = cketerm_runtime::tokio_clock::starting_at("2026-01-01T00:00:00Z".parse().unwrap());
    let plan = Plan::draw(&mut rng, 8);
    let say = |text: String| trace.lock().unwrap().push(format!("{:8.3} {text}", began.elapsed().as_secs_f64()));
    say(format!("{} engines, TTL {} s, {} at once, {} retries", plan.engines, plan.ttl, plan.concurrent, plan.retries));
    let stage = Arc::new(Box::pin(site::stage(&plan, seed, clock.clone())).await);
    let store = stage.operator("watcher").store;

    // a separate generator, so that the rest of the seed's scenario does not change
    let webhook_receiver = WebhookReceiver::new(Rng::with_seed(seed ^ 0x686f_6f6b), clock.clone());
    let engines: Engines = Arc::default();
    for i in 0..plan.engines {
        let slot = Slot::new(&format!("engine-{i}"), &clock, plan.ttl, &mut rng)
            .with_hook(&webhook_receiver)
            .with_disk(hosts_keep_results(seed));
        engines.lock().unwrap().push(slot);
        Slot::start(&engines, i, &stage).await;
    }
    let hits: Arc<Mutex<BTreeMap<String, u32>>> = Arc::default();
    let reports: Arc<Mutex<Vec<EngineReport>>> = Arc::default();
    let acknowledged = Arc::default();
    let sampler = tokio::spawn(sample(Arc::clone(&engines), Arc::clone(&reports), clock.clone()));
    let restarter = tokio::spawn(restart_dead_engines(
        Arc::clone(&engines),
        Arc::clone(&stage),
        rng.fork(),
        Arc::clone(trace),
        began,
    ));

    let machines = stage.sandbox.machines.list();
    let addresses: Vec<String> = machines.iter().map(|m| m.address.clone()).collect();
    let names: Vec<String> = machines.iter().map(|m| m.name.clone()).collect();
    let mut actors = Vec::new();
    for i in 0..2 {
        let mut rng = rng.fork();
        let links = Links::new(&format!("console-{i}"), &Gate::default(), rng.u64(..));
        let light = Odds { delay_request: 10, delay_reply: 20, lose_reply: 10, ..Odds::default() };
        links.etcd.odds(light, 0);
        let backends = backends(&stage.sandbox, "console", clock.clone(), &links);
        let name = format!("person-{i}");
        let who = people::who(&name);
        let operator = Operator {
            store: backends.store,
            kube: backends.kube,
            person: cketerm_model::fence::Person::asks(&who),
            bmcs: None,
            handover: false,
        };
        let mut person = Person {
            name,
            operator,
            rng: Rng::new(),
            acknowledged: Arc::clone(&acknowledged),
            addresses: addresses.clone(),
            clock: clock.clone(),
            selection: Arc::clone(selection),
            act: String::new(),
        };
        let (store, selection) = (store.clone(), Arc::clone(selection));
        actors.push(tokio::spawn(async move {
            let mut ticks = Ticks::new(began, 100..60_000);
            while let Some(n) = ticks.next(&mut rng).await {
                (person.rng, person.act) = (rng.fork(), format!("p{i}.{n}"));
                if selection.has(&person.act) {
                    person.act(&store).await;
                }
            }
        }));
    }
    {
        let (stage, store, mut rng, addresses) = (Arc::clone(&stage), store.clone(), rng.fork(), addresses.clone());
        let (names, selection) = (names.clone(), Arc::clone(selection));
        actors.push(tokio::spawn(async move {
            let mut ticks = Ticks::new(began, 1_000..90_000);
            while let Some(n) = ticks.next(&mut rng).await {
                let (cke, mut random) = (rng.bool(), rng.fork());
                if !selection.has(&format!("{}{n}", if cke { "c" } else { "k" })) {
                    continue;
                }
                if cke {
                    people::ckecli(&store, &mut random, &addresses).await;
                } else {
                    people::administrator(&stage.sandbox, &mut random, &names).await;
                }
            }
        }));
    }
    hosts::add_hosts(&stage.sandbox);
    hosts::add_hosts_with_foreign_bmcs(&stage.sandbox, seed);
    // separate generators, so that the rest of the seed's scenario does not change
    let mut random = Rng::with_seed(seed ^ 0x686f_7374);
    for key in ["a", "b"] {
        let (stage, rng, selection) = (Arc::clone(&stage), random.fork(), Arc::clone(selection));
        actors.push(tokio::spawn(async move { hosts::client(&stage.sandbox, key, rng, began, &selection).await }));
    }
    // half of the seeds have a policy editor
    let policy_operator = random.bool().then(|| stage.operator("office"));
    if let Some(operator) = policy_operator.clone() {
        let (rng, selection) = (random.fork(), Arc::clone(selection));
        actors.push(tokio::spawn(async move { Box::pin(policy_editor::work(operator, rng, began, &selection)).await }));
    }
    {
        let (stage, rng, selection) = (Arc::clone(&stage), random.fork(), Arc::clone(selection));
        actors.push(tokio::spawn(async move { hosts::trouble(&stage.sandbox, rng, began, &selection).await }));
    }
    // in half of the seeds, no controller carries requests out at the end
    let requests_carried_out = random.bool();
    {
        let (stage, rng, selection) = (Arc::clone(&stage), random.fork(), Arc::clone(selection));
        let operator = stage.operator("administrator");
        actors.push(tokio::spawn(async move {
            hosts::administrator(&stage.sandbox, &operator, rng, began, requests_carried_out, &selection).await;
        }));
    }
    // half of the seeds have a registry, and half have an editor of the definition
    if random.bool() {
        let (stage, rng, addresses) = (Arc::clone(&stage), random.fork(), addresses.clone());
        let operator = stage.operator("registrar");
        registry::settle(&stage.sandbox, &operator, &machines, random.u64(3..9)).await;
        actors.push(tokio::spawn(Box::pin(async move {
            Box::pin(registry::watch(&stage.sandbox, operator, &addresses, rng, began)).await;
        })));
    }
    if random.bool() {
        let (operator, definition) = (stage.operator("editor"), stage.definition());
        let (rng, selection) = (random.fork(), Arc::clone(selection));
        actors.push(tokio::spawn(async move {
            Box::pin(definition_editor::edit(operator, definition, rng, began, &selection)).await;
        }));
    }
    {
        let links = Links::new(viewer::VIEWER, &Gate::default(), 0);
        let backends = backends(&stage.sandbox, viewer::VIEWER, clock.clone(), &links);
        let (rng, names, selection) = (random.fork(), names.clone(), Arc::clone(selection));
        let (store, kube) = (backends.store, backends.kube.unwrap());
        actors.push(tokio::spawn(async move {
            Box::pin(viewer::read_all(store, kube, names, rng, began, &selection)).await;
        }));
    }
    {
        let (stage, names, rng, selection) = (Arc::clone(&stage), names.clone(), random.fork(), Arc::clone(selection));
        actors.push(tokio::spawn(async move { people::volumes(&stage.sandbox, &names, rng, began, &selection).await }));
    }
    actors.extend(admission_webhooks::start(seed, &stage, began, selection, &hits));
    let batch_operator = batch_operator::random_generator(seed).map(|random| (stage.operator("batches"), random));
    if let Some((operator, random)) = batch_operator.clone() {
        let (etcd, selection) = (stage.sandbox.etcd.clone(), Arc::clone(selection));
        actors.push(tokio::spawn(async move {
            Box::pin(batch_operator::work(operator, etcd, random, began, &selection)).await;
        }));
    }
    if let Some(random) = quorum::random(seed) {
        let (stage, selection) = (Arc::clone(&stage), Arc::clone(selection));
        actors.push(tokio::spawn(async move { quorum::trouble(&stage.sandbox, random, began, &selection).await }));
    }
    let stuck = Stuck::default();
    {
        let (stuck, engines, selection) = (stuck.clone(), Arc::clone(&engines), Arc::clone(selection));
        actors.push(tokio::spawn(stuck.freeze_later(seed, engines, selection, clock.clone(), began)));
    }
    if let Some(random) = cke::random_generator(seed) {
        let (stage, selection) = (Arc::clone(&stage), Arc::clone(selection));
        actors.push(tokio::spawn(async move {
            cke::campaign(&stage.operator("cke").store, random, began, &selection).await;
        }));
    }
    // in a quarter of the seeds a person changes their mind at the end
    let cancels_late = random.u8(0..4) == 0;
    let mut fault_events: Vec<(jiff::Timestamp, &'static str)> = Vec::new();
    for (at, label, fault) in &plan.all_faults(seed) {
        if !selection.has(label) {
            continue;
        }
        sleep_until(began + *at).await;
        say(format!("{fault:?}"));
        if !matches!(fault, Fault::Odds { .. } | Fault::Aimed { .. }) {
            *hits.lock().unwrap().entry(fault.as_str().to_owned()).or_default() += 1;
            fault_events.push((clock.wall(), fault.as_str()));
        }
        inject(fault.clone(), &engines, &stage, &addresses);
    }
    for one in actors {
        one.await.unwrap();
    }
    sleep_until(began + FAULT_PERIOD + Duration::from_mins(1)).await;
    // faults end here: every connection is open, every machine obeys, every engine runs
    for slot in engines.lock().unwrap().iter() {
        slot.gate.thaw();
        for line in [&slot.links.etcd, &slot.links.kubernetes] {
            line.odds(Odds::default(), 0);
            line.disarm();
            line.mute(None, false);
            line.slow(None, 0);
            line.set_state(State::Open);
        }
    }
    stage.sandbox.etcd.stall_watches(false);
    stage.sandbox.api.stall_watches(false);
    for address in &addresses {
        stage.sandbox.machines.behave(address, Behaviour::default());
    }
    hosts::heal(&stage.sandbox);
    quorum::heal(&stage.sandbox);
    webhook_receiver.heal();
    say("people stop acting".to_owned());
    let final_person = Person {
        name: "person-last".to_owned(),
        operator: stage.operator("person-last"),
        rng: rng.fork(),
        acknowledged: Arc::clone(&acknowledged),
        addresses: addresses.clone(),
        clock: clock.clone(),
        selection: Selection::all(),
        act: String::new(),
    };
    final_person.release_everything(&store).await;
    if let Some(operator) = &policy_operator {
        policy_editor::reset(operator).await;
    }
    if let Some((operator, _)) = &batch_operator {
        batch_operator::resume_all(operator).await;
    }
    let calm = clock.wall();
    let all = async {
        if cancels_late {
            people::cancel_second_entry(&final_person, &store, plan.ttl).await;
        }
        tokio::join!(settle(&final_person, &engines, &stage), hosts::settle(&stage.sandbox, requests_carried_out));
    };
    let queue_emptied = tokio::time::timeout(SETTLE_TIMEOUT, all).await.is_ok();
    // clean-up after the last entry: cordons, progress
    sleep(Duration::from_mins(2)).await;
    // a sender whose tries all failed waits five minutes for the next one
    let _ = tokio::time::timeout(Duration::from_mins(10), crate::webhook_receiver::delivered(&store)).await;
    say(format!("ends, {}", if queue_emptied { "the queue empty" } else { "the queue not empty" }));

    sampler.abort();
    restarter.abort();
    let mut record = gather::record(&stage.sandbox);
    record.acknowledged = std::mem::take(&mut *acknowledged.lock().unwrap());
    record.reports = std::mem::take(&mut *reports.lock().unwrap());
    record.received = webhook_receiver.received();
    record.keeps_results = hosts_keep_results(seed);
    record.calm_since = Some(calm);
    let start: jiff::Timestamp = "2026-01-01T00:00:00Z".parse().unwrap();
    record.paused = pauses::planned(&plan, selection, start);
    record.ttl_seconds = u32::try_from(plan.ttl).unwrap();
    record.stuck = stuck.all();
    let mut effect_pairs = Pairs::new();
    let mut all: BTreeMap<String, u32> = hits.lock().unwrap().clone();
    for change in stage.sandbox.members.log().iter().filter(|c| c.trouble != MemberFaults::default()) {
        *all.entry(quorum::FAULT_NAME.to_owned()).or_default() += 1;
        fault_events.push((change.at, quorum::FAULT_NAME));
    }
    all.extend((!record.stuck.is_empty()).then(|| ("stuck".to_owned(), 1)));
    let mut start_times: BTreeMap<String, Vec<jiff::Timestamp>> = BTreeMap::new();
    for slot in engines.lock().unwrap().iter_mut() {
        start_times
            .insert(slot.name.clone(), slot.start_times.iter().map(|at| start + at.duration_since(began)).collect());
        for (name, count) in slot.all_hits() {
            *all.entry(name.to_owned()).or_default() += count;
        }
        for met in slot.met() {
            let at = start + met.at.duration_since(began);
            fault_events.push((at, met.request_fault.as_str()));
            if let Some(what) = met.aim {
                *effect_pairs.entry((met.request_fault.as_str(), what)).or_default() += 1;
            }
            if let RequestFault::PauseBefore(long) | RequestFault::PauseAfter(long) = met.request_fault {
                record.paused.push((slot.name.clone(), at, at + long));
            }
        }
    }
    if let Ok(path) = std::env::var("SIM_DUMP") {
        std::fs::write(path, dump(&record)).unwrap();
    }
    record.paused.extend(pauses::while_stuck(&record.stuck, &record.paused, plan.ttl));
    record.paused = pauses::merge(record.paused, &start_times);
    let view = observers::View::of(&record);
    let breaches = observers::judge(&view);
    Outcome {
        seed,
        virtual_minutes: began.elapsed().as_secs_f64() / 60.0,
        hits: all,
        states: states(&record.reports),
        breaches,
        pairs: coverage::pairs(&view, &fault_events),
        effect_pairs,
        met: Vec::new(),
        trace: Vec::new(),
        digest: digest(&record),
    }
}

/// Restarts engines that died, as a systemd unit does.
async fn restart_dead_engines(engines: Engines, stage: Arc<Stage>, mut rng: Rng, trace: Trace, began: Instant) {
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

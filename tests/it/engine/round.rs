//! One round: twenty machines on real servers, with leaders killed, frozen and deposed, and servers restarted. Then the
//! observers of the simulation judge the record. `ROUND_SEED` sets the times of the faults.
//!
//! The record has neither the engines' transactions nor their reports, so observers that need those see nothing. It
//! ends with the queue, before the rules that apply from 85 s after the last fault (I10, I31, I33, I37, I39). So the
//! test itself asserts that the queue is empty and no cordon is left.

use std::{
    collections::BTreeMap,
    fmt::Write,
    time::{Duration, Instant},
};

use jiff::Timestamp;
use serde_json::Value;

use crate::{
    observers::{
        self, Record, View,
        record::{Acknowledged, AcknowledgedCommand, PowerEvent},
    },
    world::{
        Options, World,
        cluster::{Machine, machines},
        leader,
        program::{Daemon, cketerm},
        recorder::{AS_JSON, Recorder},
        say, wait_for,
    },
};

/// Seconds after the last fault within which the queue must be empty.
const DEADLINE_SECONDS: u64 = 150;

#[test]
fn i01_i10_i25_twenty_machines_reboot_once_each_despite_random_faults() {
    let options = Options { kcm: true, kwok: true, audit: true, etcd34: false, scheduler: false };
    let Some(world) = World::start_with(options, &[AS_JSON]) else { return };
    let seed = std::env::var("ROUND_SEED").ok().and_then(|s| s.parse().ok()).unwrap_or(5);
    let machines = machines(3, 17);
    let recorder = Recorder::start(&world);
    prepare(&world, &machines);
    let mut round = Round::new(&world, &machines, seed);
    round.queue();
    round.daemon();
    round.daemon();
    round.faults();
    let calm = Timestamp::now();
    let waiting = Instant::now();
    while !round.empty() {
        assert!(
            waiting.elapsed().as_secs() < DEADLINE_SECONDS,
            "the queue is not empty {DEADLINE_SECONDS} s after the last fault; {:#?}",
            round.notes
        );
        round.wait(1);
    }
    wait_for("all nodes are uncordoned", 30, || world.cordoned().is_empty().then_some(()));
    let mut record = recorder.finish(&world);
    record.calm_since = Some(calm);
    record.ttl_seconds = 5;
    // the API server's audit log has one name for all engines, and etcd's history has none
    let both = |(from, to): &(Timestamp, Timestamp)| ["engine-0", ""].map(|by| (by.to_owned(), *from, *to));
    record.paused = round.paused.iter().flat_map(both).collect();
    record.acknowledged.clone_from(&round.acknowledged);
    round.print_summary(&record);
    assert_not_vacuous(&record);
    let breaches = observers::observe(&record);
    assert!(breaches.is_empty(), "{breaches:#?}\n{:#?}", round.notes);
}

/// Asserts that the observers have data to judge: without it they would find nothing either.
fn assert_not_vacuous(record: &Record) {
    let view = View::of(record);
    let starts = view.entry_changes().iter().filter(|m| m.starts()).count();
    assert!(
        starts >= 20 && view.attempts.len() >= 20,
        "too few events to judge: {starts} starts, {} attempts",
        view.attempts.len()
    );
    let patches = view.node_writes.iter().filter(|w| w.engine).count();
    assert!(patches >= 40, "each Node must be cordoned and uncordoned: only {patches} patches");
    let evictions = view.pod_writes.iter().filter(|w| w.eviction && !w.dry_run && w.node.is_some()).count();
    assert!(evictions >= 13, "each pod must be evicted at least once: only {evictions} evictions");
    assert!(view.candidates.iter().any(|c| !c.registered) && view.candidates.len() >= 7, "{:?}", view.candidates);
}

/// Creates Nodes, pods under a budget that a drain of two of them satisfies, and some pods without.
fn prepare(world: &World, machines: &[Machine]) {
    world.add_nodes(machines);
    for i in [2, 9, 15] {
        world.add_pod("default", &format!("web-{i}"), &format!("w{i}"), "web", None);
    }
    for m in machines.iter().step_by(2) {
        world.add_pod("default", &format!("plain-{}", m.name), &m.name, "plain", None);
    }
    world.wait_for_running_pods("default");
    world.add_budget("default", "web", "web", 1);
    let reboot = serde_json::json!({"max_concurrent_reboots": 3, "command_timeout_seconds": 6});
    world.set_up(machines, &reboot);
}

/// A round in progress.
struct Round<'w> {
    world: &'w World,
    machines: &'w [Machine],
    rng: fastrand::Rng,
    began: Instant,
    daemons: Vec<Daemon>,
    started: usize,
    pods: usize,
    deaths: usize,
    /// Entries that cannot go on without a person, with the time since when.
    stuck: BTreeMap<u64, Instant>,
    acknowledged: Vec<Acknowledged>,
    paused: Vec<(Timestamp, Timestamp)>,
    notes: Vec<String>,
}

impl<'w> Round<'w> {
    fn new(world: &'w World, machines: &'w [Machine], seed: u64) -> Self {
        let (daemons, acknowledged, paused, notes) =
            (Vec::new(), Vec::new(), Vec::new(), vec![format!("ROUND_SEED={seed}")]);
        let (rng, stuck) = (fastrand::Rng::with_seed(seed), BTreeMap::new());
        let (began, started, pods, deaths) = (Instant::now(), 0, 0, 0);
        Self { world, machines, rng, began, daemons, started, pods, deaths, stuck, acknowledged, paused, notes }
    }

    fn note(&mut self, what: &str) {
        self.notes.push(format!("{:5.1} s  {what}", self.began.elapsed().as_secs_f64()));
    }

    /// Queues all machines at once.
    fn queue(&mut self) {
        let requested = Timestamp::now();
        self.world.queue(&self.machines.iter().collect::<Vec<_>>());
        let command = AcknowledgedCommand::Add((0..).zip(self.machines.iter().map(|m| m.address.clone())).collect());
        self.acknowledged.push(Acknowledged { requested, at: Timestamp::now(), by: "person".to_owned(), command });
    }

    fn daemon(&mut self) {
        self.started += 1;
        self.daemons.push(self.world.daemon(&format!("engine-{}", self.started)));
    }

    /// Injects faults: five deaths of leaders, 15 to 25 s apart, and between them every other fault of a leader.
    fn faults(&mut self) {
        self.wait(8);
        for between in ["freeze", "revoke", "etcd", "foreign", "apiserver"] {
            let gap = self.rng.u64(15..=25);
            let due = Instant::now() + Duration::from_secs(gap);
            self.kill_leader();
            self.wait(gap / 3);
            match between {
                "freeze" => self.freeze(),
                "revoke" => self.revoke(),
                "foreign" => self.campaign_as_cke(),
                server => self.restart(server),
            }
            self.wait(due.saturating_duration_since(Instant::now()).as_secs());
        }
    }

    /// The daemon that leads, with its lease; waits for one.
    fn leading(&self) -> (usize, i64) {
        wait_for("a cketerm engine leads", 40, || {
            let (lease, pid) = leader::now(&self.world.etcd)?;
            Some((self.daemons.iter().position(|d| Some(d.pid()) == pid)?, lease))
        })
    }

    fn kill_leader(&mut self) {
        let (leader_index, _) = self.leading();
        let left = self.world.entries().len();
        self.daemons.remove(leader_index).kill();
        self.deaths += 1;
        self.note(&format!("leader {} killed, {left} entries left", self.deaths));
        let pause = self.rng.u64(2..=4);
        self.wait(pause);
        self.daemon();
    }

    fn freeze(&mut self) {
        let (leader_index, _) = self.leading();
        self.daemons[leader_index].signal("STOP");
        let from = Timestamp::now();
        self.note("leader suspended");
        self.wait(8);
        self.daemons[leader_index].signal("CONT");
        self.paused.push((from, Timestamp::now()));
        self.note("leader resumed");
    }

    fn revoke(&mut self) {
        let (_, lease) = self.leading();
        leader::revoke(&self.world.etcd, lease);
        self.note("lease of the leader revoked");
    }

    fn restart(&mut self, server: &str) {
        self.world.act("kill", server);
        std::thread::sleep(Duration::from_millis(1500));
        self.world.act("start", server);
        self.note(&format!("{server} killed and restarted"));
    }

    /// Puts an imitated CKE behind the cketerm leader for 10 s.
    fn campaign_as_cke(&mut self) {
        self.leading();
        let lease = leader::campaign_as_cke(&self.world.etcd);
        self.note("CKE candidate added");
        self.wait(10);
        leader::revoke(&self.world.etcd, lease);
        self.note("CKE candidate removed");
    }

    fn empty(&self) -> bool {
        self.list().is_some_and(|all| all.is_empty())
    }

    /// The queue; none while etcd is away.
    fn list(&self) -> Option<Vec<Value>> {
        let output = cketerm(&self.world.config(), &["rq", "list", "-o", "json"]);
        (output.code == 0).then(|| serde_json::from_str(&output.stdout).ok())?
    }

    /// Lets time pass, in which people and other programs act.
    fn wait(&mut self, seconds: u64) {
        let until = Instant::now() + Duration::from_secs(seconds);
        while Instant::now() < until {
            self.world.set_command_seconds(self.rng.u32(2..=4));
            self.replace_pods();
            self.unblock_entries();
            let left = until.saturating_duration_since(Instant::now());
            std::thread::sleep(left.min(Duration::from_secs(1)));
        }
    }

    /// Acts as a workload's controller and scheduler: up to three pods of `web`, each new one on a schedulable worker
    /// without one.
    fn replace_pods(&mut self) {
        let (code, pods) = self.world.call("GET", "/api/v1/namespaces/default/pods?labelSelector=app%3Dweb", None);
        let (also, nodes) = self.world.call("GET", "/api/v1/nodes", None);
        let (Some(pods), Some(nodes)) = (pods["items"].as_array(), nodes["items"].as_array()) else { return };
        if code != 200 || also != 200 {
            return;
        }
        let free = nodes.iter().find(|n| {
            let name = n["metadata"]["name"].as_str().unwrap_or_default();
            name.starts_with('w')
                && n["spec"]["unschedulable"] != true
                && pods.iter().all(|p| p["spec"]["nodeName"] != *name)
        });
        if let (true, Some(name)) = (pods.len() < 3, free.and_then(|n| n["metadata"]["name"].as_str())) {
            self.pods += 1;
            self.world.add_pod("default", &format!("web-new-{}", self.pods), name, "web", None);
        }
    }

    /// Acts as an operator. If an outcome is unknown or a command failed, and the machine has not booted for 10 s, it
    /// orders a retry. After a drain that backed off it resets the backoff.
    fn unblock_entries(&mut self) {
        let Some(all) = self.list() else { return };
        for entry in all {
            let Some(index) = entry["index"].as_str().and_then(|i| i.parse::<u64>().ok()) else { continue };
            if entry["status"] == "queued" && entry["drain_backoff_count"].as_i64().is_some_and(|n| n > 0) {
                let requested = Timestamp::now();
                self.run_as_operator(
                    requested,
                    &["rq", "reset-backoff"],
                    AcknowledgedCommand::Other("reset-backoff".to_owned()),
                );
                continue;
            }
            if entry["status"] != "rebooting" || !self.needs_operator(index, entry["node"].as_str().unwrap_or_default())
            {
                self.stuck.remove(&index);
                continue;
            }
            if self.stuck.entry(index).or_insert_with(Instant::now).elapsed().as_secs() >= 10 {
                self.stuck.remove(&index);
                let requested = Timestamp::now();
                let words = ["rq", "retry", &index.to_string(), "--reason", "it has not booted"];
                self.run_as_operator(requested, &words, AcknowledgedCommand::Order(index, "retry".to_owned()));
            }
        }
    }

    fn needs_operator(&self, index: u64, address: &str) -> bool {
        if self.world.power().iter().rev().find(|p| p.address == address).is_some_and(|p| p.what == "end") {
            return false; // the machine has booted: the boot check will report it
        }
        let why = cketerm(&self.world.config(), &["rq", "why", &index.to_string(), "-o", "json"]).stdout;
        let why: Value = serde_json::from_str(&why).unwrap_or_default();
        matches!(why["reason"]["reason"].as_str(), Some("OutcomeUnknown" | "CommandFailed"))
    }

    fn run_as_operator(&mut self, requested: Timestamp, words: &[&str], command: AcknowledgedCommand) {
        let output = cketerm(&self.world.config(), words);
        if output.code == 0 {
            self.acknowledged.push(Acknowledged { requested, at: Timestamp::now(), by: "person".to_owned(), command });
        }
        self.note(&format!("{}: {} {}", words.join(" "), output.code, output.stderr.trim()));
    }

    /// Prints the round, and asserts that no machine was powered more often than ordered.
    fn print_summary(&self, record: &Record) {
        let mut text = format!("ROUND {} machines, {} leaders killed\n", self.machines.len(), self.deaths);
        for note in &self.notes {
            let _ = writeln!(text, "  {note}");
        }
        let mut wrong = Vec::new();
        for (index, m) in (0..).zip(self.machines) {
            let of =
                |what: PowerEvent| record.power.iter().filter(|p| p.address == m.address && p.what == what).count();
            let (begun, ended) = (of(PowerEvent::Begin), of(PowerEvent::End(Some(0))));
            let retried = self
                .acknowledged
                .iter()
                .filter(|t| t.command == AcknowledgedCommand::Order(index, "retry".to_owned()))
                .count();
            let _ =
                writeln!(text, "  {:4} {begun} commands started, {ended} succeeded, {retried} retries ordered", m.name);
            if ended == 0 || begun > 1 + retried {
                wrong.push(&m.name);
            }
        }
        let api_servers: Vec<&str> =
            self.machines.iter().filter(|m| m.control_plane).map(|m| m.address.as_str()).collect();
        let (mut at_once, mut most) = (std::collections::BTreeSet::new(), 0);
        for p in record.power.iter().filter(|p| api_servers.contains(&p.address.as_str())) {
            if p.what == PowerEvent::Begin {
                at_once.insert(&p.address)
            } else {
                at_once.remove(&p.address)
            };
            most = most.max(at_once.len());
        }
        let cordons = self.world.cordoned();
        let _ = writeln!(text, "  API servers in progress at once: at most {most}; nodes still cordoned: {cordons:?}");
        let counts = (record.keys.len(), record.objects.len(), record.api_requests.len(), record.power.len());
        let _ =
            writeln!(text, "  keys, objects, requests, power lines: {counts:?}; {} s", self.began.elapsed().as_secs());
        say(&text);
        assert!(wrong.is_empty(), "never power-cycled, or more often than ordered: {wrong:?}");
        assert!(most <= 1 && cordons.is_empty() && self.deaths >= 5);
    }
}

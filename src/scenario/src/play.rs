//! The director: sets up a scenario as an operator would, and then plays its script at the given times.

use std::time::Duration;

use cketerm_actions::{ActionError, BmcLookup, Operator};
use cketerm_engine::{backends::Backends, run::Handle};
use cketerm_model::{
    cketerm_records::{EngineMode, Verb, Who},
    clock::Clock,
    cluster::{parse, written},
    entry::{EntryId, QueueKind},
    fence::Person,
    names::Address,
    stored::keys::SwitchName,
    time::after,
};
use cketerm_runtime::tasks::Gate;
use cketerm_sandbox::{
    Sandbox,
    durations::duration_from_secs,
    kubernetes::{
        api::ApiOptions,
        resource::{BUDGETS, NODES, PODS},
    },
    machines::Machine,
    workload::PROTECTED,
};
use serde_json::{Value, json};

use super::{
    backends::{Links, SABAKAN, backends},
    cke::CkeService,
    data::{MachineSelector, NodeCounts, Scenario, ScriptStep},
    hosts, registry,
    repairs::{self, outside},
};

/// Options for playing a scenario.
#[derive(Clone, Debug)]
pub struct Options {
    /// Number of nodes, instead of the scenario's.
    pub nodes: Option<u32>,
    /// Seed for every random choice.
    pub seed: u64,
    /// Speed-up factor of machines and script.
    pub speed: f64,
    /// Beginning of the definition's commands. The verb, the address and the time follow.
    pub program: Vec<String>,
    /// Control plane probe for the policy.
    pub probe: String,
    /// Configuration of the API server.
    pub api: ApiOptions,
    /// URL of sabakan.
    pub sabakan: String,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            nodes: None,
            seed: 1,
            speed: 1.0,
            program: vec!["sandbox-machine".to_owned()],
            probe: "https://{address}:6443/readyz".to_owned(),
            api: ApiOptions::default(),
            sabakan: SABAKAN.to_owned(),
        }
    }
}

/// A sandbox that is set up for a scenario.
pub struct Stage {
    /// The data centre.
    pub sandbox: Sandbox,
    scenario: Scenario,
    options: Options,
    clock: Clock,
    workers: Vec<Machine>,
    control_planes: Vec<Machine>,
    outside: Vec<Machine>,
    rival: Option<(Gate, Handle)>,
    cke: Option<CkeService>,
}

impl Stage {
    /// Builds the data centre. Stores the definition, constraints, policy and identity as an operator would.
    pub async fn set(scenario: Scenario, options: Options, clock: Clock) -> Result<Self, String> {
        // Boxed because the future is large.
        Box::pin(Self::build(scenario, options, clock)).await
    }

    async fn build(mut scenario: Scenario, options: Options, clock: Clock) -> Result<Self, String> {
        if let Some(nodes) = options.nodes {
            scenario.population.nodes = nodes;
        }
        registry::move_nodes_to_spares(&mut scenario.population);
        let pace = scenario.pace.divided_by(options.speed);
        let sandbox = Sandbox::new(&scenario.population, pace, options.api.clone(), clock.clone(), options.seed)?;
        let machines = sandbox.machines.list();
        let (mut control_planes, mut workers): (Vec<Machine>, Vec<Machine>) =
            machines.into_iter().partition(|m| m.control_plane);
        let outside: Vec<Machine> = (1..=scenario.outside).map(outside).collect();
        for machine in &outside {
            sandbox.machines.rack(machine.clone());
        }
        for list in [&mut control_planes, &mut workers] {
            list.sort_by(|a, b| (a.name.len(), &a.name).cmp(&(b.name.len(), &b.name)));
        }
        let mut stage =
            Self { sandbox, scenario, options, clock, workers, control_planes, outside, rival: None, cke: None };
        if let Some(host) = &stage.scenario.cke {
            // CKE ran here before cketerm came, so cketerm's policy is not to campaign.
            let delays = [host.interval, host.write_delay].map(|delay| duration_from_secs(delay / stage.options.speed));
            let seed = stage.options.seed;
            stage.cke = Some(CkeService::start(&stage.sandbox, host, delays, seed, &stage.clock).await?);
        }
        stage.settings().await.map_err(|e| format!("cannot set up the sandbox: {e}"))?;
        if stage.scenario.rival {
            let gate = Gate::default();
            let rival = stage.backends("standby-host");
            let handle = gate.hold(async move { rival.start(EngineMode::Daemon, true, None) }).await;
            // The rival must lead before any other engine exists.
            let mut seen = handle.seen();
            let leads = seen.wait_for(|seen| seen.snapshot.engine.leading.is_some());
            if !matches!(tokio::time::timeout(Duration::from_mins(1), leads).await, Ok(Ok(_))) {
                return Err("the sandbox's other engine did not become leader".to_owned());
            }
            stage.rival = Some((gate, handle));
        }
        Ok(stage)
    }

    /// Returns the backends of an engine on this host.
    pub fn backends(&self, host: &str) -> Backends {
        let links = Links::new(host, &Gate::default(), self.options.seed);
        backends(&self.sandbox, host, self.clock.clone(), &links)
    }

    /// Returns the actions of an operator with this name.
    pub fn operator(&self, user: &str) -> Operator {
        let backends = self.backends("console");
        let who = Who { user: user.to_owned(), host: "console".to_owned(), ssh_client: None };
        let bmcs = BmcLookup::new(backends.bmcs).and_registry(backends.store.clone(), backends.registry);
        Operator {
            store: backends.store,
            kube: backends.kube,
            person: Person::asks(&who),
            bmcs: Some(bmcs),
            handover: false,
        }
    }

    /// Returns the CKE of the scenario, or `None` if it has none.
    pub fn cke(&self) -> Option<&CkeService> {
        self.cke.as_ref()
    }

    /// Returns the cluster definition of this stage.
    pub fn definition(&self) -> Value {
        let command = |verb: &str| {
            let mut argv = self.options.program.clone();
            argv.push(verb.to_owned());
            argv
        };
        // A site with few workers can spare only a few of them.
        let max_concurrent = self.workers.len().div_ceil(5).max(1);
        let mut reboot = json!({
            "reboot_command": command("reboot"),
            "boot_check_command": command("check"),
            "max_concurrent_reboots": 3,
            "eviction_timeout_seconds": 120,
            "command_timeout_seconds": 60,
            "command_retries": 1,
            "command_interval": 5,
            "evict_retries": 6,
            "evict_interval": 3,
            // The sandbox's `report` Jobs may lose their pods and get new ones. A Job `nightly` may not.
            "protected_job_pods": {"matchLabels": {"app": "nightly"}},
            "protected_namespaces": {"matchLabels": {PROTECTED: "true"}},
        });
        for (name, value) in &self.scenario.reboot {
            reboot[name] = value.clone();
        }
        if reboot["max_concurrent_reboots"].as_u64().is_some_and(|n| n > max_concurrent as u64) {
            reboot["max_concurrent_reboots"] = json!(max_concurrent);
        }
        let mut repair = repairs::section(&command, &reboot);
        for (name, value) in &self.scenario.repair {
            repair[name] = value.clone();
        }
        let machines = self.control_planes.iter().chain(&self.workers);
        let racks = self.scenario.racks;
        let nodes: Vec<Value> = machines
            .enumerate()
            .map(|(i, m)| {
                let mut node = json!({
                    "address": m.address, "hostname": m.name, "user": "cybozu", "control_plane": m.control_plane,
                });
                if racks > 0 {
                    node["labels"] = json!({"cke.cybozu.com/rack": (i % racks).to_string()});
                }
                node
            })
            .collect();
        let mut definition = json!({
            "name": "sandbox", "nodes": nodes, "service_subnet": "10.68.0.0/16", "reboot": reboot, "repair": repair,
        });
        if self.scenario.cke.is_some() {
            // CKE refuses a definition without it.
            definition["options"] = json!({"kubelet": {"cri_endpoint": "/run/containerd/containerd.sock"}});
        }
        definition
    }

    async fn settings(&self) -> Result<(), ActionError> {
        // Under a CKE leader the policy is stored for the time after it.
        let operator = Operator { handover: true, ..self.operator("sandbox") };
        let population = &self.scenario.population;
        let bare = population.registry.as_ref().is_some_and(|r| r.bare);
        let count = if bare { population.control_planes as usize } else { self.control_planes.len() };
        operator.set_constraint("control-plane-count", &count.to_string(), None).await?;
        // A machine that has just booted is not Ready for some seconds. With 0 each of them would stop the queue.
        let unreachable = (self.workers.len() / 10).max(1).to_string();
        operator.set_constraint("maximum-unreachable-nodes-for-reboot", &unreachable, None).await?;
        let text = self.definition().to_string();
        if bare {
            // A bare registry has no definition until one is generated.
        } else if let Err(e) = operator.set_cluster(&text, None).await {
            // The definition is larger than cketerm writes. The sandbox may be that large, so it is stored directly.
            if text.len() < 1 << 20 {
                return Err(e);
            }
            let definition = parse(&text).map_err(|e| ActionError::failed(e.clone()))?;
            self.sandbox.etcd.put(operator.store.keys().cluster(), written(&definition).to_string());
        }
        operator.set_policy("settle_seconds", "5", None).await?;
        operator.set_policy("control_plane_probe", &self.options.probe, None).await?;
        if let Some(registry) = &population.registry {
            registry::settings(&operator, registry, self.workers.len(), self.definition(), &self.options.sabakan)
                .await?;
        }
        for (name, value) in &self.scenario.policy {
            let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
            operator.set_policy(name, &text, None).await?;
        }
        operator.confirm_identity(None).await.map(drop)
    }

    /// Plays the script to its end. Failed scenes are logged and do not stop the script.
    pub async fn play(&self) {
        Box::pin(self.run_script()).await;
    }

    async fn run_script(&self) {
        let began = tokio::time::Instant::now();
        for step in &self.scenario.script {
            let at = duration_from_secs(step.after / self.options.speed);
            tokio::time::sleep_until(began + at).await;
            if let Err(why) = Box::pin(self.run_step(step)).await {
                tracing::warn!(
                    scenario = self.scenario.name,
                    after = step.after.get(),
                    why,
                    "a scene of the scenario failed"
                );
            }
        }
    }

    async fn run_step(&self, step: &ScriptStep) -> Result<(), String> {
        let operator = self.operator(&step.by);
        if let Some(queue) = &step.queue {
            let reason = queue.reason.as_deref();
            operator.add_reboots(&self.addresses(queue.nodes), reason).await.map_err(|e| e.to_string())?;
        }
        if let Some(nth) = step.cancel {
            let (index, _) = self.entry(&operator, nth.node).await?;
            operator.cancel_reboot(index, None, Some("changed my mind")).await.map_err(|e| e.to_string())?;
        }
        for (nth, cordon) in [(step.cordon, true), (step.uncordon, false)] {
            if let Some(nth) = nth {
                self.cordon(&self.worker(nth.node)?.name, cordon)?;
            }
        }
        for (budget, allowed) in [(&step.tight, 0), (&step.loosen, 1)] {
            if let Some(budget) = budget {
                self.budget(&budget.namespace, &budget.name, allowed)?;
            }
        }
        if let Some(nth) = step.retry {
            let (index, _) = self.entry(&operator, nth.node).await?;
            let ordered = operator.order(EntryId::reboot(index), Verb::Retry, None, Some("power-cycled manually"));
            ordered.await.map_err(|e| e.to_string())?;
        }
        if let Some(machine) = &step.machine {
            let machine_selector = MachineSelector { node: machine.node.max(machine.at.node), ..machine.at.clone() };
            self.sandbox.machines.behave(&self.address(&machine_selector)?, machine.behaves.clone());
        }
        if let Some(broken) = &step.breaks {
            let address = self.address(&broken.at)?;
            self.sandbox.machines.behave(&address, broken.behaves.clone());
            self.sandbox.machines.fail_permanently(&address);
        }
        if let Some(repair) = &step.repair {
            let wanted = repairs::wanted(repair, self.address(&repair.at)?);
            operator.add_repair(&wanted, repair.reason.as_deref()).await.map_err(|e| e.to_string())?;
        }
        if let Some(enabled) = step.repairs {
            let set = operator.set_switch(SwitchName::Repairs, enabled, None);
            set.await.map_err(|e| e.to_string())?;
        }
        for (wanted, enabled) in [(step.disable, false), (step.enable, true)] {
            if wanted {
                operator
                    .set_switch(SwitchName::Reboots, enabled, Some("change freeze"))
                    .await
                    .map_err(|e| e.to_string())?;
            }
        }
        if let Some(freeze) = &step.freeze {
            let until = after(operator.store.clock().wall(), freeze.seconds);
            operator.freeze(until, &freeze.reason).await.map_err(|e| e.to_string())?;
        }
        if step.unfreeze {
            operator.unfreeze(None).await.map_err(|e| e.to_string())?;
        }
        if let Some(what) = &step.annotate {
            hosts::annotate(&self.sandbox, &self.worker(what.node)?.name, what)?;
        }
        if let Some(change) = &step.registers {
            registry::change(&self.sandbox, change)?;
        }
        if let Some(enabled) = step.sabakan {
            let set = operator.set_switch(SwitchName::Sabakan, enabled, None);
            set.await.map_err(|e| e.to_string())?;
        }
        if step.reset_backoff {
            operator.reset_backoff(QueueKind::Reboot, None, None).await.map_err(|e| e.to_string())?;
        }
        if let Some(cke) = &self.cke {
            if step.stop_cke {
                cke.stop();
            }
            if step.start_cke {
                cke.start_again(&self.sandbox, &self.clock);
            }
        }
        if step.kill_rival
            && let Some((gate, _)) = &self.rival
        {
            gate.kill();
        }
        Ok(())
    }

    fn addresses(&self, node_counts: NodeCounts) -> Vec<Address> {
        let workers = self.workers.iter().take(node_counts.workers);
        let control_planes = self.control_planes.iter().take(node_counts.control_planes);
        workers.chain(control_planes).map(|m| Address::new(&m.address)).collect()
    }

    /// Returns the index and the ModRevision of a worker's first entry.
    async fn entry(&self, operator: &Operator, nth: usize) -> Result<(u64, i64), String> {
        let address = &self.worker(nth)?.address;
        let view = operator.store.read_view().await.map_err(|e| e.to_string())?;
        let entry = view.reboots.entries.iter().find(|(_, e)| e.get().is_some_and(|e| e.node == address.as_str()));
        let (index, stored) = entry.ok_or_else(|| format!("no entry of {address} is queued"))?;
        Ok((*index, stored.mod_revision))
    }

    /// Returns the address of one machine.
    fn address(&self, machine_selector: &MachineSelector) -> Result<String, String> {
        if let Some((namespace, name)) = machine_selector.with.split_once('/') {
            let pod = self.sandbox.objects.get(&PODS, namespace, name);
            let node = pod.as_ref().and_then(|p| p["spec"]["nodeName"].as_str());
            let node = node.ok_or_else(|| format!("pod {} runs on no node", machine_selector.with))?;
            return self.sandbox.machines.address_of(node).ok_or_else(|| format!("{node} is not a machine"));
        }
        let (list, nth, what) = match (machine_selector.control_plane, machine_selector.outside) {
            (0, 0) => return self.worker(machine_selector.node).map(|m| m.address.clone()),
            (0, nth) => (&self.outside, nth, "machine outside"),
            (nth, _) => (&self.control_planes, nth, "API server"),
        };
        let found = list.get(nth - 1).map(|m| m.address.clone());
        found.ok_or_else(|| format!("there is no {what} {nth}"))
    }

    fn worker(&self, nth: usize) -> Result<&Machine, String> {
        let found = nth.checked_sub(1).and_then(|at| self.workers.get(at));
        found.ok_or_else(|| format!("there is no worker {nth}"))
    }

    /// Cordons or uncordons a node like `kubectl cordon`, outside cketerm.
    fn cordon(&self, node: &str, cordon: bool) -> Result<(), String> {
        let changed = self.sandbox.objects.update(&NODES, "", node, |node| {
            if cordon {
                node["spec"]["unschedulable"] = json!(true);
            } else {
                node["spec"].as_object_mut().and_then(|spec| spec.remove("unschedulable"));
            }
            Ok(())
        });
        changed.map(drop).map_err(|e| e.message)
    }

    /// Sets `maxUnavailable` of a budget, outside cketerm.
    fn budget(&self, namespace: &str, name: &str, allowed: u32) -> Result<(), String> {
        let changed = self.sandbox.objects.update(&BUDGETS, namespace, name, |budget| {
            let selector = budget["spec"]["selector"].clone();
            budget["spec"] = json!({"selector": selector, "maxUnavailable": allowed});
            Ok(())
        });
        changed.map(drop).map_err(|e| e.message)
    }
}

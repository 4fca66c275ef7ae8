//! The steps that a world can make: engines, machines, people, faults and time.

use cketerm_model::{
    attempt::{Ended, Outcome},
    cketerm_records::{Order, Verb, Who},
    entry::{EntryId, QueueKind, Stored},
    reboot::{RebootEntry, RebootStatus},
};

use crate::{
    engine::{Process, Stage},
    laws::Breach,
    world::{TTL, World, keys, seconds},
};

/// One step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// The leader makes a pass.
    Pass(u8),
    /// An effect of this engine goes on.
    Run(u8, u8),
    /// An effect of this engine goes on, but its request does not arrive.
    LoseRequest(u8, u8),
    /// An effect of this engine goes on, but the answer to its request does not arrive.
    LoseAnswer(u8, u8),
    /// Time passes until something is due.
    Tick,
    /// This engine wins the lock.
    Elect(u8),
    /// The lease of this engine, which does not run, expires.
    Expire(u8),
    /// The process of this engine ends.
    Kill(u8),
    /// The process of this engine stands still. Effects that have their permits are carried out however late.
    Stall(u8),
    /// It goes on.
    Resume(u8),
    /// This command ends: its machine goes down, or the command fails.
    CommandEnds(u8, bool),
    /// This machine boots.
    Boot(u8),
    /// The terminating pod of this machine is gone.
    PodGone(u8),
    /// An operator cancels this reboot.
    Cancel(u8),
    /// CKE's client reads this reboot.
    BlindRead(u8),
    /// CKE's client writes it back as cancelled.
    BlindWrite,
    /// An operator gives an order for this reboot.
    Order(u8, Given),
    /// An operator removes the hold of this reboot.
    Unhold(u8),
    /// An operator disables the reboot queue, or enables it.
    Switch(bool),
    /// An administrator cordons this Node, or uncordons it.
    Cordon(u8, bool),
    /// An administrator marks this Node, so that its cordon stays.
    Keep(u8),
    /// From here on the fair run goes on, without further faults and people. Only in traces.
    Rest,
}

/// An order of an operator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Given {
    /// `rq hold`
    Hold,
    /// `rq done`
    Done,
    /// `rq retry`
    Retry,
    /// `rq uncordon`, for the Node of an entry that is gone
    Uncordon,
}

/// Longest and shortest time between two passes without a change, in seconds.
const TICKS: [i64; 2] = [30, 3600];

impl World {
    /// Returns the steps that are possible now.
    pub fn steps(&self) -> Vec<Step> {
        let mut all = Vec::with_capacity(16);
        for place in 0..self.engines.len() {
            self.engine_steps(place, &mut all);
        }
        for (place, command) in self.commands.iter().enumerate() {
            let number = small(place);
            all.push(Step::CommandEnds(number, true));
            if self.budget.failures > 0 && command.entry.queue == QueueKind::Reboot {
                all.push(Step::CommandEnds(number, false));
            }
        }
        for (place, machine) in self.machines.iter().enumerate() {
            let number = small(place);
            if machine.down {
                all.push(Step::Boot(number));
            }
            if self.pods(place).any(|pod| pod.terminating_since.is_some()) {
                all.push(Step::PodGone(number));
            }
            if self.budget.cordons > 0 {
                let is_cordoned = self.node(place).is_some_and(|node| node.unschedulable);
                all.push(Step::Cordon(number, !is_cordoned));
                if is_cordoned && self.node(place).is_some_and(|node| !node.keep_cordoned) {
                    all.push(Step::Keep(number));
                }
            }
        }
        self.peoples_steps(&mut all);
        if self.may_tick() {
            all.push(Step::Tick);
        }
        all
    }

    fn engine_steps(&self, place: usize, all: &mut Vec<Step>) {
        let (engine, number) = (&self.engines[place], small(place));
        let holds = self.holds_lock(place);
        match engine.life {
            Process::Runs => {
                if engine.leading.is_some() && engine.dirty {
                    all.push(Step::Pass(number));
                }
                all.extend(self.runnable(place).map(|flight| Step::Run(number, small(flight))));
                if self.budget.losses > 0 {
                    all.extend(self.may_lose_request(place).map(|flight| Step::LoseRequest(number, small(flight))));
                    all.extend(self.may_lose_answer(place).map(|flight| Step::LoseAnswer(number, small(flight))));
                }
                if engine.leading.is_none() && self.etcd.view.candidates.is_empty() {
                    all.push(Step::Elect(number));
                }
                if holds && self.budget.kills > 0 {
                    all.push(Step::Kill(number));
                }
                if holds && self.budget.stalls > 0 {
                    all.push(Step::Stall(number));
                }
            }
            Process::Stalled => all.push(Step::Resume(number)),
            Process::Dead => {}
        }
        if engine.life != Process::Runs && holds && self.has_expired(place) {
            all.push(Step::Expire(number));
        }
    }

    fn has_expired(&self, place: usize) -> bool {
        let acknowledged = self.engines[place].leading.as_ref().map(|leading| leading.acknowledged);
        acknowledged.is_some_and(|at| self.boot() >= at + seconds(TTL))
    }

    fn peoples_steps(&self, all: &mut Vec<Step>) {
        let budget = &self.budget;
        for entry in self.etcd.view.reboots.entries.values().filter_map(Stored::get) {
            let number = u8::try_from(entry.index).unwrap_or(u8::MAX);
            let open = entry.status != RebootStatus::Cancelled;
            let order = self.etcd.view.orders.get(&EntryId::reboot(entry.index)).and_then(Stored::get);
            if budget.cancels > 0 && open {
                all.push(Step::Cancel(number));
            }
            if budget.blind_cancels > 0 && open && self.blind.is_none() {
                all.push(Step::BlindRead(number));
            }
            match order.map(|order| order.verb) {
                Some(Verb::Hold) => all.push(Step::Unhold(number)),
                None if open => {
                    if budget.holds > 0 {
                        all.push(Step::Order(number, Given::Hold));
                    }
                    if budget.dones > 0 && entry.status == RebootStatus::Rebooting {
                        all.push(Step::Order(number, Given::Done));
                    }
                    if budget.retries > 0 && entry.status == RebootStatus::Rebooting {
                        all.push(Step::Order(number, Given::Retry));
                    }
                }
                Some(_) | None => {}
            }
        }
        if self.blind.is_some() {
            all.push(Step::BlindWrite);
        }
        let enabled = self.etcd.view.reboots.switch.enabled();
        if !enabled || budget.switches > 0 {
            all.push(Step::Switch(!enabled));
        }
    }

    /// Time passes only once no engine has anything to do at once. A process that stands still has nothing to do.
    fn may_tick(&self) -> bool {
        let idle = |place: usize| {
            let engine = &self.engines[place];
            let electable = engine.leading.is_none() && self.etcd.view.candidates.is_empty();
            let works = engine.leading.is_some() && engine.dirty || self.runnable(place).next().is_some();
            engine.life != Process::Runs || !(electable || works)
        };
        let in_time = self.commands.iter().all(|command| self.boot() < command.began + seconds(30));
        in_time && (0..self.engines.len()).all(idle)
    }

    /// Makes a step. The error is the invariant that it breaks.
    pub fn step(&mut self, step: Step) -> Result<(), Breach> {
        self.make(step)?;
        self.breach.take().map_or(Ok(()), Err)
    }

    fn make(&mut self, step: Step) -> Result<(), Breach> {
        match step {
            Step::Pass(engine) => self.pass(usize::from(engine)),
            Step::Run(engine, number) => self.run(usize::from(engine), usize::from(number))?,
            Step::LoseRequest(engine, number) => {
                self.budget.losses -= 1;
                self.lose_request(usize::from(engine), usize::from(number));
            }
            Step::LoseAnswer(engine, number) => {
                self.budget.losses -= 1;
                self.lose_answer(usize::from(engine), usize::from(number))?;
            }
            Step::Tick => self.tick(),
            Step::Elect(engine) => self.elect(usize::from(engine)),
            Step::Expire(engine) => {
                let key = self.leader_key(usize::from(engine));
                self.etcd.delete(keys(), &key);
                let engine = &mut self.engines[usize::from(engine)];
                if engine.life == Process::Dead {
                    engine.leading = None;
                }
                self.changed();
            }
            Step::Kill(engine) => {
                self.budget.kills -= 1;
                let engine = &mut self.engines[usize::from(engine)];
                let leading = engine.leading.take();
                engine.stop_leading();
                (engine.life, engine.leading) = (Process::Dead, leading);
            }
            Step::Stall(engine) => self.stall(usize::from(engine)),
            Step::Resume(engine) => {
                let engine = &mut self.engines[usize::from(engine)];
                (engine.life, engine.dirty) = (Process::Runs, true);
            }
            Step::CommandEnds(number, well) => self.command_ends(usize::from(number), well),
            Step::Boot(place) => {
                let place = usize::from(place);
                let machine = &mut self.machines[place];
                machine.boots += 1;
                (machine.down, machine.commanded) = (false, false);
                let boot_id = format!("boot-{}", machine.boots);
                self.change_node(place, |node| (node.ready, node.boot_id) = (true, boot_id));
                self.changed();
            }
            Step::PodGone(place) => {
                self.set_pod(usize::from(place), None);
                self.changed();
            }
            Step::Cancel(index) => {
                self.budget.cancels -= 1;
                if let Some(entry) = self.reboot(index) {
                    self.write_reboot(&entry.moved_to(RebootStatus::Cancelled, self.wall()));
                }
            }
            Step::BlindRead(index) => {
                self.budget.blind_cancels -= 1;
                self.blind = self.reboot(index);
            }
            Step::BlindWrite => {
                if let Some(entry) = self.blind.take() {
                    // CKE's client changes the status alone
                    self.write_reboot(&RebootEntry { status: RebootStatus::Cancelled, ..entry });
                }
            }
            Step::Order(index, given) => self.order(index, given),
            Step::Unhold(index) => {
                self.etcd.delete(keys(), &keys().order(EntryId::reboot(u64::from(index))));
                self.changed();
            }
            Step::Switch(enabled) => {
                self.budget.switches = self.budget.switches.saturating_sub(u8::from(!enabled));
                let key = keys().switch(QueueKind::Reboot.into());
                self.etcd.put(keys(), &key, if enabled { "false" } else { "true" });
                self.changed();
            }
            Step::Rest => {}
            Step::Keep(place) => {
                self.budget.cordons -= 1;
                self.machines[usize::from(place)].touched_by_admin = true;
                self.machines[usize::from(place)].cordoned_by_admin = true;
                self.change_node(usize::from(place), |node| node.keep_cordoned = true);
                self.changed();
            }
            Step::Cordon(place, cordoned) => {
                self.budget.cordons -= 1;
                // a cordon on top of cketerm's, which its record does not tell apart, goes with it
                let is_own = self.node(usize::from(place)).is_some_and(|node| node.owner().is_some());
                let machine = &mut self.machines[usize::from(place)];
                (machine.touched_by_admin, machine.cordoned_by_admin) = (true, cordoned && !is_own);
                self.change_node(usize::from(place), |node| node.unschedulable = cordoned);
                self.changed();
            }
        }
        Ok(())
    }

    fn tick(&mut self) {
        let due = self.engines.iter().filter(|engine| engine.life == Process::Runs && engine.leading.is_some());
        let due = due.flat_map(|engine| engine.wake.into_iter().chain(engine.paused.values().copied()));
        let next = due.map(|at| (at - self.boot()).ceil().whole()).min().unwrap_or(60);
        // a lease that nobody renews expires before anything later happens
        let longest = if self.engines.iter().any(|engine| engine.life != Process::Runs) { TTL } else { TICKS[1] };
        self.now += next.clamp(TICKS[0], longest);
        self.refresh();
        let boot = self.boot();
        for engine in self.engines.iter_mut().filter(|engine| engine.life == Process::Runs) {
            if let Some(leading) = &mut engine.leading {
                leading.acknowledged = boot;
            }
            engine.dirty = engine.leading.is_some();
        }
    }

    fn stall(&mut self, place: usize) {
        self.budget.stalls -= 1;
        let permitted: Vec<bool> = self.engines[place]
            .flights
            .iter()
            .map(|flight| {
                matches!(flight.stage, Stage::Begin)
                    && self.permit(place, &flight.planned.guard, flight.decided).is_ok()
            })
            .collect();
        let engine = &mut self.engines[place];
        engine.life = Process::Stalled;
        for (flight, has_permit) in engine.flights.iter_mut().zip(permitted) {
            if has_permit {
                flight.stage = Stage::Permitted;
            }
        }
    }

    fn command_ends(&mut self, number: usize, well: bool) {
        let command = self.commands.remove(number);
        let end = if well { Ended::Exit(0) } else { Ended::Exit(1) };
        let outcome = Outcome { end, at: self.wall(), stdout: String::new(), stderr: String::new() };
        for flight in &mut self.engines[command.engine].flights {
            if let Stage::Running(attempt, revision) = &flight.stage
                && attempt.id == command.attempt
            {
                flight.stage = Stage::Ended(attempt.clone(), *revision, outcome.clone());
            }
        }
        if well {
            let machine = &mut self.machines[command.machine];
            (machine.down, machine.commanded) = (true, true);
            self.change_node(command.machine, |node| node.ready = false);
            self.changed();
        } else {
            self.budget.failures -= 1;
        }
    }

    fn order(&mut self, index: u8, given: Given) {
        let id = EntryId::reboot(u64::from(index));
        let verb = match given {
            Given::Hold => {
                self.budget.holds -= 1;
                Verb::Hold
            }
            Given::Done => {
                self.budget.dones -= 1;
                self.counts.done.insert(id);
                if let Some(place) = self.machine_of(id) {
                    self.machines[place].commanded = false;
                }
                Verb::Done
            }
            Given::Uncordon => {
                self.budget.dones -= 1;
                Verb::Uncordon
            }
            Given::Retry => {
                self.budget.retries -= 1;
                *self.counts.ordered.entry(id).or_default() += 1;
                Verb::Retry
            }
        };
        let order = Order {
            verb,
            who: Who::default(),
            at: self.wall(),
            reason: None,
            entry_revision: self.etcd.mod_revision(&keys().entry(id)),
        };
        let text = serde_json::to_string(&order).unwrap_or_default();
        self.etcd.put(keys(), &keys().order(id), &text);
        self.changed();
    }

    fn reboot(&self, index: u8) -> Option<RebootEntry> {
        self.etcd.view.reboots.entries.get(&u64::from(index)).and_then(Stored::get).cloned()
    }

    fn write_reboot(&mut self, entry: &RebootEntry) {
        let text = serde_json::to_string(entry).unwrap_or_default();
        self.etcd.put(keys(), &keys().reboot(entry.index), &text);
        self.changed();
    }
}

fn small(number: usize) -> u8 {
    u8::try_from(number).unwrap_or(u8::MAX)
}

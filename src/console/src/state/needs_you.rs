//! Everything that waits for a person, as one list over all parts of the cluster: entries, machines, hosts, the
//! definition, the leader and the data sources. The Overview shows it, the header counts it, and one key goes through
//! it, so that all three always agree.
//!
//! The list is made once per published state. The keys of a line are decided when it is shown, because they depend on
//! rights and permission in time, too.

mod entries;

use std::collections::BTreeMap;

use cketerm_model::{entry::QueueKind, reason::Reason};
use cketerm_rules::{decide::ApplyState, publish::MAX_WAITING};
use cketerm_sabakan::change::Kind;
use jiff::{SignedDuration, Timestamp};
use unicode_width::UnicodeWidthStr;

use super::{
    App, View, available,
    batches::BatchSummary,
    calendar, leaders,
    object::Object,
    queries::{self, Leader},
    registry, short_text, sources,
};
use crate::{keys::Command, theme::Severity};

/// Most names of objects with one cause that are kept.
const MAX_NAMES: usize = 6;

/// Importance of a line, the greatest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Urgency {
    /// Nothing moves, or nothing is known.
    Everything,
    /// Something failed, or is stuck until a person acts.
    Stuck,
    /// Something waits for a decision, or may still end by itself.
    Waits,
}

/// A line: an object that waits for a person.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NeedsYou {
    /// The object. Of several with one cause: the one that has waited longest.
    pub object: Object,
    /// Its name.
    pub name: String,
    /// Number of objects with the same cause.
    pub count: usize,
    /// All objects with the same cause, this one first: the keys of the line act on all of them.
    pub objects: Vec<Object>,
    /// Names of the first of these objects, this one first.
    names: Vec<String>,
    /// Views of the other reasons for which the same machine waits.
    pub more_reasons: Vec<View>,
    /// Description of the fault.
    pub what: String,
    /// Time since which it has waited.
    pub since: Option<Timestamp>,
    /// Its importance.
    pub urgency: Urgency,
    /// Commands that end it, the usual one first.
    remedies: Vec<Command>,
}

impl NeedsYou {
    fn new(object: Object, name: impl Into<String>, what: impl Into<String>, urgency: Urgency) -> Self {
        let (name, what) = (short_text::safe(&name.into()), short_text::safe(&what.into()));
        let names = vec![name.clone()];
        Self {
            objects: vec![object.clone()],
            object,
            name,
            count: 1,
            names,
            more_reasons: Vec::new(),
            what,
            since: None,
            urgency,
            remedies: Vec::new(),
        }
    }

    fn since(self, since: Option<Timestamp>) -> Self {
        Self { since, ..self }
    }

    /// Adds an object with the same cause. The line is about the one that has waited longest.
    fn add(&mut self, other: Self) {
        if self.names.contains(&other.name) {
            // one machine in both queues
            self.more_reasons.push(other.object.view());
            return;
        }
        let count = self.count + 1;
        let mut objects = std::mem::take(&mut self.objects);
        objects.push(other.object.clone());
        let mut names = std::mem::take(&mut self.names);
        names.extend(other.names.first().cloned().filter(|_| names.len() < MAX_NAMES));
        if self.since.is_none_or(|at| other.since.is_some_and(|since| since < at)) && other.since.is_some() {
            *self = other;
        }
        names.retain(|name| *name != self.name);
        names.insert(0, self.name.clone());
        objects.retain(|object| *object != self.object);
        objects.insert(0, self.object.clone());
        (self.count, self.names, self.objects) = (count, names, objects);
    }

    /// Sets the other objects with the same cause.
    fn others<'a>(mut self, all: impl ExactSizeIterator<Item = (&'a str, Object)>) -> Self {
        self.count = all.len();
        for (name, object) in all.filter(|(_, object)| *object != self.object).collect::<Vec<_>>() {
            if self.names.len() < MAX_NAMES {
                self.names.push(short_text::safe(name));
            }
            self.objects.push(object);
        }
        self
    }

    fn remedies(self, remedies: &[Command]) -> Self {
        Self { remedies: remedies.to_vec(), ..self }
    }

    /// Returns the severity that colours the line.
    pub fn severity(&self) -> Severity {
        match self.urgency {
            Urgency::Everything | Urgency::Stuck => Severity::Failed,
            Urgency::Waits => Severity::Slow,
        }
    }

    /// Returns the commands that work on the object here and now, the usual one first.
    pub fn keys(&self, app: &App) -> Vec<Command> {
        let works = |command: &Command| available::on(app, *command, &self.object);
        let mut keys: Vec<Command> = self.remedies.iter().copied().filter(works).collect();
        let is_for_one = |command: &Command| available::is_for_one(*command, &self.object);
        if self.objects.len() > 1 && keys.iter().any(is_for_one) {
            // nobody could tell on which of them such a key would act
            keys.retain(|command| !is_for_one(command) && *command != Command::Open);
            keys.insert(0, Command::Open);
        }
        keys
    }

    /// Returns that the line is about several objects, with the names of the others: `1 of 3 with this cause; also w03, w04`.
    pub fn others_named(&self) -> String {
        let others = self.names.get(1..).unwrap_or_default().join(", ");
        let more = if self.count > self.names.len() { " and more" } else { "" };
        format!("{}: 1 of {} with this cause; also {others}{more}", self.name, self.count)
    }

    /// Returns the name, with the number of the others that have the same cause: `w02 +3`.
    pub fn title(&self) -> String {
        self.title_within(0)
    }

    /// Returns the names that fit into this width, at least one, and the number of the others: `w02, w03 +2`.
    pub fn title_within(&self, width: usize) -> String {
        let with_rest = |shown: usize| {
            let names = self.names.get(..shown).unwrap_or_default().join(", ");
            if self.count > shown { format!("{names} +{}", self.count - shown) } else { names }
        };
        let fits = (2..=self.names.len()).rev().map(with_rest).find(|text| text.width() <= width);
        fits.unwrap_or_else(|| with_rest(1))
    }

    /// Reports whether something of this view waits.
    pub fn is_of(&self, view: View) -> bool {
        self.object.view() == view || self.more_reasons.contains(&view)
    }

    /// Returns the name of the machine, if the line is about one.
    fn machine(&self) -> Option<&str> {
        match &self.object {
            Object::Entry(_) | Object::Node(_) | Object::Machine(_) if self.count == 1 => Some(&self.name),
            Object::Entry(_)
            | Object::Node(_)
            | Object::Machine(_)
            | Object::Source(_)
            | Object::Leadership
            | Object::Queue(_)
            | Object::Definition
            | Object::Batch(..)
            | Object::Host(_) => None,
        }
    }
}

/// Time for which a machine may be unhealthy in the registry after its reboot has ended.
const REGISTRY_LAG: SignedDuration = SignedDuration::from_secs(120);

/// Makes the list again. A message about the old list goes with it.
pub fn refresh(app: &mut App) {
    let lines = lines(app);
    if lines != app.knowledge.needs_you {
        app.dismiss_message_about_needs();
    }
    app.knowledge.needs_you = lines;
}

/// Makes the list again if a source was lost or came back, which time alone decides.
pub fn follow_sources(app: &mut App) {
    let lost = sources::lost(app).into_iter().map(|lost| lost.source);
    let listed = app.knowledge.needs_you.iter().filter_map(|line| match &line.object {
        Object::Source(name) => Some(*name),
        _ => None,
    });
    let (mut lost, mut listed): (Vec<_>, Vec<_>) = (lost.collect(), listed.collect());
    lost.sort_unstable();
    listed.sort_unstable();
    if lost != listed {
        refresh(app);
    }
}

/// Returns all lines, the most urgent first, then the oldest.
fn lines(app: &App) -> Vec<NeedsYou> {
    if !app.seen.snapshot.store.synced {
        return Vec::new();
    }
    let mut lines = lost_sources(app);
    lines.extend(leadership(app));
    lines.extend(definition(app));
    lines.extend(queues(app));
    lines.extend(paused_batches(app));
    lines.extend(entries::lines(app));
    lines.extend(entries::slow(app));
    lines.extend(nodes(app));
    lines.extend(hosts(app));
    lines.extend(machines(app));
    lines.sort_by(|a, b| {
        let key = |line: &NeedsYou| (line.urgency, line.since.is_none(), line.since);
        key(a).cmp(&key(b)).then_with(|| a.object.cmp(&b.object))
    });
    one_a_machine(lines)
}

/// Returns one line a machine: the most urgent one, of equally urgent ones that about its entry, which says the most.
fn one_a_machine(lines: Vec<NeedsYou>) -> Vec<NeedsYou> {
    let mut kept: Vec<NeedsYou> = Vec::with_capacity(lines.len());
    let mut places: BTreeMap<String, usize> = BTreeMap::new();
    for mut line in lines {
        let Some(machine) = line.machine().map(str::to_owned) else {
            kept.push(line);
            continue;
        };
        let Some(known) = places.get(&machine).and_then(|place| kept.get_mut(*place)) else {
            places.insert(machine, kept.len());
            kept.push(line);
            continue;
        };
        let is_entry = |line: &NeedsYou| matches!(line.object, Object::Entry(_));
        if line.urgency == known.urgency && is_entry(&line) && !is_entry(known) {
            std::mem::swap(&mut line, known);
        }
        let others = std::mem::take(&mut line.more_reasons);
        known.more_reasons.extend(std::iter::once(line.object.view()).chain(others));
    }
    kept
}

fn lost_sources(app: &App) -> Vec<NeedsYou> {
    let all = sources::lost(app).into_iter().map(|lost| {
        let urgency = if lost.source == "sabakan" { Urgency::Stuck } else { Urgency::Everything };
        let what = match (&lost.error, lost.source) {
            (Some(why), _) => sources::without_addresses(why),
            (None, _) => "does not answer".to_owned(),
        };
        let since = lost.last_seen.map(|at| sources::moment(app, at));
        NeedsYou::new(Object::Source(lost.source), lost.source, what, urgency).since(since).remedies(&[Command::Logs])
    });
    all.collect()
}

/// Returns work that waits while nobody leads, or while the leader only observes.
fn leadership(app: &App) -> Option<NeedsYou> {
    let (totals, engine) = (&app.knowledge.totals, &app.seen.snapshot.engine);
    let open = |queue| {
        let counts = totals.counts(queue);
        counts.queued + counts.backoff + counts.draining + counts.after
    };
    let waiting: usize = QueueKind::ALL.into_iter().map(open).sum();
    let fault = engine.observing.first().map(ToString::to_string).or_else(|| engine.standing_back.clone());
    let what = match sources::current_leader(&app.seen, app.now.boot) {
        Leader::Nobody if waiting > 0 => {
            let here = fault.map(|fault| format!("; here: {fault}")).unwrap_or_default();
            let entries = if waiting == 1 { "1 entry waits".to_owned() } else { format!("{waiting} entries wait") };
            format!("nobody leads: {entries}{here}")
        }
        Leader::Us if !engine.observing.is_empty() => {
            format!("this console leads, but starts nothing: {}", fault.unwrap_or_default())
        }
        Leader::Us | Leader::Other(_) | Leader::Cke(_) | Leader::Nobody | Leader::Unknown => return None,
    };
    Some(NeedsYou::new(Object::Leadership, "leader", what, Urgency::Everything).remedies(&[Command::Lead]))
}

/// Returns faults of the stored definition, and what a generated one waits for.
fn definition(app: &App) -> Vec<NeedsYou> {
    let seen = &app.seen;
    let mut lines = Vec::new();
    if let [first, rest @ ..] = app.knowledge.totals.faults.as_slice() {
        let line = NeedsYou::new(Object::Definition, "definition", first.clone(), Urgency::Everything);
        lines.push(NeedsYou { count: 1 + rest.len(), ..line });
    }
    let hold = seen.snapshot.store.registry.hold.as_ref().filter(|_| leaders::not_in_force(app).is_none());
    let changes = registry::proposed(seen).filter(|proposed| proposed.plan.changed).map(changes);
    let line = match (&*seen.applying, hold, changes) {
        // the lost source has a line of its own
        (ApplyState::Error(_), ..) if seen.snapshot.registry.members.error.is_some() => None,
        (ApplyState::Error(why), ..) => Some(NeedsYou::new(Object::Definition, "diff", why.clone(), Urgency::Stuck)),
        (ApplyState::Waits(_), Some(hold), Some(changes)) => {
            let record = hold.get();
            let by = record.map(|hold| format!(" by {}", hold.who.user)).unwrap_or_default();
            let what = format!("{changes}: on hold{by}");
            let line = NeedsYou::new(Object::Definition, "diff", what, Urgency::Waits).remedies(&[Command::Unhold]);
            Some(line.since(record.map(|hold| hold.at)))
        }
        (ApplyState::Approval(_, why), _, changes) => {
            let changes = changes.map(|changes| format!("{changes}: ")).unwrap_or_default();
            let what = format!("{changes}waits for approval ({why})");
            let line = NeedsYou::new(Object::Definition, "diff", what, Urgency::Waits);
            Some(line.remedies(&[Command::Approve, Command::Hold]))
        }
        (
            ApplyState::Off
            | ApplyState::Disabled(_)
            | ApplyState::Settled
            | ApplyState::Waits(_)
            | ApplyState::Applies,
            ..,
        ) => None,
    };
    lines.extend(line);
    lines
}

/// Returns the changes of a plan in words: `11 machines change, 2 leave`.
fn changes(proposed: &cketerm_rules::registry::Proposed) -> String {
    let kinds = [
        (Kind::Changed, "change"),
        (Kind::Added, "join"),
        (Kind::Removed, "leave"),
        (Kind::Promoted, "become API servers"),
        (Kind::Demoted, "become workers"),
    ];
    let counts = kinds.map(|(kind, verb)| (proposed.change.nodes.iter().filter(|n| n.kind == kind).count(), verb));
    let mut words: Vec<String> = counts.iter().filter(|(n, _)| *n > 0).map(|(n, verb)| format!("{n} {verb}")).collect();
    match words.first_mut() {
        None => "the definition changes".to_owned(),
        Some(first) => {
            *first = first.replacen(' ', " machines ", 1);
            words.join(", ")
        }
    }
}

/// Returns gates that hold whole queues, switches that cannot be read, and rules that the leader does not know.
fn queues(app: &App) -> Vec<NeedsYou> {
    let (seen, store) = (&app.seen, &app.seen.snapshot.store);
    let mut lines = Vec::new();
    for (id, n) in &app.knowledge.totals.holds {
        let Some(why) = seen.reasons.get(id) else { continue };
        // A leader publishes only the first `MAX_WAITING` waiting entries to others.
        let more = if seen.snapshot.engine.leading.is_none() && *n >= MAX_WAITING { " or more" } else { "" };
        let wait = if *n == 1 { "1 entry waits".to_owned() } else { format!("{n}{more} entries wait") };
        let what = format!("{wait}: {why}");
        lines.push(NeedsYou::new(Object::Queue(id.queue), id.queue.folder(), what, Urgency::Everything));
    }
    for queue in QueueKind::ALL {
        if let Some(odd) = store.switch(queue).odd() {
            let what = format!("its switch has the bad value {odd:?}");
            let line = NeedsYou::new(Object::Queue(queue), queue.folder(), what, Urgency::Stuck);
            lines.push(line.remedies(&[Command::Switch]));
        }
    }
    if leaders::not_in_force(app).is_some() {
        let policy = store.policy();
        let rules = [
            (calendar::freeze(app).is_some(), "the freeze"),
            (policy.windows.is_some(), "the windows"),
            (store.registry.hold.is_some(), "the hold of the definition"),
            (app.knowledge.batches.paused().next().is_some(), "the pauses of batches"),
        ];
        let rules: Vec<&str> = rules.into_iter().filter(|(set, _)| *set).map(|(_, what)| what).collect();
        if !rules.is_empty() {
            let what = format!("{} NOT IN FORCE: CKE leads and does not know it", rules.join(" and "));
            let line = NeedsYou::new(Object::Queue(QueueKind::Reboot), "rules", what, Urgency::Stuck);
            lines.push(line.remedies(&[Command::Switch]));
        }
    }
    lines
}

/// Returns batches with entries left whose pause is in force.
fn paused_batches(app: &App) -> Vec<NeedsYou> {
    let line = |batch: &BatchSummary| {
        let paused = leaders::pause_in_force(app, batch)?;
        let why = paused.reason.as_ref().map(|why| format!(" ({why})")).unwrap_or_default();
        let what = format!("paused by {}{why}: {} queued", paused.who.user, batch.totals.queued);
        let object = Object::Batch(batch.batch.queue, batch.id);
        let line = NeedsYou::new(object, format!("batch {}", batch.id), what, Urgency::Waits);
        Some(line.since(Some(paused.at)).remedies(&[Command::Unhold, Command::Cancel]))
    };
    app.knowledge.batches.paused().filter_map(line).collect()
}

/// Returns the time after which work counts as stuck, by the policy.
fn stuck_after(app: &App) -> SignedDuration {
    SignedDuration::from_secs(i64::try_from(app.seen.snapshot.store.policy().stuck_seconds).unwrap_or(i64::MAX))
}

/// Returns nodes that are unexpectedly away, members without a Node, and orphaned cordons.
fn nodes(app: &App) -> Vec<NeedsYou> {
    let totals = &app.knowledge.totals;
    let mut lines = Vec::new();
    let patience = stuck_after(app);
    // a new member needs a while until it has joined
    let is_joining =
        |name: &&String| totals.joining.get(*name).is_some_and(|since| app.known().duration_since(*since) < patience);
    let missing: Vec<String> = totals.missing.iter().filter(|name| !is_joining(name)).cloned().collect();
    let absent =
        [(&totals.unready, "not Ready, and nothing restarts it"), (&missing, "in the definition, but has no Node")];
    for (names, what) in absent {
        // of several, the one that has been away longest
        let since = |name: &String| queries::node(&app.seen, name).filter(|row| !row.ready)?.ready_since;
        if let Some(first) = names.iter().min_by_key(|name| (since(name).is_none(), since(name))) {
            let line = NeedsYou::new(Object::Node(first.clone()), first.clone(), what, Urgency::Stuck);
            let line = line.others(names.iter().map(|name| (name.as_str(), Object::Node(name.clone()))));
            lines.push(line.since(since(first)).remedies(&[Command::Repair, Command::Reboot]));
        }
    }
    lines.extend(app.seen.orphans.iter().filter_map(|(name, why)| {
        let what = short_text::reason(why, app.known());
        // this one ends by itself if its machine boots
        let ends = matches!(why, Reason::OrphanedCordon { .. });
        let urgency = if ends { Urgency::Waits } else { Urgency::Stuck };
        let line = NeedsYou::new(Object::Node(name.to_string()), name.as_str(), what, urgency);
        let owner = queries::node(&app.seen, name.as_str()).and_then(|row| row.owner.as_ref()?.as_ref().ok()?.since);
        let is_recent = owner.is_some_and(|since| app.known().duration_since(since) < patience);
        (!ends || !is_recent).then(|| line.since(owner).remedies(&[Command::Release]))
    }));
    lines
}

/// Returns hosts with an error, and hosts that somebody holds off.
fn hosts(app: &App) -> Vec<NeedsYou> {
    let hosts = &app.knowledge.totals.hosts;
    let mut lines: Vec<NeedsYou> = Vec::new();
    for id in &hosts.trouble {
        let what = short_text::host(&app.seen, id).0;
        let line = NeedsYou::new(Object::Host(id.clone()), id.1.clone(), what, Urgency::Stuck);
        let line = line.since(queries::host(&app.seen, id).and_then(|host| host.pending_reboot_since));
        let line = line.remedies(&[Command::Unhold, Command::HostPower]);
        match lines.iter_mut().find(|known| known.what == line.what) {
            Some(known) => known.add(line),
            None => lines.push(line),
        }
    }
    if let Some(first) = hosts.held.first() {
        let by = queries::host(&app.seen, first)
            .map(|host| host.asked.keys.keys().map(String::as_str).collect::<Vec<_>>().join(", "));
        let what = format!("held off by {}", by.unwrap_or_default());
        let line = NeedsYou::new(Object::Host(first.clone()), first.1.clone(), what, Urgency::Waits);
        lines.push(
            line.others(hosts.held.iter().map(|id| (id.1.as_str(), Object::Host(id.clone()))))
                .remedies(&[Command::Unhold]),
        );
    }
    lines
}

/// Returns members that the registry reports as unhealthy, unless they are repaired or will be.
fn machines(app: &App) -> Vec<NeedsYou> {
    let (seen, totals) = (&app.seen, &app.knowledge.totals);
    let repair = &seen.auto_repair;
    if seen.snapshot.store.auto_repair.enabled() && repair.off.is_none() && repair.plan.capped.is_none() {
        return Vec::new();
    }
    let mut lines: Vec<NeedsYou> = Vec::new();
    for address in &app.knowledge.registry.unhealthy {
        let name = seen.snapshot.machine(address);
        let handled = totals.unready.contains(&name)
            || totals.missing.contains(&name)
            || totals.entries_of(&name).any(|id| queries::in_work(seen, id) || id.queue == QueueKind::Repair);
        let Some(machine) = app.knowledge.registry.at(seen, address).filter(|_| !handled) else { continue };
        // the registry notices only after a while that a machine is up again
        if machine.since.is_some_and(|since| app.known().duration_since(since) < REGISTRY_LAG) {
            continue;
        }
        let what = format!("{} in the registry", machine.state);
        let line = NeedsYou::new(Object::Machine(address.clone()), name, what, Urgency::Stuck);
        let line = line.since(machine.since).remedies(&[Command::Repair]);
        match lines.iter_mut().find(|known| known.what == line.what) {
            Some(known) => known.add(line),
            None => lines.push(line),
        }
    }
    lines
}

//! Everything that waits for a person, as one list over all parts of the cluster: entries, machines, hosts, the
//! definition, the leader and the data sources. The Overview shows it, the header counts it, and one key goes through
//! it, so that all three always agree.
//!
//! The list is made once per published state. The keys of a line are decided when it is shown, because they depend on
//! rights and permission in time, too.

mod entries;

use cketerm_model::entry::QueueKind;
use cketerm_rules::{decide::ApplyState, publish::MAX_WAITING};
use cketerm_sabakan::change::Kind;
use jiff::Timestamp;

use super::{
    App, available, calendar, leaders,
    object::Object,
    queries::{self, Leader},
    registry, short_text, sources,
};
use crate::{keys::Command, theme::Severity};

/// How much depends on a line. The first lines concern everything.
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
    /// Description of the fault.
    pub what: String,
    /// Time since which it has waited.
    pub since: Option<Timestamp>,
    /// How much depends on it.
    pub urgency: Urgency,
    /// Commands that end it, the usual one first.
    remedies: Vec<Command>,
}

impl NeedsYou {
    fn new(object: Object, name: impl Into<String>, what: impl Into<String>, urgency: Urgency) -> Self {
        let (name, what) = (short_text::safe(&name.into()), short_text::safe(&what.into()));
        Self { object, name, count: 1, what, since: None, urgency, remedies: Vec::new() }
    }

    fn since(self, since: Option<Timestamp>) -> Self {
        Self { since, ..self }
    }

    fn count(self, count: usize) -> Self {
        Self { count, ..self }
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
        self.remedies.iter().copied().filter(works).collect()
    }

    /// Returns the name, with the number of the others that have the same cause: `w02 +3`.
    pub fn title(&self) -> String {
        match self.count {
            0 | 1 => self.name.clone(),
            n => format!("{} +{}", self.name, n - 1),
        }
    }
}

/// Makes the list again.
pub fn refresh(app: &mut App) {
    app.knowledge.needs_you = lines(app);
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
    lines.extend(entries::lines(app));
    lines.extend(nodes(app));
    lines.extend(hosts(app));
    lines.extend(machines(app));
    lines.sort_by(|a, b| {
        let key = |line: &NeedsYou| (line.urgency, line.since.is_none(), line.since);
        key(a).cmp(&key(b)).then_with(|| a.object.cmp(&b.object))
    });
    lines
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
        lines.push(line.count(1 + rest.len()));
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

/// Returns nodes that are unexpectedly away, members without a Node, and orphaned cordons.
fn nodes(app: &App) -> Vec<NeedsYou> {
    let totals = &app.knowledge.totals;
    let mut lines = Vec::new();
    let absent = [
        (&totals.unready, "not Ready, and nothing restarts it"),
        (&totals.missing, "in the definition, but has no Node"),
    ];
    for (names, what) in absent {
        if let Some(first) = names.first() {
            let line = NeedsYou::new(Object::Node(first.clone()), first.clone(), what, Urgency::Stuck);
            lines.push(line.count(names.len()).remedies(&[Command::Repair, Command::Reboot]));
        }
    }
    lines.extend(app.seen.orphans.iter().map(|(name, why)| {
        let what = short_text::reason(why, app.known());
        let line = NeedsYou::new(Object::Node(name.to_string()), name.as_str(), what, Urgency::Stuck);
        line.remedies(&[Command::Release])
    }));
    lines
}

/// Returns hosts with an error, and hosts that somebody holds off.
fn hosts(app: &App) -> Vec<NeedsYou> {
    let hosts = &app.knowledge.totals.hosts;
    let mut lines: Vec<NeedsYou> = Vec::new();
    for id in &hosts.trouble {
        let what = short_text::host(&app.seen, id).0;
        if let Some(line) = lines.iter_mut().find(|line| line.what == what) {
            line.count += 1;
        } else {
            let line = NeedsYou::new(Object::Host(id.clone()), id.1.clone(), what, Urgency::Stuck);
            lines.push(line.remedies(&[Command::Unhold, Command::HostPower]));
        }
    }
    if let Some(first) = hosts.held.first() {
        let by = queries::host(&app.seen, first)
            .map(|host| host.asked.keys.keys().map(String::as_str).collect::<Vec<_>>().join(", "));
        let what = format!("held off by {}", by.unwrap_or_default());
        let line = NeedsYou::new(Object::Host(first.clone()), first.1.clone(), what, Urgency::Waits);
        lines.push(line.count(hosts.held.len()).remedies(&[Command::Unhold]));
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
        let what = format!("{} in the registry", machine.state);
        if let Some(line) = lines.iter_mut().find(|line| line.what == what) {
            line.count += 1;
        } else {
            let line = NeedsYou::new(Object::Machine(address.clone()), name, what, Urgency::Stuck);
            lines.push(line.remedies(&[Command::Repair]));
        }
    }
    lines
}

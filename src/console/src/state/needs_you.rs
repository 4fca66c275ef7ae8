//! Everything that waits for a person, as one list over all parts of the cluster: entries, machines, hosts, the
//! definition, the leader and the data sources. The Overview shows it, the header counts it, and one key goes through
//! it, so that all three always agree.
//!
//! The list is made once per published state. The keys of a line are decided when it is shown, because they depend on
//! rights and permission in time, too.

mod entries;
mod line;
mod objects;

use std::collections::BTreeMap;

use cketerm_model::entry::QueueKind;
use cketerm_rules::{decide::ApplyState, publish::MAX_WAITING};
use cketerm_sabakan::change::Kind;
use jiff::SignedDuration;

pub use self::line::{NeedsYou, Urgency};
use super::{App, batches::BatchSummary, calendar, leaders, object::Object, queries::Leader, registry, sources};
use crate::keys::Command;

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
    lines.extend(objects::nodes(app));
    lines.extend(objects::reboots(app));
    lines.extend(objects::hosts(app));
    lines.extend(objects::machines(app));
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
    let waiting: usize = QueueKind::QUEUES.into_iter().map(open).sum();
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
    for queue in QueueKind::QUEUES {
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

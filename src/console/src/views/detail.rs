//! Text of detail panes: everything about one object, wrapped, never cut.

mod host;
mod machine;
mod node;
mod output;
mod past;
mod repair;
mod timeline;
mod yaml;

pub use self::yaml::kept as kept_yaml;

use std::sync::Arc;

use cketerm_model::{
    acceptance::LeaderKind,
    batch::BatchState,
    cketerm_records::Verb,
    entry::{EntryId, QueueKind, Stored},
    reason::{PodHold, Reason},
    reboot::RebootStatus,
    stored::keys::Folder,
    text::visible,
};
use cketerm_rules::{
    eta::text::Detail,
    trouble,
    usual::{self, Pace},
};
use jiff::Timestamp;
use ratatui::{
    style::Style,
    text::{Line, Span},
};

use super::gauge;
use crate::{
    state::{
        App, Pane, PaneContent, Target, View, available, blockers, calendar, leaders,
        logs::LineId,
        queries::{self, Leader},
        short_text, when,
    },
    table::wrap,
    theme::Severity,
};

/// Width of the labels, in columns.
const LABEL: usize = 11;

/// Width of the bar of pods, in columns.
const PODS_BAR: usize = 16;

/// Commands, and what they do to an entry.
const CANCEL: (&str, &str) = ("cancel", "cancel");
const HOLD: (&str, &str) = ("hold", "hold");
const UNHOLD: (&str, &str) = ("unhold", "unhold");
const FORCE: (&str, &str) = ("force", "force (skip the pods)");
const RETRY: (&str, &str) = ("retry", "retry");
const RESET: (&str, &str) = ("reset-backoff", "reset backoff");
const BLOCKERS: (&str, &str) = ("blockers", "blockers");

/// Lines under construction.
struct Text<'a> {
    app: &'a App,
    width: usize,
    lines: Vec<Line<'static>>,
}

/// Returns the lines of a pane of this width.
pub fn lines(app: &App, of: &Target, width: u16) -> Vec<Line<'static>> {
    let mut text = Text { app, width: usize::from(width), lines: Vec::new() };
    match of {
        Target::Entry(id) => text.entry_or_broken(*id, true),
        Target::Node(name) => text.node(name),
        Target::Machine(address) => text.machine_fields(address),
        Target::Fold(what) => text.fold(what),
        Target::Host(id) => text.host(id),
        Target::Past(folder, id) => text.past(*folder, id),
        Target::Line(id) => text.log_line_fields(*id),
    }
    text.lines
}

/// Returns the reason why there is no output of an entry's command.
fn no_output(app: &App, id: EntryId) -> &'static str {
    let store = &app.seen.snapshot.store;
    if store.entry(id).is_none() {
        "the entry is gone; History has its commands, if cketerm ran them"
    } else if store.leadership().lead == LeaderKind::Cke {
        "CKE keeps no output of its commands: journalctl -u cke on its host has it"
    } else {
        "no command of this entry has begun"
    }
}

/// Returns the lines of an open pane, by its content.
pub fn pane_lines(app: &App, pane: &Pane, width: u16) -> Vec<Line<'static>> {
    match (pane.content, &pane.of) {
        (PaneContent::Output { .. }, Target::Entry(id)) => {
            let mut text = Text { app, width: usize::from(width), lines: Vec::new() };
            text.output(*id, true);
            if text.lines.is_empty() {
                text.plain("", no_output(app, *id));
            }
            text.lines
        }
        (PaneContent::Output { .. }, Target::Past(Folder::History, id)) => {
            let mut text = Text { app, width: usize::from(width), lines: Vec::new() };
            text.ended_output(id);
            if text.lines.is_empty() { lines(app, &pane.of, width) } else { text.lines }
        }
        (PaneContent::Yaml, of) => yaml::lines(app, of, width),
        (PaneContent::Output { .. } | PaneContent::Detail, of) => lines(app, of, width),
    }
}

/// Returns the last lines of the output of an entry's newest command, at most `most`. Empty if there is none.
pub fn output_lines(app: &App, id: EntryId, width: usize, most: usize) -> Vec<Line<'static>> {
    let mut text = Text { app, width, lines: Vec::new() };
    text.output(id, true);
    // The first line separates the section from one above it.
    let mut lines = text.lines.into_iter().skip(1);
    let heading = lines.next();
    let rest: Vec<_> = lines.collect();
    let from = rest.len().saturating_sub(most.saturating_sub(1));
    heading.into_iter().chain(rest.into_iter().skip(from)).collect()
}

/// Returns the title of an open pane.
pub fn pane_title(app: &App, pane: &Pane) -> String {
    let title = title(app, &pane.of);
    match pane.content {
        PaneContent::Detail => title,
        PaneContent::Output { follow: true } => format!("{title}: output, followed"),
        PaneContent::Output { follow: false } => format!("{title}: output"),
        PaneContent::Yaml => format!("{title}: YAML"),
    }
}

/// Returns the title of an object's pane.
pub fn title(app: &App, of: &Target) -> String {
    match of {
        Target::Entry(id) => match queries::address_of(&app.seen, *id) {
            Some(address) => {
                let name = app.seen.snapshot.machine(address);
                let address = if name == **address { String::new() } else { format!(" {address}") };
                short_text::safe(&format!("{id} {name}{address}"))
            }
            None => id.to_string(),
        },
        Target::Node(name) => short_text::safe(&format!("node {name}")),
        Target::Machine(address) => {
            let serial = app.knowledge.registry.at(&app.seen, address).map(|m| m.serial.as_str()).unwrap_or_default();
            short_text::safe(&format!("machine {serial} {address}"))
        }
        Target::Fold(what) => short_text::safe(what),
        Target::Past(folder, id) => past::title(app, *folder, id),
        Target::Line(id) => format!("log line {}", id.0),
        Target::Host((namespace, name)) => short_text::safe(&format!("host {namespace}/{name}")),
    }
}

impl Text<'_> {
    fn now(&self) -> Timestamp {
        self.app.known()
    }

    /// Adds a labelled text, wrapped with an indent.
    fn field(&mut self, label: &str, text: &str, style: Style) {
        let width = self.width.saturating_sub(LABEL);
        let mut label = format!("{label:<LABEL$}");
        for line in wrap(&visible(text, true), width) {
            self.lines.push(Line::from(vec![
                Span::styled(std::mem::replace(&mut label, " ".repeat(LABEL)), self.app.config.theme.muted),
                Span::styled(line, style),
            ]));
        }
    }

    /// Adds the commands that make sense here, each with its key and its effect.
    fn available_actions_field(&mut self, actions: &[(&str, &str)]) {
        let can: Vec<String> = actions.iter().map(|(name, does)| format!("{} {does}", self.app.key(name))).collect();
        self.field("you can", &can.join("  "), self.app.config.theme.key);
    }

    /// Adds the list of blockers to these commands if the entry has some. It comes first, in place of the reset, if no
    /// retry can help before something is changed.
    fn blockers_first(&self, id: EntryId, actions: &mut Vec<(&str, &str)>) {
        if !blockers::any(self.app, id) {
            return;
        }
        match self.app.seen.reasons.get(&id) {
            Some(Reason::Backoff { cause: Some(cause), .. }) if !blockers::may_pass(cause) => {
                actions.retain(|action| *action != RESET);
                actions.insert(0, BLOCKERS);
            }
            Some(_) | None => actions.push(BLOCKERS),
        }
    }

    /// Adds a log line in full.
    fn log_line_fields(&mut self, id: LineId) {
        let Some(line) = self.app.knowledge.logs.get(&id).cloned() else {
            self.plain("", "the line is gone: only the latest are kept");
            return;
        };
        self.plain("at", &self.moment_by(line.at, self.app.now.wall));
        self.plain("level", line.level.as_str());
        self.plain("entry", line.entry.as_deref().unwrap_or("none"));
        self.plain("text", &line.text);
    }

    fn plain(&mut self, label: &str, text: &str) {
        self.field(label, text, Style::new());
    }

    fn heading(&mut self, text: String) {
        self.lines.push(Line::default());
        self.lines.push(Line::styled(text, self.app.config.theme.title));
    }

    fn moment(&self, at: Timestamp) -> String {
        self.moment_by(at, self.now())
    }

    /// Formats a time with its age. The caller passes `now`: ages of past events always advance, ages from Kubernetes
    /// stop while Kubernetes is lost.
    fn moment_by(&self, at: Timestamp, now: Timestamp) -> String {
        format!("{} ({} ago)", calendar::time(self.app, at), when::age(at, now))
    }

    /// Formats a time with an age that advances by minutes, for states that last.
    fn coarse_moment(&self, at: Timestamp, now: Timestamp) -> String {
        format!("{} ({} ago)", calendar::time(self.app, at), when::coarse_age(at, now))
    }

    /// Adds an entry of either queue. `alone` = the pane is the entry's; otherwise the node's lines are above already.
    fn entry_or_broken(&mut self, id: EntryId, alone: bool) {
        let store = Arc::clone(&self.app.seen.snapshot.store);
        match store.stored_entry(id).map(|stored| stored.value.err()) {
            None => {
                let [back, history] = ["back", "history"].map(|name| self.app.key(name));
                let how = format!(
                    "{id} is gone: it ended, or was cancelled or deleted. {back} goes back, {history} shows how."
                );
                self.plain("", &how);
                self.output(id, false);
            }
            Some(Some(why)) => {
                let key = queries::stored_at(&self.app.seen, id).map(|(key, _)| key.to_owned()).unwrap_or_default();
                self.field("broken", &format!("{key}: {why}"), self.app.config.theme.danger);
                let remove = self.app.key("cancel");
                self.plain("", &format!("Other entries continue. {remove} removes it; or fix that key with etcdctl."));
            }
            Some(None) if id.queue == QueueKind::Repair => self.repair(id, alone),
            Some(None) => self.entry(id, alone),
        }
    }

    /// Adds a reboot.
    fn entry(&mut self, id: EntryId, alone: bool) {
        let seen = Arc::clone(&self.app.seen);
        let theme = self.app.config.theme.clone();
        let Some(entry) = queries::entry(&seen, id) else { return };
        let name = seen.snapshot.machine(&entry.node);
        let since = queries::since(&seen, id).map(|at| format!(" since {}", self.moment(at))).unwrap_or_default();
        self.plain("status", &format!("{}{since}", short_text::status(entry, self.now())));
        if let Some(why) = seen.reasons.get(&id) {
            let style = if trouble::own(why) { theme.trouble } else { Style::new() };
            let why = calendar::with_local_times(self.app, &short_text::sentence(why)) + &queries::reading_label(&seen);
            self.field("why", &why, style);
        }
        let progress = queries::progress(&seen, id).filter(|_| entry.status != RebootStatus::Queued);
        if let Some(p) = progress {
            self.plain("phase", &format!("{}, since {}", p.phase, self.moment(p.since)));
            if let Some(next) = p.next {
                self.plain("next", &format!("{} ({})", when::until(next, self.now()), calendar::time(self.app, next)));
            }
        }
        self.pace_field(id);
        self.order_field(id);
        self.output(id, false);
        if progress.is_some() && entry.status == RebootStatus::Draining {
            self.pods_left(id);
        }
        self.timeline(id, entry.last_transition_time, &entry.status.to_string());
        self.heading("Entry".to_owned());
        self.backoff_field(id.queue, entry.drain_backoff_count, entry.drain_backoff_expire);
        self.requested(id);
        if alone {
            self.machine(&name);
        }
        let mut can = match entry.status {
            RebootStatus::Draining => vec![CANCEL, HOLD, FORCE],
            RebootStatus::Rebooting => vec![CANCEL, RETRY, ("done", "done (treat as booted)")],
            RebootStatus::Queued if entry.drain_backoff_count > 0 => vec![CANCEL, HOLD, RESET],
            _ => vec![CANCEL, HOLD],
        };
        can.extend((queries::order(&seen, id) == Some(Verb::Hold)).then_some(UNHOLD));
        can.retain(|action| *action != RETRY || queries::running(&seen, id).is_none());
        can.retain(|(name, _)| available::honoured(self.app, name, View::Reboots));
        self.blockers_first(id, &mut can);
        self.available_actions_field(&can);
        self.attempts(id);
        self.hooks(id);
    }

    /// Adds how long the present phase has lasted, beside the usual duration of such phases in this cluster.
    fn pace_field(&mut self, id: EntryId) {
        let app = self.app;
        let Some(running) = usual::running(&app.seen.snapshot.store, id) else { return };
        let Some(usual) = app.knowledge.usual.of_kind(&running.kind) else { return };
        let elapsed = self.now().duration_since(running.since);
        match usual.judge(elapsed) {
            Pace::Usual => self.plain("so far", &usual.compared(elapsed)),
            Pace::Slow => {
                let mark = if app.config.blocks { " \u{25b2}" } else { ": slow" };
                self.field("so far", &format!("{}{mark}", usual.compared(elapsed)), app.config.theme.trouble);
            }
        }
    }

    fn backoff_field(&mut self, queue: QueueKind, count: i64, expire: Option<Timestamp>) {
        if count > 0 {
            let is_led = queries::leader(&self.app.seen) != Leader::Nobody;
            let next = expire.map(|t| match (queries::retries(&self.app.seen, queue), is_led) {
                (true, _) => format!(", next {}", when::until(t, self.now())),
                (false, true) => format!(", {} left; the queue is disabled", when::left(t, self.now())),
                (false, false) => format!(", {} left; nobody leads", when::left(t, self.now())),
            });
            let times = if count == 1 { "time" } else { "times" };
            self.plain("backed off", &format!("{count} {times}{}", next.unwrap_or_default()));
        }
    }

    fn order_field(&mut self, id: EntryId) {
        let given = self.app.seen.snapshot.store.orders.get(&id).and_then(Stored::get).cloned();
        if let Some(order) = given {
            let why = order.reason.as_deref().map(|r| format!(": {r}")).unwrap_or_default();
            let taken = match order.verb {
                Verb::Hold => format!("{} ends the hold", self.app.key("unhold")),
                _ => "not processed yet".to_owned(),
            };
            let text = format!("{} by {} {}{why}; {taken}", order.verb, order.who, self.moment(order.at));
            self.plain("order", &text);
        }
    }

    /// Adds the pods that a drain still waits for, each with its blocker.
    fn pods_left(&mut self, id: EntryId) {
        let seen = Arc::clone(&self.app.seen);
        let Some(p) = queries::progress(&seen, id) else { return };
        self.pods_heading(p.pods_at_start, p.pods_gone, queries::joined_late(&seen, id));
        for blocker in &p.blockers {
            // The dry run's refusal is in the reason before any eviction is sent.
            let refused = seen.reasons.get(&id).and_then(Reason::pod_hold).filter(|_| blocker.why == PodHold::Leaving);
            let why = match refused {
                Some((pod, hold)) if pod == blocker.pod => hold,
                Some(_) | None => blocker.why.clone(),
            };
            let held = !matches!(why, PodHold::Leaving);
            let style = if held { self.app.config.theme.trouble } else { Style::new() };
            let text = short_text::safe(&format!("{}  {why}", blocker.pod));
            let lines = wrap(&text, self.width.saturating_sub(2));
            self.lines.extend(lines.into_iter().map(|l| Line::styled(format!("  {l}"), style)));
        }
    }

    /// Adds the heading of the pods, with a bar of those that are gone.
    fn pods_heading(&mut self, all: u32, gone: u32, joined_late: bool) {
        let theme = &self.app.config.theme;
        let (all, gone) = (usize::try_from(all).unwrap_or(0), usize::try_from(gone).unwrap_or(0));
        let (left, seen) = (all.saturating_sub(gone), if joined_late { " seen" } else { "" });
        let mut spans = vec![Span::styled(format!("Pods: {gone} of {all}{seen} gone, {left} left "), theme.title)];
        if all > 0 {
            let done = theme.shape(Severity::Draining);
            spans.extend(gauge::done_of(gone, all, PODS_BAR, done, theme.muted, self.app.config.blocks));
        }
        self.lines.push(Line::default());
        self.lines.push(Line::from(spans));
    }

    fn requested(&mut self, id: EntryId) {
        let request = self.app.seen.snapshot.store.requests.get(&id).and_then(Stored::get).cloned();
        let text = match request {
            Some(r) => {
                let why = r.reason.map(|r| format!(": {r}")).unwrap_or_default();
                format!("by {} {}{why}", r.who, self.moment(r.at))
            }
            None => "via ckecli or another program (no record of who)".to_owned(),
        };
        self.plain("requested", &text);
        self.batch_field(id);
    }

    /// Adds the entry's batch: its cause, how far it is, and its estimated end.
    fn batch_field(&mut self, id: EntryId) {
        let app = self.app;
        let Some(batch) = app.knowledge.batches.of_entry(&app.seen, id) else { return };
        let cause = batch.batch.reason.as_ref().map(|reason| format!(" {reason}:")).unwrap_or_default();
        let (done, _, failed, all) = batch.parts();
        let failed = if failed > 0 { format!(", {failed} failed") } else { String::new() };
        let withdrawn = match (batch.totals.ends.withdrawn, id.queue) {
            (0, _) => String::new(),
            (n, QueueKind::Reboot) => format!(", {n} cancelled"),
            (n, QueueKind::Repair) => format!(", {n} deleted"),
            (n, QueueKind::Maintenance) => format!(", {n} released"),
        };
        let answer = app.knowledge.estimates.of_batch(id.queue, batch.id).and_then(|answer| answer.as_ref().ok());
        let end = match (leaders::batch_state(app, batch), answer) {
            (BatchState::Paused, _) => ", paused".to_owned(),
            (BatchState::Running, Some(estimate)) => {
                format!(", {}", estimate.described(Detail::Full, |at| calendar::moment(app, at)))
            }
            (BatchState::Running | BatchState::Done, _) => String::new(),
        };
        self.plain("batch", &format!("{}{cause} {done}/{all} done{failed}{withdrawn}{end}", batch.id));
    }
}

//! Panes of the past: the timeline of an ended entry, an audit record, a record of CKE.

use std::sync::Arc;

use cketerm_model::{attempt::Attempt, cketerm_records::Audit, record::Record, stored::keys::Folder};
use jiff::Timestamp;
use ratatui::{style::Style, text::Line};

use super::Text;
use crate::{
    state::{
        App, calendar,
        columns::{self, node_name, targets},
        past::{Ended, EntryTimeline, PastId},
        short_text, when,
    },
    table::wrap,
    views::bar::{self, phase},
};

/// Returns the pane's title.
pub(super) fn title(app: &App, folder: Folder, id: &PastId) -> String {
    let past = &app.knowledge.past;
    let text = match folder {
        Folder::History => past.history.get(id).map(|e| {
            let node = node_name(app, e);
            let address = if node == *e.address { String::new() } else { format!(" {}", e.address) };
            format!("{} {node}{address}: {}", e.entry, e.outcome_and_time())
        }),
        Folder::Audit => past.audit.get(id).map(|a| format!("{} by {}", a.what, a.who.user)),
        Folder::Records => past.records.get(id).map(|r| format!("record {} {}", r.id, r.operation)),
    };
    short_text::safe(&text.unwrap_or_else(|| id.key.clone()))
}

impl Text<'_> {
    /// Adds a value that is read on demand.
    pub(super) fn past(&mut self, folder: Folder, id: &PastId) {
        let app = self.app;
        match folder {
            Folder::History => self.ended(id),
            Folder::Audit => match app.knowledge.past.audit.rows.get(id) {
                Some(Ok(audit)) => self.audited(audit),
                other => self.unread(id, other.and_then(|v| v.as_ref().err())),
            },
            Folder::Records => match app.knowledge.past.records.rows.get(id) {
                Some(Ok(record)) => self.record(record),
                other => self.unread(id, other.and_then(|v| v.as_ref().err())),
            },
        }
    }

    fn unread(&mut self, id: &PastId, why: Option<&String>) {
        match why {
            Some(why) => self.field("broken", why, self.app.config.theme.danger),
            None => self.plain("", &format!("{} is no longer kept", id.key)),
        }
    }

    /// Adds all output of the newest command of an ended entry.
    pub(super) fn ended_output(&mut self, id: &PastId) {
        let timeline = self.app.knowledge.past.timeline(&id.key).and_then(|read| read.as_ref().ok());
        if let Some(newest) = timeline.and_then(|t| t.ending.attempts.iter().rfind(|a| a.began())) {
            self.output_of(newest, None, true);
        }
    }

    fn ended(&mut self, id: &PastId) {
        let app = self.app;
        let Some(e) = app.knowledge.past.history.get(id) else {
            let broken = app.knowledge.past.history.rows.get(id).and_then(|v| v.as_ref().err());
            return self.unread(id, broken);
        };
        let style = columns::outcome_style(app, e);
        self.field("outcome", &e.outcome_and_time(), style);
        self.plain("ended", &self.moment_by(e.at, self.app.now.wall));
        if let Some(took) = e.took().filter(|_| !e.end.good()) {
            self.plain("took", &when::span(took));
        }
        match app.knowledge.past.timeline(&id.key) {
            None => self.plain("", "reading its timeline ..."),
            Some(Err(why)) => self.field("timeline", why, app.config.theme.trouble),
            Some(Ok(past_timeline)) => {
                let attempts: Vec<&Attempt> = past_timeline.ending.attempts.iter().collect();
                if let Some(newest) = attempts.iter().rfind(|a| a.began()) {
                    self.output_of(newest, None, false);
                }
                self.past_timeline(past_timeline);
                self.heading("Entry".to_owned());
                self.asked(e);
                self.attempt_fields(&attempts);
                self.hook_fields(&past_timeline.ending.hooks);
                return;
            }
        }
        self.asked(e);
    }

    /// Adds the request of an ended entry, and what can be done now.
    fn asked(&mut self, e: &Ended) {
        if let Some(r) = &e.request {
            let why = r.reason.as_ref().map(|r| format!(": {r}")).unwrap_or_default();
            self.plain("requested", &format!("by {} {}{why}", r.who, self.moment_by(r.at, self.app.now.wall)));
        } else {
            self.plain("requested", "via ckecli or another program (no record of who)");
        }
        self.available_actions_field(&[
            ("reboot", "reboot again"),
            ("repair", "repair"),
            ("jump", "go to its node"),
            ("logs-of", "its log lines"),
        ]);
    }

    /// Adds the events of an entry, oldest first.
    fn past_timeline(&mut self, past_timeline: &Arc<EntryTimeline>) {
        self.heading("Timeline".to_owned());
        if let Some(why) = &past_timeline.gap {
            self.field("", why, self.app.config.theme.trouble);
        }
        let mut phases: Vec<_> = past_timeline.ending.request.iter().map(|r| phase(r.at, 'q', "queued")).collect();
        phases.extend(past_timeline.moments.iter().filter(|m| m.drain).map(|m| phase(m.at, 'd', "draining")));
        phases.extend(bar::attempts(past_timeline.ending.attempts.iter()));
        self.bar(phases, past_timeline.ending.at);
        let mut previous: Option<Timestamp> = None;
        for moment in &past_timeline.moments {
            let delta = previous.map(|b| format!("+{}", when::age(b, moment.at))).unwrap_or_default();
            previous = Some(moment.at);
            let who = moment.who.as_ref().map(|who| format!(", {who}")).unwrap_or_default();
            let why = moment.reason.as_ref().map(|why| format!(" ({why})")).unwrap_or_default();
            let line = format!("{:<10} {delta:>6}  {}{who}{why}", calendar::time(self.app, moment.at), moment.what);
            let lines = wrap(&short_text::safe(&line), self.width.saturating_sub(2));
            self.lines.extend(lines.into_iter().map(|l| Line::from(format!("  {l}"))));
        }
    }

    fn audited(&mut self, audit: &Arc<Audit>) {
        self.plain("at", &self.moment_by(audit.at, self.app.now.wall));
        self.plain("who", &audit.who.to_string());
        self.plain("what", &audit.what);
        self.plain("on", &calendar::with_local_times(self.app, &audit.on));
        self.plain("reason", audit.reason.as_deref().unwrap_or("none given"));
        self.plain("result", &audit.result);
    }

    fn record(&mut self, r: &Arc<Record>) {
        let theme = &self.app.config.theme;
        let (danger, plain) = (theme.danger, Style::new());
        self.plain("status", &r.status);
        self.plain("operation", &r.operation);
        self.plain("command", &format!("{} {} {}", r.command.name, r.command.target, r.command.detail));
        self.plain("targets", &targets(r));
        for (label, at) in [("start", r.start_at), ("end", r.end_at)] {
            if let Some(at) = at {
                self.plain(label, &self.moment_by(at, self.app.now.wall));
            }
        }
        for (label, text, style) in [("info", &r.info, plain), ("error", &r.error, danger)] {
            if !text.is_empty() {
                self.field(label, text, style);
            }
        }
    }
}

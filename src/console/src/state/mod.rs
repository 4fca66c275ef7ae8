//! The console's whole state. Drawing reads it; only `update` changes it.

pub mod available;
pub mod batches;
pub mod blockers;
pub mod calendar;
pub mod column_id;
pub mod columns;
pub mod command_line;
mod config;
pub mod dialog;
pub mod estimate_inputs;
pub mod estimates;
pub mod eta;
pub mod event;
pub mod filter;
pub mod fleet;
pub mod host_choice;
pub mod knowledge;
pub mod leaders;
pub mod list;
pub mod lists;
pub mod logs;
pub mod lost;
mod messages;
pub mod navigation;
pub mod needs_you;
pub mod next_object;
pub mod object;
pub mod overview;
pub mod past;
pub mod picker;
pub mod progress;
pub mod queries;
pub mod racks;
pub mod registry;
pub mod related;
pub mod rights;
mod selection;
pub mod session;
pub mod settings;
pub mod severity;
pub mod short_text;
pub mod sources;
pub mod theme_picker;
pub mod totals;
pub mod tour;
pub mod typing;
pub mod undo;
mod view;
pub mod when;
pub mod yaml;

use std::{sync::Arc, time::Duration};

use cketerm_model::clock::Now;
use cketerm_rules::seen::Seen;
use jiff::Timestamp;
use ratatui::layout::Size;

pub use self::{
    config::AppConfig,
    lists::VisibleColumns,
    messages::Message,
    navigation::{Pane, PaneContent, Sheet, Target, ViewPosition},
    view::View,
};
use self::{
    dialog::Dialog,
    event::{Action, Effect},
    knowledge::Knowledge,
    list::Rows,
    lists::Lists,
    navigation::Navigation,
    picker::ColumnPicker,
    session::Session,
    theme_picker::ThemePicker,
    typing::Typing,
};
use crate::keys::Context;

/// Identity of a BareMetalHost: namespace and name.
pub type HostId = (String, String);

/// Longest wait for the next key of a chord, and longest time between the two presses that force a stop.
const CHORD: Duration = Duration::from_secs(5);

/// State of the console.
#[derive(Clone, Debug)]
pub struct App {
    /// Settings that never change while the console runs.
    pub config: AppConfig,
    /// The latest state that the engine published.
    pub seen: Arc<Seen>,
    /// Sums over `seen`, and what was read on demand.
    pub knowledge: Knowledge,
    /// The current time, by the console's clock.
    pub now: Now,
    /// The terminal's size.
    pub size: Size,
    /// The rows of the views.
    pub lists: Lists,
    /// The open view, pane and overlay, and the way back.
    pub navigation: Navigation,
    /// Text and keys that are being typed.
    pub typing: Typing,
    /// The open dialog.
    pub dialog: Option<Dialog>,
    /// The column picker, while it is open.
    pub picker: Option<ColumnPicker>,
    /// The theme picker, while it is open.
    pub themes: Option<ThemePicker>,
    /// Messages, actions in progress, undo.
    pub session: Session,
}

impl App {
    /// Creates a console that has seen nothing yet.
    pub fn new(config: AppConfig, view: View, now: Now) -> Self {
        Self {
            config,
            seen: Arc::default(),
            knowledge: Knowledge::default(),
            now,
            size: Size::new(80, 24),
            lists: Lists::default(),
            navigation: Navigation { view, ..Navigation::default() },
            typing: Typing::default(),
            dialog: None,
            picker: None,
            themes: None,
            session: Session::default(),
        }
    }

    /// Returns true if changes are refused: the console was started read-only, and no `:write` is in force.
    pub fn read_only(&self) -> bool {
        self.config.read_only && self.session.writes_until.is_none_or(|(until, _)| self.now.boot >= until)
    }

    /// Returns the time up to which the state of the queues is known. Ages stop there while etcd is lost.
    pub fn known(&self) -> Timestamp {
        let boot = self.now.boot;
        let last_seen = lost::etcd_lost(&self.seen, boot).and_then(|lost| lost.last_seen);
        last_seen.map_or(self.now.wall, |last_seen| sources::moment(self, last_seen))
    }

    /// Returns the time up to which the state of Kubernetes is known. Kubernetes and etcd are lost independently.
    pub fn known_of_kube(&self) -> Timestamp {
        let boot = self.now.boot;
        let last_seen = lost::kube_lost(&self.seen, boot).and_then(|lost| lost.last_seen);
        last_seen.map_or(self.now.wall, |last_seen| sources::moment(self, last_seen))
    }

    /// Ends the time that `:write` allowed, and reports it.
    pub fn expire_write_permission(&mut self) {
        if self.session.writes_until.is_some_and(|(until, _)| self.now.boot >= until) {
            self.session.writes_until = None;
            self.print("read-only again: the time that :write allowed is over");
        }
    }

    /// Reports whether Machines or Diff shows the racks as counts, which hide the rows.
    pub fn shows_rack_counts(&self) -> bool {
        self.navigation.racks && self.navigation.view.registry() && self.navigation.pane.is_none()
    }

    /// Returns true if the undo on offer can be executed now.
    pub fn can_undo(&self) -> bool {
        self.session.undo.as_ref().is_some_and(|offer| offer.refusal(self).is_none())
    }

    /// Saves a setting of the open view for the next start.
    pub fn save_setting(&mut self, change_of: impl FnOnce(&Self) -> settings::Change) {
        if self.config.saves_settings {
            let change = change_of(self);
            self.session.effects.push(Effect::SaveSettings(change));
        }
    }

    /// Returns true if this is the second request to stop within `CHORD` (5 s).
    pub fn is_repeated_suspend(&mut self) -> bool {
        let before = self.session.suspend_requested_at.replace(self.now.boot);
        before.is_some_and(|before| self.now.boot.saturating_duration_since(before) <= CHORD)
    }

    /// Drops a chord whose next key did not come in time. A later key would be meant for something else.
    pub fn expire_chord(&mut self) {
        if self.now.boot.saturating_duration_since(self.typing.chord_at) > CHORD {
            self.typing.chord.clear();
        }
    }

    /// Returns the cluster's name from the definition.
    pub fn cluster(&self) -> Option<&str> {
        self.seen.snapshot.store.definition().map(|d| d.cluster.name.as_str()).filter(|n| !n.is_empty())
    }

    /// Returns the word that the operator types to confirm a large change: the cluster's name, else the badge, else
    /// `cluster`. It is typed exactly as it is shown.
    pub fn cluster_label(&self) -> String {
        short_text::safe(self.cluster().or(self.config.badge.as_deref()).unwrap_or("cluster"))
    }

    /// Returns the context in which a key would be looked up now.
    pub fn key_context(&self) -> Context {
        if self.picker.is_some() || self.themes.is_some() {
            return Context::Dialog;
        }
        if let Some(dialog) = &self.dialog {
            return if dialog.typing() { Context::Field } else { Context::Dialog };
        }
        if self.typing.filter.is_some() || self.typing.line.is_some() {
            Context::Field
        } else if self.navigation.help.is_some() || self.navigation.pane.is_some() {
            Context::Detail
        } else {
            Context::Table
        }
    }

    /// Returns a command's key for use in a sentence, or its command-line name if no key is bound.
    pub fn key(&self, name: &str) -> String {
        self.config.keymap.shown(name)
    }

    /// Returns true if the cursor was moved because its object disappeared, and the operator has not looked since.
    pub fn cursor_displaced(&mut self) -> bool {
        self.list_mut().take_cursor_displaced()
    }

    /// Returns the open view's list.
    pub fn list(&self) -> &dyn Rows {
        self.lists.of(self.navigation.view, self.navigation.second_table())
    }

    /// Returns the open view's list, mutable.
    pub fn list_mut(&mut self) -> &mut dyn Rows {
        self.lists.of_mut(self.navigation.view, self.navigation.second_table())
    }

    /// Counts an action as started, and reports it.
    pub fn begin(&mut self, action: &Action) {
        self.session.busy += 1;
        self.print(action.progress_text());
    }
}

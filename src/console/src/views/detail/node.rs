//! Pane of a node: its state, its cordon and the cordon's owner, its pods, its entries.

use std::sync::Arc;

use cketerm_model::{entry::Stored, kube::NodeRow};
use cketerm_rules::reboot_needed::list::cause_of;
use ratatui::style::Style;

use super::Text;
use crate::state::{calendar, queries, short_text};

impl Text<'_> {
    /// Adds the entry's machine as a node, by name.
    pub(super) fn machine(&mut self, name: &str) {
        let seen = &self.app.seen;
        let (state, trouble) = short_text::node_state(self.app, name);
        let role = if queries::is_api_server(seen, name) { "API server" } else { "worker" };
        let style = if trouble.is_some() { self.app.config.theme.trouble } else { Style::new() };
        self.field("node", &format!("{name} ({role}): {state}"), style);
    }

    /// Adds a Node, or a machine without one, and its entries.
    pub(super) fn node(&mut self, name: &str) {
        let seen = Arc::clone(&self.app.seen);
        let theme = self.app.config.theme.clone();
        let (state, trouble) = short_text::node_state(self.app, name);
        let (row, member) = (queries::node(&seen, name), queries::member(&seen, name));
        if row.is_none() && member.is_none() {
            let back = self.app.key("back");
            self.plain("", &format!("{name} is gone: neither a Node nor in the definition. {back} goes back."));
            return;
        }
        self.field("state", &state, if trouble.is_some() { theme.trouble } else { Style::new() });
        if let Some(orphan) = seen.orphans.get(name) {
            self.field("why", &calendar::with_local_times(self.app, &short_text::sentence(orphan)), theme.trouble);
        }
        let role = queries::role(&seen, name);
        let listed = if member.is_some() { "in the definition" } else { "NOT in the definition" };
        let rack = queries::rack(&seen, name);
        self.plain("role", &format!("{role}, rack {}, {listed}", if rack.is_empty() { "unknown" } else { &rack }));
        if let Some(row) = row {
            self.plain("addresses", &row.addresses.join(", "));
            let ready = row
                .ready_since
                .map(|at| format!(" since {}", self.coarse_moment(at, self.app.known_of_kube())))
                .unwrap_or_default();
            self.plain("ready", &format!("{}{ready}", if row.ready { "yes" } else { "no" }));
            self.plain("kubelet", &row.kubelet);
            self.needed_reboot(row);
            self.plain("boot id", &row.boot_id);
            self.plain("uid", &row.uid);
            self.cordon(row);
            if !row.volumes_in_use.is_empty() {
                self.plain("volumes", &row.volumes_in_use.join(", "));
            }
        } else if let Some(member) = member {
            self.plain("address", &member.address);
        }
        let mut can = vec![("reboot", "reboot"), ("repair", "repair")];
        can.extend(match row {
            Some(r) if r.keep_cordoned => Some(("keep-cordoned", "stop keeping it cordoned")),
            Some(r) if r.unschedulable => Some(("keep-cordoned", "keep cordoned")),
            _ => None,
        });
        can.extend(seen.orphans.contains_key(name).then_some(("release", "uncordon")));
        self.available_actions_field(&can);
        for id in self.app.knowledge.totals.entries_of(name) {
            self.heading(format!("Entry {id}"));
            self.entry_or_broken(id, false);
        }
    }

    /// Adds the signals of a needed reboot, each with the time since which it is recorded.
    fn needed_reboot(&mut self, row: &NodeRow) {
        let snap = &self.app.seen.snapshot;
        let Some(cause) = cause_of(&snap.store, &snap.reboot_signals, row, self.app.known()) else { return };
        let record = snap.store.needed.get(&row.name).and_then(Stored::get);
        let signal = record.and_then(|record| record.signals.iter().find(|signal| signal.cause == cause));
        let since = signal.map(|signal| format!(" since {}", self.coarse_moment(signal.since, self.app.known())));
        let is_done = signal.is_some_and(|signal| signal.boot_id != row.boot_id);
        let what = if is_done { ", still set after a reboot" } else { "" };
        let text = format!("{}{}{what}", short_text::safe(&cause), since.unwrap_or_default());
        self.field("reboot", &text, self.app.config.theme.trouble);
    }

    fn cordon(&mut self, row: &NodeRow) {
        if !row.unschedulable && row.owner.is_none() && !row.cke_mark {
            return;
        }
        let mut parts = vec![if row.unschedulable { "cordoned".to_owned() } else { "not cordoned".to_owned() }];
        match &row.owner {
            Some(Ok(o)) if o.schedulable_before => {
                let request = self.app.seen.snapshot.store.requests.get(&o.entry).and_then(Stored::get);
                let requester = request.map(|r| {
                    let why = r.reason.as_ref().map(|why| format!(": {why}")).unwrap_or_default();
                    format!(" (requested by {}{why})", r.who)
                });
                parts.push(format!("by cketerm for {}{}", o.entry, requester.unwrap_or_default()));
            }
            Some(Ok(o)) => parts.push(format!("in work for {}; it was cordoned before and stays so", o.entry)),
            Some(Err(why)) => parts.push(format!("cketerm's annotation cannot be read: {why}")),
            None if row.cke_mark => parts.push("by CKE".to_owned()),
            None if row.keep_cordoned => {}
            None => parts.push("by somebody else".to_owned()),
        }
        if row.keep_cordoned {
            // who set the cordon with cketerm, as far as the audit was read
            let on = format!("node {}", row.name);
            let read = self.app.knowledge.past.audit.rows.values().filter_map(|audit| audit.as_ref().ok());
            let is_manual = |what: &str| matches!(what, "node cordon" | "node drain" | "node keep-cordoned");
            let mut actions = read.filter(|a| a.on == on && is_manual(&a.what));
            parts.push(match actions.next() {
                Some(action) => {
                    let why = action.reason.as_ref().map(|why| format!(": {why}")).unwrap_or_default();
                    format!(
                        "kept by {} ({} {}){why}",
                        action.who,
                        action.what,
                        self.moment_by(action.at, self.app.now.wall)
                    )
                }
                None => format!("an administrator keeps it cordoned (see Audit, {})", self.app.key("audit")),
            });
        }
        self.plain("cordon", &parts.join(", "));
    }
}

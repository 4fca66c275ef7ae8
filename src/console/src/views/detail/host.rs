//! Pane of a host: its power, requests and their authors, its times, its BMC, and the state of cketerm's controller.

use std::sync::Arc;

use cketerm_model::host::Mode;
use ratatui::style::Style;

use super::Text;
use crate::state::{HostId, queries, short_text};

impl Text<'_> {
    pub(super) fn host(&mut self, id: &HostId) {
        let seen = Arc::clone(&self.app.seen);
        let theme = self.app.config.theme.clone();
        let Some(host) = queries::host(&seen, id) else {
            self.plain("", &format!("host {}/{} is gone", id.0, id.1));
            return;
        };
        self.plain("power", short_text::host_power(host));
        let online = if host.online { "yes" } else { "no: kept off, whatever is requested" };
        self.plain("online", online);
        self.plain("state", &host.provisioning);
        match seen.snapshot.kube.node_of_host(host) {
            Some((node, by)) => self.plain("node", &format!("{}, matched by {by} (o goes there)", node.name)),
            None => self.plain("node", "none known; annotation cketerm.io/node sets it"),
        }
        if let Some(why) = host.hindrance() {
            self.field("why", &why.to_string(), theme.trouble);
        }
        if !host.error_type.is_empty() || !host.error.is_empty() {
            self.field("error", &format!("{}: {}", host.error_type, host.error), theme.danger);
        }
        self.heading(format!("Requests: {}", host.asked.keys.len() + usize::from(host.asked.base.is_some())));
        if let Some(value) = &host.asked.base {
            self.plain("reboot", &request(value));
        }
        for (key, value) in &host.asked.keys {
            self.plain("held by", &format!("{key}, {}", request(value)));
        }
        let time = |at: Option<jiff::Timestamp>, text: &Self| at.map_or("-".to_owned(), |at| text.moment(at));
        let (pending, last) = (time(host.pending_reboot_since, self), time(host.last_powered_on, self));
        self.plain("pending", &format!("{pending}{}", if host.pending() { "" } else { "; ended" }));
        self.plain("last on", &last);
        self.heading("Machine".to_owned());
        self.plain("BMC", &host.bmc_address);
        self.plain("Secret", &host.credentials);
        self.plain("consumer", &host.consumer);
        self.plain("addresses", &host.addresses.join(", "));
        if let Some(controller) = seen.snapshot.metal3.hosts.get(&host.full_name()) {
            self.heading("This engine processes its requests".to_owned());
            self.plain("BMC says", controller.power.as_deref().unwrap_or("nothing yet"));
            self.plain("doing", &controller.doing);
            if let Some(error) = &controller.error {
                self.field("error", error, theme.danger);
            }
        }
        self.field("", "W power, L release, I fence (isolate)", Style::new());
    }
}

/// Returns the mode that an annotation asks for, and a value that is no JSON, which may be a note.
fn request(value: &str) -> String {
    let note = value.trim();
    let mode = Mode::of(note);
    if note.is_empty() || note.starts_with('{') { mode.to_string() } else { format!("{mode}, {note:?}") }
}

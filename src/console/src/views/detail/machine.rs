//! Pane of a machine: sabakan's data, and what the plan does with the machine and why, field by field.

use cketerm_model::names::Address;
use ratatui::style::Style;

use super::Text;
use crate::state::{registry, when};

impl Text<'_> {
    pub(super) fn machine_fields(&mut self, address: &Address) {
        let (app, seen) = (self.app, &self.app.seen);
        match app.knowledge.registry.at(seen, address) {
            None => self.field("sabakan", "has no such machine any more", app.config.theme.trouble),
            Some(m) => {
                self.plain("serial", &m.serial);
                self.plain("state", &format!("{} for {}", m.state, when::seconds(registry::seconds_in_state(seen, m))));
                self.plain("role", &m.role);
                self.plain("rack", &format!("{}, position {}", m.rack, m.index_in_rack));
                let days = m.lifetime_days(self.now());
                self.plain(
                    "lifetime",
                    &format!("{days} days: registered {}, retires {}", m.register_date, m.retire_date),
                );
                self.plain("BMC", &format!("{} {}", m.bmc_type, m.bmc_ipv4));
                let labels: Vec<String> = m.labels.iter().map(|(n, v)| format!("{n}={v}")).collect();
                if !labels.is_empty() {
                    self.plain("labels", &labels.join(", "));
                }
            }
        }
        self.plain("place", registry::place(seen, address));
        self.heading("Planned change".to_owned());
        match app.knowledge.registry.choice(seen, address) {
            Some(choice) => {
                let word = app.knowledge.registry.change(seen, address).map_or("stays", |c| c.kind.as_str());
                self.plain("plan", word);
                self.plain("why", &choice.why.to_string());
                if let Some(score) = choice.score {
                    self.plain("score", &score.to_string());
                }
            }
            None => self.plain("plan", "nothing: not in the definition, and not needed there"),
        }
        if let Some(change) = app.knowledge.registry.change(seen, address).filter(|c| !c.fields.is_empty()) {
            self.heading("Fields".to_owned());
            for field in &change.fields {
                let text = match (&field.before, &field.after) {
                    (Some(before), Some(after)) => format!("{}: {before} > {after}", field.field),
                    (None, Some(after)) => format!("{}: {after} (new)", field.field),
                    (Some(before), None) => format!("{}: {before} (removed)", field.field),
                    (None, None) => field.field.clone(),
                };
                self.field("", &text, Style::new());
            }
        }
        let skipped = seen.auto_repair.plan.skipped.iter().find(|s| s.address == *address);
        if let Some(skipped) = skipped {
            self.heading("Automatic repair".to_owned());
            self.plain("skipped", &skipped.why);
        }
    }

    pub(super) fn fold(&mut self, what: &str) {
        let folds = &self.app.knowledge.registry.folds;
        if let Some((_, nodes)) = folds.iter().find(|(w, _)| w == what) {
            self.plain("change", what);
            let names = nodes.iter().map(|address| self.app.seen.snapshot.machine(address));
            self.plain("nodes", &names.collect::<Vec<_>>().join(" "));
        }
    }
}

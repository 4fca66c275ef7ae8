//! Knowledge beside the published state: its sums, and what was read on demand.

use std::{collections::BTreeMap, sync::Arc};

use cketerm_model::{boot_time::BootTime, rights::Rights, stored::view::StoreView};
use cketerm_rules::usual::{MAX_SAMPLES, MachineClass, UsualTimes};

use super::{
    batches::Batches, estimates::Estimates, logs::Logs, needs_you::NeedsYou, overview::Summary, past::Past,
    registry::RegistrySummary, totals::Totals,
};

/// Sums over the published state, and what was read on demand.
#[derive(Clone, Debug, Default)]
pub struct Knowledge {
    /// Sums over `seen`.
    pub totals: Totals,
    /// The batches, with the counts of their entries.
    pub batches: Batches,
    /// Sums over the machine registry.
    pub registry: RegistrySummary,
    /// Sums of the Overview.
    pub summary: Summary,
    /// The history, audit and CKE records that were read.
    pub past: Past,
    /// This process's log lines, as read from its ring buffer.
    pub logs: Logs,
    /// The lost sources, each with the boot time at which it last answered.
    pub lost: BTreeMap<&'static str, BootTime>,
    /// Everything that waits for a person, the most urgent first.
    pub needs_you: Vec<NeedsYou>,
    /// The changes that the operator has no permission for.
    pub rights: Rights,
    /// Estimated ends of the queues and batches that the screen shows.
    pub estimates: Estimates,
    /// Usual durations of each phase, from the history that was read.
    pub usual: Arc<UsualTimes>,
}

impl Knowledge {
    /// Computes the usual durations again, after history was read. The definition names the kind of each machine.
    pub fn refresh_usual(&mut self, store: &StoreView) {
        let ended = self.past.history.rows.values().filter_map(|row| row.as_ref().ok());
        let ended = ended.take(MAX_SAMPLES).map(|ended| ended.times.clone()).collect();
        self.usual = Arc::new(UsualTimes::of(ended, |address| MachineClass::of_address(store, address)));
    }
}

//! Knowledge beside the published state: its sums, and what was read on demand.

use std::collections::BTreeMap;

use cketerm_model::{boot_time::BootTime, rights::Rights};

use super::{logs::Logs, overview::Summary, past::Past, registry::RegistrySummary, totals::Totals};

/// Sums over the published state, and what was read on demand.
#[derive(Clone, Debug, Default)]
pub struct Knowledge {
    /// Sums over `seen`.
    pub totals: Totals,
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
    /// The changes that the operator has no permission for.
    pub rights: Rights,
}

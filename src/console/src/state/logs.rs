//! This process's own log lines, newest first, as far as the ring buffer goes back.

use std::{cmp::Reverse, collections::BTreeMap, sync::Arc, time::Duration};

use cketerm_model::boot_time::BootTime;
use cketerm_runtime::telemetry::LogLine;

/// Shortest time between two reads of the ring buffer.
const POLL_INTERVAL: Duration = Duration::from_millis(400);
/// Most lines that are kept here.
const MAX_LINES: usize = cketerm_runtime::telemetry::LINES;

/// Number of a line; the newest sorts first.
pub type LineId = Reverse<u64>;

/// The lines that were read.
#[derive(Clone, Debug, Default)]
pub struct Logs {
    /// The lines by number.
    pub lines: BTreeMap<LineId, Arc<LogLine>>,
    requested: bool,
    not_before: BootTime,
}

impl Logs {
    /// Returns a line.
    pub fn get(&self, id: &LineId) -> Option<&Arc<LogLine>> {
        self.lines.get(id)
    }

    /// Returns the number after which to read lines now. `None` if it is not time to read.
    pub fn next_request(&mut self, boot: BootTime) -> Option<u64> {
        if self.requested || boot < self.not_before {
            return None;
        }
        self.requested = true;
        Some(self.lines.keys().next().map_or(0, |id| id.0))
    }

    /// Takes new lines. Returns false if there were none.
    pub fn take(&mut self, lines: Vec<Arc<LogLine>>, boot: BootTime) -> bool {
        self.requested = false;
        self.not_before = boot + POLL_INTERVAL;
        let any = !lines.is_empty();
        self.lines.extend(lines.into_iter().map(|line| (Reverse(line.number), line)));
        while self.lines.len() > MAX_LINES {
            self.lines.pop_last();
        }
        any
    }
}

//! This process's own log lines, newest first, as far as the screen's ring goes back.

use std::{cmp::Reverse, collections::BTreeMap, sync::Arc, time::Duration};

use crate::telemetry::LogLine;

/// Between two looks at the ring.
const PAUSE: Duration = Duration::from_millis(400);
/// Lines that are kept here.
const MOST: usize = crate::telemetry::LINES;

/// A line by its number, the newest first.
pub type LineId = Reverse<u64>;

/// The lines that were taken over.
#[derive(Clone, Debug, Default)]
pub struct Logs {
    /// By number.
    pub lines: BTreeMap<LineId, Arc<LogLine>>,
    asked: bool,
    not_before: Duration,
}

impl Logs {
    /// A line.
    pub fn get(&self, id: &LineId) -> Option<&Arc<LogLine>> {
        self.lines.get(id)
    }

    /// After which number lines are wanted now, if any.
    pub fn wants(&mut self, boot: Duration) -> Option<u64> {
        if self.asked || boot < self.not_before {
            return None;
        }
        self.asked = true;
        Some(self.lines.keys().next().map_or(0, |id| id.0))
    }

    /// Takes lines over; says whether there were any.
    pub fn take(&mut self, lines: Vec<Arc<LogLine>>, boot: Duration) -> bool {
        self.asked = false;
        self.not_before = boot + PAUSE;
        let any = !lines.is_empty();
        self.lines.extend(lines.into_iter().map(|line| (Reverse(line.number), line)));
        while self.lines.len() > MOST {
            self.lines.pop_last();
        }
        any
    }
}

//! The last day, as far as history was read: entries that ended in each hour, failures, downtimes of machines.

use cketerm_model::entry::QueueKind;
use jiff::Timestamp;

use crate::state::App;

/// Sums of the last 24 hours, as far as history was read.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Day {
    /// Entries that ended in each hour, the last hour last.
    pub ended: Vec<u64>,
    /// Number of these entries that did not end as intended.
    pub bad: usize,
    /// Number of hours at the beginning of which nothing was read.
    pub unread: usize,
    /// Number of entries that ended as intended.
    pub good: usize,
    /// Seconds from the command to the end of each reboot that succeeded, sorted.
    pub boots: Vec<u64>,
}

/// Hours of the day.
const HOURS: usize = 24;

/// Sums up the last day from what was read of history.
pub(super) fn of(app: &App) -> Day {
    let (read, now) = (&app.knowledge.past.history, app.now.wall);
    let hours_ago = |at: Timestamp| usize::try_from(now.duration_since(at).as_hours()).unwrap_or(0);
    let mut day = Day { ended: vec![0; HOURS], ..Day::default() };
    let rows = || read.rows.values().filter_map(|row| row.as_deref().ok());
    for ended in rows() {
        if let Some(hour) = HOURS.checked_sub(1 + hours_ago(ended.at)).and_then(|at| day.ended.get_mut(at)) {
            *hour += 1;
            day.good += usize::from(ended.end.good());
            day.bad += usize::from(!ended.end.good() && !ended.end.withdrawn());
        }
    }
    if read.more {
        let oldest = rows().map(|ended| hours_ago(ended.at)).max().unwrap_or(0);
        day.unread = HOURS.saturating_sub(1 + oldest);
    }
    let is_recent = |at| hours_ago(at) < HOURS;
    let boots = rows().filter(|e| e.end.good() && e.entry.queue == QueueKind::Reboot && is_recent(e.at));
    let times = boots.filter_map(|e| u64::try_from(e.at.duration_since(e.command_started?).as_secs()).ok());
    day.boots = times.collect();
    day.boots.sort_unstable();
    day
}

impl Day {
    /// Returns a quantile of the reboots' times in seconds: 50 for the median. `None` if there are too few.
    pub fn boot_percentile(&self, percent: usize) -> Option<u64> {
        let last = self.boots.len().checked_sub(1).filter(|last| *last > 1)?;
        self.boots.get((last * percent).div_ceil(100)).copied()
    }
}

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
    /// Seconds from the command to the end of each of the last reboots, the newest last.
    pub boots: Vec<u64>,
}

/// Hours of the day.
const HOURS: usize = 24;
/// Most reboots whose times are compared.
const MAX_BOOTS: usize = 24;

/// Sums up the last day from what was read of history.
pub(super) fn of(app: &App) -> Day {
    let (read, now) = (&app.knowledge.past.history, app.now.wall);
    let hours_ago = |at: Timestamp| usize::try_from(now.duration_since(at).as_hours()).unwrap_or(0);
    let mut day = Day { ended: vec![0; HOURS], ..Day::default() };
    let rows = || read.rows.values().filter_map(|row| row.as_deref().ok());
    for ended in rows() {
        if let Some(hour) = HOURS.checked_sub(1 + hours_ago(ended.at)).and_then(|at| day.ended.get_mut(at)) {
            *hour += 1;
            day.bad += usize::from(!ended.end.good() && !ended.end.withdrawn());
        }
    }
    if read.more {
        let oldest = rows().map(|ended| hours_ago(ended.at)).max().unwrap_or(0);
        day.unread = HOURS.saturating_sub(1 + oldest);
    }
    let boots = rows().filter(|e| e.end.good() && e.entry.queue == QueueKind::Reboot);
    let times = boots.filter_map(|e| u64::try_from(e.at.duration_since(e.command_started?).as_secs()).ok());
    day.boots = times.take(MAX_BOOTS).collect();
    day.boots.reverse();
    day
}

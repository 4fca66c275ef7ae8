//! Folding of too many notices into one notice with counts, the choice of the next notice, and the rate limit.

use std::collections::BTreeMap;

use cketerm_model::{
    boot_time::{BootTime, Seconds},
    notice::{Kind, Notice, NotifierState},
};

use super::{due::push, scene::Scene};

/// Number of waiting notices above which they are folded, if none can be delivered.
const MAX_WAITING: usize = 50;
/// Number of titles, and of ids, that a folded notice repeats.
const TITLES: usize = 20;
const IDS: usize = 200;

/// Folds the notices whose delivery has not begun, if they are more than may be delivered now, or more than are kept.
pub fn fold(state: &mut NotifierState, scene: &Scene, may: usize) {
    let begun = state.pending.iter().filter(|p| p.begun).count();
    let waits = state.pending.len() - begun;
    let too_many = waits > MAX_WAITING || (may > 0 && begun == 0 && waits > may);
    if waits < 2 || !too_many {
        return;
    }
    let (kept, folded): (Vec<_>, Vec<_>) = std::mem::take(&mut state.pending).into_iter().partition(|p| p.begun);
    state.pending = kept;
    let folded: Vec<Notice> = folded.into_iter().map(|p| p.notice).collect();
    push(state, scene, summary(&folded, scene));
}

/// Makes one notice from several. A folded one counts as the notices that it contains.
fn summary(folded: &[Notice], scene: &Scene) -> Notice {
    let mut counts: BTreeMap<String, u64> = BTreeMap::new();
    let (mut ids, mut titles) = (Vec::new(), Vec::new());
    for notice in folded {
        if notice.kind == Kind::Many {
            for (kind, n) in &notice.counts {
                *counts.entry(kind.clone()).or_default() += n;
            }
            ids.extend(notice.ids.iter().cloned());
            // One title a line; a line more says how many are left out.
            let listed = usize::try_from(notice.count).unwrap_or(usize::MAX).min(TITLES);
            titles.extend(notice.text.lines().take(listed).map(str::to_owned));
        } else {
            *counts.entry(notice.kind.as_str().to_owned()).or_default() += 1;
            ids.push(notice.id.clone());
            titles.push(notice.title.clone());
        }
    }
    let all: u64 = counts.values().sum();
    let each: Vec<String> = counts.iter().map(|(kind, n)| format!("{n} {kind}")).collect();
    let title = format!("{all} notices: {}", each.join(", "));
    let mut notice = Notice::new(Kind::Many, "many".to_owned(), title, scene.at);
    titles.truncate(TITLES);
    let more = all.saturating_sub(titles.len() as u64);
    notice.text = titles.join("\n");
    if more > 0 {
        notice.text = format!("{}\nand {more} more", notice.text);
    }
    ids.truncate(IDS);
    notice.severity = folded.iter().map(|n| n.severity).max().unwrap_or_default();
    notice.since = folded.iter().map(|n| n.since.unwrap_or(n.at)).min();
    (notice.count, notice.counts, notice.ids) = (all, counts, ids);
    notice
}

/// Returns the next notice and marks that it may have been received. The mark is written before the notice is sent.
pub fn begin(state: &mut NotifierState) -> Option<Notice> {
    let first = state.pending.first_mut()?;
    first.begun = true;
    Some(first.notice.clone())
}

/// Removes a notice that was received or given up.
pub fn remove_delivered(state: &mut NotifierState, id: &str) {
    state.pending.retain(|p| p.notice.id != id);
}

/// Number of deliveries that a receiver takes now (token bucket).
#[derive(Clone, Debug)]
pub struct Bucket {
    per_minute: f64,
    left: f64,
    at: BootTime,
}

impl Bucket {
    /// Creates a full bucket at this moment.
    pub fn new(per_minute: u32, at: BootTime) -> Self {
        Self { per_minute: f64::from(per_minute), left: f64::from(per_minute), at }
    }

    /// Returns the number of whole deliveries that may be made now.
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // between 0 and 600
    pub fn may(&mut self, at: BootTime) -> usize {
        self.left = (self.left + (at - self.at).max(Seconds::ZERO).get() * self.per_minute / 60.0).min(self.per_minute);
        self.at = at;
        // The sum of small additions may be slightly too small.
        (self.left + 1e-6) as usize
    }

    /// Counts one delivery.
    pub fn take(&mut self) {
        self.left = (self.left - 1.0).max(0.0);
    }
}

//! What is too much for a receiver becomes one notice with counts; and which one goes next.

use std::collections::BTreeMap;

use super::{due::push, scene::Scene};
use crate::model::notice::{Kind, Notice, NotifierState};

/// Without a delivery no more than this is kept apart.
const MOST: usize = 50;
/// Titles that a folded notice repeats, and ids.
const TITLES: usize = 20;
const IDS: usize = 200;

/// Folds what has not been begun, where it is more than may be delivered now, or than is kept.
pub fn fold(told: &mut NotifierState, scene: &Scene, may: usize) {
    let begun = told.pending.iter().filter(|p| p.begun).count();
    let waits = told.pending.len() - begun;
    let too_many = waits > MOST || (may > 0 && begun == 0 && waits > may);
    if waits < 2 || !too_many {
        return;
    }
    let (kept, folded): (Vec<_>, Vec<_>) = std::mem::take(&mut told.pending).into_iter().partition(|p| p.begun);
    told.pending = kept;
    let folded: Vec<Notice> = folded.into_iter().map(|p| p.notice).collect();
    push(told, scene, many(&folded, scene));
}

/// One notice for several; one that was folded before counts as what it stands for.
fn many(folded: &[Notice], scene: &Scene) -> Notice {
    let mut counts: BTreeMap<String, u64> = BTreeMap::new();
    let (mut ids, mut titles) = (Vec::new(), Vec::new());
    for notice in folded {
        if notice.kind == Kind::Many {
            for (kind, n) in &notice.counts {
                *counts.entry(kind.clone()).or_default() += n;
            }
            ids.extend(notice.ids.iter().cloned());
            titles.extend(notice.text.lines().filter(|l| !l.starts_with("and ")).map(str::to_owned));
        } else {
            *counts.entry(notice.kind.word().to_owned()).or_default() += 1;
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

/// The one that goes next: it is written down that it may have been received before it is sent.
pub fn begin(told: &mut NotifierState) -> Option<Notice> {
    let first = told.pending.first_mut()?;
    first.begun = true;
    Some(first.notice.clone())
}

/// It was received, or given up.
pub fn done(told: &mut NotifierState, id: &str) {
    told.pending.retain(|p| p.notice.id != id);
}

/// How many deliveries a receiver takes now.
#[derive(Clone, Debug)]
pub struct Bucket {
    per_minute: f64,
    left: f64,
    at: f64,
}

impl Bucket {
    /// A full one at this moment (boot-time seconds).
    pub fn new(per_minute: u32, at: f64) -> Self {
        Self { per_minute: f64::from(per_minute), left: f64::from(per_minute), at }
    }

    /// Whole deliveries that may be made now.
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // between 0 and 600
    pub fn may(&mut self, at: f64) -> usize {
        self.left = (self.left + (at - self.at).max(0.0) * self.per_minute / 60.0).min(self.per_minute);
        self.at = at;
        // what was added up in parts may lack a hair
        (self.left + 1e-6) as usize
    }

    /// One was made.
    pub fn take(&mut self) {
        self.left = (self.left - 1.0).max(0.0);
    }
}

//! Terminal title and bell, for an operator who looks elsewhere.
//!
//! The title is written only when it changes, and at most once per `TITLE_INTERVAL`. An idle console writes nothing.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use cketerm_model::{boot_time::BootTime, entry::EntryId};
use cketerm_rules::trouble;
use unicode_width::UnicodeWidthChar;

use crate::{
    state::{App, queries, short_text, totals::Counts},
    theme::{charset::Charset, display::Bell},
};

/// Shortest time between two titles.
const TITLE_INTERVAL: Duration = Duration::from_secs(3);
/// Time for which the same entry does not ring again.
const BELL_INTERVAL: Duration = Duration::from_mins(1);
/// Longest title, in columns: more than a tab shows.
const MAX_TITLE_WIDTH: usize = 80;
/// Saves the terminal's current title on its title stack.
pub const SAVE_TITLE: &str = "\u{1b}[22;0t";
/// Restores the title from the stack.
pub const RESTORE_TITLE: &str = "\u{1b}[23;0t";
const BELL: &str = "\u{7}";

/// Reports whether a terminal has a title. Terminals without one would print the text.
pub fn has_title(term: Option<&str>) -> bool {
    !matches!(term, None | Some("" | "dumb" | "linux" | "vt100" | "vt102" | "vt220"))
}

/// State of the title and the bell.
#[derive(Clone, Debug, Default)]
pub struct Attention {
    /// Whether titles are written.
    title: bool,
    bell: Bell,
    /// The current title, and when it was written (boot time).
    shown_title: Option<(String, BootTime)>,
    /// The stuck entries and the number of entries in progress, at the last look.
    before: Option<(BTreeSet<Stuck>, usize)>,
    /// The entries that rang, and when (boot time). An entry that flaps does not ring again.
    last_rung: BTreeMap<Stuck, BootTime>,
}

impl Attention {
    /// Creates one that writes titles (or not) and rings as configured.
    pub fn new(title: bool, bell: Bell) -> Self {
        Self { title, bell, shown_title: None, before: None, last_rung: BTreeMap::new() }
    }

    /// Forgets the title: a shell may have replaced it while the process was stopped.
    pub fn forget(&mut self) {
        self.shown_title = None;
    }

    /// Returns the bytes to write now; almost always none.
    pub fn escape_sequences(&mut self, app: &App) -> String {
        let mut out = String::new();
        if self.title {
            let due = self
                .shown_title
                .as_ref()
                .is_none_or(|(_, at)| app.now.boot.saturating_duration_since(*at) >= TITLE_INTERVAL);
            if due {
                let title = title(app);
                if self.shown_title.as_ref().is_none_or(|(shown_title, _)| *shown_title != title) {
                    out = format!("\u{1b}]2;{title}\u{7}");
                    self.shown_title = Some((title, app.now.boot));
                }
            }
        }
        if self.bell != Bell::Never && self.should_ring(app) {
            out.push_str(BELL);
        }
        out
    }

    /// Returns true if an entry became stuck, or the last entry in progress ended, since the last look.
    fn should_ring(&mut self, app: &App) -> bool {
        // Before the first sync nothing is known, so nothing begins or ends.
        if !app.seen.snapshot.store.synced {
            return false;
        }
        let (who, work, at) = (stuck_subjects(app), entries_in_work(app), app.now.boot);
        self.last_rung.retain(|_, rung_at| at.saturating_duration_since(*rung_at) < BELL_INTERVAL);
        let Some((stuck, worked)) = self.before.replace((who.clone(), work)) else { return false };
        let newly: Vec<Stuck> = who.difference(&stuck).filter(|id| !self.last_rung.contains_key(id)).cloned().collect();
        let should_ring = self.bell.stuck() && !newly.is_empty();
        self.last_rung.extend(newly.into_iter().map(|id| (id, at)));
        should_ring || (self.bell.ended() && work == 0 && worked > 0)
    }
}

/// An entry, or the name of a node with an orphaned cordon.
type Stuck = (Option<EntryId>, String);

fn stuck_subjects(app: &App) -> BTreeSet<Stuck> {
    let seen = &app.seen;
    let entries = trouble::all_stuck(seen).into_iter().map(|id| (Some(id), String::new()));
    entries.chain(seen.orphans.keys().map(|node| (None, node.to_string()))).collect()
}

fn stuck(app: &App) -> usize {
    app.knowledge.totals.reboots.trouble + app.knowledge.totals.repairs.trouble
}

fn entries_in_work(app: &App) -> usize {
    let of = |counts: &Counts| counts.draining + counts.after;
    of(&app.knowledge.totals.reboots) + of(&app.knowledge.totals.repairs)
}

/// Returns the title, for example `cketerm tokyo0: 2 stuck`.
fn title(app: &App) -> String {
    let name = app.config.badge.as_deref().or(app.cluster());
    let name = name.map(|name| format!(" {name}")).unwrap_or_default();
    let (boot, store) = (app.now.boot, &app.seen.snapshot.store);
    let (reboots, repairs) = (&app.knowledge.totals.reboots, &app.knowledge.totals.repairs);
    let what = if !store.synced {
        "connecting".to_owned()
    } else if queries::etcd_lost(&app.seen, boot).is_some() {
        "etcd lost".to_owned()
    } else if stuck(app) > 0 {
        format!("{} stuck", stuck(app))
    } else {
        let parts = [
            (reboots.draining + repairs.draining, "draining"),
            (reboots.after, "rebooting"),
            (repairs.after, "repairing"),
        ];
        let parts: Vec<String> = parts.iter().filter(|(n, _)| *n > 0).map(|(n, what)| format!("{n} {what}")).collect();
        let held = app.knowledge.totals.holds.iter().map(|(_, n)| n).sum::<usize>();
        let queued = reboots.queued + reboots.backoff + repairs.queued + repairs.backoff;
        match (parts.is_empty(), queued) {
            (false, _) => parts.join(", "),
            (true, 0) => "idle".to_owned(),
            (true, _) if held > 0 => format!("{held} blocked"),
            (true, n) => format!("{n} queued"),
        }
    };
    let text = short_text::safe(&format!("cketerm{name}: {what}"));
    let mut left = MAX_TITLE_WIDTH;
    let cut = text.chars().take_while(|c| {
        let width = c.width().unwrap_or(0);
        let fits = width <= left;
        left = left.saturating_sub(width);
        fits
    });
    match app.config.charset {
        Charset::Ascii => cut.map(|c| if c.is_ascii() { c } else { '?' }).collect(),
        Charset::All | Charset::WithoutSigns | Charset::AsciiBorders => cut.collect(),
    }
}

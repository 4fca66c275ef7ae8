//! What screens say of windows and freezes (policy `windows`, `freeze`).

use jiff::{Timestamp, tz::TimeZone};

use super::{app::App, brief};
use crate::model::{
    entry::QueueKind,
    freeze::Freeze,
    policy::Policy,
    window::{Stands, clock},
};

/// The freeze that is on.
pub fn freeze(app: &App) -> Option<Freeze> {
    app.seen.snapshot.store.policy().freeze.clone().filter(|freeze| freeze.holds(app.now.wall))
}

/// `FROZEN until 08:00 UTC: quarter end (ann)`.
pub fn frozen(app: &App) -> Option<String> {
    let freeze = freeze(app)?;
    let until = moment(app, freeze.until);
    let by = if freeze.who.user.is_empty() { String::new() } else { format!(" ({})", freeze.who.user) };
    Some(brief::safe(&format!("FROZEN until {until}: {}{by}", freeze.reason)))
}

/// A moment on the clock of the windows' zone, or in UTC where there are no windows.
pub fn moment(app: &App, at: Timestamp) -> String {
    let policy = app.seen.snapshot.store.policy();
    policy.windows.as_ref().map_or_else(|| clock(&TimeZone::UTC, at, app.now.wall), |w| w.clock(at, app.now.wall))
}

/// How the general window of this queue stands; none where it has none.
pub fn stands(app: &App, policy: &Policy, queue: QueueKind) -> Option<Stands> {
    let windows = policy.windows.as_ref().filter(|windows| windows.bind(queue))?;
    windows.all().next().map(|(_, window)| window.stands(app.now.wall))
}

/// `window opens Mon 22:00 JST`, `window closes 05:00 JST`, and whether it is open; none where there is none.
pub fn window(app: &App, queue: QueueKind) -> Option<(String, bool)> {
    let policy = app.seen.snapshot.store.policy();
    let windows = policy.windows.as_ref()?;
    let stands = stands(app, &policy, queue)?;
    let at = |at| windows.clock(at, app.now.wall);
    let text = match (stands.open, stands.closes, stands.opens) {
        (true, Some(closes), _) => format!("window closes {}", at(closes)),
        (true, None, _) => "window open".to_owned(),
        (false, _, Some(opens)) => format!("window opens {}", at(opens)),
        (false, _, None) => "window never opens".to_owned(),
    };
    Some((text, stands.open))
}

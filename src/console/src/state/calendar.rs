//! Texts about windows and freezes (policy `windows`, `freeze`), and times in the site's zone.

use cketerm_model::{
    entry::QueueKind,
    freeze::Freeze,
    policy::Policy,
    window::{WindowState, clock},
};
use jiff::{Timestamp, tz::TimeZone};

use super::{App, leaders, short_text, when};

/// Returns the freeze that is in force.
pub fn freeze(app: &App) -> Option<Freeze> {
    app.seen.snapshot.store.policy().freeze.clone().filter(|freeze| freeze.holds(app.now.wall))
}

/// Returns the banner of a freeze: `FROZEN until 08:00 UTC: quarter end (ann)`.
pub fn frozen(app: &App) -> Option<String> {
    let freeze = freeze(app)?;
    let until = moment(app, freeze.until);
    let by = if freeze.who.user.is_empty() { String::new() } else { format!(" ({})", freeze.who.user) };
    let not = leaders::not_in_force(app).map(|not| format!(" - {not}")).unwrap_or_default();
    Some(short_text::safe(&format!("FROZEN until {until}: {}{by}{not}", freeze.reason)))
}

/// Rewrites the times in a text as the console shows all times: whole seconds, in the site's zone.
pub fn with_local_times(app: &App, text: &str) -> String {
    let word = |word: &str| {
        let bare = word.trim_matches(|c: char| !c.is_ascii_alphanumeric());
        let at = bare.parse::<Timestamp>().ok().filter(|_| bare.len() >= "2026-11-21T10:00Z".len());
        at.map_or_else(|| word.to_owned(), |at| word.replace(bare, &time(app, at)))
    };
    text.split(' ').map(word).collect::<Vec<_>>().join(" ")
}

/// Returns the zone of all times on the screen: the zone of the general window. `None` = UTC.
pub fn zone(app: &App) -> Option<TimeZone> {
    app.seen.snapshot.store.policy().time_zone()
}

/// Formats a time to the minute: `10:10Z`, `19:10 JST`, `Mon 22:00 JST`.
pub fn moment(app: &App, at: Timestamp) -> String {
    match zone(app) {
        Some(zone) => clock(&zone, at, app.now.wall),
        None => clock(&TimeZone::UTC, at, app.now.wall).replace(" UTC", "Z"),
    }
}

/// Formats a time to the second, with the date if it is another day: `10:10:05Z`, `19:10:05 JST`.
pub fn time(app: &App, at: Timestamp) -> String {
    match zone(app) {
        _ if when::is_unknown(at) => when::UNKNOWN.to_owned(),
        None => when::moment(at, app.now.wall),
        Some(zone) => {
            let (at, now) = (at.to_zoned(zone.clone()), app.now.wall.to_zoned(zone));
            at.strftime(if at.date() == now.date() { "%H:%M:%S %Z" } else { "%F %H:%M:%S %Z" }).to_string()
        }
    }
}

/// Formats a time in at most eleven columns. Another day's time has no seconds; a zone other than UTC is not named.
pub fn short(app: &App, at: Timestamp) -> String {
    match zone(app) {
        _ if when::is_unknown(at) => when::UNKNOWN.to_owned(),
        None => when::short(at, app.now.wall),
        Some(zone) => {
            let (at, now) = (at.to_zoned(zone.clone()), app.now.wall.to_zoned(zone));
            let form = match (at.date() == now.date(), at.year() == now.year()) {
                (true, _) => "%H:%M:%S",
                (false, true) => "%m-%d %H:%M",
                (false, false) => "%F",
            };
            at.strftime(form).to_string()
        }
    }
}

/// Returns the state of this queue's general window. `None` if it has none.
pub fn window_state(app: &App, policy: &Policy, queue: QueueKind) -> Option<WindowState> {
    let windows = policy.windows.as_ref().filter(|windows| windows.bind(queue))?;
    windows.all().next().map(|(_, window)| window.state_at(app.now.wall))
}

/// Returns a text about the window, and whether it is open: `window opens Mon 22:00 JST`, `window closes 05:00 JST`.
/// `None` if there is no window.
pub fn window(app: &App, queue: QueueKind) -> Option<(String, bool)> {
    let policy = app.seen.snapshot.store.policy();
    let windows = policy.windows.as_ref()?;
    let window_state = window_state(app, &policy, queue)?;
    let at = |at| windows.clock(at, app.now.wall);
    let text = match (window_state.open, window_state.closes, window_state.opens) {
        (true, Some(closes), _) => format!("window closes {}", at(closes)),
        (true, None, _) => "window open".to_owned(),
        (false, _, Some(opens)) => format!("window opens {}", at(opens)),
        (false, _, None) => "window never opens".to_owned(),
    };
    match leaders::not_in_force(app) {
        Some(_) => Some((format!("{text} (NOT IN FORCE)"), false)),
        None => Some((text, window_state.open)),
    }
}

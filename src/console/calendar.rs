//! What screens say of windows and freezes (policy `windows`, `freeze`).

use jiff::{Timestamp, tz::TimeZone};

use super::{app::App, leaders, short_text, when};
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
    let not = leaders::not_in_force(app).map(|not| format!(" - {not}")).unwrap_or_default();
    Some(short_text::safe(&format!("FROZEN until {until}: {}{by}{not}", freeze.reason)))
}

/// A text with its times told as all others are: whole seconds, in the site's zone.
pub fn retold(app: &App, text: &str) -> String {
    let word = |word: &str| {
        let bare = word.trim_matches(|c: char| !c.is_ascii_alphanumeric());
        let at = bare.parse::<Timestamp>().ok().filter(|_| bare.len() >= "2026-11-21T10:00Z".len());
        at.map_or_else(|| word.to_owned(), |at| word.replace(bare, &time(app, at)))
    };
    text.split(' ').map(word).collect::<Vec<_>>().join(" ")
}

/// The zone that all times are told in: that of the general window; none = UTC.
fn zone(app: &App) -> Option<TimeZone> {
    let policy = app.seen.snapshot.store.policy();
    policy.windows.as_ref().and_then(|windows| windows.all().next().map(|(_, window)| window.zone.clone()))
}

/// A moment in minutes: `10:10Z`, `19:10 JST`, `Mon 22:00 JST`.
pub fn moment(app: &App, at: Timestamp) -> String {
    match zone(app) {
        Some(zone) => clock(&zone, at, app.now.wall),
        None => clock(&TimeZone::UTC, at, app.now.wall).replace(" UTC", "Z"),
    }
}

/// A moment in seconds, with the date where it is another day: `10:10:05Z`, `19:10:05 JST`.
pub fn time(app: &App, at: Timestamp) -> String {
    match zone(app) {
        _ if when::unread(at) => when::UNREAD.to_owned(),
        None => when::moment(at, app.now.wall),
        Some(zone) => {
            let (at, now) = (at.to_zoned(zone.clone()), app.now.wall.to_zoned(zone));
            at.strftime(if at.date() == now.date() { "%H:%M:%S %Z" } else { "%F %H:%M:%S %Z" }).to_string()
        }
    }
}

/// The same in eleven columns at most: another day's without seconds, and without the zone's name where it is not UTC.
pub fn short(app: &App, at: Timestamp) -> String {
    match zone(app) {
        _ if when::unread(at) => when::UNREAD.to_owned(),
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
    match leaders::not_in_force(app) {
        Some(_) => Some((format!("{text} (NOT IN FORCE)"), false)),
        None => Some((text, stands.open)),
    }
}

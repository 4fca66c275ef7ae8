//! Announcements of other people's actions. The etcd watch delivers the audit records as they are written, so the
//! console reads nothing extra.

use super::{
    app::App,
    event::count,
    short_text::{self, squeezed},
};
use crate::{model::cketerm_records::Audit, store::fresh::Fresh};

/// Longest announcement of an action, in characters; Audit shows all of it.
const MOST: usize = 500;

/// Announces the actions of others since the last call.
pub fn follow(app: &mut App) {
    let store = std::sync::Arc::clone(&app.seen.snapshot.store);
    if !store.synced {
        return;
    }
    let known = app.heard_of.replace(store.revision);
    // The Overview shows the actions from before this console started. A lower revision means a different etcd history:
    // start again.
    let Some(known) = known.filter(|known| *known <= store.revision) else { return };
    let mine = |audit: &Audit| app.me.as_ref() == Some(&audit.who);
    let told: Vec<String> =
        store.fresh.deeds_after(known).filter(|(_, audit)| !mine(audit)).map(|(_, audit)| sentence(audit)).collect();
    let Some((last, before)) = told.split_last() else { return };
    let mut last = last.clone();
    if let Some(untold) = untold(&store.fresh, known) {
        last = format!("{last}; {untold}: see {}", app.key("audit"));
    }
    for text in before {
        app.note(text.clone(), false);
    }
    // The operator must be able to read an error to its end, and a dialog must not change.
    if app.busy > 0
        || app.dialog.is_some()
        || app.help.is_some()
        || app.message.as_ref().is_some_and(|message| message.failed)
    {
        app.note(last, false);
    } else {
        app.say(last);
    }
}

/// Returns a note about the actions after this revision that are not kept any more: `6 earlier actions not listed here`.
pub fn untold(fresh: &Fresh, revision: i64) -> Option<String> {
    let (dropped, at_least) = fresh.dropped_after(revision);
    let least = if at_least { "at least " } else { "" };
    (dropped > 0).then(|| format!("{least}{} not listed here", count(dropped, "earlier action")))
}

/// Returns an audit record as a sentence: `bob@ops2 cancelled reboots/7: wrong rack`.
pub fn sentence(audit: &Audit) -> String {
    let did = match audit.what.as_str() {
        "reboot add" => "queued a reboot of",
        "repair add" => "queued a repair of",
        "reboot cancel" | "reboot cancel-all" => "cancelled",
        "repair delete" | "repair delete-finished" | "repair delete-unfinished" => "deleted",
        "reboot reset-backoff" | "repair reset-backoff" => "reset the backoff of",
        "enable" => "enabled the",
        "disable" => "DISABLED the",
        "reboot hold" | "repair hold" => "put on hold:",
        "reboot unhold" | "repair unhold" => "released:",
        "reboot retry" | "repair retry" => "ordered a retry of",
        "reboot done" | "repair done" => "declared done:",
        "reboot force" | "repair force" => "ordered to FORCE",
        "reboot uncordon" => "ordered the release of",
        "node cordon" => "cordoned",
        "node uncordon" => "uncordoned",
        "node drain" => "drains",
        "freeze" => "FROZE",
        "freeze for handover" => "stored a freeze for the next cketerm leader of",
        "unfreeze" => "ended the freeze of",
        "stop" => "STOPPED",
        "resume" => "resumed",
        other => return told(audit, &format!("did {other:?} on")),
    };
    told(audit, did)
}

fn told(audit: &Audit, did: &str) -> String {
    let host = if audit.who.host.is_empty() { String::new() } else { format!("@{}", audit.who.host) };
    let why = audit.reason.as_ref().map(|why| format!(": {why}")).unwrap_or_default();
    let failed = if audit.failed { format!(" ({})", audit.shown().result) } else { String::new() };
    short_text::safe(&squeezed(&format!("{}{host} {did} {}{why}{failed}", audit.who.user, few(&audit.on)), MOST))
}

/// Most objects that are named one by one.
const NAMED: usize = 3;

/// Returns the first of many objects; the audit record has them all. The result is ASCII, like all of cketerm's own
/// text.
fn few(on: &str) -> String {
    let on = on.replace('\u{2013}', "-");
    let objects: Vec<&str> = on.split(' ').collect();
    let listed = objects.iter().all(|object| object.contains('.') || object.contains('/'));
    match objects.split_first() {
        Some((first, rest)) if listed && objects.len() > NAMED => format!("{first} and {} more", rest.len()),
        _ => on,
    }
}

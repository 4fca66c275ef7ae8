//! Announcements of other people's actions. The etcd watch delivers the audit records as they are written, so the
//! console reads nothing extra.

use cketerm_model::{
    cketerm_records::{Audit, REPEATED_CANCEL, REPEATED_DELETION},
    stored::recent::RecentRecords,
};
use cketerm_rules::seen::Seen;

use crate::state::{
    App,
    event::count,
    short_text::{self, shorten_middle},
};

/// Longest announcement of an action, in characters; Audit shows all of it.
const MAX_WIDTH: usize = 500;

/// Announces the actions of others since the last call.
pub fn follow(app: &mut App) {
    let store = std::sync::Arc::clone(&app.seen.snapshot.store);
    if !store.synced {
        return;
    }
    let known = app.session.followed_revision.replace(store.revision);
    // The Overview shows the actions from before this console started. A lower revision means a different etcd history:
    // start again.
    let Some(known) = known.filter(|known| *known <= store.revision) else { return };
    let is_own = |audit: &Audit| app.session.operator_identity.as_ref() == Some(&audit.who);
    let rendered: Vec<String> = store
        .recent
        .actions_after(known)
        .filter(|(_, audit)| !is_own(audit) || repeated_act(audit).is_some())
        .map(|(_, audit)| sentence(&app.seen, audit))
        .collect();
    let Some((last, before)) = rendered.split_last() else { return };
    let mut last = last.clone();
    if let Some(omitted_notice) = omitted_notice(&store.recent, known) {
        last = format!("{last}; {omitted_notice}: see {}", app.key("audit"));
    }
    for text in before {
        app.note(text.clone(), false);
    }
    // The operator must be able to read an error to its end, and a dialog must not change.
    if app.session.busy > 0
        || app.dialog.is_some()
        || app.navigation.help.is_some()
        || app.session.message.as_ref().is_some_and(|message| !message.announced) && app.has_unread_message()
        || app.session.message.as_ref().is_some_and(|message| message.failed)
    {
        app.note(last, false);
    } else {
        app.announce(last);
    }
}

/// Returns a note about the actions after this revision that are not kept any more:
/// `6 earlier actions not listed here`.
pub fn omitted_notice(recent: &RecentRecords, revision: i64) -> Option<String> {
    let (dropped, at_least) = recent.dropped_after(revision);
    let least = if at_least { "at least " } else { "" };
    (dropped > 0).then(|| format!("{least}{} not listed here", count(dropped, "earlier action")))
}

/// Returns an audit record as a sentence: `bob@ops2 cancelled reboots/7: wrong rack`.
pub fn sentence(seen: &Seen, audit: &Audit) -> String {
    if let Some(act) = repeated_act(audit) {
        return repeated(seen, audit, act);
    }
    let action = match audit.what.as_str() {
        "reboot add" => "queued a reboot of",
        "repair add" => "queued a repair of",
        "reboot cancel" | "reboot cancel-all" => "cancelled",
        "repair delete" | "repair delete-finished" | "repair delete-unfinished" => "deleted",
        "reboot reset-backoff" | "repair reset-backoff" => "reset the backoff of",
        "enable" => "enabled the",
        "disable" => "DISABLED the",
        "reboot hold" | "repair hold" => "put on hold:",
        "reboot unhold" | "repair unhold" => "ended the hold of",
        "reboot retry" | "repair retry" => "ordered a retry of",
        "reboot done" | "repair done" => "declared done:",
        "reboot force" | "repair force" => "ordered to FORCE",
        "reboot uncordon" => "ordered to uncordon",
        "node cordon" => "cordoned",
        "node uncordon" => "uncordoned",
        "node drain" => "drains",
        "freeze" => "FROZE",
        "freeze for handover" => "stored a freeze for the next cketerm leader of",
        "unfreeze" => "ended the freeze of",
        "stop" => "STOPPED",
        "resume" => "resumed",
        other => return rendered(seen, audit, &format!("did {other:?} on")),
    };
    rendered(seen, audit, action)
}

/// Returns the act of an operator that cketerm repeated because CKE's write had lost it.
fn repeated_act(audit: &Audit) -> Option<&'static str> {
    match audit.what.as_str() {
        REPEATED_CANCEL => Some("cancel"),
        REPEATED_DELETION => Some("deletion"),
        _ => None,
    }
}

/// Returns the record of a repeated act as a sentence. Its author is the operator who cancelled or deleted the entry.
fn repeated(seen: &Seen, audit: &Audit, act: &str) -> String {
    let why = audit.reason.as_ref().map(|why| format!(": {why}")).unwrap_or_default();
    let (author, on) = (author(audit), abbreviated(seen, &audit.on));
    short_text::safe(&shorten_middle(&format!("cketerm repeated {author}'s {act} of {on}{why}"), MAX_WIDTH))
}

fn author(audit: &Audit) -> String {
    let host = if audit.who.host.is_empty() { String::new() } else { format!("@{}", audit.who.host) };
    format!("{}{host}", audit.who.user)
}

fn rendered(seen: &Seen, audit: &Audit, action: &str) -> String {
    let author = author(audit);
    let why = audit.reason.as_ref().map(|why| format!(": {why}")).unwrap_or_default();
    let failed = if audit.failed { format!(" ({})", audit.shown().result) } else { String::new() };
    short_text::safe(&shorten_middle(
        &format!("{author} {action} {}{why}{failed}", abbreviated(seen, &audit.on)),
        MAX_WIDTH,
    ))
}

/// Most objects that are named one by one.
const MAX_NAMED: usize = 3;

/// Returns the first of many objects; the audit record has them all. The result is ASCII, like all of cketerm's own
/// text.
fn abbreviated(seen: &Seen, on: &str) -> String {
    let on = on.replace('\u{2013}', "-");
    let objects: Vec<&str> = on.split(' ').collect();
    let listed = objects.iter().all(|object| object.contains('.') || object.contains('/'));
    match objects.split_first() {
        Some((first, rest)) if listed && objects.len() > MAX_NAMED => {
            format!("{} and {} more", short_text::named(seen, first), rest.len())
        }
        _ => short_text::named(seen, &on),
    }
}

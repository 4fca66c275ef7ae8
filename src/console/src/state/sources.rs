//! State of the data sources. For a lost source: since when, how old its rows are, why, and when the next try is. Also
//! the sources that answer slowly.

use cketerm_model::boot_time::{BootTime, Seconds};
use cketerm_rules::seen::Seen;
use jiff::Timestamp;
use ratatui::style::Style;

use super::{
    App, calendar,
    lost::{Lost, etcd_lost, kube_lost, sabakan_lost},
    queries::{self, Leader},
    short_text, when,
};

/// Silence after which a source that is queried every few seconds counts as slow, lost or not.
pub const SILENT_AFTER: Seconds = Seconds::new(7.0);
/// Seconds after which an answer counts as slow.
const SLOW_SECONDS: u64 = 3;
/// The same limit for sabakan, which lists all machines at once.
const SLOW_LIST_SECONDS: u64 = 5;

/// Returns the leader, as far as it is known now (`boot`: the present boot time).
pub fn current_leader(seen: &Seen, boot: BootTime) -> Leader {
    match queries::leader(seen) {
        Leader::Us => Leader::Us,
        _ if etcd_lost(seen, boot).is_some() => Leader::Unknown,
        known => known,
    }
}

/// Returns the sources that are lost.
pub fn lost(app: &App) -> Vec<Lost> {
    let (seen, boot) = (&app.seen, app.now.boot);
    [etcd_lost(seen, boot), kube_lost(seen, boot), sabakan_lost(seen)].into_iter().flatten().collect()
}

/// Returns the banner's texts about the sources, each with its style.
pub fn banner(app: &App) -> Vec<(String, Style)> {
    let theme = &app.config.theme;
    let mut texts: Vec<(String, Style)> = lost(app)
        .iter()
        .map(|lost| (message(app, lost), if lost.source == "sabakan" { theme.trouble } else { theme.danger }))
        .collect();
    texts.extend(slow(app).into_iter().map(|text| (text, theme.trouble)));
    texts
}

fn message(app: &App, lost: &Lost) -> String {
    let effect = match lost.source {
        "etcd" => "nothing is written",
        "Kubernetes" => "no drain continues",
        _ => "nothing is generated",
    };
    let state = match lost.last_seen {
        Some(last_seen) => {
            let silent = when::seconds(app.now.boot - last_seen);
            format!("lost, last heard {}, {silent} ago", calendar::time(app, moment(app, last_seen)))
        }
        None => "has not answered yet".to_owned(),
    };
    let error = lost.error.as_deref().map(|e| format!(": {}", without_addresses(e))).unwrap_or_default();
    short_text::safe(&format!("! {} {state}; {effect}; {}{error}", lost.source, next_try(app, lost)))
}

/// Converts boot time to wall-clock time.
pub fn moment(app: &App, boot: BootTime) -> Timestamp {
    let ago = (app.now.boot - boot).signed_duration();
    app.now.wall.checked_sub(ago).unwrap_or(app.now.wall)
}

/// Removes addresses from an error. They are long and well known, and would push the remedy off the screen.
pub fn without_addresses(error: &str) -> String {
    let mut words: Vec<String> = Vec::new();
    for word in error.split_whitespace() {
        if !word.contains("://") {
            words.push(word.to_owned());
            continue;
        }
        if matches!(words.last().map(String::as_str), Some("at" | "to" | "from")) {
            words.pop();
        }
        let end = word.trim_end_matches(')').chars().next_back().filter(|c| ":;".contains(*c));
        if let (Some(end), Some(last)) = (end, words.last_mut()) {
            last.push(end);
        }
    }
    words.join(" ")
}

/// Returns `next try in 4s`, or that the source is being tried now.
pub fn next_try(app: &App, lost: &Lost) -> String {
    match lost.retry.map(|at| (at - app.now.boot).ceil()) {
        Some(left) if left > Seconds::ZERO => format!("next try in {}", when::seconds(left)),
        _ => "trying now".to_owned(),
    }
}

/// Returns texts about the sources that are slow but not lost.
pub fn slow(app: &App) -> Vec<String> {
    let (snap, boot) = (&app.seen.snapshot, app.now.boot);
    let mut texts = Vec::new();
    let mut add = |source: &str, lag: u64, most: u64, silent: Seconds, consequence: &str| {
        if lag > most {
            texts.push(format!("{source} is slow: its last answer took {lag}s{consequence}"));
        } else if silent > SILENT_AFTER {
            texts.push(format!("{source} is slow: silent for {}{consequence}", when::seconds(silent)));
        }
    };
    if snap.store.synced && etcd_lost(&app.seen, boot).is_none() {
        add(
            "etcd",
            snap.store.watch_health.lag,
            SLOW_SECONDS,
            boot - snap.store.last_seen,
            "; the data shown may be as old",
        );
    }
    let nodes = snap.kube.sources.get("nodes").filter(|nodes| nodes.synced);
    if let Some(nodes) = nodes.filter(|_| kube_lost(&app.seen, boot).is_none()) {
        add("Kubernetes", snap.kube.link.lag, SLOW_SECONDS, boot - nodes.last_seen, "; drains are as slow");
    }
    if snap.store.registry.url.is_some() && snap.registry.members.error.is_none() {
        add("sabakan", snap.registry.took, SLOW_LIST_SECONDS, Seconds::ZERO, "");
    }
    texts
}

/// Returns why nothing can be written while etcd is lost, and what to do.
pub fn refusal(app: &App) -> Option<String> {
    let boot = app.now.boot;
    let lost = etcd_lost(&app.seen, boot)?;
    let age = when::seconds(boot - lost.last_seen.unwrap_or(boot));
    let next = next_try(app, &lost);
    Some(format!(
        "etcd was last heard {age} ago: nothing is written until it is back ({next}); check etcd and the network \
         to it: `etcdctl endpoint status`"
    ))
}

/// Records newly lost sources, and reports the recovered ones.
pub fn follow(app: &mut App) {
    let boot = app.now.boot;
    let now = lost(app);
    for one in &now {
        if !app.knowledge.lost.contains_key(one.source) {
            app.knowledge.lost.insert(one.source, one.last_seen.unwrap_or(boot));
            let why = one.error.as_deref().map(|why| format!(": {why}")).unwrap_or_default();
            app.note(format!("{} is lost{why}", one.source), true);
        }
    }
    let back: Vec<(&str, BootTime)> = app
        .knowledge
        .lost
        .iter()
        .filter(|(source, _)| !now.iter().any(|one| one.source == **source))
        .map(|(s, at)| (*s, *at))
        .collect();
    let Some(first) = back.iter().map(|(_, at)| *at).min() else { return };
    let names: Vec<&str> = back.iter().map(|(source, _)| *source).collect();
    app.knowledge.lost.retain(|source, _| !names.contains(source));
    let are = if names.len() == 1 { "is" } else { "are" };
    app.print(format!("{} {are} back after {}", names.join(" and "), when::seconds(boot - first)));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_removed_from_errors_in_the_banner() {
        for (error, message) in [
            ("etcd at http://10.0.0.1:2379: no answer; its port is open", "etcd: no answer; its port is open"),
            ("tcp connect error: refused (http://10.0.0.1:2379)", "tcp connect error: refused"),
            (
                "error sending request for url (https://api:6443/api/v1/nodes): timeout",
                "error sending request for url: timeout",
            ),
            ("deadline has elapsed", "deadline has elapsed"),
        ] {
            assert_eq!(without_addresses(error), message);
        }
    }
}

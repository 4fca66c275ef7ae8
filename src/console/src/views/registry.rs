//! Parts that Machines and Diff share: the lines about the plan and the state of applying, and the racks.

use cketerm_model::policy::MemberSource;
use cketerm_rules::decide::ApplyState;
use cketerm_sabakan::change::{Kind, NodeChange};
use ratatui::{buffer::Buffer, layout::Rect, style::Style};

use crate::{
    keys,
    state::{App, registry, short_text, when},
    table::{cut, mark_cut, put},
};

/// Draws one or two lines about the plan and the state of applying above the table. Returns the rest of the area.
pub(super) fn draw_summary(app: &App, buffer: &mut Buffer, area: Rect) -> Rect {
    let mut lines = summary_lines(app, usize::from(area.width));
    let height = u16::try_from(lines.len()).unwrap_or(0).min(area.height / 3);
    if lines.len() > usize::from(height)
        && let Some((last, _)) = usize::from(height).checked_sub(1).and_then(|at| lines.get_mut(at))
    {
        mark_cut(last, usize::from(area.width));
    }
    for (y, (line, style)) in (area.y..area.y + height).zip(lines) {
        put(buffer, area.x, y, area.width, &line, style);
    }
    Rect { y: area.y + height, height: area.height - height, ..area }
}

/// Draws the racks as counts by role and state.
pub(super) fn racks(app: &App, buffer: &mut Buffer, area: Rect) {
    put(
        buffer,
        area.x,
        area.y,
        area.width,
        "  racks: role in-the-definition/all (control planes), machines not healthy",
        app.config.theme.title,
    );
    for (y, line) in (area.y + 1..area.bottom()).zip(&app.knowledge.registry.racks) {
        put(buffer, area.x + 2, y, area.width.saturating_sub(2), &short_text::safe(line), Style::new());
    }
    if usize::from(area.height.saturating_sub(1)) < app.knowledge.registry.racks.len() {
        let more = app.knowledge.registry.racks.len() + 1 - usize::from(area.height.saturating_sub(1));
        let text = format!("... and {more} more racks");
        put(
            buffer,
            area.x + 2,
            area.bottom().saturating_sub(1),
            area.width,
            &format!("{text:<40}"),
            app.config.theme.muted,
        );
    }
}

/// Returns why nothing is applied: the switch with its key, else the reason.
pub(super) fn off(app: &App, why: &str) -> String {
    let store = &app.seen.snapshot.store;
    let is_disabled = store.member_source() == MemberSource::Sabakan && !store.sabakan.enabled();
    if is_disabled { format!("disabled{}", enabled_by(app, "switch")) } else { why.to_owned() }
}

/// Returns the key that enables something, as the end of a sentence: `, E enables it`. Empty if no key does.
fn enabled_by(app: &App, name: &str) -> String {
    app.config.keymap.key(name).map(|key| format!(", {} enables it", keys::title(key))).unwrap_or_default()
}

/// Returns the lines about the plan, the state of applying, and automatic repair.
pub(crate) fn summary_lines(app: &App, width: usize) -> Vec<(String, Style)> {
    let (seen, theme) = (&app.seen, &app.config.theme);
    if !seen.snapshot.store.synced {
        return Vec::new();
    }
    let mut messages = Vec::new();
    let warnings = warnings(app);
    messages.push(match &*seen.applying {
        ApplyState::Off => ("not read yet".to_owned(), theme.muted),
        ApplyState::Disabled(why) => (off(app, why), theme.trouble),
        ApplyState::Settled if !warnings.is_empty() => ("no changes, but there are warnings:".to_owned(), theme.title),
        ApplyState::Settled if seen.snapshot.store.member_source() == MemberSource::Nodes => {
            ("the definition matches the Nodes".to_owned(), theme.good)
        }
        ApplyState::Settled => ("the definition matches template, constraints and machines".to_owned(), theme.good),
        ApplyState::Error(why) => (format!("! {why}; the definition is unchanged"), theme.danger),
        ApplyState::Waits(why) => (format!("waits: {why}"), theme.trouble),
        ApplyState::Approval(digest, why) => {
            let key = app.config.keymap.key("approve").map(|key| format!(" (key {key})")).unwrap_or_default();
            (format!("! waits for approval of {digest}{key}: {why}"), theme.danger)
        }
        ApplyState::Applies => ("the leader applies it".to_owned(), theme.good),
    });
    if let Some(proposed) = registry::proposed(seen).filter(|proposed| proposed.plan.changed) {
        let members = members(&proposed.change.nodes);
        messages.push((format!("{}{}: {}", members, proposed.plan.action, proposed.plan.reason), theme.title));
    }
    messages.extend(warnings.iter().map(|warning| (format!("! {warning}"), theme.trouble)));
    let members = &seen.snapshot.registry.members;
    if let (Some(good), Some(_)) = (&members.good, &members.error) {
        let age = app.now.boot - good.at;
        messages.push((format!("the list of machines is {} old", when::seconds(age)), theme.muted));
    }
    let repair = &seen.auto_repair;
    if !seen.snapshot.store.auto_repair.enabled() && seen.snapshot.store.registry.url.is_some() {
        messages.push((format!("automatic repair: disabled{}", enabled_by(app, "auto-repair")), theme.muted));
    } else if let Some(why) = repair.off.as_ref().filter(|_| seen.snapshot.store.registry.url.is_some()) {
        messages.push((format!("automatic repair: {why}"), theme.muted));
    } else if let Some(why) = &repair.plan.capped {
        messages.push((format!("! automatic repair: {why}"), theme.danger));
    } else if !repair.plan.entries.is_empty() {
        messages.push((format!("automatic repair adds {} entries", repair.plan.entries.len()), theme.trouble));
    }
    messages
        .into_iter()
        .flat_map(|(text, style)| cut(&short_text::safe(&text), width, 2).into_iter().map(move |line| (line, style)))
        .collect()
}

/// Returns the number of members that leave, join and change, such as `2 leave, 1 joins: `. Empty if none does.
fn members(nodes: &[NodeChange]) -> String {
    let count = |kinds: &[Kind]| nodes.iter().filter(|node| kinds.contains(&node.kind)).count();
    let parts = [
        (count(&[Kind::Removed]), "leaves", "leave"),
        (count(&[Kind::Added]), "joins", "join"),
        (count(&[Kind::Promoted, Kind::Demoted]), "changes its role", "change their roles"),
        (count(&[Kind::Changed]), "changes", "change"),
    ];
    let text =
        |(n, one, many): (usize, &str, &str)| (n > 0).then(|| format!("{n} {}", if n == 1 { one } else { many }));
    let all: Vec<String> = parts.into_iter().filter_map(text).collect();
    if all.is_empty() { String::new() } else { format!("{}; ", all.join(", ")) }
}

/// Returns the plan's warnings.
pub(super) fn warnings(app: &App) -> &[String] {
    registry::proposed(&app.seen).map_or(&[], |p| &p.plan.warnings)
}

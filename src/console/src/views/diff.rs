//! Comparison of the definition in force with the generated one: by machine and by field, noise folded, with reason and
//! scores.

use cketerm_rules::decide::ApplyState;
use ratatui::{buffer::Buffer, layout::Rect, style::Style};

use crate::{
    app::App,
    columns::{self, Changes},
    registry, short_text,
    table::{cut, wrap},
    when,
};

/// Draws the table, or the racks in its place.
pub(super) fn draw(app: &App, buffer: &mut Buffer, area: Rect, stale: bool) {
    let area = super::machines::draw_summary(app, buffer, area);
    if app.racks {
        return super::machines::racks(app, buffer, area);
    }
    if !columns::draw::<Changes, _>(app, (&mut *buffer, area), &app.diff, stale) {
        super::draw_empty(buffer, area, &empty(app, usize::from(area.width)), app);
    }
}

/// Returns the lines about the plan, the state of applying, and automatic repair.
pub(crate) fn summary_lines(app: &App, width: usize) -> Vec<(String, Style)> {
    let (seen, theme) = (&app.seen, &app.config.theme);
    if !seen.snapshot.store.synced {
        return Vec::new();
    }
    let mut messages = Vec::new();
    let warnings = warnings(app);
    if let Some(plan) = registry::proposed(seen).map(|p| &p.plan).filter(|p| p.changed) {
        messages.push((format!("{}: {}", plan.action, plan.reason), theme.title));
    }
    messages.push(match &*seen.applying {
        ApplyState::Off => ("not read yet".to_owned(), theme.muted),
        ApplyState::Disabled(why) => (why.clone(), theme.trouble),
        ApplyState::Settled if !warnings.is_empty() => ("no changes, but there are warnings:".to_owned(), theme.title),
        ApplyState::Settled => ("the definition matches template, constraints and machines".to_owned(), theme.good),
        ApplyState::Error(why) => (format!("! {why}; the definition is unchanged"), theme.danger),
        ApplyState::Waits(why) => (format!("waits: {why}"), theme.trouble),
        ApplyState::Approval(digest, why) => {
            let key = app.config.keymap.key("approve").map(|key| format!(" (key {key})")).unwrap_or_default();
            (format!("! waits for approval of {digest}{key}: {why}"), theme.danger)
        }
        ApplyState::Applies => ("the leader applies it".to_owned(), theme.good),
    });
    messages.extend(warnings.iter().map(|warning| (format!("! {warning}"), theme.trouble)));
    let members = &seen.snapshot.registry.members;
    if let (Some(good), Some(_)) = (&members.good, &members.error) {
        let age = app.now.boot.as_secs_f64() - good.at;
        messages.push((format!("the list of machines is {} old", when::seconds(age)), theme.muted));
    }
    let repair = &seen.auto_repair;
    if let Some(why) = repair.off.as_ref().filter(|_| seen.snapshot.store.registry.url.is_some()) {
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

/// Returns the plan's warnings.
fn warnings(app: &App) -> &[String] {
    registry::proposed(&app.seen).map_or(&[], |p| &p.plan.warnings)
}

/// Returns the full reason why there is no row, because the line above the table is cut.
fn empty(app: &App, width: usize) -> Vec<String> {
    if let Some(lines) = super::connecting(app) {
        return lines;
    }
    if app.diff.total > 0 {
        return super::no_matches(app, "change");
    }
    let why = match &*app.seen.applying {
        ApplyState::Off => Some("not read yet"),
        ApplyState::Disabled(why) | ApplyState::Error(why) | ApplyState::Waits(why) => Some(why.as_str()),
        ApplyState::Settled | ApplyState::Approval(..) | ApplyState::Applies => None,
    };
    let first = match (why, registry::proposed(&app.seen), &*app.seen.applying) {
        (Some(_), None, _) => "there is no plan",
        (Some(_), _, ApplyState::Error(_)) => "nothing is applied: the last plan may be outdated",
        _ => "nothing would change",
    };
    let messages = why.into_iter().map(str::to_owned).chain(warnings(app).iter().map(|w| format!("! {w}")));
    let lines = messages.flat_map(|text| wrap(&short_text::safe(&text), width.saturating_sub(4)));
    std::iter::once(first.to_owned()).chain(lines).collect()
}

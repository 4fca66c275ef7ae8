//! BareMetalHosts of Metal3: power, requests with their author and time, and hindrances.

use ratatui::{buffer::Buffer, layout::Rect, style::Style};

use crate::{
    state::{App, columns::Hosts, short_text},
    table::{put, wrap},
};

/// Draws the line about the controller, and the table.
pub(super) fn draw(app: &App, buffer: &mut Buffer, area: Rect, stale: bool) {
    let lines = summary_lines(app, usize::from(area.width));
    let summary_height = u16::try_from(lines.len()).unwrap_or(0).min(area.height / 3);
    for (y, (line, style)) in (area.y..area.y + summary_height).zip(lines) {
        put(buffer, area.x, y, area.width, &line, style);
    }
    let area = Rect { y: area.y + summary_height, height: area.height - summary_height, ..area };
    if !super::columns::draw::<Hosts, _>(app, (&mut *buffer, area), &app.lists.hosts, stale) {
        super::draw_empty(buffer, area, &empty(app), app);
    }
}

/// Returns lines about the controller that carries requests out, each with its style.
pub(super) fn summary_lines(app: &App, width: usize) -> Vec<(String, Style)> {
    let (snap, theme) = (&app.seen.snapshot, &app.config.theme);
    if app.lists.hosts.total == 0 {
        return Vec::new();
    }
    let controller = &snap.metal3;
    let (text, style) = match (snap.store.policy().metal3_controller, &controller.barred) {
        (false, _) => ("requests are processed by the baremetal-operator or another program".to_owned(), theme.muted),
        (true, Some(why)) => (format!("! requests NOT processed by cketerm: {why}"), theme.danger),
        (true, None) if controller.runs && controller.drops_times => {
            ("requests processed by this engine; timestamps kept in an annotation".to_owned(), theme.good)
        }
        (true, None) if controller.runs => ("requests processed by this engine".to_owned(), theme.good),
        (true, None) if snap.engine.leading.is_some() => ("this engine is taking over ...".to_owned(), theme.muted),
        (true, None) => ("requests processed by the leader, if there is one".to_owned(), theme.muted),
    };
    wrap(&short_text::safe(&text), width).into_iter().take(2).map(|line| (line, style)).collect()
}

fn empty(app: &App) -> Vec<String> {
    if app.lists.hosts.total > 0 {
        return super::no_matches(app, "host");
    }
    let width = usize::from(app.size.width).saturating_sub(4);
    match app.seen.snapshot.kube.sources.get("baremetalhosts") {
        Some(source) if source.synced => vec![
            "Kubernetes has no BareMetalHosts".to_owned(),
            "Metal3's baremetal-operator registers machines: one BareMetalHost each (`kubectl get bmh -A`)".to_owned(),
        ],
        Some(source) if source.error.is_some() => {
            let mut lines = vec!["hosts cannot be listed".to_owned()];
            lines.extend(wrap(&short_text::safe(source.error.as_deref().unwrap_or_default()), width));
            lines
        }
        _ => vec!["asking Kubernetes ...".to_owned()],
    }
}

//! BareMetalHosts of Metal3: power, requests with their author and time, and hindrances.

use cketerm_model::host::HostRow;
use ratatui::{buffer::Buffer, layout::Rect, style::Style};

use super::{
    table::{Cell, Column, Row, put, wrap},
    visible_columns,
};
use crate::state::{App, HostId, queries, short_text, when};

/// Draws the line about the controller, and the table.
pub(super) fn draw(app: &App, buffer: &mut Buffer, area: Rect, stale: bool) {
    let lines = summary_lines(app, usize::from(area.width));
    let summary_height = u16::try_from(lines.len()).unwrap_or(0).min(area.height / 3);
    for (y, (line, style)) in (area.y..area.y + summary_height).zip(lines) {
        put(buffer, area.x, y, area.width, &line, style);
    }
    let area = Rect { y: area.y + summary_height, height: area.height - summary_height, ..area };
    let wide = area.width >= 120;
    let columns = [
        Column { title: "HOST", width: if wide { 24 } else { 14 }, from: 0 },
        Column { title: "NAMESPACE", width: 14, from: 150 },
        Column { title: "NODE", width: 16, from: 120 },
        Column { title: "POWER", width: 5, from: 0 },
        Column { title: "ONLINE", width: 6, from: 90 },
        Column { title: "STATE", width: if wide { 22 } else { 12 }, from: 0 },
        Column { title: "ASKED", width: if wide { 30 } else { 16 }, from: 0 },
        Column { title: "HELD", width: 5, from: 0 },
        Column { title: "PENDING", width: 7, from: 100 },
        Column { title: "LAST ON", width: 7, from: 100 },
        Column { title: "REMARKS", width: 0, from: 0 },
    ];
    let visible = app.lists.hosts.window(usize::from(area.height.saturating_sub(1)));
    let rows: Vec<Row> = visible.iter().map(|id| row(app, id)).collect();
    visible_columns::draw(app, (&mut *buffer, area), &columns, &rows, visible, stale);
    if visible.is_empty() {
        super::draw_empty(buffer, area, &empty(app), app);
    }
}

fn row(app: &App, id: &HostId) -> Row {
    let (theme, now) = (&app.config.theme, app.known_of_kube());
    let mut cells = vec![Cell::plain(short_text::safe(&id.1)), Cell::plain(short_text::safe(&id.0))];
    if let Some(host) = queries::host(&app.seen, id) {
        let node = queries::host_node(&app.seen, id).map(|n| n.name.as_str()).unwrap_or_default();
        let power = match host.powered_on {
            Some(true) => theme.good,
            Some(false) if host.online => theme.trouble,
            _ => Style::new(),
        };
        let age = |at: Option<jiff::Timestamp>| at.map(|at| when::age(at, now)).unwrap_or_default();
        let (remark, trouble) = short_text::host(&app.seen, id);
        let remark = if trouble { Cell::styled(format!("! {remark}"), theme.trouble) } else { Cell::plain(remark) };
        cells.extend([
            Cell::plain(short_text::safe(node)),
            Cell::styled(short_text::host_power(host), power),
            Cell::plain(if host.online { "yes" } else { "no" }),
            Cell::plain(state(host, app.size.width)),
            Cell::plain(short_text::host_requests(host)),
            Cell::plain(age(held_since(host))),
            Cell::plain(age(host.pending_reboot_since.filter(|_| host.pending()))),
            Cell::plain(age(host.last_powered_on)),
            remark,
        ]);
    }
    Row { cells, cursor: app.lists.hosts.cursor.as_ref() == Some(id), marked: app.lists.hosts.marks.contains(id) }
}

/// Returns the provisioning state; in a narrow table the longest one is shortened.
fn state(host: &HostRow, width: u16) -> String {
    if width < 120 && host.provisioning == "externally provisioned" {
        return "external".to_owned();
    }
    short_text::safe(&host.provisioning)
}

/// Returns the time since which the host is held, as far as it is recorded: the oldest time in the keys' values
/// (cketerm's have one), else the controller's time of the request.
fn held_since(host: &HostRow) -> Option<jiff::Timestamp> {
    if host.asked.keys.is_empty() {
        return None;
    }
    let times = host.asked.keys.values().filter_map(|value| {
        let value: serde_json::Value = serde_json::from_str(value).ok()?;
        value["since"].as_str()?.parse().ok()
    });
    times.min().or(host.pending_reboot_since.filter(|_| host.pending()))
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
        Some(source) if source.synced => vec!["Kubernetes has no BareMetalHosts".to_owned()],
        Some(source) if source.error.is_some() => {
            let mut lines = vec!["hosts cannot be listed".to_owned()];
            lines.extend(wrap(&short_text::safe(source.error.as_deref().unwrap_or_default()), width));
            lines
        }
        _ => vec!["asking Kubernetes ...".to_owned()],
    }
}

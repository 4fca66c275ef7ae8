//! Nodes of Kubernetes and of the definition, each with one accurate state.

use ratatui::{buffer::Buffer, layout::Rect};

use crate::{
    state::{App, columns::Nodes, short_text},
    table::wrap,
};

/// Draws the table.
pub(super) fn draw(app: &App, buffer: &mut Buffer, area: Rect, stale: bool) {
    if !super::columns::draw::<Nodes, _>(app, (&mut *buffer, area), &app.lists.nodes, stale) {
        super::draw_empty(buffer, area, &empty(app), app);
    }
}

fn empty(app: &App) -> Vec<String> {
    if app.lists.nodes.total > 0 {
        return super::no_matches(app, "node");
    }
    match app.seen.snapshot.kube.sources.get("nodes") {
        Some(source) if source.synced => vec![
            "Kubernetes has no nodes".to_owned(),
            "a node appears once its kubelet has registered it (`kubectl get nodes`)".to_owned(),
        ],
        source => {
            let text = if app.config.sandbox { "the sandbox starts ..." } else { "connecting to Kubernetes ..." };
            let mut lines = vec![text.to_owned()];
            if let Some(error) = source.and_then(|s| s.error.as_ref()) {
                lines.extend(wrap(&short_text::safe(error), usize::from(app.size.width).saturating_sub(4)));
            }
            lines
        }
    }
}

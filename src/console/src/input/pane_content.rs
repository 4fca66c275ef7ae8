//! Contents of the pane beside the detail: the output of a command, and the object as YAML.

use cketerm_model::stored::keys::Folder;

use super::{navigation::visit, pane::request_object};
use crate::state::{App, Pane, PaneContent, Target, View};

/// Shows only the output of the entry's newest command, and keeps to its end; again: shows everything.
pub(super) fn follow(app: &mut App) {
    let Some(of @ (Target::Entry(_) | Target::Past(Folder::History, _))) = app.target() else {
        app.print_error("only a command of an entry has output: move the cursor to an entry");
        return;
    };
    let followed = app.navigation.pane.as_ref().map(|pane| pane.content);
    let content = match followed {
        Some(PaneContent::Output { follow: true }) => PaneContent::Detail,
        Some(PaneContent::Output { follow: false } | PaneContent::Yaml | PaneContent::Detail) | None => {
            PaneContent::Output { follow: true }
        }
    };
    if app.navigation.view == View::Overview {
        visit(app, of.clone());
    }
    app.navigation.pane = Some(Pane { of, scroll: 0, content });
}

/// Shows the object as YAML; again: as the detail.
pub(super) fn yaml(app: &mut App) {
    let Some(of) = app.target() else {
        app.print_error("nothing here can be shown as YAML: move the cursor to a row");
        return;
    };
    if let Target::Line(_) | Target::Fold(_) = of {
        app.print_error("this row has no object of its own, so there is no YAML of it");
        return;
    }
    app.navigation.pane_search.clear();
    let shown = app.navigation.pane.as_ref().is_some_and(|pane| pane.content == PaneContent::Yaml);
    let content = if shown { PaneContent::Detail } else { PaneContent::Yaml };
    if app.navigation.view == View::Overview {
        visit(app, of.clone());
    }
    app.navigation.pane = Some(Pane { of, scroll: 0, content });
    request_object(app);
}

//! Tests that the pictures in docs/ match the current screens; `make pictures` renews them.

use super::world::{World, press};
use crate::{View, terminal::screen};

/// Returns the text of a picture.
fn svg_text(svg: &str) -> String {
    let mut text = String::new();
    let mut inside = false;
    for c in svg.chars() {
        match c {
            '<' => inside = true,
            '>' => inside = false,
            c if !inside => text.push(c),
            _ => {}
        }
    }
    text.replace("&lt;", "<").replace("&gt;", ">").replace("&quot;", "\"").replace("&amp;", "&")
}

/// Returns the titles of the table on a screen, if there is one.
fn titles(text: &str) -> Vec<String> {
    let title = |word: &str| word.len() > 1 && word.chars().all(|c| c.is_ascii_uppercase());
    let line = text.lines().skip(3).find(|line| {
        let words: Vec<&str> = line.split_whitespace().collect();
        words.len() > 2 && words.iter().all(|word| title(word))
    });
    line.unwrap_or_default().split_whitespace().map(str::to_owned).collect()
}

#[test]
fn every_view_has_a_picture_with_the_current_titles() {
    for view in View::ALL {
        let path = format!("{}/../../docs/pictures/{}.svg", env!("CARGO_MANIFEST_DIR"), view.name());
        let svg = std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{path}: {e}: run `make pictures`"));
        let picture = svg_text(&svg);
        assert!(picture.contains(view.title()), "{path} has no tab {}: run `make pictures`", view.title());
        let world = if view == View::Repairs { World::with_repairs() } else { World::usual() };
        let mut app = world.console_in(view, 110, 26);
        super::past::load_past(&mut app);
        let titles = titles(&screen::text(&app));
        for title in &titles {
            assert!(picture.contains(title.as_str()), "{path} has no column {title}: run `make pictures`");
        }
        let tables = [View::Reboots, View::Nodes, View::Repairs, View::History, View::Audit, View::Logs];
        assert!(!titles.is_empty() || !tables.contains(&view), "no titles:\n{}", screen::text(&app));
    }
}

#[test]
fn the_pictures_of_the_rack_map_and_the_blockers_are_current() {
    for (name, keys) in [("racks", "2 v"), ("blockers", "1 b")] {
        let path = format!("{}/../../docs/pictures/{name}.svg", env!("CARGO_MANIFEST_DIR"));
        let picture = svg_text(&std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{path}: {e}")));
        let mut app = World::usual().console(110, 26);
        press(&mut app, keys);
        let text = screen::text(&app);
        let word = if name == "racks" { "API server" } else { "Drain blockers" };
        assert!(text.contains(word) && picture.contains(word), "{path}: run `make pictures`:\n{text}");
    }
}

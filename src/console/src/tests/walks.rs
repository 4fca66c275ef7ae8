//! Random walks over the keys, in every view of several worlds. After each key, what the screen promises must hold: the
//! cursor and the pane name one object, Esc leads back to the bare view, an action concerns no more objects than the
//! dialog said, and every key in the footer does something.
//!
//! Walks are seeded: a failure names its world, its view and the keys, which `press` takes. The
//! comment of each check names a fault that it must find.

use std::sync::Arc;

use cketerm_model::{entry::EntryId, names::Address};
use cketerm_rules::seen::Seen;

use super::{
    past::load_past,
    world::{World, press},
};
use crate::{
    input::update,
    keys,
    state::{
        App, Target, View,
        dialog::DialogAction,
        event::{Action, Effect, Event, RegistryAction},
        object,
        overview::OverviewRow,
    },
    terminal::screen,
};

/// Keys of one walk.
const STEPS: usize = 14;
/// Walks in each view of each world.
const WALKS: u64 = 3;
/// More presses of Esc than there can be layers.
const LAYERS: usize = 12;

/// Keys that a walk may press: the key table's own, letters for texts, and actions with their confirmation.
const KEYS: &[&str] = &[
    "j",
    "j",
    "k",
    "enter",
    "enter",
    "esc",
    "tab",
    "right",
    "left",
    "space",
    "*",
    "n",
    "v",
    "o",
    "b",
    "s",
    "r",
    "|",
    "u",
    "/",
    ":",
    "?",
    "l",
    "G",
    "g g",
    "pgdn",
    "R",
    "P",
    "A",
    "D",
    "F",
    "C",
    "U",
    "M",
    "S",
    "Y",
    "W",
    "Z",
    "y",
    "w",
    "1",
    "2",
    "3",
    "4",
    "5",
    "6",
    "7",
    "8",
    "9",
    "0",
    "X enter enter",
    "* X enter enter",
    "space space H enter enter",
    "R enter enter",
    "* R enter enter",
    "B enter enter",
    "* B enter enter",
    "E enter enter",
    "L enter enter",
    "Z enter enter",
    "[",
    "]",
    "f",
    "enter ] ]",
    "enter n",
    "enter / 1 enter",
    "/ w enter",
];

/// Random numbers (SplitMix64): the same for a seed on every machine.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        usize::try_from((z ^ (z >> 31)) % sides as u64).unwrap()
    }
}

fn worlds() -> Vec<(&'static str, Arc<Seen>)> {
    let mut nobody_leads = World::usual();
    (nobody_leads.engine.leading, nobody_leads.engine.lease) = (None, 0);
    nobody_leads.store.candidates.clear();
    vec![
        ("usual", World::usual().seen()),
        ("full", super::every::full_world().seen()),
        ("hosts", World::with_hosts().seen()),
        ("gated", super::registry::gated()),
        ("nobody leads", nobody_leads.seen()),
        ("no data", World::without_data().seen()),
    ]
}

/// Console on which a walk goes on, and the keys so far.
struct Walk {
    name: String,
    app: App,
    keys: Vec<&'static str>,
    /// Number of actions that were requested.
    actions: usize,
}

impl Walk {
    fn begin(name: &str, seen: &Arc<Seen>, view: View, (columns, rows): (u16, u16)) -> Self {
        let mut app = World::without_data().console_in(view, columns, rows);
        update(&mut app, Event::Seen(Arc::clone(seen)));
        load_past(&mut app);
        Self { name: format!("{name}, {} at {columns}x{rows}", view.name()), app, keys: Vec::new(), actions: 0 }
    }

    fn step(&mut self, keys: &'static str) {
        for key in keys.split(' ') {
            self.keys.push(key);
            let before = self.app.clone();
            let effects = press(&mut self.app, key);
            self.assert_dialogs_are_about_the_chosen_rows(&before, key);
            self.assert_actions_are_announced(&before, &effects);
            self.actions += effects.iter().filter(|effect| matches!(effect, Effect::Act(_))).count();
        }
    }

    #[track_caller]
    fn fail(&self, why: &str) -> ! {
        panic!("{}: {why}\nkeys: {}\n{}", self.name, self.keys.join(" "), screen::text(&self.app));
    }

    /// Fails if the dialog of `X` takes all entries of the queue instead of the marked ones.
    fn assert_dialogs_are_about_the_chosen_rows(&self, before: &App, key: &str) {
        // these are about a whole queue, or about the last action
        if before.dialog.is_some() || matches!(key, "Z" | "E" | "M" | "S" | "Y" | "u") {
            return;
        }
        let Some(DialogAction::Act(action)) = self.app.dialog.as_ref().map(|dialog| &dialog.action) else { return };
        let machines = before.chosen_nodes().into_iter().map(Object::Name);
        let entries = before.chosen_entries().into_iter().map(Object::Entry);
        let hosts = before.chosen_hosts().into_iter().map(|(_, name)| Object::Name(name));
        let batches = before.chosen_batches().into_iter().map(|batch| Object::Name(batch.id.to_string()));
        let chosen: Vec<Object> = machines.chain(entries).chain(hosts).chain(batches).collect();
        let acted = objects(action);
        let is_chosen = |acted: &Object| chosen.iter().any(|chosen| names_meet(before, chosen, acted));
        if !acted.iter().all(is_chosen) {
            self.fail(&format!("{key} opens a dialog about {acted:?}; chosen are {chosen:?}"));
        }
    }

    /// Fails if the action takes all entries of the queue instead of those in the dialog.
    fn assert_actions_are_announced(&self, before: &App, effects: &[Effect]) {
        for effect in effects {
            let Effect::Act(action) = effect else { continue };
            let objects = objects(action);
            let screen = screen::text(before);
            if before.dialog.is_none() && !undoes(action) {
                self.fail(&format!("{action:?} without a dialog"));
            }
            let said = if objects.len() > 1 {
                // the button counts them, and the dialog holds the same ones
                let dialog = before.dialog.as_ref();
                let shown = match dialog.map(|dialog| &dialog.action) {
                    Some(DialogAction::Act(action)) => self::objects(action),
                    Some(DialogAction::Lead { .. } | DialogAction::Quit) | None => Vec::new(),
                };
                let counted = dialog.map_or(0, |dialog| sum_of_numbers(&dialog.verb));
                let is_shown = |acted: &Object| shown.iter().any(|shown| names_meet(before, shown, acted));
                counted == objects.len() && screen.contains(&counted.to_string()) && objects.iter().all(is_shown)
            } else {
                objects.iter().all(|object| named(before, object).iter().any(|name| screen.contains(name.as_str())))
            };
            if !said {
                self.fail(&format!("{action:?} concerns {objects:?}; the dialog said:\n{screen}"));
            }
        }
    }

    /// Fails if the list's cursor moves, or a filter hides its row, while a pane is open and stays as it is.
    fn assert_cursor_and_pane_agree(&self) {
        let Some(pane) = &self.app.navigation.pane else { return };
        let mut bare = self.app.clone();
        bare.navigation.pane = None;
        if let Some(cursor) = bare.target()
            && cursor != pane.of
            && same_kind(&cursor, &pane.of)
        {
            self.fail(&format!("the cursor is on {cursor:?}, the pane shows {:?}", pane.of));
        }
    }

    /// Fails if `back` ignores the marks or the filter.
    fn assert_esc_ends_in_the_bare_view(&self) {
        let mut app = self.app.clone();
        let mut presses = 0;
        while let Some(layer) = layer(&app) {
            if presses == LAYERS {
                self.fail(&format!("{layer} is left after {LAYERS} presses of Esc"));
            }
            press(&mut app, "esc");
            presses += 1;
        }
    }

    /// Fails if a verb on the Overview takes the first line instead of the one under the cursor. Returns the number of
    /// keys that were pressed.
    fn assert_needs_you_keys_act_on_their_line(&self) -> usize {
        let mut pressed = 0;
        let bare = self.app.navigation.view == View::Overview && self.app.key_context() == keys::Context::Table;
        for line in self.app.knowledge.needs_you.iter().filter(|_| bare) {
            let mut app = self.app.clone();
            let row = OverviewRow::NeedsYou(line.object.clone());
            if !app.lists.overview_rows.select_id(&row) {
                continue;
            }
            for command in line.keys(&app) {
                let binding = keys::TABLE.iter().find(|b| b.command == command).unwrap();
                let mut after = app.clone();
                press(&mut after, app.config.keymap.key(binding.name).unwrap());
                pressed += 1;
                let Some(DialogAction::Act(action)) = after.dialog.map(|dialog| dialog.action) else { continue };
                let (own, acted) = (line_object(&line.object), objects(&action));
                let is_own = |acted: &Object| own.iter().any(|own| names_meet(&app, own, acted));
                if !acted.iter().all(is_own) {
                    self.fail(&format!("{} on the line of {:?} acts on {acted:?}", binding.name, line.object));
                }
            }
        }
        pressed
    }

    /// Fails if the footer names a command that only answers with a message, such as `Y approve` while nothing waits.
    /// Returns the number of keys that were pressed.
    fn assert_footer_keys_work(&self) -> usize {
        let hints = footer(&self.app);
        for (key, word) in &hints {
            let mut app = self.app.clone();
            let effects = press(&mut app, key);
            if effects.is_empty() && place(&self.app) == place(&app) && unchanged(&self.app, &app) {
                let answer = app.session.message.map(|m| m.text).or(app.typing.notice).unwrap_or_default();
                self.fail(&format!("the footer's `{key} {word}` does nothing but say {answer:?}"));
            }
        }
        hints.len()
    }
}

/// Returns the parts of the state that most keys change. To compare them is cheaper than to draw two screens.
fn place(app: &App) -> impl PartialEq + use<> {
    let navigation = &app.navigation;
    let layers = (app.dialog.is_some(), app.picker.is_some(), app.typing.line.is_some(), app.typing.filter.is_some());
    let switches = (navigation.second_table(), navigation.racks, navigation.map.is_some(), navigation.help);
    let pane = navigation.pane.as_ref().map(|pane| (pane.of.clone(), pane.content));
    (layers, switches, navigation.view, pane, app.row_target(), app.list().marked())
}

/// Returns a layer that lies on the bare view.
fn layer(app: &App) -> Option<&'static str> {
    let layers = [
        ("a dialog", app.dialog.is_some()),
        ("the column picker", app.picker.is_some()),
        ("a prompt", app.typing.line.is_some() || app.typing.filter.is_some()),
        ("half a chord", !app.typing.chord.is_empty()),
        ("a pane or a sheet", app.navigation.has_layer()),
        ("a filter", !app.list().filter().is_empty()),
        ("marks", app.list().marked() > 0),
        ("a way back", !app.navigation.before.is_empty()),
        ("a message", app.session.message.is_some()),
    ];
    layers.iter().find(|(_, open)| *open).map(|(layer, _)| *layer)
}

/// Reports whether the screens differ in nothing but the message.
fn unchanged(before: &App, after: &App) -> bool {
    let silent = |app: &App| {
        let mut app = app.clone();
        app.session.message = None;
        screen::buffer(&app)
    };
    silent(before) == silent(after)
}

/// Returns the keys and words on the footer's last line, and on the line above it while it has no message.
fn footer(app: &App) -> Vec<(String, String)> {
    let named = app.key_context() == keys::Context::Field || !app.typing.chord.is_empty();
    if named || app.typing.notice.is_some() {
        return Vec::new();
    }
    let text = screen::text(app);
    let lines = if app.session.message.is_some() { 1 } else { 2 };
    let hints = text.lines().rev().take(lines).flat_map(|line| line.split("  "));
    let parsed = hints.filter_map(|hint| hint.trim().split_once(' ')).filter_map(|(title, word)| {
        let letter = title.chars().count() == 1;
        let name = if letter { title.to_owned() } else { title.to_lowercase() };
        keys::parse(&name).map(|_| (name, word.to_owned()))
    });
    parsed.collect()
}

/// Reports whether two targets are of one kind, so that one list can hold both.
fn same_kind(a: &Target, b: &Target) -> bool {
    std::mem::discriminant(a) == std::mem::discriminant(b)
}

/// Object of an action.
#[derive(Clone, Debug)]
enum Object {
    Entry(EntryId),
    Address(Address),
    Name(String),
}

/// Returns the object of a line of *Needs you*, if it is one that actions name.
fn line_object(object: &object::Object) -> Option<Object> {
    match object {
        object::Object::Entry(id) => Some(Object::Entry(*id)),
        object::Object::Node(name) | object::Object::Host((_, name)) => Some(Object::Name(name.clone())),
        object::Object::Machine(address) => Some(Object::Address(address.clone())),
        object::Object::Batch(_, id) => Some(Object::Name(id.to_string())),
        object::Object::Source(_)
        | object::Object::Leadership
        | object::Object::Queue(_)
        | object::Object::Definition => None,
    }
}

/// Reports whether two objects are one: the same entry, or a machine and its address.
fn names_meet(app: &App, one: &Object, other: &Object) -> bool {
    match (one, other) {
        (Object::Entry(one), Object::Entry(other)) => one == other,
        _ => named(app, one).iter().any(|name| named(app, other).contains(name)),
    }
}

/// Returns the objects that an action changes. A switch or a setting has none.
fn objects(action: &Action) -> Vec<Object> {
    match action {
        Action::AddReboots { addresses, .. }
        | Action::AddRepairs { addresses, .. }
        | Action::Maintenance { addresses, .. }
        | Action::EndMaintenance { addresses, .. } => addresses.iter().cloned().map(Object::Address).collect(),
        Action::Cancel { entries, .. } | Action::ResetBackoff { entries, .. } => {
            entries.iter().copied().map(Object::Entry).collect()
        }
        Action::Hold { entries, .. } => entries.iter().map(|(id, _)| Object::Entry(*id)).collect(),
        Action::Remove { entry, .. } | Action::Order { entry, .. } => vec![Object::Entry(*entry)],
        Action::Hosts { hosts, .. } => hosts.iter().map(|(name, _)| Object::Name(name.clone())).collect(),
        Action::KeepCordoned { node, .. } => vec![Object::Name(node.to_string())],
        Action::Batches { batches, .. } => batches.iter().map(|(id, _)| Object::Name(id.to_string())).collect(),
        Action::Switch { .. }
        | Action::Stop { .. }
        | Action::Resume { .. }
        | Action::Registry { .. }
        | Action::Freeze { .. }
        | Action::Unfreeze { .. } => Vec::new(),
    }
}

/// Reports whether an action may be carried out without a dialog, because it takes another back.
fn undoes(action: &Action) -> bool {
    matches!(action, Action::KeepCordoned { .. } | Action::Registry { what: RegistryAction::Hold(false, _), .. })
}

/// Returns the names by which the screen may call an object.
fn named(app: &App, object: &Object) -> Vec<String> {
    match object {
        Object::Entry(id) => {
            let machine = crate::state::queries::machine(&app.seen, *id);
            [Some(id.to_string()), Some(format!("#{}", id.index)), machine].into_iter().flatten().collect()
        }
        Object::Address(address) => vec![address.to_string(), app.seen.snapshot.machine(address)],
        Object::Name(name) => vec![name.clone(), name.rsplit('/').next().unwrap_or(name).to_owned()],
    }
}

/// Returns the sum of the numbers in a text: `Hold 2 reboots and 1 repair` counts three.
fn sum_of_numbers(text: &str) -> usize {
    text.split(' ').filter_map(|word| word.parse::<usize>().ok()).sum()
}

fn each_walk(sizes: &[(u16, u16)], mut check: impl FnMut(&Walk)) {
    for (w, (name, seen)) in worlds().iter().enumerate() {
        for (v, view) in View::ALL.into_iter().enumerate() {
            for walk in 0..WALKS {
                let seed = (w as u64) << 32 | (v as u64) << 16 | walk;
                let mut dice = Dice(seed);
                let size = sizes[dice.roll(sizes.len())];
                let mut walk = Walk::begin(name, seen, view, size);
                for _ in 0..STEPS {
                    walk.step(KEYS[dice.roll(KEYS.len())]);
                    check(&walk);
                }
            }
        }
    }
}

const SIZES: [(u16, u16); 3] = [(80, 24), (120, 36), (200, 50)];

#[test]
fn cursor_and_pane_name_the_same_object() {
    each_walk(&SIZES, Walk::assert_cursor_and_pane_agree);
}

#[test]
fn esc_ends_in_the_bare_view_and_actions_concern_what_was_said() {
    let mut actions = 0;
    each_walk(&SIZES, |walk| {
        walk.assert_esc_ends_in_the_bare_view();
        actions += usize::from(walk.actions > 0);
    });
    assert!(actions > 100, "only {actions} steps of walks followed an action: the checks would say little");
}

#[test]
fn every_key_of_a_needs_you_line_acts_on_that_line() {
    let mut pressed = 0;
    each_walk(&SIZES, |walk| pressed += walk.assert_needs_you_keys_act_on_their_line());
    assert!(pressed > 1_000, "only {pressed} keys were pressed: the check would say little");
}

#[test]
fn every_key_in_the_footer_does_something() {
    let (mut pressed, mut known) = (0, std::collections::HashSet::new());
    each_walk(&SIZES, |walk| {
        // the same footer on the same object would be pressed again and again
        if known.insert(format!("{}{:?}{:?}", walk.name, footer(&walk.app), walk.app.target())) {
            pressed += walk.assert_footer_keys_work();
        }
    });
    assert!(pressed > 3_000, "only {pressed} keys were pressed: the check would say little");
}

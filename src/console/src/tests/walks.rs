//! Random walks over the keys, in every view of several worlds. After each key, what the screen promises must hold: Esc
//! leads back to the bare view, and an action concerns no more objects than the dialog said.
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
    state::{
        App, View,
        event::{Action, Effect, Event, RegistryAction},
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
            self.assert_actions_are_announced(&before, &effects);
            self.actions += effects.iter().filter(|effect| matches!(effect, Effect::Act(_))).count();
        }
    }

    #[track_caller]
    fn fail(&self, why: &str) -> ! {
        panic!("{}: {why}\nkeys: {}\n{}", self.name, self.keys.join(" "), screen::text(&self.app));
    }

    /// Fails if `Action::Cancel` takes all entries of the queue instead of the chosen ones.
    fn assert_actions_are_announced(&self, before: &App, effects: &[Effect]) {
        for effect in effects {
            let Effect::Act(action) = effect else { continue };
            let objects = objects(action);
            let screen = screen::text(before);
            if before.dialog.is_none() && !undoes(action) {
                self.fail(&format!("{action:?} without a dialog"));
            }
            let said = if objects.len() > 1 {
                has_word(&screen, &objects.len().to_string())
            } else {
                objects.iter().all(|object| named(before, object).iter().any(|name| screen.contains(name.as_str())))
            };
            if !said {
                self.fail(&format!("{action:?} concerns {objects:?}; the dialog said:\n{screen}"));
            }
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

/// Object of an action.
#[derive(Clone, Debug)]
enum Object {
    Entry(EntryId),
    Address(Address),
    Name(String),
}

/// Returns the objects that an action changes. A switch or a setting has none.
fn objects(action: &Action) -> Vec<Object> {
    match action {
        Action::AddReboots { addresses, .. } | Action::AddRepairs { addresses, .. } => {
            addresses.iter().cloned().map(Object::Address).collect()
        }
        Action::Cancel { entries, .. } | Action::ResetBackoff { entries, .. } => {
            entries.iter().copied().map(Object::Entry).collect()
        }
        Action::Hold { entries, .. } => entries.iter().map(|(id, _)| Object::Entry(*id)).collect(),
        Action::Remove { entry, .. } | Action::Order { entry, .. } => vec![Object::Entry(*entry)],
        Action::Hosts { hosts, .. } => hosts.iter().map(|(name, _)| Object::Name(name.clone())).collect(),
        Action::KeepCordoned { node, .. } => vec![Object::Name(node.to_string())],
        Action::Batches { batches, .. } => batches.iter().map(|id| Object::Name(id.to_string())).collect(),
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

/// Reports whether a number or name stands on the screen by itself.
fn has_word(screen: &str, word: &str) -> bool {
    screen.split(|c: char| !c.is_alphanumeric()).any(|w| w == word)
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
fn esc_ends_in_the_bare_view_and_actions_concern_what_was_said() {
    let mut actions = 0;
    each_walk(&SIZES, |walk| {
        walk.assert_esc_ends_in_the_bare_view();
        actions += usize::from(walk.actions > 0);
    });
    assert!(actions > 100, "only {actions} steps of walks followed an action: the checks would say little");
}

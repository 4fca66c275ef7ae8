//! Tests of unreadable entries: shown with the error, removed only as they were shown (I5).

use cketerm_model::entry::EntryId;
use insta::assert_snapshot;

use super::world::{World, press};
use crate::{
    input::update,
    state::event::{Action, Effect, Event},
    terminal::screen,
};

#[test]
fn i5_an_unreadable_entry_is_removed_only_at_the_revision_shown() {
    let mut world = World::usual();
    let mut app = world.console(80, 24);
    press(&mut app, "G X");
    assert_snapshot!("dialog_broken_entry", screen::text(&app));
    assert_eq!(press(&mut app, "tab tab enter"), [], "Back");
    let mut app = world.console(80, 24);
    let effects = press(&mut app, "G X \"written by hand\" enter enter");
    let entry = EntryId::reboot(8);
    let action = Action::Remove { entry, seen: 35, reason: Some("written by hand".into()) };
    assert_eq!(effects, [Effect::Act(action)]);
    // the entry was rewritten: the stored value is no longer the one that was shown
    let mut app = world.console(80, 24);
    press(&mut app, "G X");
    if let Some(stored) = world.store.reboots.entries.get_mut(&8) {
        stored.mod_revision = 36;
    }
    update(&mut app, Event::Seen(world.seen()));
    assert!(screen::text(&app).contains("EXPIRED: reboots/8 changed meanwhile"), "{}", screen::text(&app));
    // in a selection of several entries it is left out and named
    press(&mut app, "esc * X");
    assert!(screen::text(&app).contains("left out, cannot be read (removed one at a time): reboots/8"));
}

//! Terminal console: state, update, views, dialogs, key table and themes.
//!
//! Data flows in one direction: [`state::event::Event`] → [`input::update`] → effects → [`views::draw`]. Drawing reads
//! the state and never changes it. The views show [`cketerm_rules::seen::Seen`]; every change to the cluster goes
//! through `actions`. The console decides nothing, knows no client library, and only [`run()`] touches a terminal.
//!
//! The folders depend on each other in one direction, from the top of this list to its bottom; none knows a later one:
//!
//! 1. [`keys`], [`theme`] and [`table`]: the key table; colours and characters; tables on the screen.
//! 2. [`state`]: what the console knows, and what follows from it.
//! 3. [`dialogs`]: how each confirmation is opened and kept up to date.
//! 4. [`views`]: what the screen shows.
//! 5. [`input`]: how keys, snapshots and answers change the state.
//! 6. [`effects`]: how actions, reads and settings are carried out.
//! 7. [`terminal`]: the event loop on a terminal, and the output without one.

pub mod dialogs;
pub mod effects;
pub mod gauge;
pub mod input;
pub mod keys;
pub mod state;
pub mod table;
pub mod terminal;
pub mod theme;
pub mod views;

pub use state::View;
pub use terminal::{
    options::ConsoleOptions,
    run::{Clients, ClientsReceiver, run},
};

#[cfg(test)]
mod tests;

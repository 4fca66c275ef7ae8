//! The terminal console: state, update, views, dialogs, the key table, themes.
//!
//! One direction: [`event::Event`] → [`update::update`] → effects → [`views::draw`], which reads and never changes.
//! What is shown comes from [`crate::engine::snapshot::Seen`]; what is done goes through `actions`. No decision is
//! made here, no client library is known here, and nothing but [`run`] touches a terminal.

pub mod app;
pub mod attention;
pub mod bar;
pub mod blockers;
pub mod calendar;
pub mod charset;
mod choice;
pub mod chosen;
pub mod clipboard;
pub mod columns;
pub mod command_line;
pub mod detail;
pub mod dialog;
pub mod eta;
pub mod event;
pub mod filter;
pub mod fleet;
pub mod footer;
mod frame_limiter;
pub mod header;
mod input_reader;
pub mod keymap;
pub mod keys;
pub mod leaders;
pub mod list;
pub mod logs;
mod looks;
mod messages;
mod others;
pub mod overview;
pub mod palette;
pub mod past;
pub mod picker;
pub mod queries;
pub mod racks;
pub mod registry;
mod rights;
pub mod settings;
pub mod settings_writer;
pub mod short_text;
pub mod sources;
pub mod table;
pub mod theme;
pub mod tour;
pub mod undo;
pub mod update;
pub mod view;
pub mod views;
pub mod when;

pub mod backend;
pub mod options;
pub mod perform;
pub mod plain;
pub mod reader;
pub mod run;
pub mod screen;
pub mod shot;
pub mod terminal;

pub use app::View;
pub use options::ConsoleOptions;
pub use run::{Clients, ClientsReceiver, run};

#[cfg(test)]
mod tests;

//! Terminal console: state, update, views, dialogs, key table and themes.
//!
//! Data flows in one direction: [`event::Event`] → [`update::update`] → effects → [`views::draw`]. Drawing reads the
//! state and never changes it. The views show [`cketerm_rules::seen::Seen`]; every change to the cluster goes
//! through `actions`. The console decides nothing, knows no client library, and only [`run()`] touches a terminal.

pub mod app;
pub mod attention;
mod audit_messages;
pub mod bar;
pub mod blockers;
pub mod calendar;
pub mod charset;
pub mod clipboard;
pub mod column_id;
pub mod columns;
pub mod command_line;
mod config;
pub mod detail;
pub mod dialog;
pub mod display;
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
mod messages;
pub mod overview;
pub mod palette;
pub mod past;
pub mod picker;
pub mod queries;
pub mod racks;
pub mod registry;
mod rights;
mod selection;
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
pub mod visible_columns;
pub mod when;

pub mod backend;
pub mod options;
pub mod perform;
pub mod plain;
pub mod reader;
pub mod run;
pub mod screen;
pub mod screenshot;
pub mod terminal;

pub use app::View;
pub use options::ConsoleOptions;
pub use run::{Clients, ClientsReceiver, run};

#[cfg(test)]
mod tests;

//! Effects carried out: actions through `actions`, reads of what the live copy does not hold, saved settings.

pub mod perform;
pub mod reader;
pub mod settings_writer;

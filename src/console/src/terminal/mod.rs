//! The console on a terminal: event loop, input, output, and what is shown without a terminal.

pub mod attention;
pub mod backend;
mod cells;
pub mod clipboard;
mod frame_limiter;
pub mod guard;
mod input_reader;
pub mod options;
pub mod plain;
pub mod run;
pub mod screen;
pub mod screenshot;
mod width_probe;

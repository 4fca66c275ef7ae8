//! Keys and hand-built snapshots in; state, effects and screens out.

mod aging;
mod attention;
mod broken;
mod columns;
mod cost;
mod dialogs;
mod every;
mod flows;
mod fuzz;
mod hostile;
mod hosts;
mod mouse;
mod past;
mod pictures;
mod plan;
mod registry;
mod repairs;
mod screens;
mod seeing;
mod taken_back;
mod tasks;
mod tour;
mod typing;
mod ways;
mod windows;
mod world;

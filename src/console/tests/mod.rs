//! Keys and hand-built snapshots in; state, effects and screens out.

mod attention;
mod broken;
mod cost;
mod dialogs;
mod flows;
mod hostile;
mod hosts;
mod mouse;
mod past;
mod plan;
mod registry;
mod repairs;
mod screens;
mod typing;
mod windows;
mod world;

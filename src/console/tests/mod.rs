//! Keys and hand-built snapshots in; state, effects and screens out.

mod broken;
mod cost;
mod dialogs;
mod every;
mod flows;
mod hosts;
mod past;
mod plan;
mod registry;
mod repairs;
mod screens;
mod seeing;
mod typing;
mod windows;
mod world;

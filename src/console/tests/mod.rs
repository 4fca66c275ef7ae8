//! Keys and hand-built snapshots in; state, effects and screens out.

mod cost;
mod flows;
mod screens;
mod world;

//! Notices that are due (`docs/notices.md`).
//!
//! | module | contents |
//! | --- | --- |
//! | `scene` | conditions and events at one moment, made from a pass |
//! | `due` | the part of them that is new for one receiver |
//! | `fold` | folding of too many notices into one; rate limit |

pub mod due;
pub mod fold;
pub mod scene;
mod state;
#[cfg(test)]
mod tests;

pub use state::{ReceiverSeen, Receivers};

//! Nodes that need a reboot (policy `reboot_needed`). Pure; the engine, the console and the commands use the same
//! functions.
//!
//! - [`signals`]: what a Node shows, by the policy `reboot_needed_signals`.
//! - [`record`]: what the leader keeps about it in etcd. A signal asks for at most one reboot: one that is still set
//!   when the boot id has changed is named, and waits for a person.
//! - [`list`]: the Nodes and what happens to them next, for people.
//! - [`queue`]: which of them the leader queues by itself is decided in `decide/reboot_needed.rs`; the checks that are
//!   made again right before the write are here.

pub mod list;
pub mod queue;
pub mod record;
pub mod signals;

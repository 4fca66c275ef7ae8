//! Commands of the built program on a real etcd, as scripts and people see them.

mod about;
mod add_warnings;
mod bad_input;
mod batches;
mod beside_cke;
mod ckecli;
mod completions;
mod good_input;
mod handover;
mod help;
mod history_and_audit;
mod hostile;
mod kubernetes;
mod leaders;
mod manual_drain;
mod plan;
mod plugin;
mod recorded;
mod registry;
mod repairs;
pub mod rig;
mod secrets;
mod state;
mod support_bundle;

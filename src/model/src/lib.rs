//! Domain types as plain data.
//!
//! All of them can be written, compared and read back. Nothing here does I/O or knows a client library; only
//! [`clock`] reads the host's clock. Every other crate may use these types; this crate uses no other one.

pub mod acceptance;
pub mod accepted_request;
pub mod agent;
pub mod any;
pub mod attempt;
pub mod batch;
pub mod boot_time;
pub mod cketerm_records;
pub mod clock;
pub mod cluster;
pub mod constraints;
pub mod described;
pub mod drain;
pub mod entry;
pub mod entry_ref;
pub mod etcd;
pub mod fence;
pub mod freeze;
pub mod hook;
pub mod hook_runs;
pub mod host;
pub mod kube;
pub mod labels;
pub mod maintenance;
pub mod maintenance_request;
pub mod mutation;
pub mod names;
pub mod notice;
pub mod outcomes;
pub mod output;
pub mod pairs;
pub mod placement;
pub mod policy;
pub mod power_state;
pub mod reason;
pub mod reboot;
pub mod reboot_signals;
pub mod record;
pub mod repair;
pub mod result;
pub mod rights;
pub mod secret;
pub mod selector;
pub mod start_gates;
pub mod stored;
pub mod text;
pub mod time;
pub mod timeline;
pub mod uncordon_gates;
pub mod verb;
pub mod window;
pub mod withdraw;

//! The sandbox: a data centre inside the process, spoken to over the real protocols (DESIGN.md, "The sandbox speaks the
//! real protocols").
//!
//! It knows the wire and nothing of the engine: etcd's gRPC services, Kubernetes' HTTP API, machines that boot. The
//! engine, the console and the words cannot tell it from the real servers. Time is one injected [`crate::clock::Clock`]
//! and tokio's timers, so that a test with a paused clock runs an hour in a moment.

pub mod etcd;
pub mod faults;
pub mod kubernetes;
pub mod machines;
pub mod pace;

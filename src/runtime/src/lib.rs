//! Foundations of a process of cketerm: tasks, their heartbeat, logs, the host, file descriptors, and tokio's clock.

pub mod descriptors;
pub mod heartbeat;
pub mod host;
pub mod tasks;
pub mod telemetry;
pub mod tokio_clock;

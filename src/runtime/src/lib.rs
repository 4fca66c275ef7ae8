//! What a process of cketerm runs on: tasks, their heartbeat, logs, file descriptors, and tokio's clock.

pub mod descriptors;
pub mod heartbeat;
pub mod tasks;
pub mod telemetry;
pub mod tokio_clock;

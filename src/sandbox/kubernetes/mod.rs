//! A small Kubernetes: objects, what happens to them, and the HTTP API over them.

pub mod api;
pub mod controllers;
pub mod objects;
pub mod refusal;
pub mod resource;

pub use objects::{Change, Objects, Verb};
pub use refusal::Refusal;
pub use resource::Resource;

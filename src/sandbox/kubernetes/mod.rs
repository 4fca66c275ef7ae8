//! A small Kubernetes: objects, controllers, and the HTTP API.

pub mod api;
pub mod controllers;
pub mod objects;
pub mod refusal;
pub mod resource;

pub use objects::{Change, Objects, Verb};
pub use refusal::Refusal;
pub use resource::Resource;

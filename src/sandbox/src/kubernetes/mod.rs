//! A small Kubernetes: objects, controllers, and the HTTP API.

pub mod api;
pub mod controllers;
pub mod object_error;
pub mod objects;
pub mod resource;

pub use object_error::ObjectError;
pub use objects::{Change, Objects, Verb};
pub use resource::Resource;

//! Who is told, and in which words: receivers as the local configuration has them, and their templates (docs/notices.md).
//! What is told, when, and that it arrives, is `engine::notices`'.

mod receiver;
mod samples;
mod template;

pub use self::{
    receiver::{Hidden, Limits, Origin, Receiver, Way, secret},
    samples::sample,
    template::Template,
};

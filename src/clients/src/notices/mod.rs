//! Receivers of notices and their templates, as the local configuration defines them (docs/notices.md).
//! `cketerm_rules::notices` decides which notices are due, `cketerm_engine` delivers them.

mod receiver;
mod samples;
mod template;

pub use self::{
    receiver::{Channel, Limits, Receiver, SecretUrl, UrlSource, headers_of, post_to, secret},
    samples::sample,
    template::Template,
};

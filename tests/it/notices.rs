//! Notices (docs/notices.md): the document's examples as written, receivers that are slow, down, answer 500 or close
//! the connection, and leaders that die in between.

mod examples;
mod hostile;
pub mod receiver;

//! Notices (docs/notices.md): the document's examples as they stand, receivers that are slow, down, answer 500 or close, and
//! leaders that die in between.

mod examples;
mod hostile;
mod post;

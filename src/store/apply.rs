//! From keys and values to the typed view: only what changed is parsed.

use super::{keys::Keys, view::StoreView};

/// One event, or one key of a read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    /// The whole key.
    pub key: Vec<u8>,
    /// The value.
    pub value: Vec<u8>,
    /// ModRevision.
    pub mod_revision: i64,
    /// CreateRevision.
    pub create_revision: i64,
}

impl StoreView {
    /// Takes over a key that was written.
    pub fn put(&mut self, keys: &Keys, row: &Row) {
        let _ = (keys, row);
    }

    /// Takes over a key that was deleted.
    pub fn delete(&mut self, keys: &Keys, key: &[u8]) {
        let _ = (keys, key);
    }
}

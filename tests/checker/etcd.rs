//! A small etcd: keys with their revisions, transactions, and the typed copy that engines watch.

use std::sync::Arc;

use cketerm_model::{
    fence::Permit,
    stored::{
        apply::Event,
        keys::Keys,
        row::Row,
        transaction::{Condition, Ranged},
        view::StoreView,
    },
};
use imbl::OrdMap;

use crate::canon::FIRST_REVISION;

/// Result of a transaction whose comparisons failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// The leader's key is gone.
    Fence,
    /// Something else has changed.
    Conflict,
}

/// The store.
#[derive(Clone, Debug)]
pub struct Etcd {
    /// CreateRevision and ModRevision of each key.
    rows: OrdMap<String, (i64, i64)>,
    /// The typed copy.
    pub view: Arc<StoreView>,
    revision: i64,
}

impl Etcd {
    /// Creates an empty store.
    pub fn new() -> Self {
        let view = StoreView { synced: true, revision: FIRST_REVISION, ..StoreView::default() };
        Self { rows: OrdMap::new(), view: Arc::new(view), revision: FIRST_REVISION }
    }

    /// Writes a key in a transaction of its own, without a comparison.
    pub fn put(&mut self, keys: &Keys, key: &str, value: &str) -> i64 {
        self.revision += 1;
        self.write(keys, key, value);
        self.revision
    }

    /// Deletes a key in a transaction of its own.
    pub fn delete(&mut self, keys: &Keys, key: &str) {
        self.revision += 1;
        self.remove(keys, key);
    }

    /// Returns the ModRevision of a key; 0 = there is no such key.
    pub fn mod_revision(&self, key: &str) -> i64 {
        self.rows.get(key).map_or(0, |row| row.1)
    }

    /// Commits a transaction of an engine. Returns its revision.
    pub fn commit(&mut self, keys: &Keys, permit: &Permit, ranged: &Ranged) -> Result<i64, Refused> {
        let holds = |condition: &Condition<'_>| match condition {
            Condition::Created(key, revision) => self.rows.get(*key).is_some_and(|row| row.0 == *revision),
            Condition::Modified(key, revision) => self.mod_revision(key) == *revision,
            Condition::Unwritten(span, since) => {
                self.within(&span.from, &span.to).all(|key| self.mod_revision(&key) <= *since)
            }
        };
        if let Some(failed) = ranged.conditions(permit).iter().find(|condition| !holds(condition)) {
            return Err(match failed {
                Condition::Created(..) => Refused::Fence,
                Condition::Modified(..) | Condition::Unwritten(..) => Refused::Conflict,
            });
        }
        self.revision += 1;
        for put in &ranged.change.puts {
            self.write(keys, &put.key, &put.value);
        }
        for key in &ranged.change.deletes {
            self.remove(keys, key);
        }
        for span in &ranged.cleared {
            let found: Vec<String> = self.within(&span.from, &span.to).collect();
            for key in found {
                self.remove(keys, &key);
            }
        }
        Ok(self.revision)
    }

    fn within<'a>(&'a self, from: &'a str, to: &'a [u8]) -> impl Iterator<Item = String> + 'a {
        self.rows.range(from.to_owned()..).map(|(key, _)| key.clone()).take_while(move |key| key.as_bytes() < to)
    }

    fn write(&mut self, keys: &Keys, key: &str, value: &str) {
        let created = self.rows.get(key).map_or(self.revision, |row| row.0);
        self.rows.insert(key.to_owned(), (created, self.revision));
        let row = Row::new(key, value, self.revision, created);
        Arc::make_mut(&mut self.view).apply(keys, [Event::Put(row)]);
    }

    fn remove(&mut self, keys: &Keys, key: &str) {
        if self.rows.remove(key).is_some() {
            Arc::make_mut(&mut self.view).apply(keys, [Event::Delete(key.as_bytes().to_vec())]);
            Arc::make_mut(&mut self.view).revision = self.revision;
        }
    }
}

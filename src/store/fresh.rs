//! Which values of the folders that only grow were written lately: the watch says so, and whoever shows a folder reads these
//! keys in place of looking the folder through for what is new.

use imbl::OrdMap;

use super::keys::Folder;

/// Most keys that are remembered.
const MOST: usize = 1000;

/// Keys in the order in which etcd took their values.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Fresh {
    keys: OrdMap<(i64, String), Folder>,
    /// Nothing is known of what was written up to this revision.
    since: i64,
}

impl Fresh {
    /// Knows of what is written after this revision.
    pub(super) fn after_revision(revision: i64) -> Self {
        Self { keys: OrdMap::new(), since: revision }
    }

    /// A value was written.
    pub(super) fn wrote(&mut self, folder: Folder, revision: i64, key: String) {
        self.keys.insert((revision, key), folder);
        while self.keys.len() > MOST {
            let Some((oldest, _)) = self.keys.get_min().cloned() else { return };
            self.since = self.since.max(oldest.0);
            self.keys.remove(&oldest);
        }
    }

    /// Keys of a folder that were written after a revision, the oldest first, each with its revision; none where that is
    /// not known for all of them.
    pub fn after(&self, folder: Folder, revision: i64) -> Option<Vec<(i64, String)>> {
        let known = self.since > 0 && revision >= self.since;
        let newer = || self.keys.range((revision + 1, String::new())..).filter(|(_, of)| **of == folder);
        known.then(|| newer().map(|(key, _)| key.clone()).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_written_lately_is_known_and_what_is_not_known_is_not_guessed() {
        let mut fresh = Fresh::after_revision(10);
        for revision in 11..15 {
            fresh.wrote(Folder::Audit, revision, format!("a{revision}"));
            fresh.wrote(Folder::History, revision, format!("h{revision}"));
        }
        let keys = |fresh: &Fresh, at| {
            Some(fresh.after(Folder::Audit, at)?.into_iter().map(|(_, key)| key).collect::<Vec<_>>())
        };
        assert_eq!(keys(&fresh, 12).unwrap(), ["a13", "a14"]);
        assert_eq!(keys(&fresh, 14).unwrap(), Vec::<String>::new());
        assert_eq!((keys(&fresh, 9), keys(&Fresh::default(), 0)), (None, None));
        for revision in 20..20 + i64::try_from(MOST).unwrap() {
            fresh.wrote(Folder::Audit, revision, "x".to_owned());
        }
        assert_eq!(keys(&fresh, 13), None, "forgotten");
        assert_eq!(keys(&fresh, 1018).unwrap(), ["x"]);
    }
}

//! Paged lists as of one revision, and the changes of one kind.

use std::{collections::BTreeMap, ops::Bound, sync::Arc};

use serde_json::Value;

use super::{Change, Key, Objects, place};
use crate::kubernetes::Resource;

/// One page of a list.
#[derive(Clone, Debug, Default)]
pub struct Page {
    /// The objects, in order of namespace and name.
    pub items: Vec<Arc<Value>>,
    /// Revision of the list.
    pub revision: u64,
    /// Last key of this page, if more selected objects follow.
    pub next: Option<Key>,
    /// Number of objects after this page in the namespace, selected or not.
    pub remaining: usize,
}

impl Objects {
    /// Returns the changes of this kind after this revision, oldest first, and the newest revision. Returns `None` if
    /// those changes are compacted.
    pub fn changes(&self, resource: &'static Resource, after: u64) -> Option<(Vec<Change>, u64)> {
        let inner = self.lock();
        if after < inner.compacted {
            return None;
        }
        let from = inner.history.partition_point(|change| change.revision <= after);
        let changes = inner.history.range(from..).filter(|c| c.resource.plural == resource.plural).cloned().collect();
        Some((changes, inner.revision))
    }

    /// Returns the oldest revision at which a watch can begin.
    pub fn oldest(&self) -> u64 {
        self.lock().compacted
    }

    /// Returns up to `limit` (0 = all) objects of a kind in a namespace (empty = all). They match `select`, come after
    /// the key `after`, and are as of the revision `at` (`None` = now). Returns `None` if that revision is compacted.
    pub fn page(
        &self,
        resource: &'static Resource,
        namespace: &str,
        after: Option<&Key>,
        limit: usize,
        at: Option<u64>,
        select: impl Fn(&Value) -> bool,
    ) -> Option<Page> {
        let inner = self.lock();
        let revision = at.unwrap_or(inner.revision);
        if revision < inner.compacted {
            return None;
        }
        let nothing = BTreeMap::new();
        let now = inner.kinds.get(&place(resource)).unwrap_or(&nothing);
        let first = (namespace.to_owned(), String::new());
        let from = after.map_or(Bound::Included(&first), Bound::Excluded);
        let within = |key: &Key| namespace.is_empty() || key.0 == namespace;
        // Changes are undone from the newest to the oldest. The oldest change has the state that was there.
        let mut then: BTreeMap<Key, Option<Arc<Value>>> = BTreeMap::new();
        let since = inner.history.partition_point(|change| change.revision <= revision);
        for change in inner.history.range(since..).rev().filter(|c| c.resource.plural == resource.plural) {
            let text = |field: &str| change.object["metadata"][field].as_str().unwrap_or_default().to_owned();
            then.insert((text("namespace"), text("name")), change.before.clone());
        }
        let mut page = Page { revision, ..Page::default() };
        let mut last = None;
        let mut take = |key: &Key, object: &Arc<Value>| {
            if limit > 0 && page.items.len() == limit {
                page.remaining += 1;
                if page.next.is_none() && select(object) {
                    page.next.clone_from(&last);
                }
            } else if select(object) {
                page.items.push(Arc::clone(object));
                if page.items.len() == limit {
                    last = Some(key.clone());
                }
            }
        };
        let rows = now.range((from, Bound::Unbounded)).take_while(|(key, _)| within(key));
        if then.is_empty() {
            for (key, object) in rows {
                take(key, object);
            }
        } else {
            let mut all: BTreeMap<&Key, &Arc<Value>> = rows.collect();
            for (key, object) in then.range((from, Bound::Unbounded)).take_while(|(key, _)| within(key)) {
                match object {
                    Some(object) => all.insert(key, object),
                    None => all.remove(key),
                };
            }
            for (key, object) in all {
                take(key, object);
            }
        }
        Some(page)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::kubernetes::resource::PODS;
    use cketerm_model::clock::Clock;

    #[test]
    fn pages_of_a_list_share_one_revision_despite_changes_between_them() {
        let objects = Objects::new(Clock::host());
        let make = |ns: &str, name: &str| {
            objects.create(&PODS, ns, json!({"metadata": {"name": name}})).unwrap();
        };
        for name in ["a", "b", "c", "d"] {
            make("x", name);
        }
        make("y", "z");
        let names = |page: &Page| -> Vec<String> {
            page.items.iter().map(|p| p["metadata"]["name"].as_str().unwrap().to_owned()).collect()
        };
        let one = objects.page(&PODS, "x", None, 2, None, |_| true).unwrap();
        assert_eq!((names(&one), one.remaining), (vec!["a".to_owned(), "b".to_owned()], 2));
        objects.remove(&PODS, "x", "c", |_| Ok(())).unwrap();
        make("x", "bb");
        let at = Some(one.revision);
        let two = objects.page(&PODS, "x", one.next.as_ref(), 2, at, |_| true).unwrap();
        assert_eq!((names(&two), two.next.is_none()), (vec!["c".to_owned(), "d".to_owned()], true));
        assert_eq!(names(&objects.page(&PODS, "", None, 0, None, |_| true).unwrap()), ["a", "b", "bb", "d", "z"]);
        let some = objects.page(&PODS, "", None, 1, None, |p| p["metadata"]["name"] != "a").unwrap();
        assert_eq!((names(&some), some.next.is_some()), (vec!["b".to_owned()], true));
        objects.compact();
        assert!(objects.page(&PODS, "x", None, 2, at, |_| true).is_none());
    }
}

//! Runs of keys with consecutive numbers. One range read fetches a run in a fraction of the time of one read for each
//! key, so the entries of a history, which end in about the order of their numbers, are read by runs.

use std::collections::BTreeSet;

use etcd_client::GetOptions;

use super::key_pages::Numbered;

/// Keys that are read together, in the order of the keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct KeyRun<'a> {
    first: &'a str,
    last: &'a str,
    count: usize,
}

impl<'a> KeyRun<'a> {
    /// Divides these keys into runs.
    pub(super) fn of(keys: &BTreeSet<&'a str>) -> Vec<Self> {
        let mut runs: Vec<Self> = Vec::new();
        for key in keys {
            match runs.last_mut().filter(|run| follows(run.last, key)) {
                Some(run) => (run.last, run.count) = (key, run.count + 1),
                None => runs.push(Self { first: key, last: key, count: 1 }),
            }
        }
        runs
    }

    /// Returns the read of this run. If there are other keys between its own, it is cut off.
    pub(super) fn read(&self) -> (String, GetOptions) {
        if self.count == 1 {
            return (self.first.to_owned(), GetOptions::new());
        }
        let end = [self.last.as_bytes(), &[0]].concat();
        let most = i64::try_from(self.count).unwrap_or(i64::MAX);
        (self.first.to_owned(), GetOptions::new().with_range(end).with_limit(most))
    }
}

/// Reports whether the number of `key` is the next after that of `last`, and both keys are the same before it.
fn follows(last: &str, key: &str) -> bool {
    match (Numbered::of(last), Numbered::of(key)) {
        (Some(last), Some(key)) => {
            let is_next = last.number.checked_add(1) == Some(key.number);
            is_next && !key.is_time && (last.before, last.is_time) == (key.before, key.is_time)
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_with_consecutive_numbers_are_one_run() {
        let key = |queue: &str, number: u64| format!("/h/{queue}-{number:016x}");
        let numbers = [14, 15, 16, 17, 19, 20, u64::MAX];
        let mut keys: Vec<String> = numbers.iter().map(|number| key("reboots", *number)).collect();
        keys.extend([key("repairs", 21), key("repairs", 22), "/h/x".to_owned(), "/h/y".to_owned()]);
        let keys: BTreeSet<&str> = keys.iter().map(String::as_str).collect();
        let runs = KeyRun::of(&keys);
        let counts: Vec<usize> = runs.iter().map(|run| run.count).collect();
        assert_eq!(counts, [4, 2, 1, 2, 1, 1]);
        assert_eq!((runs[0].first, runs[0].last), (key("reboots", 14).as_str(), key("reboots", 17).as_str()));
        // times of the audit are nanoseconds: two near ones say nothing of those between others
        let times: BTreeSet<&str> =
            ["/a/00000000000000000001-01", "/a/00000000000000000002-01", ""].into_iter().collect();
        assert_eq!(KeyRun::of(&times).len(), 3);
        assert_eq!(KeyRun::of(&BTreeSet::new()), []);
    }
}

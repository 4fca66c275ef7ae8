//! Parts of a seed's scenario that happen: all of it, or only what is named, so that a failing seed can be shrunk.
//!
//! Each fault, each action of a person and each queued machine has a name: `f3` is the fourth fault, `p1.5` the sixth
//! action of the second person, `p1.5a` the first machine that it queues. Random numbers are still drawn for left-out
//! parts, at the same times, so that the rest of the scenario changes as little as possible.

use std::{
    collections::BTreeSet,
    sync::{Arc, Mutex},
};

/// Selection of the parts that happen.
#[derive(Debug, Default)]
pub struct Selection {
    only: Option<BTreeSet<String>>,
    met: Mutex<BTreeSet<String>>,
}

impl Selection {
    /// Selects everything.
    pub fn all() -> Arc<Self> {
        Arc::default()
    }

    /// Selects the named parts and nothing else.
    pub fn only(names: &[String]) -> Arc<Self> {
        Arc::new(Self { only: Some(names.iter().cloned().collect()), met: Mutex::default() })
    }

    /// Parses a line such as `f3,p1.5,p1.5a`.
    pub fn parse(line: &str) -> Arc<Self> {
        let names: Vec<String> = line.split(',').map(str::trim).filter(|n| !n.is_empty()).map(str::to_owned).collect();
        Self::only(&names)
    }

    /// Reports whether this part happens.
    pub fn has(&self, name: &str) -> bool {
        self.met.lock().unwrap().insert(name.to_owned());
        self.only.as_ref().is_none_or(|only| only.contains(name))
    }

    /// Parts that could have happened and were not left out.
    pub fn met(&self) -> Vec<String> {
        let all = self.met.lock().unwrap();
        all.iter().filter(|name| self.only.as_ref().is_none_or(|only| only.contains(*name))).cloned().collect()
    }
}

//! What of a seed's story happens: all of it, or only what is named, so that one that fails can be made short.
//!
//! Each fault, each act of a person and each machine that is queued has a name: `f3` is the fourth fault, `p1.5` the sixth
//! act of the second person, `p1.5a` the first machine that it queues. Dice are thrown for what is left out all the same,
//! and at the same times, so that the rest of the story stays what it is for as long as it can.

use std::{
    collections::BTreeSet,
    sync::{Arc, Mutex},
};

/// What happens.
#[derive(Debug, Default)]
pub struct Keep {
    only: Option<BTreeSet<String>>,
    met: Mutex<BTreeSet<String>>,
}

impl Keep {
    /// Everything.
    pub fn all() -> Arc<Self> {
        Arc::default()
    }

    /// What is named, and nothing else.
    pub fn only(names: &[String]) -> Arc<Self> {
        Arc::new(Self { only: Some(names.iter().cloned().collect()), met: Mutex::default() })
    }

    /// From a line such as `f3,p1.5,p1.5a`.
    pub fn parse(line: &str) -> Arc<Self> {
        let names: Vec<String> = line.split(',').map(str::trim).filter(|n| !n.is_empty()).map(str::to_owned).collect();
        Self::only(&names)
    }

    /// Whether this happens.
    pub fn has(&self, name: &str) -> bool {
        self.met.lock().unwrap().insert(name.to_owned());
        self.only.as_ref().is_none_or(|only| only.contains(name))
    }

    /// What could have happened and was not left out.
    pub fn met(&self) -> Vec<String> {
        let all = self.met.lock().unwrap();
        all.iter().filter(|name| self.only.as_ref().is_none_or(|only| only.contains(*name))).cloned().collect()
    }
}

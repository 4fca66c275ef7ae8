//! State of each watch, and the state of its source that follows from it.

use std::collections::{BTreeMap, BTreeSet};

use cketerm_model::{
    boot_time::BootTime,
    kube::{KubeView, SourceState},
};

/// The view with the watches that maintain it.
#[derive(Default)]
pub(super) struct State {
    pub(super) view: KubeView,
    pub(super) links: BTreeMap<u64, Link>,
    pub(super) last_link: u64,
    /// Whether the view has changes that were not published.
    pub(super) fresh: bool,
    /// Boot time of the next liveness request while the server does not answer.
    pub(super) beat: Option<BootTime>,
}

/// State of one watch.
#[derive(Default)]
pub(super) struct Link {
    pub(super) source: &'static str,
    pub(super) open: bool,
    /// Boot time at which its last request was sent.
    pub(super) sent: BootTime,
    /// Boot time of its next retry.
    pub(super) retry: Option<BootTime>,
    pub(super) state: SourceState,
}

impl Link {
    /// Its state without the time it was last heard.
    pub(super) fn summary(&self) -> (bool, Option<BootTime>, bool, Option<String>) {
        (self.open, self.retry, self.state.synced, self.state.error.clone())
    }
}

impl State {
    pub(super) fn summarize_all(&mut self) {
        let sources: BTreeSet<&'static str> = self.links.values().map(|l| l.source).collect();
        for source in sources {
            self.summarize(source);
        }
    }

    /// Computes the state of a source: that of the worst of its watches.
    pub(super) fn summarize(&mut self, source: &'static str) {
        let tries = self.links.values().filter_map(|link| link.retry).chain(self.beat);
        self.view.link.retry = tries.min();
        let sum =
            self.links.values().filter(|l| l.source == source).map(|l| l.state.clone()).reduce(|a, b| SourceState {
                synced: a.synced && b.synced,
                last_seen: a.last_seen.min(b.last_seen),
                fresh_as_of: a.fresh_as_of.min(b.fresh_as_of),
                error: a.error.or(b.error),
                forbidden: a.forbidden || b.forbidden,
            });
        match sum {
            Some(sum) => self.view.sources.insert(source.to_owned(), sum),
            None => self.view.sources.remove(source),
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn link(synced: bool, seconds: f64, error: Option<&str>) -> Link {
        let state = SourceState {
            synced,
            last_seen: BootTime::new(seconds),
            fresh_as_of: BootTime::new(seconds),
            error: error.map(str::to_owned),
            forbidden: false,
        };
        Link { source: "pods", state, ..Link::default() }
    }

    /// One complete list of several does not make a source complete.
    #[test]
    fn a_source_has_the_state_of_its_worst_watch() {
        let mut state = State::default();
        state.links.insert(1, link(true, 20.0, None));
        state.links.insert(2, link(false, 10.0, Some("refused")));
        state.links.insert(3, Link { source: "nodes", ..link(true, 30.0, None) });
        state.summarize_all();
        let pods = &state.view.sources["pods"];
        assert_eq!((pods.synced, pods.last_seen, pods.fresh_as_of), (false, BootTime::new(10.0), BootTime::new(10.0)));
        assert_eq!(pods.error.as_deref(), Some("refused"));
        assert!(state.view.sources["nodes"].synced);
        state.links.insert(2, link(true, 10.0, None));
        state.summarize("pods");
        assert!(state.view.sources["pods"].synced);
        state.links.clear();
        state.summarize("pods");
        assert!(!state.view.sources.contains_key("pods"));
    }
}

//! How each watch is doing, and what that makes of its source.

use std::collections::{BTreeMap, BTreeSet};

use crate::model::kube::{KubeView, SourceState};

/// The view with the watches that keep it.
#[derive(Default)]
pub(super) struct State {
    pub(super) view: KubeView,
    pub(super) links: BTreeMap<u64, Link>,
    pub(super) last_link: u64,
    /// There is something in the view that has not been published.
    pub(super) fresh: bool,
    /// When the server is asked for a sign of life again, while it gives none.
    pub(super) beat: Option<f64>,
}

/// How one watch is doing.
#[derive(Default)]
pub(super) struct Link {
    pub(super) source: &'static str,
    pub(super) open: bool,
    /// When its last request was sent.
    pub(super) sent: f64,
    /// When it is tried again.
    pub(super) retry: Option<f64>,
    pub(super) state: SourceState,
}

impl Link {
    /// How it stands, but for when it was heard last.
    pub(super) fn standing(&self) -> (bool, Option<f64>, bool, Option<String>) {
        (self.open, self.retry, self.state.synced, self.state.error.clone())
    }
}

impl State {
    pub(super) fn sum_up_all(&mut self) {
        let sources: BTreeSet<&'static str> = self.links.values().map(|l| l.source).collect();
        for source in sources {
            self.sum_up(source);
        }
    }

    /// A source is as good as the worst of its watches.
    pub(super) fn sum_up(&mut self, source: &'static str) {
        let tries = self.links.values().filter_map(|link| link.retry).chain(self.beat);
        self.view.line.retry = tries.min_by(f64::total_cmp);
        let sum =
            self.links.values().filter(|l| l.source == source).map(|l| l.state.clone()).reduce(|a, b| SourceState {
                synced: a.synced && b.synced,
                heard: a.heard.min(b.heard),
                proved: a.proved.min(b.proved),
                error: a.error.or(b.error),
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
        let state = SourceState { synced, heard: seconds, proved: seconds, error: error.map(str::to_owned) };
        Link { source: "pods", state, ..Link::default() }
    }

    /// A mutant of this line survived the library's tests: that one complete list makes a source complete.
    #[test]
    fn a_source_is_as_good_as_the_worst_of_its_watches() {
        let mut state = State::default();
        state.links.insert(1, link(true, 20.0, None));
        state.links.insert(2, link(false, 10.0, Some("refused")));
        state.links.insert(3, Link { source: "nodes", ..link(true, 30.0, None) });
        state.sum_up_all();
        let pods = &state.view.sources["pods"];
        assert_eq!((pods.synced, pods.heard, pods.proved), (false, 10.0, 10.0));
        assert_eq!(pods.error.as_deref(), Some("refused"));
        assert!(state.view.sources["nodes"].synced);
        state.links.insert(2, link(true, 10.0, None));
        state.sum_up("pods");
        assert!(state.view.sources["pods"].synced);
        state.links.clear();
        state.sum_up("pods");
        assert!(!state.view.sources.contains_key("pods"));
    }
}

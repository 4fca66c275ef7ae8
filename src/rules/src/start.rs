//! Earliest start of a queue's work, as far as switch, leader, policy, freeze and windows determine it. The Overview,
//! the preview of an order and `rq plan` share it. The rules themselves are in `decide`.

use std::collections::BTreeSet;

use cketerm_model::{
    entry::QueueKind,
    kube::KubeView,
    labels::Labels,
    names::Address,
    stored::view::StoreView,
    time::after,
    window::{Window, Windows},
};
use jiff::{SignedDuration, Timestamp};

/// Number of window openings that are searched for the end of some work.
const MAX_OPENINGS: usize = 100;

/// Condition that keeps everything of a queue from starting.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Bar {
    /// The queue is disabled.
    Disabled,
    /// Blocked for an unknown time, for example `while nobody leads`.
    Not(&'static str),
    /// Blocked until this time, and the cause: `freeze`, `window`.
    Before(Timestamp, &'static str),
    /// Blocked by a gate that holds everything that waits: the gate's message.
    Held(String),
}

impl Bar {
    /// Returns the text that follows "not" or "nothing starts": `before Mon 22:00 JST (window)`, `while nobody leads`.
    pub fn described(&self, clock: impl Fn(Timestamp) -> String) -> String {
        match self {
            Self::Disabled => "while the queue is disabled".to_owned(),
            Self::Not(why) => (*why).to_owned(),
            Self::Before(at, why) => format!("before {} ({why})", clock(*at)),
            Self::Held(why) => format!("until this clears: {why}"),
        }
    }

    /// Reports whether an entry in progress ends nevertheless. Its command was run, and it only waits for its machine.
    pub fn allows_finishing(&self) -> bool {
        !matches!(self, Self::Not(_))
    }
}

/// Earliest start of a queue's work.
#[derive(Clone, Debug, PartialEq)]
pub struct Start {
    /// Condition that blocks a start now, or `None` if there is none of these.
    pub bar: Option<Bar>,
    now: Timestamp,
    /// Windows of the machines, without duplicates; none = at any time.
    windows: Vec<Window>,
}

impl Start {
    /// Creates a start at this moment without windows, blocked by `bar`.
    pub fn at(now: Timestamp, bar: Option<Bar>) -> Self {
        Self { bar, now, windows: Vec::new() }
    }

    /// Adds a gate as the blocker if there is no other one.
    #[must_use]
    pub fn or_gate(mut self, gate: Option<String>) -> Self {
        self.bar = self.bar.or(gate.map(Bar::Held));
        self
    }

    /// Computes when something of this queue may start on one of these machines, given by their addresses. `observing`:
    /// the leading engine starts nothing, as far as is known.
    pub fn of<'a>(
        store: &StoreView,
        kube: &KubeView,
        observing: bool,
        queue: QueueKind,
        addresses: impl IntoIterator<Item = &'a Address>,
        now: Timestamp,
    ) -> Self {
        let switch = store.switch(queue);
        let mut start = Self { bar: None, now, windows: Vec::new() };
        let not = |why| Some(Bar::Not(why));
        start.bar = match store.leader() {
            None if !switch.enabled() => not("while nobody leads, and the queue is disabled"),
            None => not("while nobody leads"),
            Some(_) if !switch.enabled() => Some(Bar::Disabled),
            // CKE does not read cketerm's policy
            Some(leader) if store.is_cke(leader) => None,
            Some(_) if store.policy.as_ref().is_some_and(|stored| stored.value.is_err()) => {
                not("while the policy cannot be read")
            }
            Some(_) if observing => not("while the leader only observes"),
            Some(_) => start.calendar_blocker(store, kube, queue, addresses),
        };
        start
    }

    /// Returns the bar until the first time, after any freeze, at which a window of one of the machines stays open for
    /// at least the margin.
    fn calendar_blocker<'a>(
        &mut self,
        store: &StoreView,
        kube: &KubeView,
        queue: QueueKind,
        addresses: impl IntoIterator<Item = &'a Address>,
    ) -> Option<Bar> {
        let policy = store.policy();
        let frozen_until = policy.freeze.as_ref().filter(|freeze| freeze.holds(self.now)).map(|freeze| freeze.until);
        let from = frozen_until.unwrap_or(self.now);
        let frozen = || frozen_until.map(|at| Bar::Before(at, "freeze"));
        let Some(windows) = policy.windows.as_ref().filter(|windows| windows.bind(queue)) else { return frozen() };
        self.windows = windows_of(windows, store, kube, addresses);
        let margin = SignedDuration::from_secs(i64::from(windows.margin_seconds()));
        let first = |window: &Window| {
            let long_enough =
                |closes: Option<Timestamp>, opens| closes.is_none_or(|c| c.duration_since(opens) >= margin);
            window
                .openings(from)
                .take(MAX_OPENINGS)
                .find(|(opens, closes)| long_enough(*closes, *opens))
                .map(|(opens, _)| opens)
        };
        match (self.windows.iter().filter_map(first).min(), frozen_until) {
            (None, _) => Some(Bar::Not("until somebody changes the windows: they never open for long enough")),
            (Some(at), _) if at == from => frozen(),
            (Some(at), None) => Some(Bar::Before(at, "window")),
            (Some(at), Some(_)) => Some(Bar::Before(at, "freeze, window")),
        }
    }

    /// Returns when this much work is done, and how many openings of the window it takes. Returns `None` if the start
    /// is unknown, or if the machines have different windows.
    pub fn end(&self, work: SignedDuration) -> Option<(Timestamp, usize)> {
        let from = match self.bar {
            None => self.now,
            Some(Bar::Before(at, _)) => at,
            Some(Bar::Disabled | Bar::Not(_) | Bar::Held(_)) => return None,
        };
        let window = match self.windows.as_slice() {
            [] => return Some((after(from, work.as_secs()), 1)),
            [one] => one,
            _ => return None,
        };
        let mut left = work;
        for (n, (opens, closes)) in window.openings(from).take(MAX_OPENINGS).enumerate() {
            match closes.map(|closes| closes.duration_since(opens)) {
                Some(opening_length) if opening_length < left => left -= opening_length,
                _ => return Some((after(opens, left.as_secs()), n + 1)),
            }
        }
        None
    }
}

/// Returns the windows of these machines without duplicates, or the general window if no machine is named.
fn windows_of<'a>(
    windows: &Windows,
    store: &StoreView,
    kube: &KubeView,
    addresses: impl IntoIterator<Item = &'a Address>,
) -> Vec<Window> {
    let mut places = BTreeSet::new();
    if windows.by_machine() {
        places.extend(addresses.into_iter().map(|address| windows.index_for(&labels(store, kube, address))));
    }
    if places.is_empty() {
        places.insert(0);
    }
    let all = windows.all().enumerate();
    all.filter(|(place, _)| places.contains(place)).map(|(_, (_, window))| window.clone()).collect()
}

/// Returns the labels of a machine as the rules take them: the definition's, else those of its Node that screens show.
pub(crate) fn labels(store: &StoreView, kube: &KubeView, address: &Address) -> Labels {
    let member = store.definition().and_then(|d| d.members.by_address(&d.cluster, address));
    if let Some(labels) = member.and_then(|m| m.node().labels.as_ref()).filter(|labels| !labels.is_empty()) {
        return labels.clone();
    }
    let node = member.and_then(|member| kube.nodes.get(member.node_name()));
    node.map(|node| node.shown_labels.iter().cloned().collect()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use cketerm_model::{
        cketerm_records::{EngineRegistration, Who},
        cluster::{Cluster, Members, Node},
        entry::Stored,
        freeze::Freeze,
        policy::Policy,
        stored::view::{Candidate, Definition, Switch},
    };

    fn stored<T>(value: T) -> Stored<T> {
        Stored { key: String::new(), mod_revision: 1, value: Ok(Arc::new(value)) }
    }

    /// A Saturday.
    fn now() -> Timestamp {
        "2026-11-21T10:00:00Z".parse().unwrap()
    }

    fn cketerm_led(windows: &str, frozen_until: Option<&str>) -> StoreView {
        let mut store = StoreView::default();
        let leader = Candidate { key: String::new(), lease: 7, host: "a".into(), create_revision: 1 };
        store.candidates.insert(1, leader);
        let engine = r#"{"host":"a","pid":1,"version":"0.1.0","mode":"daemon"}"#;
        store.engines.insert(7, stored(serde_json::from_str::<EngineRegistration>(engine).unwrap()));
        let freeze = frozen_until.map(|until| Freeze {
            until: until.parse().unwrap(),
            reason: "x".into(),
            who: Who::default(),
            unknown: serde_json::Map::new(),
        });
        let windows = (!windows.is_empty()).then(|| Windows::read(&format!("time_zone: UTC\n{windows}")).unwrap());
        store.policy = Some(stored(Policy { windows, freeze, ..Policy::default() }));
        let node = |n: u8, rack: &str| Node {
            address: Address::new(format!("10.0.0.{n}")),
            labels: Some([("cke.cybozu.com/rack".to_owned(), rack.to_owned())].into()),
            ..Node::default()
        };
        let cluster = Cluster { nodes: vec![node(1, "1"), node(2, "2")], ..Cluster::default() };
        let members = Members::of(&cluster);
        store.cluster = Some(stored(Definition { cluster, members }));
        store
    }

    fn start(store: &StoreView, observing: bool, addresses: &[&str]) -> Start {
        let addresses: Vec<Address> = addresses.iter().map(|a| Address::new(*a)).collect();
        Start::of(store, &KubeView::default(), observing, QueueKind::Reboot, &addresses, now())
    }

    fn described(start: &Start) -> String {
        start.bar.as_ref().map_or_else(|| "now".to_owned(), |bar| format!("not {}", bar.described(|at| at.to_string())))
    }

    const NIGHTS: &str = "allow: ['* 2-4 * * 1-5']";

    #[test]
    fn i8_the_start_blocker_is_named_with_its_end() {
        let table = [
            ("", None, "now"),
            ("", Some("2026-11-21T12:00:00Z"), "not before 2026-11-21T12:00:00Z (freeze)"),
            ("", Some("2026-11-21T09:00:00Z"), "now"),
            (NIGHTS, None, "not before 2026-11-23T02:00:00Z (window)"),
            (NIGHTS, Some("2026-11-21T12:00:00Z"), "not before 2026-11-23T02:00:00Z (freeze, window)"),
            (NIGHTS, Some("2026-11-23T03:00:00Z"), "not before 2026-11-23T03:00:00Z (freeze)"),
            ("allow: ['* 10 * * *']", None, "now"),
            // within the margin before the window's end, and a window that is shorter than the margin
            ("allow: ['0-2 10 * * *', '* 12 * * *']", None, "not before 2026-11-21T12:00:00Z (window)"),
            (
                "allow: ['* 1 * * *']\ndeny: ['* * * * *']",
                None,
                "not until somebody changes the windows: they never open for long enough",
            ),
            ("allow: ['* 1 * * *']\nqueues: [repair]", None, "now"),
        ];
        for (windows, frozen_until, expected) in table {
            assert_eq!(
                described(&start(&cketerm_led(windows, frozen_until), false, &[])),
                expected,
                "{windows} {frozen_until:?}"
            );
        }
    }

    #[test]
    fn switch_and_leader_take_precedence_over_freeze_and_windows() {
        let mut store = cketerm_led(NIGHTS, Some("2026-11-21T12:00:00Z"));
        assert_eq!(described(&start(&store, true, &[])), "not while the leader only observes");
        let mut unread = store.clone();
        unread.policy.as_mut().unwrap().value = Err("x".into());
        assert_eq!(described(&start(&unread, false, &[])), "not while the policy cannot be read");
        let mut cke_led = store.clone();
        cke_led.engines.clear();
        assert_eq!(described(&start(&cke_led, false, &[])), "now", "CKE respects neither freezes nor windows");
        let mut disabled = store.clone();
        disabled.reboots.switch = Switch { raw: Some("true".into()), mod_revision: 1 };
        assert_eq!(described(&start(&disabled, true, &[])), "not while the queue is disabled");
        store.candidates.clear();
        assert_eq!(described(&start(&store, false, &[])), "not while nobody leads");
        disabled.candidates.clear();
        assert_eq!(described(&start(&disabled, false, &[])), "not while nobody leads, and the queue is disabled");
    }

    #[test]
    fn each_machine_has_its_own_window() {
        let by_rack = "allow: ['* 2 * * *']\nmachines: [{name: two, rack: 2, allow: ['* 12 * * *']}]";
        let store = cketerm_led(by_rack, None);
        for (addresses, expected) in [
            (vec!["10.0.0.1"], "not before 2026-11-22T02:00:00Z (window)"),
            (vec!["10.0.0.2"], "not before 2026-11-21T12:00:00Z (window)"),
            (vec!["10.0.0.1", "10.0.0.2"], "not before 2026-11-21T12:00:00Z (window)"),
        ] {
            assert_eq!(described(&start(&store, false, &addresses)), expected, "{addresses:?}");
        }
        let both = start(&store, false, &["10.0.0.1", "10.0.0.2"]);
        assert_eq!(both.end(SignedDuration::from_mins(5)), None, "machines with different windows have no common end");
    }

    #[test]
    fn work_longer_than_a_window_continues_in_the_next_one() {
        let end = |windows: &str, frozen_until: Option<&str>, minutes| {
            let end = start(&cketerm_led(windows, frozen_until), false, &[]).end(SignedDuration::from_mins(minutes));
            end.map(|(at, openings)| (at.to_string(), openings))
        };
        let at = |at: &str, openings| Some((at.to_owned(), openings));
        assert_eq!(end("", None, 90), at("2026-11-21T11:30:00Z", 1));
        assert_eq!(end("", Some("2026-11-21T12:00:00Z"), 90), at("2026-11-21T13:30:00Z", 1));
        assert_eq!(end("allow: ['* 10 * * *']", None, 50), at("2026-11-21T10:50:00Z", 1));
        assert_eq!(end("allow: ['* 10 * * *']", None, 90), at("2026-11-22T10:30:00Z", 2));
        assert_eq!(end(NIGHTS, None, 200), at("2026-11-24T02:20:00Z", 2));
    }
}

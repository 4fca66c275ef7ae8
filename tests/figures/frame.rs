//! What a key costs the console over 10,000 entries and 10,000 nodes at 200×50: a frame after a cursor move, a frame after
//! news, and a letter typed into the filter.
//!
//! `cargo bench --bench frame` prints a table: microseconds as median, 99th percentile and maximum, and bytes; with a file as its
//! argument it writes that between the file's marks. Targets: sheet `console.md`, "Budgets".
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

use std::{
    cell::Cell,
    collections::BTreeMap,
    io::{self, Write},
    rc::Rc,
    sync::Arc,
    time::{Duration, Instant},
};

use cketerm::{
    clock::Now,
    console::{
        app::{App, Looks, View},
        backend::Quiet,
        event::Event,
        update::update,
        views,
    },
    engine::snapshot::{Engine, Leading, Seen, Snapshot},
    model::{
        cluster::{Cluster, Members, Node},
        entry::{EntryId, Stored},
        kube::{KubeView, NodeRow, SourceState},
        reason::Reason,
        reboot::RebootEntry,
    },
    store::view::{Definition, StoreView},
};
use crossterm::event::{KeyCode, KeyEvent};
use ratatui::{Terminal, layout::Size};

const ROWS: u64 = 10_000;
const TIMES: usize = 1_000;
const SIZE: Size = Size::new(200, 50);

/// Counts what would go over the line.
#[derive(Clone, Default)]
struct Line {
    bytes: Rc<Cell<usize>>,
    writes: Rc<Cell<usize>>,
}

impl Write for Line {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.bytes.set(self.bytes.get() + bytes.len());
        self.writes.set(self.writes.get() + 1);
        Ok(bytes.len())
    }
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn stored<T>(key: String, value: T) -> Stored<T> {
    Stored { key, mod_revision: 5, value: Ok(Arc::new(value)) }
}

fn node(i: u64, kubelet: &str) -> NodeRow {
    let address = format!("10.{}.{}.{}", i / 60_000, i / 250 % 240, i % 250 + 1);
    let (name, uid) = (format!("node-{i:05}"), i.to_string());
    NodeRow { name, uid, addresses: vec![address], ready: true, kubelet: kubelet.to_owned(), ..NodeRow::default() }
}

fn seen() -> Seen {
    let mut cluster = Cluster { name: "large".to_owned(), ..Cluster::default() };
    let mut kube = KubeView::default();
    for source in ["nodes", "namespaces", "poddisruptionbudgets", "daemonsets"] {
        kube.sources.insert(source.to_owned(), SourceState { synced: true, heard: 1000.0, error: None });
    }
    let mut store = StoreView { synced: true, heard: 1000.0, ..StoreView::default() };
    let mut reasons = BTreeMap::new();
    for i in 0..ROWS {
        let row = node(i, "v1.35.0");
        let address = row.addresses.first().cloned().unwrap_or_default();
        cluster.nodes.push(Node { address: address.clone(), control_plane: i < 5, ..Node::default() });
        let entry = RebootEntry::queued(i, &address);
        store.reboots.entries.insert(i, stored(format!("/cke/reboots/data/{i:016x}"), entry));
        reasons.insert(EntryId::reboot(i), Reason::WaitingForSlot { holder: Some(EntryId::reboot(0)), limit: 10 });
        kube.put_node(row);
    }
    let members = Members::of(&cluster);
    store.cluster = Some(stored("/cke/cluster".to_owned(), Definition { cluster, members }));
    let leading = Leading { key: "leader//1".to_owned(), create_revision: 1, since: 0.0, acknowledged: 0.0 };
    let snapshot = Snapshot {
        store: Arc::new(store),
        kube: Arc::new(kube),
        engine: Engine { lease: 1, ttl: 60, leading: Some(leading), ..Engine::default() },
        ..Snapshot::default()
    };
    Seen { snapshot, reasons: Arc::new(reasons), ..Seen::default() }
}

struct Console {
    app: App,
    terminal: Terminal<Quiet<Line>>,
    line: Line,
}

impl Console {
    fn draw(&mut self) {
        let app = &self.app;
        self.terminal.draw(|frame| views::draw(app, frame)).unwrap();
    }

    /// Times what happens and the frame after it; tells microseconds and bytes.
    fn time(&mut self, events: impl IntoIterator<Item = Event>) -> (u128, usize) {
        let (before, began) = (self.line.bytes.get(), Instant::now());
        for event in events {
            update(&mut self.app, event);
        }
        self.draw();
        (began.elapsed().as_micros(), self.line.bytes.get() - before)
    }
}

fn key(code: KeyCode) -> Event {
    Event::Key(KeyEvent::from(code))
}

/// A row of the table: what, the target in microseconds, and what was found.
fn row(figure: &str, target: u128, mut all: Vec<(u128, usize)>) -> String {
    all.sort_unstable();
    let at = |percent: usize| all[(all.len() - 1) * percent / 100].0;
    let mut bytes: Vec<usize> = all.iter().map(|(_, bytes)| *bytes).collect();
    bytes.sort_unstable();
    let (median, p99, most, bytes) = (at(50), at(99), at(100), bytes[bytes.len() / 2]);
    format!("| {figure} | {target} µs | {median} µs | {p99} µs | {most} µs | {bytes} |\n")
}

/// Puts the table between the marks of a Markdown file.
fn write(path: &str, table: &str) {
    let page = std::fs::read_to_string(path).unwrap();
    let (begin, end) = ("<!-- frame: begin -->\n", "<!-- frame: end -->");
    let (before, rest) = page.split_once(begin).expect("a mark for the beginning");
    let (_, after) = rest.split_once(end).expect("a mark for the end");
    std::fs::write(path, format!("{before}{begin}{table}{end}{after}")).unwrap();
}

fn main() {
    let now = Now { boot: Duration::from_secs(1001), wall: "2026-08-01T12:00:00Z".parse().unwrap() };
    let mut state = seen();
    let mut app = App::new(Looks::default(), View::Nodes, now);
    app.size = SIZE;
    let line = Line::default();
    let terminal = Terminal::new(Quiet::new(line.clone(), SIZE)).unwrap();
    let mut console = Console { app, terminal, line };
    update(&mut console.app, Event::Seen(Arc::new(state.clone())));
    console.draw();
    let mut table =
        "| what | p99 at most | median | p99 | longest | bytes |\n| --- | --- | --- | --- | --- | --- |\n".to_owned();
    assert_eq!(console.app.nodes.rows.len() as u64, ROWS);
    for (view, name) in [('1', "reboots"), ('2', "nodes")] {
        console.time([key(KeyCode::Char(view))]);
        let writes = console.line.writes.get();
        let moves: Vec<_> = (0..TIMES).map(|_| console.time([key(KeyCode::Char('j'))])).collect();
        assert_eq!(console.line.writes.get() - writes, TIMES, "one write a frame");
        table += &row(&format!("cursor move and its frame, {name}"), 1_000, moves);
        let typed: Vec<_> = (0..TIMES / 10)
            .flat_map(|_| {
                console.time([key(KeyCode::Char('/'))]);
                let typed = "0123".chars().map(|c| console.time([key(KeyCode::Char(c))])).collect::<Vec<_>>();
                console.time([key(KeyCode::Esc)]);
                typed
            })
            .collect();
        table += &row(&format!("a letter typed into the filter, {name}"), 10_000, typed);
    }
    // the nodes' watch tells of one node; the rest of the view is shared with the one before
    let news: Vec<_> = (0..TIMES as u64)
        .map(|i| {
            Arc::make_mut(&mut state.snapshot.kube).put_node(node(i * 37 % ROWS, &format!("v1.35.{}", i % 9)));
            console.time([Event::Seen(Arc::new(state.clone()))])
        })
        .collect();
    table += &row("news of one node and its frame", 10_000, news);
    print!("{table}");
    // cargo adds an option of its own
    if let Some(path) = std::env::args().skip(1).find(|a| !a.starts_with('-')) {
        write(&path, &table);
    }
}

//! Latency of the console over 10,000 entries and 10,000 nodes at 200×50: a frame after a cursor move, a frame after
//! news, and a letter typed into the filter.
//!
//! `cargo bench --bench frame` prints a table: microseconds as median, 99th percentile and maximum, and bytes. With a
//! file as its argument it also writes the table between the file's marks. It fails if a 99th percentile is over its
//! budget, multiplied by the slowness of the machine ([`slowness`]).
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

mod marks;
mod scene;
mod slowness;

use std::{
    fmt::Write as _,
    sync::Arc,
    time::{Duration, Instant},
};

use cketerm_console::{input::update, state::event::Event};
use crossterm::event::KeyCode;

use self::scene::{Console, key, node};

/// Same allocator as the program's.
#[cfg(feature = "jemalloc")]
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

const ROWS: u64 = 10_000;
const SAMPLES: usize = 1_000;

impl Console {
    /// Times some events and the frame after them; returns the time and the bytes.
    fn time(&mut self, events: impl IntoIterator<Item = Event>) -> (Duration, usize) {
        let (before, began) = (self.writer.bytes.get(), Instant::now());
        for event in events {
            update(&mut self.app, event);
        }
        self.draw();
        (began.elapsed(), self.writer.bytes.get() - before)
    }
}

/// Table of the figures, and the names of those that are over their budget.
struct Table {
    text: String,
    missed: Vec<&'static str>,
}

impl Table {
    /// Adds a row: the figure, the budget of its 99th percentile on the reference machine, and the measurements. `before` is
    /// the slowness of the machine before these.
    fn row(&mut self, figure: &'static str, budget: Duration, before: f64, mut all: Vec<(Duration, usize)>) {
        all.sort_unstable();
        let at = |percent: usize| all[(all.len() - 1) * percent / 100].0;
        let mut bytes: Vec<usize> = all.iter().map(|(_, bytes)| *bytes).collect();
        bytes.sort_unstable();
        let slowness = f64::midpoint(before, slowness::now());
        if at(99) > budget.mul_f64(slowness) {
            self.missed.push(figure);
        }
        let times = [budget, at(50), at(99), at(100)].map(|time| format!("{} µs", time.as_micros()));
        let (times, bytes) = (times.join(" | "), bytes[bytes.len() / 2]);
        writeln!(self.text, "| {figure} | {times} | {slowness:.2} | {bytes} |").unwrap();
    }
}

const MOVE: Duration = Duration::from_millis(1);
const LETTER: Duration = Duration::from_millis(10);
const NEWS: Duration = Duration::from_millis(10);

fn main() {
    let mut state = scene::seen(ROWS, ROWS);
    let mut console = Console::new(state.clone());
    let mut table = Table {
        text: "| what | p99 at most | median | p99 | longest | slowness | bytes |\n\
               | --- | --- | --- | --- | --- | --- | --- |\n"
            .to_owned(),
        missed: Vec::new(),
    };
    assert_eq!(console.app.lists.nodes.rows.len() as u64, ROWS);
    let views = [
        ('1', "cursor move and its frame, reboots", "a letter typed into the filter, reboots"),
        ('2', "cursor move and its frame, nodes", "a letter typed into the filter, nodes"),
    ];
    for (view, cursor, letter) in views {
        console.time([key(KeyCode::Char(view))]);
        let slowness = slowness::now();
        let writes = console.writer.writes.get();
        let move_times: Vec<_> = (0..SAMPLES).map(|_| console.time([key(KeyCode::Char('j'))])).collect();
        assert_eq!(console.writer.writes.get() - writes, SAMPLES, "one write per frame");
        table.row(cursor, MOVE, slowness, move_times);
        let slowness = slowness::now();
        let filter_times: Vec<_> = (0..SAMPLES / 10)
            .flat_map(|_| {
                console.time([key(KeyCode::Char('/'))]);
                let filter_times = "0123".chars().map(|c| console.time([key(KeyCode::Char(c))])).collect::<Vec<_>>();
                console.time([key(KeyCode::Esc)]);
                filter_times
            })
            .collect();
        table.row(letter, LETTER, slowness, filter_times);
    }
    let slowness = slowness::now();
    // the nodes' watch reports one node; the new view shares the rest with the previous one
    let news: Vec<_> = (0..SAMPLES as u64)
        .map(|i| {
            Arc::make_mut(&mut state.snapshot.kube).put_node(node(i * 37 % ROWS, &format!("v1.35.{}", i % 9)));
            console.time([Event::Seen(Arc::new(state.clone()))])
        })
        .collect();
    table.row("news of one node and its frame", NEWS, slowness, news);
    print!("{}", table.text);
    marks::write("frame", &table.text);
    for figure in &table.missed {
        eprintln!("over the budget: {figure}");
    }
    std::process::exit(i32::from(!table.missed.is_empty()));
}

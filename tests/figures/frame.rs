//! Latency of the console over 10,000 entries and 10,000 nodes at 200×50: a frame after a cursor move, a frame after
//! news, and a letter typed into the filter.
//!
//! `cargo bench --bench frame` prints a table: microseconds as median, 99th percentile and maximum, and bytes. With a
//! file as its argument it also writes the table between the file's marks. The targets are in `docs/performance.md`.
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

mod marks;
mod scene;

use std::{sync::Arc, time::Instant};

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
    /// Times some events and the frame after them; returns microseconds and bytes.
    fn time(&mut self, events: impl IntoIterator<Item = Event>) -> (u128, usize) {
        let (before, began) = (self.writer.bytes.get(), Instant::now());
        for event in events {
            update(&mut self.app, event);
        }
        self.draw();
        (began.elapsed().as_micros(), self.writer.bytes.get() - before)
    }
}

/// Row of the table: the figure, its target in microseconds, and the measurements.
fn row(figure: &str, target: u128, mut all: Vec<(u128, usize)>) -> String {
    all.sort_unstable();
    let at = |percent: usize| all[(all.len() - 1) * percent / 100].0;
    let mut bytes: Vec<usize> = all.iter().map(|(_, bytes)| *bytes).collect();
    bytes.sort_unstable();
    let (median, p99, most, bytes) = (at(50), at(99), at(100), bytes[bytes.len() / 2]);
    format!("| {figure} | {target} µs | {median} µs | {p99} µs | {most} µs | {bytes} |\n")
}

fn main() {
    let mut state = scene::seen(ROWS, ROWS);
    let mut console = Console::new(state.clone());
    let mut table =
        "| what | p99 at most | median | p99 | longest | bytes |\n| --- | --- | --- | --- | --- | --- |\n".to_owned();
    assert_eq!(console.app.lists.nodes.rows.len() as u64, ROWS);
    for (view, name) in [('1', "reboots"), ('2', "nodes")] {
        console.time([key(KeyCode::Char(view))]);
        let writes = console.writer.writes.get();
        let move_times: Vec<_> = (0..SAMPLES).map(|_| console.time([key(KeyCode::Char('j'))])).collect();
        assert_eq!(console.writer.writes.get() - writes, SAMPLES, "one write per frame");
        table += &row(&format!("cursor move and its frame, {name}"), 1_000, move_times);
        let filter_times: Vec<_> = (0..SAMPLES / 10)
            .flat_map(|_| {
                console.time([key(KeyCode::Char('/'))]);
                let filter_times = "0123".chars().map(|c| console.time([key(KeyCode::Char(c))])).collect::<Vec<_>>();
                console.time([key(KeyCode::Esc)]);
                filter_times
            })
            .collect();
        table += &row(&format!("a letter typed into the filter, {name}"), 10_000, filter_times);
    }
    // the nodes' watch reports one node; the new view shares the rest with the previous one
    let news: Vec<_> = (0..SAMPLES as u64)
        .map(|i| {
            Arc::make_mut(&mut state.snapshot.kube).put_node(node(i * 37 % ROWS, &format!("v1.35.{}", i % 9)));
            console.time([Event::Seen(Arc::new(state.clone()))])
        })
        .collect();
    table += &row("news of one node and its frame", 10_000, news);
    print!("{table}");
    marks::write("frame", &table);
}

//! Simulated weeks of clusters of several shapes: how often batches end within the estimated interval, and how far the
//! estimate is off. `make eta` writes the table into docs/performance.md.

// statistics of small numbers
#![allow(missing_docs, clippy::cast_precision_loss, clippy::cast_possible_truncation, clippy::cast_possible_wrap)]
#![allow(clippy::cast_sign_loss)]

mod measure;
mod site;
mod table;

use cketerm_rules::eta;

fn main() -> std::process::ExitCode {
    let mut numbers = std::env::args().skip(1).filter_map(|word| word.parse().ok());
    let sites = numbers.next().unwrap_or(60);
    let weeks = numbers.next().unwrap_or(6);
    let (table, missed) = table::table(sites, usize::try_from(weeks).unwrap_or(6));
    print!("{table}");
    for miss in &missed {
        eprintln!("missed: {miss}");
    }
    if missed.is_empty() { std::process::ExitCode::SUCCESS } else { std::process::ExitCode::FAILURE }
}

//! The measured weeks as a table for docs/performance.md.

use std::fmt::Write;

use super::{
    measure::{POINTS, Sums, measure},
    site::SHAPES,
};

/// Range in which the coverage of an 80 % interval has to be.
const COVERAGE: (f64, f64) = (75.0, 85.0);

/// Plays all shapes, so many sites of each over so many weeks. Returns the table, and what misses its aim.
pub fn table(sites: u64, weeks: usize) -> (String, Vec<String>) {
    let mut text = String::from(
        "| cluster | estimates | ends within the interval at ¼, ½, ¾ | mean error | median × remaining ÷ slots |\n\
         | --- | --- | --- | --- | --- |\n",
    );
    let mut missed = Vec::new();
    for shape in SHAPES {
        let sums = measure(shape, sites, weeks);
        for (point, sums) in POINTS.iter().zip(&sums) {
            if !(COVERAGE.0..=COVERAGE.1).contains(&sums.coverage()) {
                missed.push(format!("{} at {point}: {:.1} % end within the interval", shape.name, sums.coverage()));
            }
            if sums.error >= sums.simple_error {
                missed.push(format!("{} at {point}: the error is not smaller than the simple one", shape.name));
            }
        }
        let all: usize = sums.iter().map(|sums| sums.estimates).sum();
        let each = |of: &dyn Fn(&Sums) -> String| sums.iter().map(of).collect::<Vec<_>>().join(", ");
        let mean = |seconds: f64, sums: &Sums| span(seconds / sums.estimates as f64);
        let _ = writeln!(
            text,
            "| {} | {all} | {} | {} | {} |",
            shape.name,
            each(&|sums| format!("{:.0} %", sums.coverage())),
            each(&|sums| mean(sums.error, sums)),
            each(&|sums| mean(sums.simple_error, sums)),
        );
    }
    (text, missed)
}

fn span(seconds: f64) -> String {
    if seconds < 7200.0 { format!("{:.1} min", seconds / 60.0) } else { format!("{:.1} h", seconds / 3600.0) }
}

//! The measured weeks as a table for docs/performance.md.

use std::fmt::Write;

use super::{
    measure::{POINTS, Sums, measure},
    site::SHAPES,
};

/// Range in which the coverage of an 80 % interval has to be.
const COVERAGE: (f64, f64) = (75.0, 85.0);
/// Range in which the share of ends before the 90 % time has to be.
const LATE_COVERAGE: (f64, f64) = (86.0, 95.0);
/// Fewest estimates of batches without a stuck machine that say something.
const MIN_STEADY: usize = 100;

/// Plays all shapes, so many sites of each over so many weeks. Returns the table, and what misses its aim.
pub fn table(sites: u64, weeks: usize) -> (String, Vec<String>) {
    let mut text = String::from(
        "| cluster | estimates | ends within ± if none sticks, at ¼, ½, ¾ | ends by the 90 % time | ends within the \
         interval of all | mean ±; of all | mean error | median × remaining ÷ slots |\n\
         | --- | --- | --- | --- | --- | --- | --- | --- |\n",
    );
    let mut missed = Vec::new();
    for shape in SHAPES {
        let sums = measure(shape, sites, weeks);
        for (point, sums) in POINTS.iter().zip(&sums) {
            if !(COVERAGE.0..=COVERAGE.1).contains(&sums.coverage()) {
                missed.push(format!("{} at {point}: {:.1} % end within the interval", shape.name, sums.coverage()));
            }
            // the statement exists for few batches where hundreds of machines are left
            if sums.steady.estimates >= MIN_STEADY && !(COVERAGE.0..=COVERAGE.1).contains(&sums.steady_coverage()) {
                missed.push(format!("{} at {point}: {:.1} % if none sticks", shape.name, sums.steady_coverage()));
            }
            if !(LATE_COVERAGE.0..=LATE_COVERAGE.1).contains(&sums.late_coverage()) {
                missed.push(format!("{} at {point}: {:.1} % by the late end", shape.name, sums.late_coverage()));
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
            "| {} | {all} | {} | {} | {} | {} | {} | {} |",
            shape.name,
            each(&|sums| if sums.steady.estimates < MIN_STEADY {
                "–".to_owned()
            } else {
                format!("{:.0} %", sums.steady_coverage())
            }),
            each(&|sums| format!("{:.0} %", sums.late_coverage())),
            each(&|sums| format!("{:.0} %", sums.coverage())),
            half_widths(&sums),
            each(&|sums| mean(sums.error, sums)),
            each(&|sums| mean(sums.simple_error, sums)),
        );
    }
    (text, missed)
}

/// Returns half of the mean interval without stuck machines and of all, in the middle of a batch.
fn half_widths(sums: &[Sums; 3]) -> String {
    let middle = &sums[1];
    let steady = middle.steady.width / middle.steady.estimates.max(1) as f64 / 2.0;
    format!("{}; {}", span(steady), span(middle.width / middle.estimates as f64 / 2.0))
}

fn span(seconds: f64) -> String {
    if seconds < 7200.0 { format!("{:.1} min", seconds / 60.0) } else { format!("{:.1} h", seconds / 3600.0) }
}

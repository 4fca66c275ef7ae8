//! Table of budgets in docs/performance.md: reading and writing.

use std::{fmt::Write as _, fs, path::Path};

use crate::cases::Case;

const DOCUMENT: &str = include_str!("../../docs/performance.md");
const BEGIN: &str = "<!-- costs: begin -->\n";
const END: &str = "<!-- costs: end -->";
/// Permitted excess over the table, in percent.
const SLACK: u64 = 15;
/// Permitted absolute excess, for very small figures.
const ABSOLUTE_SLACK: u64 = 5;

/// Figures at the small and at the large size.
pub type Figures = [u64; 2];

/// Budget of the table at both sizes.
#[derive(Clone, Copy)]
pub struct Limits(Figures);

impl Limits {
    /// No limit.
    pub const ANY: Self = Self([u64::MAX / 200; 2]);

    /// Descriptions of the excess over the budget.
    pub fn excess(self, what: &str, found: Figures, max_growth: f64) -> Vec<String> {
        let mut failures = Vec::new();
        for (found, most) in found.into_iter().zip(self.0) {
            if found > most * (100 + SLACK) / 100 + ABSOLUTE_SLACK {
                failures.push(format!("{found} {what}, but the table allows {most}"));
            }
        }
        #[allow(clippy::cast_precision_loss)] // far below the limit
        let [few, many] = found.map(|n| n as f64);
        if many > few * max_growth + 5.0 {
            failures.push(format!(
                "{few} {what} grew to {many} with ten times the nodes, at most {max_growth} times are allowed"
            ));
        }
        failures
    }
}

/// A row of the table.
pub struct Budget {
    /// Number of allocations.
    pub allocations: Limits,
    /// Thousands of instructions.
    pub instructions: Limits,
}

impl Budget {
    /// Returns the row of this name.
    pub fn of(name: &str) -> Self {
        let table =
            DOCUMENT.split(BEGIN).nth(1).and_then(|t| t.split(END).next()).expect("docs/performance.md has both marks");
        let row = table.lines().find(|l| l.starts_with(&format!("| {name} |")));
        let row = row.unwrap_or_else(|| panic!("no row \"{name}\": UPDATE_DOCS=1 cargo test --test cost"));
        let numbers: Vec<u64> = row.split('|').skip(2).filter_map(|c| c.replace(',', "").trim().parse().ok()).collect();
        let [few, many, small, large] = numbers[..] else { panic!("not four numbers and two limits: {row}") };
        Self { allocations: Limits([few, many]), instructions: Limits([small, large]) }
    }
}

/// Formats a number with commas.
fn with_commas(n: u64) -> String {
    let digits = n.to_string();
    let mut out = String::new();
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// Rewrites the table.
pub fn write(cases: &[Case], allocations: &[Figures], instructions: &[Figures]) {
    let mut table =
        "| once, at 500 and 5,000 nodes | allocations | | grow at most | thousand instructions | | grow at most |\n\
        | --- | --- | --- | --- | --- | --- | --- |\n"
            .to_owned();
    for ((case, [few, many]), [small, large]) in cases.iter().zip(allocations).zip(instructions) {
        let numbers = [few, many, small, large].map(|n| with_commas(*n));
        let [few, many, small, large] = numbers;
        let (a, i) = (case.max_allocation_growth, case.max_instruction_growth);
        let _ = writeln!(table, "| {} | {few} | {many} | {a} × | {small} | {large} | {i} × |", case.name);
    }
    let (before, rest) = DOCUMENT.split_once(BEGIN).expect("docs/performance.md has both marks");
    let (_, after) = rest.split_once(END).expect("docs/performance.md has both marks");
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/performance.md");
    fs::write(path, format!("{before}{BEGIN}{table}{END}{after}")).expect("written");
}

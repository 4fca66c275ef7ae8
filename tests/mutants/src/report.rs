//! Report of a run as Markdown.

use std::{collections::BTreeMap, fmt::Write, fs, path::Path};

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

use crate::{
    checks::Stage,
    equivalent::Equivalent,
    mutant::{Mutant, PARTS},
    results::{Outcome, Verdict},
};

/// A sample as it is kept.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Kept {
    /// Commit, shortened.
    pub commit: String,
    /// Commit whose hash drew the mutants, shortened.
    pub draw: String,
    /// Number of candidates of each part.
    pub candidates: BTreeMap<String, usize>,
    /// Number of drawn mutants that do not compile.
    pub not_viable: usize,
    /// Mutants in the order of the draw.
    pub mutants: Vec<Mutant>,
}

const STAGES: [Stage; 4] = [Stage::Unit, Stage::Checker, Stage::Sim, Stage::Servers];
const BEGIN: &str = "<!-- mutants: begin -->";
const END: &str = "<!-- mutants: end -->";
/// Largest number of characters of a text in the tables.
const SHOWN: usize = 90;

#[derive(Clone, Copy, Default)]
struct Row {
    viable: usize,
    killed: [usize; STAGES.len()],
    overdue: usize,
    equivalent: usize,
    survived: usize,
    open: usize,
}

impl Row {
    fn all_killed(&self) -> usize {
        self.killed.iter().sum()
    }

    fn add(&mut self, verdict: Option<&Verdict>, is_equivalent: bool) {
        self.viable += 1;
        match verdict.map(|verdict| &verdict.outcome) {
            Some(Outcome::Killed { stage, overdue, .. }) => {
                for (count, of) in self.killed.iter_mut().zip(STAGES) {
                    *count += usize::from(of == *stage);
                }
                self.overdue += usize::from(*overdue);
            }
            Some(Outcome::Survived) if is_equivalent => self.equivalent += 1,
            Some(Outcome::Survived) => self.survived += 1,
            None => self.open += 1,
        }
    }

    fn cells(&self) -> String {
        let stages: Vec<String> = self.killed.iter().map(ToString::to_string).collect();
        let score = percent(self.all_killed(), self.viable - self.open - self.equivalent);
        format!("{} | {} | {} | {} | {score}", self.viable, stages.join(" | "), self.equivalent, self.survived)
    }
}

fn percent(part: usize, whole: usize) -> String {
    let number = |count: usize| f64::from(u32::try_from(count).unwrap_or(u32::MAX));
    format!("{:.1} %", 100.0 * number(part) / number(whole.max(1)))
}

/// Writes the report.
pub fn markdown(kept: &Kept, verdicts: &BTreeMap<String, Verdict>, equivalents: &[Equivalent]) -> String {
    let mut rows: BTreeMap<&str, Row> = BTreeMap::new();
    let mut total = Row::default();
    let (mut survivors, mut same) = (Vec::new(), Vec::new());
    for mutant in &kept.mutants {
        let verdict = verdicts.get(&mutant.key());
        let equivalent = equivalents.iter().find(|one| one.is(mutant));
        rows.entry(mutant.part()).or_default().add(verdict, equivalent.is_some());
        total.add(verdict, equivalent.is_some());
        match (verdict, equivalent) {
            (Some(Verdict { outcome: Outcome::Survived, .. }), Some(reason)) => same.push((mutant, reason)),
            (Some(verdict), None) if verdict.outcome == Outcome::Survived => survivors.push((mutant, verdict)),
            _ => {}
        }
    }
    let (drawn, candidates) = (total.viable + kept.not_viable, kept.candidates.values().sum::<usize>());
    let mut text = format!(
        "{drawn} mutants of commit `{}` were drawn from {candidates} candidates by the hash of `{}`.\n",
        kept.commit, kept.draw
    );
    let _ = writeln!(
        text,
        "{} of them do not compile. {} ended by a time limit. {} were not judged yet.\n",
        kept.not_viable, total.overdue, total.open
    );
    let titles: Vec<String> = STAGES.iter().map(|stage| format!("killed: {}", stage.name())).collect();
    let _ = writeln!(text, "| part | candidates | viable | {} | equivalent | survived | score |", titles.join(" | "));
    let _ = writeln!(text, "| --- | {}---: |", "---: | ".repeat(5 + STAGES.len() - 1));
    for (part, _) in PARTS {
        let of = kept.candidates.get(part).copied().unwrap_or_default();
        let _ = writeln!(text, "| {part} | {of} | {} |", rows.get(part).copied().unwrap_or_default().cells());
    }
    let _ = writeln!(text, "| all | {candidates} | {} |", total.cells());
    sort(&mut survivors);
    sort(&mut same);
    if !survivors.is_empty() {
        text.push_str(
            "\n### Survivors\n\n| place | function | original | mutated | passed |\n| --- | --- | --- | --- | --- |\n",
        );
        for (mutant, verdict) in survivors {
            let passed: Vec<&str> = verdict.passed.iter().map(String::as_str).collect();
            let passed = if passed.is_empty() { "not reached".to_owned() } else { passed.join(", ") };
            let _ = writeln!(text, "{} {} |", row(mutant), cell(&passed));
        }
    }
    if !same.is_empty() {
        text.push_str(
            "\n### Equivalent\n\n| place | function | original | mutated | reason |\n| --- | --- | --- | --- | --- |\n",
        );
        for (mutant, equivalent) in same {
            let _ = writeln!(text, "{} {} |", row(mutant), equivalent.reason);
        }
    }
    text
}

/// Lists the mutants that survived an earlier run and are killed now, with the test that does.
pub fn since(kept: &Kept, before: &BTreeMap<String, Verdict>, now: &BTreeMap<String, Verdict>) -> String {
    let mut all: Vec<(&Mutant, &str)> = Vec::new();
    for mutant in &kept.mutants {
        let survived = before.get(&mutant.key()).is_some_and(|verdict| verdict.outcome == Outcome::Survived);
        let by = match now.get(&mutant.key()).map(|verdict| &verdict.outcome) {
            Some(Outcome::Killed { by, .. }) if survived => by,
            Some(Outcome::Killed { .. } | Outcome::Survived) | None => continue,
        };
        all.push((mutant, by));
    }
    sort(&mut all);
    let titles = "| place | function | original | mutated | test |\n| --- | --- | --- | --- | --- |";
    let mut text = format!("\n### Survived an earlier run, killed now\n\n{titles}\n");
    for (mutant, by) in all {
        let _ = writeln!(text, "{} `{by}` |", row(mutant));
    }
    text
}

/// Sorts by part, as they stand in [`PARTS`], then by place.
fn sort<T>(all: &mut [(&Mutant, T)]) {
    all.sort_by_key(|(mutant, _)| {
        let part = PARTS.iter().position(|(name, _)| *name == mutant.part());
        (part, mutant.file.clone(), mutant.line, mutant.column)
    });
}

fn row(mutant: &Mutant) -> String {
    let Mutant { file, line, function, original, mutated, .. } = mutant;
    format!("| `{file}:{line}` | `{function}` | {} | {} |", code(original), code(mutated))
}

fn shortened(text: &str) -> String {
    if text.chars().count() <= SHOWN { text.to_owned() } else { text.chars().take(SHOWN).chain(['…']).collect() }
}

fn cell(text: &str) -> String {
    shortened(text).replace('|', "\\|")
}

fn code(text: &str) -> String {
    format!("`{}`", cell(text).replace('`', "'"))
}

/// Replaces the text between the marks of a document.
///
/// # Errors
///
/// Fails if the document cannot be read or written, or has no marks.
pub fn write(path: &Path, report: &str) -> Result<()> {
    let old = fs::read_to_string(path).with_context(|| path.display().to_string())?;
    let (before, rest) = old.split_once(BEGIN).context("the document has no mark of the beginning")?;
    let (_, after) = rest.split_once(END).context("the document has no mark of the end")?;
    fs::write(path, format!("{before}{BEGIN}\n{report}{END}{after}"))?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::mutant::{Edit, Kind};

    fn mutant(line: usize, original: &str) -> Mutant {
        Mutant {
            id: 1,
            file: "src/rules/src/a.rs".to_owned(),
            line,
            column: 1,
            kind: Kind::Literal,
            function: "f".to_owned(),
            original: original.to_owned(),
            mutated: "true".to_owned(),
            nth: 1,
            edit: Edit::Skip { range: 0..1 },
        }
    }

    fn survived(key: &str) -> Verdict {
        Verdict { key: key.to_owned(), outcome: Outcome::Survived, passed: BTreeSet::new(), seconds: 1 }
    }

    #[test]
    fn the_score_leaves_out_equivalent_mutants_and_lists_survivors() {
        let mutants = vec![mutant(1, "a || b"), mutant(2, "b"), mutant(3, "c")];
        let killed = Outcome::Killed { stage: Stage::Unit, by: "t".to_owned(), overdue: false };
        let outcomes = [Outcome::Survived, Outcome::Survived, killed];
        let verdicts = mutants.iter().zip(outcomes).map(|(mutant, outcome)| {
            let verdict = Verdict { key: mutant.key(), outcome, passed: ["unit tests".to_owned()].into(), seconds: 1 };
            (mutant.key(), verdict)
        });
        let equivalent = Equivalent {
            file: "src/rules/src/a.rs".to_owned(),
            function: "f".to_owned(),
            original: "b".to_owned(),
            mutated: "true".to_owned(),
            nth: None,
            reason: "b is always true".to_owned(),
        };
        let candidates = [("rules".to_owned(), 9)].into();
        let (commit, draw) = ("abc".to_owned(), "abd".to_owned());
        let kept = Kept { commit, draw, candidates, not_viable: 2, mutants: mutants.clone() };
        let verdicts = verdicts.collect();
        let text = markdown(&kept, &verdicts, &[equivalent]);
        let first = "5 mutants of commit `abc` were drawn from 9 candidates by the hash of `abd`.";
        assert!(text.contains(first), "{text}");
        assert!(text.contains("| rules | 9 | 3 | 1 | 0 | 0 | 0 | 1 | 1 | 50.0 % |"), "{text}");
        assert!(text.contains("| `src/rules/src/a.rs:1` | `f` | `a \\|\\| b` | `true` | unit tests |"), "{text}");
        assert!(text.contains("b is always true"), "{text}");
        let before = verdicts.keys().map(|key| (key.clone(), survived(key))).collect();
        let text = since(&kept, &before, &verdicts);
        assert_eq!(text.lines().filter(|line| line.contains("src/rules")).count(), 1, "{text}");
        assert!(text.contains("| `c` | `true` | `t` |"), "{text}");
    }
}

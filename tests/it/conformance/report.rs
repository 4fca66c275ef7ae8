//! Answers of the worlds, side by side.

use std::{fmt::Write as _, io::Write as _, path::PathBuf};

use serde_json::Value;

use super::known::KNOWN;

/// Member of an answer for a case that itself failed.
pub const BROKEN: &str = "the case broke";

/// World whose answers must equal those of the first real one.
pub const SANDBOX: &str = "sandbox";

/// Answers of one world.
pub struct Answers {
    /// Name of the world.
    pub world: &'static str,
    /// Case and answer.
    pub results: Vec<(&'static str, Value)>,
    /// Duration in seconds.
    pub seconds: f64,
}

/// The comparison of one part of the suite.
pub struct Report {
    part: String,
    worlds: Vec<Answers>,
}

impl Report {
    /// Compares these worlds; the first is the reference.
    pub fn new(part: &str, worlds: Vec<Answers>) -> Self {
        Self { part: part.to_owned(), worlds }
    }

    /// Writes the table, prints the summary, fails on a difference.
    pub fn show(&self) {
        let Some(reference) = self.worlds.first() else { return };
        let sandbox = self.worlds.iter().any(|w| w.world == SANDBOX);
        let mut table = format!("# Conformance: {}\n\n| case |", self.part);
        for world in &self.worlds {
            let _ = write!(table, " {} |", world.world);
        }
        let _ = writeln!(table, "\n| --- |{}", " --- |".repeat(self.worlds.len()));
        let (mut differ, mut details, mut expected_ones, mut fixed) = (Vec::new(), String::new(), 0, 0);
        for (i, (case, expected)) in reference.results.iter().enumerate() {
            let _ = write!(table, "| {case} |");
            for world in &self.worlds {
                let answer = &world.results[i].1;
                let broken = answer.get(BROKEN).is_some();
                let same = answer == expected;
                let known = KNOWN.iter().find(|(name, _)| name == case && world.world == SANDBOX);
                let verdict = match known {
                    _ if broken => "broke",
                    None if same => "agrees",
                    None => "differs",
                    Some(_) if same => "agrees now",
                    Some((_, why)) => why,
                };
                let _ = write!(table, " {verdict} |");
                if broken || !same {
                    let _ = writeln!(details, "\n## {case}: {}\n", world.world);
                    for line in differences(expected, answer) {
                        let _ = writeln!(details, "- {line}");
                    }
                }
                if known.is_some() && !broken {
                    expected_ones += usize::from(!same);
                    fixed += usize::from(same);
                } else if broken || (!same && world.world == SANDBOX) {
                    differ.push(format!("{case} ({})\n  {}", world.world, differences(expected, answer).join("\n  ")));
                }
            }
            table.push('\n');
        }
        let times: Vec<String> = self.worlds.iter().map(|w| format!("{} {:.1} s", w.world, w.seconds)).collect();
        let cases = reference.results.len();
        let summary = if self.worlds.len() > 1 && sandbox {
            // a case that broke on the reference differs on each world
            let agree = cases.saturating_sub(expected_ones + differ.len());
            format!(
                "{cases} cases, {agree} agree, {} differ, {expected_ones} are known to differ ({fixed} no longer do)",
                differ.len()
            )
        } else {
            format!("{cases} cases; NOT COMPARED: only one world ran")
        };
        let summary = format!("conformance, {}: {summary} ({})", self.part, times.join(", "));
        let _ = write!(table, "\n{summary}\n{details}");
        let dir = PathBuf::from(env!("CARGO_TARGET_TMPDIR"));
        let file = dir.join(format!("conformance-{}.md", self.part));
        std::fs::write(&file, table).expect("the report is written");
        let parts = ["etcd", "kubernetes", "controllers"].map(|part| dir.join(format!("conformance-{part}.md")));
        let full_report: Vec<String> = parts.iter().filter_map(|part| std::fs::read_to_string(part).ok()).collect();
        std::fs::write(dir.join("conformance.md"), full_report.join("\n")).expect("the full report is written");
        for world in &self.worlds {
            let all: serde_json::Map<String, Value> =
                world.results.iter().map(|(case, answer)| ((*case).to_owned(), answer.clone())).collect();
            let name = format!("conformance-{}-{}.json", self.part, world.world.replace(' ', "-"));
            let _ = std::fs::write(dir.join(name), format!("{:#}", Value::Object(all)));
        }
        // bypasses the output capture of the test harness, because the summary is the result
        let stderr = std::fs::OpenOptions::new().append(true).open("/dev/stderr");
        let _ = stderr.and_then(|mut err| writeln!(err, "{summary}: {}", file.display()));
        assert!(differ.is_empty(), "{} differences:\n{}", differ.len(), differ.join("\n"));
    }
}

/// Differences of two answers: path, reference, actual value.
fn differences(reference: &Value, actual: &Value) -> Vec<String> {
    let mut found = Vec::new();
    walk("", reference, actual, &mut found);
    found.truncate(25);
    found
}

fn walk(path: &str, reference: &Value, actual: &Value, found: &mut Vec<String>) {
    let missing = Value::from("nothing");
    match (reference, actual) {
        (Value::Object(a), Value::Object(b)) => {
            for (key, value) in a {
                walk(&format!("{path}/{key}"), value, b.get(key).unwrap_or(&missing), found);
            }
            for (key, value) in b.iter().filter(|(key, _)| !a.contains_key(*key)) {
                walk(&format!("{path}/{key}"), &missing, value, found);
            }
        }
        (Value::Array(a), Value::Array(b)) => {
            for i in 0..a.len().max(b.len()) {
                let (a, b) = (a.get(i).unwrap_or(&missing), b.get(i).unwrap_or(&missing));
                walk(&format!("{path}/{i}"), a, b, found);
            }
        }
        _ if reference != actual => found.push(format!("`{path}`: real `{reference}`, here `{actual}`")),
        _ => {}
    }
}

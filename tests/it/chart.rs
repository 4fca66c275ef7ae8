//! The Helm chart in docs/chart: its copies of the documented files are the same, and its dashboard shows only metrics
//! that docs/metrics.md lists. `make chart` tests the rest, with helm and real servers.

use std::{collections::BTreeSet, fs, path::Path};

use regex::Regex;
use serde_json::Value;

fn read(path: &str) -> String {
    fs::read_to_string(Path::new(crate::ROOT).join(path)).unwrap_or_else(|e| panic!("{path}: {e}"))
}

#[test]
fn the_charts_copies_are_the_documented_files() {
    for name in ["agent.yaml", "alerts.yaml", "rbac.yaml"] {
        let same = read(&format!("docs/{name}")) == read(&format!("docs/chart/cketerm/files/{name}"));
        assert!(same, "the files differ: cp docs/{name} docs/chart/cketerm/files/{name}");
    }
}

#[test]
fn the_chart_has_the_version_of_the_program() {
    let chart = read("docs/chart/cketerm/Chart.yaml");
    for key in ["version", "appVersion"] {
        let line = format!("{key}: {}", env!("CARGO_PKG_VERSION"));
        assert!(chart.lines().any(|l| l == line), "docs/chart/cketerm/Chart.yaml has no line `{line}`");
    }
}

#[test]
fn the_dashboard_shows_only_documented_metrics() {
    let row = Regex::new(r"(?m)^\| `(\w+)` \|").unwrap();
    let metrics = read("docs/metrics.md");
    let documented: BTreeSet<&str> = row.captures_iter(&metrics).map(|found| found.get(1).unwrap().as_str()).collect();
    let dashboard: Value = serde_json::from_str(&read("docs/chart/cketerm/files/dashboard.json")).unwrap();
    let panels = dashboard["panels"].as_array().unwrap();
    let targets = panels.iter().filter_map(|panel| panel["targets"].as_array()).flatten();
    let name = Regex::new(r"\b(?:cke|cketerm)_\w+").unwrap();
    let mut used = BTreeSet::new();
    for target in targets {
        for found in name.find_iter(target["expr"].as_str().unwrap()) {
            let metric = found.as_str();
            // a histogram has samples of this name
            let metric = metric.strip_suffix("_bucket").unwrap_or(metric);
            assert!(documented.contains(metric), "docs/metrics.md has no {metric}");
            used.insert(metric.to_owned());
        }
    }
    assert!(used.len() > 15, "only {} metrics were found", used.len());
}

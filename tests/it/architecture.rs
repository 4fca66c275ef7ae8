//! The architecture as docs/architecture.md describes it: which crate uses which, what the pure crates must not know,
//! and no cycles of imports within a crate.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use crate::{ROOT, imports};

const ARCHITECTURE: &str = include_str!("../../docs/architecture.md");

/// Crates of the workspace that each crate below `src` uses.
type Uses = BTreeMap<String, BTreeSet<String>>;

/// The table in docs/architecture.md.
fn documented() -> Uses {
    let table = ARCHITECTURE.split("<!-- uses: begin -->").nth(1).and_then(|t| t.split("<!-- uses: end -->").next());
    let rows = table.expect("docs/architecture.md has the table of uses").lines().filter(|l| l.starts_with("| `"));
    let words = |cell: &str| cell.split('`').skip(1).step_by(2).map(str::to_owned).collect::<Vec<_>>();
    rows.map(|row| {
        let cells: Vec<&str> = row.trim_matches('|').split('|').collect();
        let uses = cells.last().expect("a last column");
        (words(cells[0])[0].clone(), words(uses).into_iter().collect())
    })
    .collect()
}

fn crates() -> Vec<String> {
    let entries = fs::read_dir(Path::new(ROOT).join("src")).expect("src").map(|e| e.expect("an entry").path());
    let mut names: Vec<String> =
        entries.map(|path| path.file_name().expect("a name").to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

/// The manifests.
fn used() -> Uses {
    crates()
        .into_iter()
        .map(|name| {
            let manifest = Path::new(ROOT).join("src").join(&name).join("Cargo.toml");
            let text = fs::read_to_string(manifest).expect("a manifest");
            let section = text.split("[dependencies]\n").nth(1).and_then(|t| t.split("\n[").next()).unwrap_or_default();
            let uses =
                section.lines().filter_map(|l| l.strip_prefix("cketerm-")?.split(['.', ' ']).next()).map(str::to_owned);
            (name, uses.collect())
        })
        .collect()
}

#[test]
fn crates_use_exactly_what_the_architecture_lists() {
    let (documented, used) = (documented(), used());
    assert!(used.len() > 8, "{used:?}");
    assert_eq!(documented, used, "docs/architecture.md (left) must list what the manifests say (right)");
}

#[test]
fn the_pure_crates_know_no_runtime_and_no_client() {
    for name in ["cketerm-model", "cketerm-sabakan", "cketerm-rules"] {
        let mut tree = Command::new(std::env::var("CARGO").unwrap_or_else(|_| "cargo".to_owned()));
        tree.current_dir(ROOT).args(["tree", "--locked", "--offline", "--prefix", "none", "-p", name]);
        let output = tree.output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let text = String::from_utf8(output.stdout).unwrap();
        assert!(text.lines().count() > 10, "{text}");
        for foreign in ["tokio", "etcd-client", "kube", "kube-client", "reqwest", "hyper", "ratatui", "crossterm"] {
            let line = text.lines().find(|line| line.split(' ').next() == Some(foreign));
            assert_eq!(line, None, "{name} depends on {foreign}");
        }
    }
}

#[test]
fn imports_form_no_cycles() {
    let mut found = Vec::new();
    for name in crates() {
        let all = imports::imports(&Path::new(ROOT).join("src").join(&name).join("src"));
        for cycle in imports::cycles(&all) {
            let inside = |file: &String| {
                let uses: Vec<&str> = all[file].intersection(&cycle).map(String::as_str).collect();
                format!("    {} imports {}", if file.is_empty() { "lib" } else { file }, uses.join(", "))
            };
            let lines: Vec<String> = cycle.iter().map(inside).collect();
            found.push(format!("{name}, {} files:\n{}", cycle.len(), lines.join("\n")));
        }
    }
    assert!(
        found.is_empty(),
        "imports form {} cycles: move what both need into a file of its own\n{}",
        found.len(),
        found.join("\n")
    );
}

/// Only the crates of operators may act in a person's name. The engine writes with permits (I23). Its three writes
/// without one are made before anybody leads: the schema, the proposed identity, and the result of a command.
#[test]
fn i23_the_engine_never_uses_operator_writes() {
    let engine = sources(&Path::new(ROOT).join("src/engine/src"));
    assert!(engine.len() > 30, "{}", engine.len());
    for path in engine {
        let text = fs::read_to_string(&path).expect("a source");
        for forbidden in ["Person", "AuditNote", "_manually(", ".client()"] {
            assert!(!text.contains(forbidden), "{} uses {forbidden}", path.display());
        }
    }
}

/// All files below a folder.
fn sources(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).expect("a folder").map(|entry| entry.expect("an entry").path());
    entries.flat_map(|path| if path.is_dir() { sources(&path) } else { vec![path] }).collect()
}

//! Dependencies of the program, checked against `deny.toml` without cargo-deny: licences, sources, duplicates. The
//! direct ones are checked against `docs/dependencies.md`.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
    process::Command,
};

const DENY: &str = include_str!("../../deny.toml");
const DEPENDENCIES: &str = include_str!("../../docs/dependencies.md");
const LOCK: &str = include_str!("../../Cargo.lock");

/// Strings of one list of `deny.toml`; of tables, the value of `crate =`.
fn list(section: &str, name: &str) -> Vec<String> {
    let section = DENY
        .split(&format!("\n[{section}]\n"))
        .nth(1)
        .expect("the section exists")
        .split("\n[")
        .next()
        .expect("the section's text");
    let from = section.split(&format!("\n{name} = [")).nth(1).unwrap_or_else(|| panic!("deny.toml has no list {name}"));
    let inside = from.split("\n]").next().expect("the list has an end");
    let tables = inside.contains("crate = ");
    let lines = inside.lines().filter(|line| !line.trim_start().starts_with('#'));
    let text = |line: &str| {
        let line = if tables { line.split("crate = ").nth(1)? } else { line };
        line.split('"').nth(1).map(str::to_owned)
    };
    lines.filter_map(text).collect()
}

/// Reports whether these licences satisfy an SPDX expression; `/` is the `OR` of old crates.
fn is_satisfied(expression: &str, allowed: &[String]) -> bool {
    let text = expression.replace('/', " OR ").replace('(', " ( ").replace(')', " ) ");
    let words: Vec<&str> = text.split_whitespace().collect();
    let mut at = 0;
    let good = any(&words, &mut at, allowed);
    good && at == words.len()
}

fn any(words: &[&str], at: &mut usize, allowed: &[String]) -> bool {
    let mut good = all(words, at, allowed);
    while words.get(*at) == Some(&"OR") {
        *at += 1;
        good |= all(words, at, allowed);
    }
    good
}

fn all(words: &[&str], at: &mut usize, allowed: &[String]) -> bool {
    let mut good = one(words, at, allowed);
    while words.get(*at) == Some(&"AND") {
        *at += 1;
        good &= one(words, at, allowed);
    }
    good
}

fn one(words: &[&str], at: &mut usize, allowed: &[String]) -> bool {
    let word = words.get(*at).copied().unwrap_or_default();
    *at += 1;
    if word == "(" {
        let good = any(words, at, allowed);
        *at += 1;
        return good;
    }
    let mut name = word.trim_end_matches('+').to_owned();
    if words.get(*at) == Some(&"WITH") {
        name = format!("{name} WITH {}", words.get(*at + 1).copied().unwrap_or_default());
        *at += 2;
    }
    allowed.contains(&name)
}

/// Reports whether the crate is a member of this workspace.
fn is_own(name: &str) -> bool {
    name == "cketerm" || name.starts_with("cketerm-")
}

/// Name, version and licence of every crate that is built on Linux, for the program and for its tests.
fn crates() -> Vec<(String, String, String)> {
    let mut cargo = Command::new(env!("CARGO"));
    cargo.current_dir(crate::ROOT).args(["tree", "--locked", "--offline", "--workspace", "-e", "normal,build,dev"]);
    cargo.args(["--target", "x86_64-unknown-linux-gnu", "--prefix", "none", "--format", "{p}|{l}"]);
    let out = cargo.output().expect("cargo starts");
    assert!(out.status.success(), "cargo tree: {}", String::from_utf8_lossy(&out.stderr));
    let text = String::from_utf8_lossy(&out.stdout).into_owned();
    let found: BTreeSet<_> = text
        .lines()
        .filter_map(|line| line.trim_end_matches(" (*)").split_once('|'))
        .map(|(package, licence)| {
            let mut words = package.split(' ');
            let (name, version) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
            // a crate from outside the registry has its location after the version
            let odd: Vec<&str> = words.filter(|word| *word != "(proc-macro)").collect();
            assert!(is_own(name) || odd.is_empty(), "{package}");
            (name.to_owned(), version.trim_start_matches('v').to_owned(), licence.to_owned())
        })
        .collect();
    found.into_iter().collect()
}

#[test]
fn every_crate_has_an_allowed_licence() {
    let allowed = list("licenses", "allow");
    let crates = crates();
    assert!(crates.len() > 200, "only {} crates were found", crates.len());
    let not: Vec<_> = crates.iter().filter(|(_, _, licence)| !is_satisfied(licence, &allowed)).collect();
    assert!(not.is_empty(), "licences that deny.toml does not allow: {not:?}");
    // the check recognises forbidden and allowed licences
    for bad in ["GPL-3.0", "MIT AND GPL-3.0", "(MIT OR Apache-2.0) AND AGPL-3.0", "", "Apache-2.0 WITH Other"] {
        assert!(!is_satisfied(bad, &allowed), "{bad}");
    }
    for good in ["MIT/Apache-2.0", "GPL-2.0 OR MIT", "(GPL-2.0 OR ISC) AND Zlib", "MPL-2.0+"] {
        assert!(is_satisfied(good, &allowed), "{good}");
    }
}

#[test]
fn every_crate_comes_from_crates_io_with_a_checksum() {
    for package in LOCK.split("\n[[package]]\n").skip(1) {
        let field = |name: &str| package.lines().find_map(|line| line.strip_prefix(&format!("{name} = \"")));
        let name = field("name").expect("a name").trim_end_matches('"');
        if is_own(name) {
            continue;
        }
        assert_eq!(field("source"), Some("registry+https://github.com/rust-lang/crates.io-index\""), "{name}");
        assert!(field("checksum").is_some_and(|sum| sum.len() == 65), "{name} has no checksum");
        assert!(!list("bans", "deny").iter().any(|banned| banned == name), "{name} is banned");
    }
}

#[test]
fn duplicate_crates_are_listed_with_a_reason() {
    let mut versions: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for (name, version, _) in crates() {
        versions.entry(name).or_default().insert(version);
    }
    let skipped = list("bans", "skip");
    let known = |name: &str, version: &str| {
        skipped.iter().any(|skip| {
            let (of, from) = skip.split_once('@').expect("NAME@VERSION");
            of == name && (version == from || version.starts_with(&format!("{from}.")))
        })
    };
    for (name, versions) in versions.iter().filter(|(_, versions)| versions.len() > 1) {
        let more: Vec<_> = versions.iter().filter(|version| !known(name, version)).collect();
        assert!(
            more.len() <= 1,
            "{name} is used in {} versions: {versions:?}; list it with a reason in deny.toml",
            versions.len()
        );
    }
    for skip in &skipped {
        let (of, from) = skip.split_once('@').expect("NAME@VERSION");
        let exists = versions.get(of).is_some_and(|all| all.iter().any(|v| v.starts_with(&format!("{from}."))));
        assert!(exists, "{skip} is no longer used: remove it from deny.toml");
    }
}

/// Manifests of the members of the workspace, each with whether the member is a part of the program.
fn manifests() -> Vec<(bool, String)> {
    let root = Path::new(crate::ROOT);
    let below = |name: &str| std::fs::read_dir(root.join(name)).expect("a folder").flatten().map(|entry| entry.path());
    let folders = below("src").chain(below("tests")).chain([root.join("tests")]);
    let manifest = |folder: std::path::PathBuf| {
        let text = std::fs::read_to_string(folder.join("Cargo.toml")).ok()?;
        Some((folder.starts_with(root.join("src")) && !folder.ends_with("fuzz"), text))
    };
    folders.filter_map(manifest).collect()
}

/// Crates of others that a manifest names in its sections of dependencies: in those for tests, or in all others.
fn direct(manifest: &str, for_tests: bool) -> BTreeSet<String> {
    let (mut inside, mut found) = (false, BTreeSet::new());
    for line in manifest.lines().filter(|line| !line.starts_with('#')) {
        if line.starts_with('[') {
            inside = line.ends_with("dependencies]") && line.contains("dev-dependencies") == for_tests;
            continue;
        }
        let name = line.split(['.', ' ', '=']).next().unwrap_or_default();
        if inside && !name.is_empty() && !is_own(name) {
            found.insert(name.to_owned());
        }
    }
    found
}

/// Crates that a table of `docs/dependencies.md` lists, in its order.
fn documented(heading: &str) -> Vec<String> {
    let section = DEPENDENCIES.split(&format!("\n## {heading}\n")).nth(1).expect("the section exists");
    let section = section.split("\n## ").next().unwrap_or_default();
    section.lines().filter_map(|line| line.strip_prefix("| `")?.split('`').next()).map(str::to_owned).collect()
}

/// `docs/dependencies.md` has one row for each crate that a manifest names, in the table of its use, and no other row.
#[test]
fn every_direct_dependency_is_documented_once() {
    let (mut program, mut all) = (BTreeSet::new(), BTreeSet::new());
    let manifests = manifests();
    assert!(manifests.len() >= 17, "only {} manifests were found", manifests.len());
    for (is_program, manifest) in manifests {
        let normal = direct(&manifest, false);
        if is_program {
            program.extend(normal.iter().cloned());
        }
        all.extend(normal);
        all.extend(direct(&manifest, true));
    }
    let declared = direct(include_str!("../../Cargo.toml"), false);
    assert_eq!(declared, all, "Cargo.toml (left) must declare what the members use (right)");
    let only_tests: Vec<String> = all.difference(&program).cloned().collect();
    let program: Vec<String> = program.into_iter().collect();
    let why = "docs/dependencies.md (left) must list the crates of the manifests (right), sorted";
    assert_eq!(documented("In the program"), program, "{why}");
    assert_eq!(documented("Only in tests"), only_tests, "{why}");
}

/// The table of `docs/reliability.md`: it has every invariant once, and the named tests exist.
#[test]
fn every_invariant_names_an_existing_test_or_file() {
    let root = Path::new(crate::ROOT);
    let listed = |text: &'static str, expected: std::ops::RangeInclusive<u8>| -> Vec<&'static str> {
        let is_invariant =
            |line: &&str| line.strip_prefix("| I").is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()));
        let rows: Vec<&str> = text.lines().filter(is_invariant).collect();
        let codes: Vec<&str> = rows.iter().filter_map(|row| row[2..].split(' ').next()).collect();
        let expected: Vec<String> = expected.map(|i| format!("I{i}")).collect();
        assert_eq!(codes, expected, "each invariant must be listed once, in order");
        rows
    };
    let mut rows = listed(include_str!("../../docs/reliability.md"), 1..=52);
    rows.extend(listed(include_str!("../../docs/spec/invariants.md"), 1..=76));
    let mut sources = String::new();
    for folder in ["src", "tests/it", "tests/observers", "tests/sim"] {
        gather(&root.join(folder), &mut sources);
    }
    for row in rows {
        let shown_by = row.splitn(4, '|').nth(3).unwrap_or_default();
        let named: Vec<&str> = shown_by.split('`').skip(1).step_by(2).collect();
        assert!(!named.is_empty(), "no test is named: {row}");
        for name in named {
            let exists = if name.contains(['/', '.']) {
                // the invariants name their observers without the folder
                root.join(name).exists() || root.join("tests/observers").join(name).exists()
            } else {
                sources.contains(&format!("fn {name}(")) || sources.contains(&format!("    {name},"))
            };
            assert!(exists, "{name} is neither a file nor a test: {row}");
        }
    }
}

fn gather(folder: &Path, out: &mut String) {
    for entry in std::fs::read_dir(folder).expect("a folder").flatten() {
        let path = entry.path();
        if path.is_dir() {
            gather(&path, out);
        } else if path.extension().is_some_and(|e| e == "rs") {
            out.push_str(&std::fs::read_to_string(&path).expect("a file"));
        }
    }
}

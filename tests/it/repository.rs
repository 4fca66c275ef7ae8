//! Hygiene of the repository: commands, files, headings and targets of `make` that the documents name exist, and only
//! few modules print.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
};

use cketerm::cli::Cli;
use clap::{
    Parser as _,
    error::ErrorKind::{DisplayHelpOnMissingArgumentOrSubcommand, MissingRequiredArgument},
};

use crate::{ROOT, imports::sources};

/// The README and everything in docs, docs/decisions and docs/how-to, each with its name.
pub fn documents() -> Vec<(String, String)> {
    let folders = ["docs", "docs/decisions", "docs/how-to"];
    let entries = folders.into_iter().flat_map(|f| fs::read_dir(Path::new(ROOT).join(f)).expect("docs"));
    let docs = entries.map(|e| e.expect("an entry").path());
    let mut paths: Vec<PathBuf> = docs.filter(|p| p.extension().is_some_and(|e| e == "md")).collect();
    paths.push(Path::new(ROOT).join("README.md"));
    paths.sort();
    let name = |p: &Path| p.strip_prefix(ROOT).expect("below the root").display().to_string();
    paths.into_iter().map(|p| (name(&p), fs::read_to_string(&p).expect("a document"))).collect()
}

/// Placeholders in capitals of the documents, and a value of each.
const PLACEHOLDERS: [(&str, &str); 4] = [("INDEX", "1"), ("UNIXTIME", "1"), ("N", "1"), ("BATCH", "00000001")];

/// Arguments of a command in the documents; `None` where it is elided (`…`).
fn words(command: &str) -> Option<Vec<String>> {
    let (mut words, mut word, mut quote) = (Vec::new(), String::new(), None);
    for c in command.chars() {
        match (quote, c) {
            (None, '\'' | '"') => quote = Some(c),
            (Some(q), c) if c == q => quote = None,
            (None, '#' | '|' | '>' | '<' | ';') => break,
            (None, c) if c.is_whitespace() => words.extend(Some(std::mem::take(&mut word)).filter(|w| !w.is_empty())),
            (_, c) => word.push(c),
        }
    }
    words.extend(Some(word).filter(|w| !w.is_empty()));
    if words.iter().any(|w| w.contains('…')) {
        return None;
    }
    let value =
        |w: String| PLACEHOLDERS.iter().find(|(name, _)| *name == w).map_or(w, |(_, value)| (*value).to_owned());
    Some(words.into_iter().map(value).collect())
}

/// Commands of a document: indented lines, and text between backticks, that begin with the program's name.
fn commands(text: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut fenced = false;
    for line in text.lines() {
        fenced ^= line.trim_start().starts_with("```");
        let code = line.strip_prefix("    ").map(|l| l.trim_start_matches("$ ")).filter(|_| !fenced);
        let code = code.map(|l| {
            l.rsplit("| cketerm ")
                .next()
                .map_or(l.to_owned(), |r| if l.contains("| cketerm ") { format!("cketerm {r}") } else { l.to_owned() })
        });
        let spans = line.split('`').skip(1).step_by(2).map(str::to_owned);
        let all = code.into_iter().chain(spans).map(|c| c.replacen("target/release/cketerm", "cketerm", 1));
        found.extend(all.filter(|c| c.starts_with("cketerm ") && !c.contains(": ")));
    }
    found
}

#[test]
fn every_command_in_the_documents_parses() {
    let (mut tried, mut wrong) = (0, Vec::new());
    for (name, text) in documents() {
        for command in commands(&text) {
            let Some(words) = words(&command) else { continue };
            tried += 1;
            // a command may be named without its arguments (`cketerm freeze`)
            match Cli::try_parse_from(&words) {
                Err(e) if !matches!(e.kind(), MissingRequiredArgument | DisplayHelpOnMissingArgumentOrSubcommand) => {
                    wrong.push(format!("{name}: {command}\n    {}", e.to_string().lines().next().unwrap_or_default()));
                }
                _ => {}
            }
        }
    }
    assert!(tried > 100, "only {tried} commands were found");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// GitHub's anchor of a heading.
fn anchor(heading: &str) -> String {
    let heading = heading.trim_start_matches('#').trim().to_lowercase();
    heading
        .chars()
        .filter(|c| c.is_alphanumeric() || " -_".contains(*c))
        .map(|c| if c == ' ' { '-' } else { c })
        .collect()
}

#[test]
fn every_link_in_the_documents_resolves() {
    let (mut tried, mut wrong) = (0, Vec::new());
    for (name, text) in documents() {
        for target in text.split("](").skip(1).filter_map(|t| t.split(')').next()) {
            if target.contains("://") || target.contains(char::is_whitespace) {
                continue;
            }
            tried += 1;
            let (file, part) = target.split_once('#').unwrap_or((target, ""));
            let here = Path::new(ROOT).join(&name);
            let path = if file.is_empty() { here } else { here.parent().expect("a folder").join(file) };
            let there = path.exists()
                && (part.is_empty()
                    || fs::read_to_string(&path)
                        .is_ok_and(|t| t.lines().filter(|l| l.starts_with('#')).any(|l| anchor(l) == part)));
            if !there {
                wrong.push(format!("{name}: {target}"));
            }
        }
    }
    assert!(tried > 50, "only {tried} links were found");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// The index of docs lists each document, and that of the specification each of its parts.
#[test]
fn the_indexes_list_every_document() {
    const FOLDERS: [(&str, &str, &str); 5] = [
        ("docs/README.md", "docs", ""),
        ("docs/decisions/README.md", "docs/decisions", ""),
        ("docs/README.md", "docs/how-to", "how-to/"),
        ("docs/README.md", "docs/reference", "reference/"),
        ("docs/spec/README.md", "docs/spec", ""),
    ];
    let (mut tried, mut missing) = (0, Vec::new());
    for (index, folder, prefix) in FOLDERS {
        let text = fs::read_to_string(Path::new(ROOT).join(index)).expect("an index");
        let entries = fs::read_dir(Path::new(ROOT).join(folder)).expect("a folder");
        for path in entries.map(|e| e.expect("an entry").path()).filter(|p| p.extension().is_some_and(|e| e == "md")) {
            let name = path.file_name().expect("a name").to_string_lossy().into_owned();
            if name != "README.md" {
                tried += 1;
                if !text.contains(&format!("]({prefix}{name})")) {
                    missing.push(format!("{index}: {prefix}{name}"));
                }
            }
        }
    }
    assert!(tried > 30, "only {tried} documents were found");
    assert!(missing.is_empty(), "not in their index:\n{}", missing.join("\n"));
}

#[test]
fn every_make_target_in_the_documents_exists() {
    let makefile = fs::read_to_string(Path::new(ROOT).join("Makefile")).expect("a Makefile");
    let targets: BTreeSet<&str> = makefile.lines().filter_map(|l| l.split_once(':')).map(|(t, _)| t.trim()).collect();
    let mut tried = 0;
    for (name, text) in documents() {
        let lines = text.lines().filter_map(|l| l.strip_prefix("    "));
        let spans = text.split('`').skip(1).step_by(2);
        for code in lines
            .chain(spans)
            .filter_map(|c| c.split("make ").nth(1).filter(|_| c.contains("make ") && !c.contains("cmake")))
        {
            let target: String =
                code.chars().take_while(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || *c == '-').collect();
            tried += 1;
            assert!(targets.contains(target.as_str()), "{name}: make {target}");
        }
    }
    assert!(tried > 10, "only {tried} make targets were found");
}

/// tokio's own dice are unseeded by default, and a simulation then finds something only sometimes.
#[test]
fn only_the_seeded_runtime_runs_simulations() {
    let folder = Path::new(ROOT).join("tests/sim");
    let texts = sources(&folder).into_iter().filter(|path| !path.ends_with("tests/sim/runtime.rs"));
    let unseeded: Vec<_> =
        texts.filter(|path| fs::read_to_string(path).unwrap().contains("new_current_thread")).collect();
    assert!(unseeded.is_empty(), "use runtime::seeded in {unseeded:?}");
}

/// All output to a terminal goes through `cli::Out`, which makes it safe. No subcommand prints by itself.
#[test]
fn only_modules_that_sanitize_output_print() {
    // `cli::Out`; the console's own screen and lines; the helper's answer to its engine; the init of a
    // container; the example of the sandbox
    const PRINTING_MODULES: [&str; 9] = [
        "cketerm/src/cli/output.rs",
        "console/src/terminal/plain.rs",
        "console/src/terminal/run.rs",
        "console/src/terminal/guard.rs",
        "engine/src/command/helper.rs",
        "engine/src/command/init.rs",
        "cketerm/src/main.rs",
        "rules/examples/eta_coverage/main.rs",
        "sandbox/examples/serve.rs",
    ];
    let src = Path::new(ROOT).join("src");
    let files = sources(&src);
    let print_calls = ["print!(", "println!(", "eprint!(", "eprintln!(", "dbg!(", "stdout()", "stderr()"];
    let mut printing_modules = BTreeSet::new();
    for file in files {
        let name = file.strip_prefix(&src).expect("below src").display().to_string();
        let text = fs::read_to_string(&file).expect("a source");
        let text = text.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default();
        let code = text.lines().map(|l| l.split("//").next().unwrap_or_default());
        if let Some(line) = code.into_iter().find(|line| print_calls.iter().any(|print_call| line.contains(print_call)))
        {
            assert!(
                PRINTING_MODULES.contains(&name.as_str()),
                "src/{name} prints directly, use `cli::Out`: {}",
                line.trim()
            );
            printing_modules.insert(name);
        }
    }
    assert_eq!(
        printing_modules.len(),
        PRINTING_MODULES.len(),
        "remove modules that no longer print from PRINTING_MODULES; found: {printing_modules:?}"
    );
}

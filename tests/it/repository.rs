//! Hygiene of the repository. Modules use only what docs/architecture.md allows them, and without cycles. Commands,
//! files, headings and targets of `make` that the documents name exist.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
};

use cketerm::cli::Cli;
use clap::{
    Parser as _,
    error::ErrorKind::{DisplayHelpOnMissingArgumentOrSubcommand, MissingRequiredArgument},
};

const ROOT: &str = env!("CARGO_MANIFEST_DIR");
const ARCHITECTURE: &str = include_str!("../../docs/architecture.md");

type Uses = BTreeMap<String, BTreeSet<String>>;

/// Permitted uses, from the table in docs/architecture.md.
fn allowed_modules() -> Uses {
    let table = ARCHITECTURE.split("<!-- uses: begin -->").nth(1).and_then(|t| t.split("<!-- uses: end -->").next());
    let rows = table.expect("docs/architecture.md has the table of uses").lines().filter(|l| l.starts_with("| `"));
    let words = |cell: &str| cell.split('`').skip(1).step_by(2).map(str::to_owned).collect::<Vec<_>>();
    rows.map(|row| {
        let cells: Vec<&str> = row.trim_matches('|').split('|').collect();
        assert_eq!(cells.len(), 2, "{row}");
        (words(cells[0])[0].clone(), words(cells[1]).into_iter().collect())
    })
    .collect()
}

fn sources(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).expect("a folder").map(|e| e.expect("an entry").path()) {
        // test modules may use every module
        let tests = entry.file_stem().is_some_and(|n| n == "tests" || n == "fuzz");
        if entry.is_dir() && !tests {
            sources(&entry, found);
        } else if entry.extension().is_some_and(|e| e == "rs") && !tests {
            found.push(entry);
        }
    }
}

/// Modules that a source names: `crate::store::…`, `use crate::{model::…, store::{…}}`. Comments and code below `mod
/// tests` do not count.
fn modules_in(text: &str) -> BTreeSet<String> {
    let text = text.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default();
    let text: String = text.lines().map(|l| l.split("//").next().unwrap_or_default().to_owned() + "\n").collect();
    let word = |s: &str| s.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect::<String>();
    let mut found = BTreeSet::new();
    for part in text.split("crate::").skip(1) {
        let Some(group) = part.strip_prefix('{') else {
            found.insert(word(part));
            continue;
        };
        let (mut depth, mut top) = (0_i32, String::new());
        for c in group.chars() {
            match c {
                '{' => depth += 1,
                '}' if depth == 0 => break,
                '}' => depth -= 1,
                c if depth == 0 => top.push(c),
                _ => {}
            }
        }
        found.extend(top.split(',').map(|s| word(s.trim())).filter(|s| !s.is_empty()));
    }
    found
}

fn used_modules() -> Uses {
    let (src, mut files) = (Path::new(ROOT).join("src"), Vec::new());
    sources(&src, &mut files);
    let mut uses = Uses::new();
    for file in files {
        let first = file.strip_prefix(&src).expect("below src").components().next().expect("a name");
        let module = first.as_os_str().to_string_lossy().trim_end_matches(".rs").to_owned();
        if module != "lib" && module != "main" {
            let text = fs::read_to_string(&file).expect("a source");
            uses.entry(module.clone()).or_default().extend(modules_in(&text).into_iter().filter(|n| *n != module));
        }
    }
    uses
}

#[test]
fn modules_use_exactly_what_the_architecture_allows() {
    let (allowed_modules, used_modules) = (allowed_modules(), used_modules());
    assert!(used_modules.len() > 15, "{used_modules:?}");
    assert_eq!(
        allowed_modules.keys().collect::<Vec<_>>(),
        used_modules.keys().collect::<Vec<_>>(),
        "docs/architecture.md must list exactly the modules of src"
    );
    for (module, uses) in &used_modules {
        let more: Vec<_> = uses.difference(&allowed_modules[module]).collect();
        let less: Vec<_> = allowed_modules[module].difference(uses).collect();
        assert!(more.is_empty(), "{module} uses {more:?}: reverse the dependency, or allow it in docs/architecture.md");
        assert!(less.is_empty(), "{module} no longer uses {less:?}: remove them from docs/architecture.md");
    }
}

#[test]
fn module_dependencies_have_no_cycle() {
    let mut left = used_modules();
    while !left.is_empty() {
        let free: Vec<String> = left
            .iter()
            .filter(|(_, uses)| uses.iter().all(|u| !left.contains_key(u)))
            .map(|(r, _)| r.clone())
            .collect();
        assert!(!free.is_empty(), "the dependencies of these modules form a cycle: {left:?}");
        left.retain(|module, _| !free.contains(module));
    }
}

#[test]
fn all_forms_of_module_paths_are_recognised() {
    let text = "use crate::{a::X, b::{self, c::Y}, d};\n// crate::no\nfn f() { crate::e::g() }\n#[cfg(test)]\nmod tests {\ncrate::z }";
    assert_eq!(modules_in(text).into_iter().collect::<Vec<_>>(), ["a", "b", "d", "e"]);
}

/// The README and everything in docs and docs/how-to, each with its name.
pub fn documents() -> Vec<(String, String)> {
    let entries =
        ["docs", "docs/how-to"].into_iter().flat_map(|f| fs::read_dir(Path::new(ROOT).join(f)).expect("docs"));
    let docs = entries.map(|e| e.expect("an entry").path());
    let mut paths: Vec<PathBuf> = docs.filter(|p| p.extension().is_some_and(|e| e == "md")).collect();
    paths.push(Path::new(ROOT).join("README.md"));
    paths.sort();
    let name = |p: &Path| p.strip_prefix(ROOT).expect("below the root").display().to_string();
    paths.into_iter().map(|p| (name(&p), fs::read_to_string(&p).expect("a document"))).collect()
}

/// Placeholders in capitals that stand for a number in the documents.
const NUMBERS: [&str; 3] = ["INDEX", "UNIXTIME", "N"];

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
    let number = |w: String| if NUMBERS.contains(&w.as_str()) { "1".to_owned() } else { w };
    Some(words.into_iter().map(number).collect())
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
    const FOLDERS: [(&str, &str, &str); 4] = [
        ("docs/README.md", "docs", ""),
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
            let target: String = code.chars().take_while(|c| c.is_ascii_lowercase() || c.is_ascii_digit()).collect();
            tried += 1;
            assert!(targets.contains(target.as_str()), "{name}: make {target}");
        }
    }
    assert!(tried > 10, "only {tried} make targets were found");
}

/// All output to a terminal goes through `cli::Out`, which makes it safe. No subcommand prints by itself.
#[test]
fn only_modules_that_sanitize_output_print() {
    // `cli::Out`; the console's own screen and lines; the helper's answer to its engine; the init of a container
    const PRINTING_MODULES: [&str; 7] = [
        "cli/output.rs",
        "console/plain.rs",
        "console/run.rs",
        "console/terminal.rs",
        "engine/command/helper.rs",
        "engine/command/init.rs",
        "main.rs",
    ];
    let (src, mut files) = (Path::new(ROOT).join("src"), Vec::new());
    sources(&src, &mut files);
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

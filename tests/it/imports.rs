//! Imports between the files of a crate, read from the sources: `use` trees and paths in the code.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
};

/// Files that each file of a crate imports from, by module path (`decide::gates`; empty for `lib.rs`).
pub type Imports = BTreeMap<String, BTreeSet<String>>;

/// Returns the sources below a folder, without tests, which may use every module.
pub fn sources(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).expect("a folder").map(|e| e.expect("an entry").path()) {
        let tests = entry.file_stem().is_some_and(|n| n == "tests" || n == "fuzz") && folder.join("lib.rs") != entry;
        if entry.is_dir() && !tests {
            found.extend(sources(&entry));
        } else if entry.extension().is_some_and(|e| e == "rs") && !tests {
            found.push(entry);
        }
    }
    found.sort();
    found
}

/// Returns the imports within the crate whose sources are in this folder.
pub fn imports(src: &Path) -> Imports {
    let texts: BTreeMap<String, String> = sources(src)
        .into_iter()
        .map(|file| (module(file.strip_prefix(src).expect("below src")), fs::read_to_string(&file).expect("a source")))
        .collect();
    texts
        .iter()
        .map(|(name, text)| (name.clone(), imported(name, text, &|module| texts.contains_key(module))))
        .collect()
}

/// Module path of a file: `decide/gates.rs`, `decide/mod.rs` and `lib.rs` are `decide::gates`, `decide` and nothing.
fn module(file: &Path) -> String {
    let mut names: Vec<String> = file.iter().map(|n| n.to_string_lossy().into_owned()).collect();
    let last = names.pop().expect("a name").trim_end_matches(".rs").to_owned();
    if last != "mod" && last != "lib" {
        names.push(last);
    }
    names.join("::")
}

/// Modules that this one imports from. Comments and code below `mod tests` do not count.
fn imported(name: &str, text: &str, exists: &dyn Fn(&str) -> bool) -> BTreeSet<String> {
    let text = text.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default();
    let text: String = text.lines().map(|l| l.split("//").next().unwrap_or_default().to_owned() + "\n").collect();
    let base: Vec<&str> = name.split("::").filter(|n| !n.is_empty()).collect();
    let mut found = BTreeSet::new();
    for path in paths(&text) {
        let mut words = path.split("::").peekable();
        let mut at: Vec<&str> = match words.peek() {
            Some(&"crate") => Vec::new(),
            Some(&("super" | "self")) => base.clone(),
            // a path that begins with a child module
            Some(child) if exists(&[&base[..], &[*child]].concat().join("::")) => base.clone(),
            _ => continue,
        };
        for word in words {
            match word {
                "crate" | "self" => {}
                "super" => drop(at.pop()),
                word => at.push(word),
            }
        }
        // the longest part of the path that is a file
        while !exists(&at.join("::")) && !at.is_empty() {
            at.pop();
        }
        let target = at.join("::");
        if target != name && exists(&target) {
            found.insert(target);
        }
    }
    found
}

/// Paths of a source: each leaf of its `use` trees, and every other path.
fn paths(text: &str) -> Vec<String> {
    let is_word = |c: char| c.is_alphanumeric() || c == '_';
    let (mut found, mut rest) = (Vec::new(), text);
    while let Some((before, after)) = rest.split_once("use ") {
        found.extend(code_paths(before));
        if before.chars().next_back().is_some_and(is_word) {
            rest = after;
            continue;
        }
        let (tree, after) = after.split_once(';').unwrap_or((after, ""));
        leaves("", tree, &mut found);
        rest = after;
    }
    found.extend(code_paths(rest));
    found
}

/// Paths with at least one `::` in code.
fn code_paths(code: &str) -> impl Iterator<Item = String> + '_ {
    code.split(|c: char| !(c.is_alphanumeric() || c == '_' || c == ':'))
        .filter(|word| word.contains("::"))
        .map(|word| word.trim_matches(':').to_owned())
}

/// Leaves of a `use` tree.
fn leaves(prefix: &str, tree: &str, found: &mut Vec<String>) {
    let (mut depth, mut item) = (0_i32, String::new());
    let mut items = Vec::new();
    for c in tree.chars() {
        match c {
            '{' => depth += 1,
            '}' => depth -= 1,
            _ => {}
        }
        if c == ',' && depth == 0 {
            items.push(std::mem::take(&mut item));
        } else {
            item.push(c);
        }
    }
    items.push(item);
    for item in items.iter().map(|i| i.trim()).filter(|i| !i.is_empty()) {
        match item.split_once('{') {
            Some((path, group)) => {
                let prefix = format!("{prefix}{}", path.trim());
                leaves(&prefix, group.rsplit_once('}').map_or(group, |(inner, _)| inner), found);
            }
            None => found.push(format!("{prefix}{}", item.split(" as ").next().unwrap_or_default().trim())),
        }
    }
}

/// Reports whether one of the modules is the parent, or an ancestor, of the other.
fn related(a: &str, b: &str) -> bool {
    let inside = |outer: &str, inner: &str| outer.is_empty() || inner.starts_with(&format!("{outer}::"));
    inside(a, b) || inside(b, a)
}

/// Returns the cycles of imports: files that reach each other. A module and its children may know each other, as long
/// as the children form no cycle among themselves and none leads out of the module.
pub fn cycles(all: &Imports) -> Vec<BTreeSet<String>> {
    let without_family: Imports = all
        .iter()
        .map(|(file, uses)| (file.clone(), uses.iter().filter(|u| !related(file, u)).cloned().collect()))
        .collect();
    let mut found = circles(&without_family);
    // `lib.rs` is the parent of every file, so it excuses nothing
    let one_family = |circle: &BTreeSet<String>| {
        circle.iter().any(|p| !p.is_empty() && circle.iter().all(|c| c == p || related(p, c)))
    };
    found.extend(circles(all).into_iter().filter(|circle| !one_family(circle)));
    found.sort();
    found.dedup();
    found
}

/// Strongly connected components of more than one file.
fn circles(all: &Imports) -> Vec<BTreeSet<String>> {
    let reach = |from: &String| {
        let (mut seen, mut open) = (BTreeSet::new(), vec![from.clone()]);
        while let Some(file) = open.pop() {
            for next in all.get(&file).into_iter().flatten() {
                if seen.insert(next.clone()) {
                    open.push(next.clone());
                }
            }
        }
        seen
    };
    let reached: BTreeMap<&String, BTreeSet<String>> = all.keys().map(|file| (file, reach(file))).collect();
    let mut found: Vec<BTreeSet<String>> = Vec::new();
    for (file, to) in &reached {
        if to.contains(*file) && !found.iter().any(|circle| circle.contains(*file)) {
            found.push(to.iter().filter(|other| reached[other].contains(*file)).cloned().collect());
        }
    }
    found
}

#[test]
fn imports_of_all_forms_are_recognised() {
    let exists = |module: &str| ["", "a", "a::b", "c", "c::d", "c::d::e", "f"].contains(&module);
    let text = "use crate::{a::{self, b::X as Y}, c};\nuse super::d::Z;\n// crate::f\nfn g() { e::h(); crate::f::i() }\n\
                #[cfg(test)]\nmod tests {\nuse crate::a; }";
    let found = imported("c::d", text, &exists);
    assert_eq!(found.iter().map(String::as_str).collect::<Vec<_>>(), ["a", "a::b", "c", "c::d::e", "f"]);
}

#[test]
fn a_module_and_its_children_may_know_each_other_but_nothing_else() {
    let graph = |edges: &[(&str, &str)]| {
        let mut all = Imports::new();
        for (from, to) in edges {
            all.entry((*from).to_owned()).or_default().insert((*to).to_owned());
            all.entry((*to).to_owned()).or_default();
        }
        all
    };
    assert_eq!(cycles(&graph(&[("a", "a::b"), ("a::b", "a"), ("a", "c")])).len(), 0);
    assert_eq!(cycles(&graph(&[("a::b", "a::c"), ("a::c", "a::b")])).len(), 1, "children among themselves");
    assert_eq!(cycles(&graph(&[("a", "a::b"), ("a::b", "c"), ("c", "a")])).len(), 1, "through a child");
    assert_eq!(cycles(&graph(&[("", "a"), ("a", "c"), ("c", "")])).len(), 1, "through the root of the crate");
}

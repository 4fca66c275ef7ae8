//! Wording of names, comments and documents: retired words stay out, and every citation resolves.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
};

use regex::Regex;

/// Words of the old dialect that no document uses any more, as regular expressions.
const RETIRED_IN_DOCUMENTS: &[&str] =
    &["let(s|ting)? go of", r"mend(s|ed|ing)?", "deeds?", "rooms?", "stands? for the lock", "is told", "are told"];

/// The same for strings of the program.
const RETIRED_IN_STRINGS: &[&str] = &["let(s|ting)? go of", r"mend(s|ed|ing)?", "deeds?", "rooms?"];

/// Names of types that were replaced by the standard term.
const RETIRED_NAMES: &[&str] = &[
    "AnyEntry", "Came", "Crier", "Ground", "Half", "Hands", "Hearing", "Herald", "HostDeed", "Keeper", "Postman",
    "Tally", "Told", "Witness", "PATIENCE",
];

/// Documents that are generated from strings of the program, or quote the old ones.
const GENERATED: &[&str] = &["docs/commands.md", "docs/keys.md", "docs/metrics.md"];

fn root() -> &'static Path {
    Path::new(crate::ROOT)
}

fn files(folder: &str, ending: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut folders = vec![root().join(folder)];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|e| e == ending) {
                found.push(path);
            }
        }
    }
    found.sort();
    found
}

fn relative_path(path: &Path) -> String {
    path.strip_prefix(root()).unwrap().display().to_string()
}

fn words(all: &[&str]) -> Regex {
    Regex::new(&format!(r"(?i)\b({})\b", all.join("|"))).unwrap()
}

/// Lines of all these files that match, except those that a predicate excuses.
fn matching(paths: &[PathBuf], what: &Regex, is_excused: impl Fn(&str, &str) -> bool) -> Vec<String> {
    let mut found = Vec::new();
    for path in paths {
        let (name, text) = (relative_path(path), fs::read_to_string(path).unwrap());
        for (number, line) in text.lines().enumerate() {
            if what.is_match(line) && !is_excused(&name, line) {
                found.push(format!("{name}:{}: {}", number + 1, line.trim()));
            }
        }
    }
    found
}

#[test]
fn documents_contain_no_retired_word() {
    let mut documents = files("docs", "md");
    documents.push(root().join("README.md"));
    let generated = |name: &str, _: &str| GENERATED.contains(&name);
    let found = matching(&documents, &words(RETIRED_IN_DOCUMENTS), |name, line| {
        // an example line of the generated configuration
        generated(name, line) || line.contains("docs/notices.md")
    });
    assert!(found.is_empty(), "retired words:\n{}", found.join("\n"));
}

#[test]
fn strings_contain_no_retired_word() {
    let quoted = Regex::new(r#""(?:[^"\\]|\\.)*""#).unwrap();
    let retired = words(RETIRED_IN_STRINGS);
    let mut found = Vec::new();
    for path in files("src", "rs") {
        let name = relative_path(&path);
        if name.contains("/tests/") || name.ends_with("tests.rs") {
            continue;
        }
        for (number, line) in fs::read_to_string(&path).unwrap().lines().enumerate() {
            let code = line.split("// ").next().unwrap_or_default();
            if quoted.find_iter(code).any(|text| retired.is_match(text.as_str())) {
                found.push(format!("{name}:{}: {}", number + 1, line.trim()));
            }
        }
    }
    assert!(found.is_empty(), "retired words:\n{}", found.join("\n"));
}

#[test]
fn no_type_has_a_retired_name() {
    let declared = Regex::new(&format!(r"\b(struct|enum|trait|type|const) ({})\b", RETIRED_NAMES.join("|"))).unwrap();
    let all: Vec<PathBuf> = files("src", "rs").into_iter().chain(files("tests", "rs")).collect();
    let found = matching(&all, &declared, |name, _| name == "tests/it/language.rs");
    assert!(found.is_empty(), "retired names:\n{}", found.join("\n"));
}

/// Doc comments begin with a noun phrase or a verb, never with a question word.
#[test]
fn no_comment_begins_with_a_question_word() {
    let begins = Regex::new(r"^\s*//[/!]? (What|Which|Who|Whom|Whose|Why|How|When|Where)\b").unwrap();
    let mut found = Vec::new();
    for path in files("src", "rs").into_iter().chain(files("tests", "rs")) {
        let name = relative_path(&path);
        let text = fs::read_to_string(&path).unwrap();
        let mut before = "";
        for (number, line) in text.lines().enumerate() {
            if begins.is_match(line) && !before.trim_start().starts_with("//") {
                found.push(format!("{name}:{}: {}", number + 1, line.trim()));
            }
            before = line;
        }
    }
    assert!(found.is_empty(), "{} comments begin with a question word:\n{}", found.len(), found.join("\n"));
}

/// Rules that comments cite (`REB-37`) stand in docs/spec, and documents that they cite exist.
#[test]
fn rules_and_documents_cited_in_comments_exist() {
    let rule = Regex::new(r"\b(REB|REP|SAF|SAB|MET|CLU|CLI|STO)-\d+\b").unwrap();
    let defined = Regex::new(r"(?m)(?:\*\*|^\| )((?:REB|REP|SAF|SAB|MET|CLU|CLI|STO)-\d+)(?:\*\*| \|)").unwrap();
    let document = Regex::new(r"\b(?:docs/|spec/)[a-z0-9/-]+\.md\b").unwrap();
    let mut known = BTreeSet::new();
    for path in files("docs/spec", "md") {
        let text = fs::read_to_string(&path).unwrap();
        known.extend(defined.captures_iter(&text).map(|found| found[1].to_owned()));
    }
    assert!(known.len() > 200, "{} rules", known.len());
    let mut wrong = Vec::new();
    for path in files("src", "rs").into_iter().chain(files("tests", "rs")) {
        let (name, text) = (relative_path(&path), fs::read_to_string(&path).unwrap());
        for (number, line) in text.lines().enumerate().filter(|(_, line)| line.trim_start().starts_with("//")) {
            let unknown = rule.find_iter(line).filter(|found| !known.contains(found.as_str()));
            let missing = document.find_iter(line).filter(|found| {
                let cited = found.as_str();
                ![cited.to_owned(), format!("docs/{cited}"), format!("docs/spec/{cited}")]
                    .iter()
                    .any(|path| root().join(path).exists())
            });
            for cited in unknown.chain(missing) {
                wrong.push(format!("{name}:{}: {}", number + 1, cited.as_str()));
            }
        }
    }
    assert!(wrong.is_empty(), "{} citations of missing rules or documents:\n{}", wrong.len(), wrong.join("\n"));
}

/// Files whose purpose is to read texts of other programs or of users, and which.
const READERS: &[(&str, &str)] = &[
    ("src/cketerm/src/config.rs", "kubeconfig files"),
    ("src/cketerm/src/config/form.rs", "file names"),
    ("src/cketerm/src/config/schema.rs", "comments of the default file"),
    ("src/cketerm/src/cli/json_fields/declarations.rs", "declarations in Rust"),
    ("src/console/src/state/command_line.rs", "typed commands"),
    ("src/console/src/theme/file.rs", "names of colours"),
    ("src/console/src/theme/loader.rs", "lines of theme files"),
    ("src/console/src/state/related.rs", "the object of an audit record, which is stored data"),
    ("src/console/src/state/columns/hosts.rs", "states of BareMetalHosts"),
    ("src/rules/src/decide/etcd_quorum.rs", "alarms of etcd"),
    ("src/clients/src/kubernetes/evict.rs", "answers of the API server, which only text tells apart"),
    ("src/clients/src/kubernetes/follow.rs", "answers of the API server, which only text tells apart"),
    ("src/model/src/secret.rs", "secrets in foreign text"),
    ("src/model/src/secret/words.rs", "secrets in foreign text"),
    ("src/clients/src/net.rs", "errors of the TLS library"),
    ("src/sandbox/src/kubernetes/api/request_body.rs", "errors of the JSON parser"),
    ("src/sandbox/src/kubernetes/api/call.rs", "the header Authorization"),
    ("src/sandbox/src/metal3.rs", "the annotation's mode"),
    ("src/clients/src/power/ssh/error.rs", "errors of ssh, which only text tells apart"),
    ("src/clients/src/store/answer.rs", "errors of etcd, which only text tells apart"),
    ("src/clients/src/store/connect.rs", "errors of etcd and of the TLS library"),
    ("src/clients/src/store/failure.rs", "errors of etcd, which only text tells apart"),
    ("src/clients/src/store/exposure.rs", "errors of etcd, which only text tells apart"),
    ("src/clients/src/store/rights.rs", "errors of etcd, which only text tells apart"),
];

/// Part of a file before its tests.
fn without_tests(text: &str) -> &str {
    text.split("#[cfg(test)]\nmod ").next().unwrap_or(text)
}

/// Compares with prose are suspicious: the text may be one that the program itself made. Keys, names and values are
/// single words that are compared as a whole.
#[test]
fn no_logic_reads_the_programs_own_texts() {
    let searched = r"\.(?:contains|starts_with|ends_with|strip_prefix|strip_suffix|find|split_once|rsplit_once)\(\s*";
    let phrase = "[^\"]*[a-z]{2}[,:]? [a-z][^\"]*|[ ,:]+[a-z]{2}[^\"]*|[^\"]*[a-z]{2}[ ,:]+";
    let compared = Regex::new(&format!(r#"(?:{searched}|[=!]= )"(?:{phrase})"|{searched}"[a-z]{{4,}}""#)).unwrap();
    let mut found = Vec::new();
    for path in files("src", "rs") {
        let name = relative_path(&path);
        if name.contains("/tests")
            || name.starts_with("src/cketerm/src/fuzz/")
            || READERS.iter().any(|(file, _)| *file == name)
        {
            continue;
        }
        let text = fs::read_to_string(&path).unwrap();
        found.extend(compared.find_iter(without_tests(&text)).map(|hit| format!("{name}: {}", hit.as_str())));
    }
    assert!(
        found.is_empty(),
        "code compares texts; use data instead, or add the file to READERS:\n{}",
        found.join("\n")
    );
    let reads = |file: &str| compared.is_match(without_tests(&fs::read_to_string(root().join(file)).unwrap()));
    let idle: Vec<&str> = READERS.iter().map(|(file, _)| *file).filter(|file| !reads(file)).collect();
    assert!(idle.is_empty(), "files in READERS that compare no text: {idle:?}");
}

//! Tables of `docs/reference/json.md` about the types that the program serializes, from the declarations in its sources.
//! `tests/it/json_reference.rs` compares all tables of the document with answers of the program.

mod declarations;

use std::{
    collections::BTreeMap,
    fmt::Write as _,
    fs,
    path::{Path, PathBuf},
};

use self::declarations::{Body, Field, Variant, parse};

/// Folder of the repository.
const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");

/// Types that are written as a plain value, with its name in the tables.
const PLAIN: [(&str, &str); 24] = [
    ("String", "string"),
    ("str", "string"),
    ("NodeName", "string"),
    ("Address", "string"),
    ("EntryId", "string"),
    ("BatchId", "string"),
    ("Why", "string"),
    ("Timestamp", "time"),
    ("bool", "boolean"),
    ("i32", "integer"),
    ("i64", "integer"),
    ("u16", "integer"),
    ("u32", "integer"),
    ("u64", "integer"),
    ("usize", "integer"),
    ("serde_json::Value", "any"),
    ("Value", "any"),
    ("Cluster", "[definition](definition.md)"),
    ("RepairEntry", "[repair entry](../spec/storage.md#repair-entry)"),
    ("WrittenPod", "[pod that lands](#pod-that-lands)"),
    ("LandingPod", "[pod that lands](#pod-that-lands)"),
    ("jiff::Timestamp", "time"),
    ("State@sabakan", "string"),
    ("Kind@cketerm", "string"),
];

/// Meanings of fields that the sources leave to the sentence of their reason.
const MEANINGS: &[(&str, &str)] = &[
    ("ahead", "Whether slots are free, and others take them first"),
    ("answer", "Answer of the API server"),
    ("attempt", "Id of the attempt"),
    ("batch", "Id of the batch"),
    ("by", "The operator; of a group: the label"),
    ("count", "How many: unreachable Nodes, bad reboots, pods or backoffs"),
    ("digest", "Digest of the change"),
    ("entry", "The other entry"),
    ("expected", "Identity of the Node that was asked for"),
    ("field", "Field of the definition that is empty"),
    ("first", "First of the pods; of a canary: the number of its machines"),
    ("found", "Identity of the Node that is there"),
    ("group", "The group"),
    ("healthy", "Healthy pods of the budget now"),
    ("hook", "Name of the hook"),
    ("holder", "The entry or the candidate that goes first"),
    ("index", "Index of the other entry"),
    ("job", "`namespace/name` of the Job"),
    ("keys", "Keys of the annotations"),
    ("last", "Last answer of the check"),
    ("leader", "The present leader"),
    ("left", "Number of pods that are leaving"),
    ("limit", "The limit"),
    ("member", "Name of the etcd member"),
    ("message", "Message of the webhook"),
    ("missing", "What is still missing"),
    ("names", "Names of the Nodes or volumes, at most 20"),
    ("needed", "Healthy pods that the budget needs"),
    ("node", "Name of the Node, or address of a machine without one"),
    ("next_open", "Next opening of the window"),
    ("node_ready", "Whether the Node is Ready"),
    ("other", "Name of the other API server's Node, or its address"),
    ("path", "The program"),
    ("pdb", "`namespace/name` of the budget"),
    ("pdbs", "`namespace/name` of the budgets"),
    ("phase", "The present phase"),
    ("pod", "`namespace/name` of the pod"),
    ("retry", "Whether and when the command or hook is tried again"),
    ("since", "Start of this state"),
    ("source", "What is out of date"),
    ("stderr", "End of the command's standard error"),
    ("stuck", "Whether it has lasted longer than the policy's `stuck_seconds`"),
    ("text", "The host's error message"),
    ("to", "Host of the engine that takes over"),
    ("until", "End of this state, if it is known"),
    ("verb", "The order"),
    ("voters", "Number of voting members"),
    ("webhook", "Name of the webhook"),
    ("what", "The step"),
    ("who", "The operator"),
    ("why", "The cause, in words"),
    ("end", "How the command or hook ended"),
    ("address", "Address of the machine"),
    ("of", "Number of reboots that are counted"),
    ("at", "Moment of the hook"),
    ("signals", "What each source says"),
    ("program", "The other program"),
    ("awaited", "What the entry waits for after its command"),
];

/// All sources, and the sections of the document that describe a type of its own.
struct Sources {
    files: BTreeMap<String, String>,
    sections: BTreeMap<(String, String), String>,
}

/// Field of an enumeration with a tag, and the cases that have it.
struct TaggedField {
    name: String,
    kind: String,
    absent: String,
    cases: Vec<String>,
    meanings: Vec<String>,
}

/// Row of a table: field, type, condition of its absence, meaning.
type Row = [String; 4];

impl Sources {
    /// Reads the sources. `sections`: for each file and type, the heading of its section.
    fn read(sections: BTreeMap<(String, String), String>) -> Self {
        let folders = fs::read_dir(Path::new(ROOT).join("src")).expect("src");
        let files = folders.flat_map(|folder| files(&folder.expect("a crate").path().join("src")));
        let name = |path: &Path| path.strip_prefix(ROOT).expect("below the root").display().to_string();
        let files = files.map(|path| (name(&path), fs::read_to_string(&path).expect("a source"))).collect();
        Self { files, sections }
    }

    /// Returns the tables about a type.
    fn tables(&self, file: &str, name: &str) -> String {
        let text = self.files.get(file).unwrap_or_else(|| panic!("{file} does not exist"));
        let body = parse(text, name).unwrap_or_else(|| panic!("{file} declares no {name}"));
        let mut out = String::from("| field | type | absent or null | meaning |\n| --- | --- | --- | --- |\n");
        for [field, kind, absent, meaning] in self.rows(&body, file) {
            assert!(!meaning.is_empty(), "{file}: the field {field} of {name} needs a meaning");
            let meaning = with_values(&meaning, text);
            let _ = writeln!(out, "| `{field}` | {kind} | {absent} | {meaning} |");
        }
        if let Body::Enum { tag: None, variants, .. } = &body {
            let texts = variants.iter().filter(|v| v.is_plain()).map(|v| format!("`{}` ({})", v.name, v.doc));
            let texts = texts.collect::<Vec<_>>().join(", ");
            if !texts.is_empty() {
                let _ = write!(out, "\nOr a string: {texts}.\n");
            }
        }
        self.write_cases(&body, file, &mut out);
        out
    }

    /// Writes the meaning of each case of an enumeration with a tag, also of one whose fields are those of the object
    /// around it.
    fn write_cases(&self, body: &Body, file: &str, out: &mut String) {
        match body {
            Body::Struct(fields) => {
                for field in fields.iter().filter(|field| field.flatten) {
                    let (rust, _) = unwrapped(&field.rust);
                    if !rust.starts_with("Map<") {
                        let (file, body) = self.found(rust, file);
                        self.write_cases(&body, &file, out);
                    }
                }
            }
            Body::Enum { tag: Some(tag), variants, .. } if variants.iter().all(|v| !v.doc.is_empty()) => {
                let _ = write!(out, "\n| `{tag}` | meaning |\n| --- | --- |\n");
                for variant in variants {
                    let _ = writeln!(out, "| `{}` | {} |", variant.name, variant.doc);
                }
            }
            Body::Enum { .. } => {}
        }
    }

    fn rows(&self, body: &Body, file: &str) -> Vec<Row> {
        match body {
            Body::Struct(fields) => fields.iter().flat_map(|field| self.field_rows(field, file)).collect(),
            Body::Enum { tag: Some(tag), variants, .. } => self.tagged_rows(tag, variants, file),
            Body::Enum { variants, .. } => {
                let only = "absent unless it is this case".to_owned();
                let mut rows = Vec::new();
                for variant in variants.iter().filter(|v| !v.is_plain()) {
                    let value = variant.value.as_ref().map(|rust| self.rendered(rust, file).0);
                    let kind = value.unwrap_or_else(|| "object".to_owned());
                    rows.push([variant.name.clone(), kind, only.clone(), variant.doc.clone()]);
                    for field in &variant.fields {
                        let inner = self.field_rows(field, file);
                        rows.extend(inner.into_iter().map(|[name, kind, absent, meaning]| {
                            [format!("{}.{name}", variant.name), kind, absent, meaning]
                        }));
                    }
                }
                rows
            }
        }
    }

    /// Rows of a field; of one whose fields are those of the object around it, the rows of that type.
    fn field_rows(&self, field: &Field, file: &str) -> Vec<Row> {
        let (kind, is_null) = if field.flatten { (String::new(), false) } else { self.rendered(&field.rust, file) };
        if field.flatten {
            let (rust, optional) = unwrapped(&field.rust);
            if rust.starts_with("Map<") {
                return Vec::new(); // fields that this version does not know
            }
            let (file, body) = self.found(rust, file);
            let mut rows = self.rows(&body, &file);
            for row in rows.iter_mut().filter(|row| optional && row[2].is_empty()) {
                row[2] = "absent if none".to_owned();
            }
            return rows;
        }
        let absent = match (&field.skipped, is_null) {
            (Some(skipped), _) => skipped.clone(),
            (None, true) => "null if none".to_owned(),
            (None, false) => String::new(),
        };
        vec![[field.name.clone(), kind, absent, field.doc.clone()]]
    }

    /// Rows of an enum with a tag: the tag, then each field once with the cases that have it.
    fn tagged_rows(&self, tag: &str, variants: &[Variant], file: &str) -> Vec<Row> {
        let names: Vec<String> = variants.iter().map(|v| format!("`{}`", v.name)).collect();
        let kind = if names.len() > 20 { "string".to_owned() } else { format!("string: {}", names.join(", ")) };
        let mut rows =
            vec![[tag.to_owned(), kind, String::new(), "The case; the other fields depend on it".to_owned()]];
        let mut all: Vec<TaggedField> = Vec::new();
        for variant in variants {
            for field in &variant.fields {
                for [name, kind, absent, meaning] in self.field_rows(field, file) {
                    let is_same = |f: &&mut TaggedField| (&f.name, &f.kind, &f.absent) == (&name, &kind, &absent);
                    let case = format!("`{}`", variant.name);
                    match all.iter_mut().find(is_same) {
                        Some(found) => {
                            found.cases.push(case);
                            found.meanings.push(meaning);
                        }
                        None => {
                            all.push(TaggedField { name, kind, absent, cases: vec![case], meanings: vec![meaning] });
                        }
                    }
                }
            }
        }
        all.sort_by(|a, b| a.name.cmp(&b.name));
        for TaggedField { name, kind, absent, cases, mut meanings } in all {
            let unless =
                (cases.len() < variants.len()).then(|| format!("absent unless `{tag}` is {}", cases.join(", ")));
            let absent = Some(absent).filter(|text| !text.is_empty());
            let absent = absent.into_iter().chain(unless).collect::<Vec<_>>().join("; ");
            let documented = meanings.iter().all(|meaning| !meaning.is_empty());
            meanings.retain(|meaning| !meaning.is_empty());
            meanings.sort_unstable();
            meanings.dedup();
            let known = MEANINGS.iter().find(|(field, _)| *field == name);
            let meaning = match known {
                Some((_, known)) if !documented || meanings.len() > 2 => (*known).to_owned(),
                Some(_) | None => meanings.join("; "),
            };
            rows.push([name, kind, absent, meaning]);
        }
        rows
    }

    /// Returns the type for the table, and whether it may be null.
    fn rendered(&self, rust: &str, file: &str) -> (String, bool) {
        let (rust, optional) = unwrapped(rust);
        if let Some(inner) = list(rust) {
            return (format!("array of {}", plural(&self.rendered(inner, file).0)), optional);
        }
        if let Some((_, inner)) = generic(rust, "BTreeMap").and_then(|both| both.split_once(", ")) {
            return (format!("map of {}", plural(&self.rendered(inner, file).0)), optional);
        }
        if let Some(inner) = rust.strip_prefix('(').and_then(|rest| rest.strip_suffix(')')) {
            let parts: Vec<String> = inner.split(", ").map(|part| self.rendered(part, file).0).collect();
            return (format!("array: {}", parts.join(", ")), optional);
        }
        let of_file = format!("{rust}@{}", file.split('/').nth(1).unwrap_or_default());
        let plain = PLAIN.iter().find(|(name, _)| *name == rust || *name == of_file);
        if let Some((_, plain)) = plain {
            return ((*plain).to_owned(), optional);
        }
        let name = rust.split('<').next().unwrap_or(rust);
        let (found, body) = self.found(rust, file);
        if let Some(heading) = self.sections.get(&(found.clone(), name.to_owned())) {
            return (format!("[{}](#{})", heading.to_lowercase(), anchor(heading)), optional);
        }
        match body {
            Body::Enum { as_text: true, .. } => ("string".to_owned(), optional),
            Body::Enum { tag: None, variants, .. } if variants.iter().all(Variant::is_plain) => {
                let names: Vec<String> = variants.iter().map(|v| format!("`{}`", v.name)).collect();
                (format!("string: {}", names.join(", ")), optional)
            }
            Body::Enum { .. } | Body::Struct(_) => panic!("{file}: {name} of {found} needs a section"),
        }
    }

    /// Returns the declaration of a type that this file uses, and its file.
    fn found(&self, rust: &str, file: &str) -> (String, Body) {
        let name = rust.split('<').next().unwrap_or(rust);
        if let Some(body) = self.files.get(file).and_then(|text| parse(text, name)) {
            return (file.to_owned(), body);
        }
        let all: Vec<(&String, Body)> =
            self.files.iter().filter_map(|(file, text)| Some((file, parse(text, name)?))).collect();
        let known = all.iter().find(|(found, _)| self.sections.contains_key(&((*found).clone(), name.to_owned())));
        match (known, all.as_slice()) {
            (Some((found, body)), _) | (None, [(found, body)]) => ((*found).clone(), body.clone()),
            (None, several) => panic!("{file}: {name} is declared {} times", several.len()),
        }
    }
}

/// Returns a meaning with the values of the constants that it names.
fn with_values(meaning: &str, source: &str) -> String {
    let mut out = meaning.to_owned();
    for name in meaning.split('`').skip(1).step_by(2) {
        let declared = source.split_once(&format!("const {name}: ")).and_then(|(_, rest)| rest.split_once(" = "));
        if let Some((value, _)) = declared.and_then(|(_, rest)| rest.split_once(';')) {
            out = out.replace(&format!("`{name}`"), value);
        }
    }
    out
}

fn generic<'a>(rust: &'a str, name: &str) -> Option<&'a str> {
    rust.strip_prefix(name)?.strip_prefix('<')?.strip_suffix('>')
}

fn list(rust: &str) -> Option<&str> {
    let slice = rust.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
    slice.or_else(|| generic(rust, "Vec")).or_else(|| generic(rust, "BTreeSet"))
}

/// Returns the type without references and boxes, and whether it is optional.
fn unwrapped(rust: &str) -> (&str, bool) {
    let (mut rust, mut optional) = (rust, false);
    loop {
        if let Some(inner) = generic(rust, "Option") {
            (rust, optional) = (inner, true);
        } else if let Some(inner) = generic(rust, "Box").or_else(|| generic(rust, "Arc")) {
            rust = inner;
        } else if let Some(inner) = rust.strip_prefix('&') {
            rust = inner.trim_start_matches("'a ").trim_start_matches("'static ");
        } else {
            return (rust, optional);
        }
    }
}

fn plural(kind: &str) -> String {
    match kind {
        "string" | "time" | "integer" | "boolean" | "number" | "object" => format!("{kind}s"),
        other => other.to_owned(),
    }
}

/// Returns the anchor of a heading.
fn anchor(heading: &str) -> String {
    let kept = heading.chars().filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
    kept.collect::<String>().to_lowercase().replace(' ', "-")
}

/// Returns the sources below a folder.
fn files(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).expect("a folder").map(|entry| entry.expect("an entry").path());
    let each = entries.flat_map(|path| if path.is_dir() { files(&path) } else { vec![path] });
    each.filter(|path| path.extension().is_some_and(|e| e == "rs")).collect()
}

/// Begin of a part that is written from the declaration of a type: file and name follow.
const BEGIN: &str = "<!-- from: ";
const END: &str = "<!-- end -->\n";

/// Returns the document with its parts as the sources have them now.
fn updated(document: &str) -> String {
    let mut sections = BTreeMap::new();
    let mut heading = "";
    for line in document.lines() {
        heading = line.strip_prefix("## ").or_else(|| line.strip_prefix("### ")).unwrap_or(heading);
        if let Some((file, name)) = named(line) {
            sections.insert((file.to_owned(), name.to_owned()), heading.to_owned());
        }
    }
    let sources = Sources::read(sections);
    let mut parts = document.split(BEGIN);
    let mut out = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let line = format!("{BEGIN}{}", part.lines().next().unwrap_or_default());
        let (file, name) = named(&line).unwrap_or_else(|| panic!("no file and type: {line}"));
        let (_, after) = part.split_once(END).unwrap_or_else(|| panic!("{line} has no end"));
        let _ = write!(out, "{line}\n\n{}\n{END}{after}", sources.tables(file, name));
    }
    out
}

/// Returns file and type of a begin.
fn named(line: &str) -> Option<(&str, &str)> {
    line.strip_prefix(BEGIN)?.strip_suffix(" -->")?.split_once(' ')
}

/// `UPDATE_DOCS=1` writes the document.
#[test]
fn docs_json_md_has_the_fields_of_the_sources() {
    let file = format!("{ROOT}/docs/reference/json.md");
    let before = fs::read_to_string(&file).expect("the document");
    let now = updated(&before);
    if std::env::var_os("UPDATE_DOCS").is_some() {
        fs::write(&file, &now).expect("the document is written");
        return;
    }
    assert!(before == now, "docs/reference/json.md is outdated: run `make docs`");
}

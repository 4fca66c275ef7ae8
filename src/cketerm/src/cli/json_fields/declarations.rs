//! Declarations of serialized types in sources. The sources are in the form of rustfmt, so their lines are enough to
//! read them.

/// Serialized field.
#[derive(Clone, Debug)]
pub struct Field {
    /// Name in JSON.
    pub name: String,
    /// Type in the source.
    pub rust: String,
    /// Its documentation, on one line.
    pub doc: String,
    /// Condition under which it is left out.
    pub skipped: Option<String>,
    /// Whether its fields are those of the object around it.
    pub flatten: bool,
}

/// Case of an enum.
#[derive(Clone, Debug)]
pub struct Variant {
    /// Name in JSON.
    pub name: String,
    /// Its documentation, on one line.
    pub doc: String,
    /// Type of its only value in the source.
    pub value: Option<String>,
    /// Its named fields.
    pub fields: Vec<Field>,
}

/// Declaration of a type.
#[derive(Clone, Debug)]
pub enum Body {
    /// A structure.
    Struct(Vec<Field>),
    /// An enumeration.
    Enum {
        /// Field that names the case; none if the case is a field or a text.
        tag: Option<String>,
        /// Whether it is written as a text of its own form.
        as_text: bool,
        /// Its cases.
        variants: Vec<Variant>,
    },
}

impl Variant {
    /// Reports whether it has no value.
    pub fn is_plain(&self) -> bool {
        self.value.is_none() && self.fields.is_empty()
    }
}

/// Returns the value of `name = "value"` in attributes.
fn setting(attributes: &str, name: &str) -> Option<String> {
    let (_, rest) = attributes.split_once(&format!("{name} = \""))?;
    Some(rest.split('"').next()?.to_owned())
}

/// Returns the name of a case as serde writes it.
fn cased(name: &str, rule: Option<&str>) -> String {
    let parts = |between: char| {
        let mut out = String::new();
        for c in name.chars() {
            if c.is_uppercase() && !out.is_empty() {
                out.push(between);
            }
            out.extend(c.to_lowercase());
        }
        out
    };
    match rule {
        Some("snake_case") => parts('_'),
        Some("kebab-case") => parts('-'),
        Some("lowercase") => name.to_lowercase(),
        Some("PascalCase") | None => name.to_owned(),
        Some(other) => panic!("the rule {other} is not known here"),
    }
}

fn skipped(attributes: &str) -> Option<String> {
    let test = setting(attributes, "skip_serializing_if")?;
    let value = match test.rsplit("::").next().unwrap_or(&test) {
        "is_none" => "none",
        "not" => "false",
        "is_empty" => "empty",
        "is_zero" | "none" | "is_none_pending" => "0",
        "is_check" => "`check`",
        other => panic!("the condition {other} is not known here"),
    };
    Some(format!("absent if {value}"))
}

/// Documentation and attributes above a declaration.
#[derive(Default)]
struct Above {
    doc: Vec<String>,
    attributes: String,
}

impl Above {
    /// Takes a line; returns false for a line of code.
    fn takes(&mut self, line: &str) -> bool {
        if let Some(doc) = line.strip_prefix("///") {
            self.doc.push(doc.trim().to_owned());
        } else if line.starts_with("#[") {
            self.attributes.push_str(line);
        } else if !line.is_empty() && !line.starts_with("//") {
            return false;
        }
        true
    }

    fn doc(&self) -> String {
        let text =
            self.doc.join(" ").replace("`None`", "null").replace("[`", "`").replace("`]", "`").replace('|', "\\|");
        text.trim().trim_end_matches('.').to_owned()
    }
}

/// Reads `name: Type,` with what is above it; `None` if serde skips it.
fn field(line: &str, above: &Above) -> Option<Field> {
    let line = line.trim_start_matches("pub(super) ").trim_start_matches("pub(crate) ").trim_start_matches("pub ");
    let (name, rust) = line.trim_end_matches(',').split_once(": ")?;
    let attributes = &above.attributes;
    if attributes.contains("(skip)") || attributes.contains("(skip,") {
        return None;
    }
    let rust = if attributes.contains("text_number") { "String" } else { rust };
    let rust =
        if setting(attributes, "with").is_some_and(|with| with.ends_with("time::go")) { "Timestamp" } else { rust };
    Some(Field {
        name: setting(attributes, "rename").unwrap_or_else(|| name.trim_start_matches("r#").to_owned()),
        rust: rust.to_owned(),
        doc: above.doc(),
        skipped: skipped(attributes),
        flatten: attributes.contains("flatten"),
    })
}

/// Reads the declaration of a type.
pub fn parse(text: &str, name: &str) -> Option<Body> {
    if !["struct ", "enum "].iter().any(|word| text.contains(&format!("{word}{name}"))) {
        return None;
    }
    let lines: Vec<&str> = text.lines().collect();
    let declares = |line: &str| {
        let line = line.trim_start_matches("pub(super) ").trim_start_matches("pub(crate) ").trim_start_matches("pub ");
        let rest = line.strip_prefix("struct ").or_else(|| line.strip_prefix("enum "))?.strip_prefix(name)?;
        (rest.starts_with([' ', '<']) && rest.ends_with('{')).then(|| line.starts_with("enum "))
    };
    let (start, is_enum) = lines.iter().enumerate().find_map(|(i, line)| Some((i, declares(line)?)))?;
    let first = lines[..start].iter().rposition(|line| line.is_empty() || *line == "}").map_or(0, |i| i + 1);
    let mut above = Above::default();
    for line in &lines[first..start] {
        above.takes(line);
    }
    if !above.attributes.contains("Serialize") {
        return None;
    }
    let body = lines[start + 1..].iter().take_while(|line| **line != "}").map(|line| line.trim());
    if is_enum {
        let tag = setting(&above.attributes, "tag");
        let as_text = setting(&above.attributes, "into").is_some();
        let variants = variants(body, setting(&above.attributes, "rename_all").as_deref());
        return Some(Body::Enum { tag, as_text, variants });
    }
    let (mut fields, mut above) = (Vec::new(), Above::default());
    for line in body {
        if !above.takes(line) {
            fields.extend(field(line, &above));
            above = Above::default();
        }
    }
    Some(Body::Struct(fields))
}

fn variants<'a>(body: impl Iterator<Item = &'a str>, rule: Option<&str>) -> Vec<Variant> {
    let (mut all, mut above, mut inside): (Vec<Variant>, _, _) = (Vec::new(), Above::default(), false);
    for line in body {
        if above.takes(line) {
            continue;
        }
        let before = std::mem::take(&mut above);
        if inside && line == "}," {
            inside = false;
        } else if inside {
            let last = all.last_mut().expect("a case");
            last.fields.extend(field(line, &before));
        } else {
            let word = line.split([' ', '(', ',']).next().unwrap_or(line);
            let name = setting(&before.attributes, "rename").unwrap_or_else(|| cased(word, rule));
            let value =
                line.split_once('(').map(|(_, rest)| rest.trim_end_matches(',').trim_end_matches(')').to_owned());
            inside = line.ends_with('{');
            all.push(Variant { name, doc: before.doc(), value, fields: Vec::new() });
        }
    }
    all
}

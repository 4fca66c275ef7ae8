//! Filter language of every table: words, `/regex/`, `!`, `column:word`, comparisons, `or`.
//!
//! Example: `worker /db-[0-9]+/ !queued rack=3 since>10m or status:failed`. Terms side by side must all hold; `or`
//! separates alternatives; `"two words"` is one term.

use std::{borrow::Cow, cell::OnceCell, fmt, fmt::Write as _};

use cketerm_model::boot_time::Seconds;
use regex::{Regex, RegexBuilder};

use super::{column_id::ColumnId, when};

/// Value of a column in a row, for searching, comparing and sorting.
#[derive(Clone, Debug, PartialEq)]
pub enum Value<'a> {
    /// Text as the screen shows it.
    Text(Cow<'a, str>),
    /// A number.
    Number(f64),
    /// A span of time, shown as `3m`. Words without a column skip it: `12` means a name, not an age.
    Span(Seconds),
    /// Text as the screen shows it, and another common word for it.
    Known(Cow<'a, str>, &'static str),
    /// No value.
    None,
}

impl<'a> Value<'a> {
    /// Wraps a text; `None` if it is empty.
    pub fn text(text: impl Into<Cow<'a, str>>) -> Self {
        let text = text.into();
        if text.is_empty() { Self::None } else { Self::Text(text) }
    }

    /// Returns the text that words are searched in.
    fn words(&self) -> Cow<'_, str> {
        match self {
            Self::Text(text) | Self::Known(text, _) => Cow::Borrowed(text),
            #[allow(clippy::cast_possible_truncation)] // checked on the next line
            Self::Number(n) if n.fract() == 0.0 && n.abs() < 1e9 => Cow::Owned((*n as i64).to_string()),
            Self::Number(n) => Cow::Owned(n.to_string()),
            Self::Span(seconds) => Cow::Owned(when::seconds(*seconds)),
            Self::None => Cow::Borrowed(""),
        }
    }

    /// Returns a number, or the seconds of a span.
    fn number(&self) -> Option<f64> {
        match self {
            Self::Number(n) => Some(*n),
            Self::Span(span) => Some(span.get()),
            Self::Text(_) | Self::Known(..) | Self::None => None,
        }
    }

    /// Returns the sort key of a row: numbers before texts, no value last. Numbers within texts sort as numbers.
    pub fn key(&self) -> (u8, i64, String) {
        match self {
            #[allow(clippy::cast_possible_truncation)]
            Self::Number(n) => (0, (n * 1000.0) as i64, String::new()),
            Self::Span(span) => (0, (*span * 1000.0).whole(), String::new()),
            Self::Text(text) | Self::Known(text, _) => (1, 0, natural_sort_key(text)),
            Self::None => (2, 0, String::new()),
        }
    }
}

/// Pads the numbers in a text so that they sort as numbers: `w9` before `w10`.
fn natural_sort_key(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 16);
    let mut digits = String::new();
    for c in text.to_lowercase().chars().chain(['\0']) {
        if c.is_ascii_digit() {
            digits.push(c);
            continue;
        }
        if !digits.is_empty() {
            let _ = write!(out, "{:0>12}", std::mem::take(&mut digits));
        }
        out.push(c);
    }
    out
}

/// A row as seen by filters.
pub trait Cells {
    /// Returns the value of a column.
    fn value(&self, column: ColumnId) -> Value<'_>;

    /// Reports whether the value of any column passes a test.
    fn any(&self, test: impl FnMut(&Value<'_>) -> bool) -> bool;
}

/// A parsed filter. An empty one passes every row.
#[derive(Clone, Debug, Default)]
pub struct Filter {
    any: Vec<Vec<Term>>,
}

#[derive(Clone, Debug)]
struct Term {
    not: bool,
    column: Option<ColumnId>,
    test: Test,
}

#[derive(Clone, Debug)]
enum Test {
    Contains(String),
    Matches(Regex),
    Is(String),
    Compares(char, bool, Number),
}

/// A parsed number or duration.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Number(f64);

impl Filter {
    /// Parses a filter for a view with these columns. The error names the wrong part, and what is possible there.
    pub fn parse(text: &str, columns: &[ColumnId]) -> Result<Self, String> {
        let (mut any, mut all) = (Vec::new(), Vec::new());
        for word in words(text)? {
            if word == "or" {
                any.push(std::mem::take(&mut all));
            } else if word != "and" {
                all.push(term(&word, columns)?);
            }
        }
        any.push(all);
        if any.len() > 1 && any.iter().any(Vec::is_empty) {
            return Err("`or` needs a term on either side".to_owned());
        }
        any.retain(|all| !all.is_empty());
        Ok(Self { any })
    }

    /// Returns true if the filter passes every row.
    pub fn is_empty(&self) -> bool {
        self.any.is_empty()
    }

    /// Reports whether a row passes.
    pub fn passes(&self, row: &impl Cells) -> bool {
        self.any.is_empty() || self.any.iter().any(|all| all.iter().all(|term| term.is_match(row)))
    }

    /// Reports whether a row passes whose [`searchable_text`] is at hand. The row is looked up only for terms that the
    /// text does not answer.
    pub fn passes_text<C: Cells>(&self, text: &str, row: impl Fn() -> C) -> bool {
        let cells = OnceCell::new();
        let is_match = |term: &Term| {
            let by_text = match (term.column, &term.test) {
                (None, Test::Contains(word)) => Some(text.contains(word.as_str()) != term.not),
                _ => None,
            };
            by_text.unwrap_or_else(|| term.is_match(cells.get_or_init(&row)))
        };
        self.any.is_empty() || self.any.iter().any(|all| all.iter().all(is_match))
    }

    /// Describes the conditions of the columns, such as `outcome "failed", node "w01"`. `None` if the filter has other
    /// conditions too.
    pub fn described(&self) -> Option<String> {
        let [all] = self.any.as_slice() else { return None };
        let one = |term: &Term| {
            let column = term.column?;
            let not = if term.not { "not " } else { "" };
            match &term.test {
                Test::Contains(word) | Test::Is(word) => Some(format!("{column} {not}{word:?}")),
                Test::Matches(_) | Test::Compares(..) => None,
            }
        };
        all.iter().map(one).collect::<Option<Vec<_>>>().map(|terms| terms.join(", "))
    }

    /// Returns the words that passing rows contain, in lower case, each with its column: for highlighting.
    pub fn words(&self) -> impl Iterator<Item = (Option<ColumnId>, &str)> {
        self.any.iter().flatten().filter(|term| !term.not).filter_map(|term| match &term.test {
            Test::Contains(word) | Test::Is(word) if !word.is_empty() => Some((term.column, word.as_str())),
            Test::Contains(_) | Test::Is(_) | Test::Matches(_) | Test::Compares(..) => None,
        })
    }
}

/// Returns the text that words without a column are searched in: the values of a row in lower case, one a line.
pub fn searchable_text(row: &impl Cells) -> Box<str> {
    let mut text = String::new();
    row.any(|value| {
        match value {
            // words skip spans
            Value::Span(_) | Value::None => return false,
            Value::Known(shown, known) => {
                text.push_str(shown);
                text.push('\n');
                text.push_str(known);
            }
            Value::Text(_) | Value::Number(_) => text.push_str(&value.words()),
        }
        text.push('\n');
        false
    });
    if text.is_ascii() {
        text.make_ascii_lowercase();
        text.into_boxed_str()
    } else {
        text.to_lowercase().into_boxed_str()
    }
}

/// Columns whose values are texts: a comparison with a number or a time can never be true there.
const TEXT_COLUMNS: &[&str] = &[
    "address",
    "asked",
    "batch",
    "bmc",
    "by",
    "cause",
    "command",
    "entry",
    "error",
    "from",
    "health",
    "host",
    "kubelet",
    "level",
    "namespace",
    "node",
    "on",
    "online",
    "operation",
    "outcome",
    "owner",
    "place",
    "plan",
    "power",
    "reason",
    "remarks",
    "result",
    "role",
    "serial",
    "state",
    "status",
    "targets",
    "text",
    "type",
    "what",
    "who",
    "why",
];

/// Columns with the time of a row in tables without a column `since`, which is their other name.
const AGE_COLUMNS: &[&str] = &["at", "ended", "start", "for"];

impl Term {
    fn is_match(&self, row: &impl Cells) -> bool {
        let found = match self.column {
            Some(column) => self.test.is_match(&row.value(column)),
            None => row.any(|value| !matches!(value, Value::Span(_)) && self.test.is_match(value)),
        };
        found != self.not
    }
}

impl Test {
    fn is_match(&self, value: &Value<'_>) -> bool {
        if let Value::Known(shown, known) = value {
            return self.is_match(&Value::text(shown.as_ref())) || self.is_match(&Value::text(*known));
        }
        match self {
            Self::Contains(word) => contains(&value.words(), word),
            Self::Matches(regex) => regex.is_match(&value.words()),
            Self::Is(word) => {
                if let (Some(n), Some(Number(expected))) = (value.number(), number(word))
                    && (n - expected).abs() < f64::EPSILON
                {
                    return true;
                }
                let full_text = value.words().to_lowercase();
                // Narrow tables show people by their user name alone.
                full_text == *word || full_text.split_once('@').is_some_and(|(name, _)| name == word)
            }
            Self::Compares(sign, or_equal, Number(expected)) => {
                let found = match value {
                    Value::Number(n) => *n,
                    Value::Span(span) => span.get(),
                    // `38/40` counts as 38; `v1.35` is not a number.
                    Value::Text(text) => match number(text.split('/').next().unwrap_or_default()) {
                        Some(Number(n)) => n,
                        None => return false,
                    },
                    Value::Known(..) | Value::None => return false,
                };
                let equal = *or_equal && (found - expected).abs() < f64::EPSILON;
                equal || if *sign == '>' { found > *expected } else { found < *expected }
            }
        }
    }
}

/// Reports whether a text contains a lower-case word, ignoring case.
fn contains(text: &str, word: &str) -> bool {
    if !text.is_ascii() {
        return text.to_lowercase().contains(word);
    }
    let (text, word) = (text.as_bytes(), word.as_bytes());
    let Some(first) = word.first() else { return true };
    let places = text.len().checked_sub(word.len()).map_or(0, |last| last + 1);
    (0..places)
        .any(|at| text[at].to_ascii_lowercase() == *first && text[at..at + word.len()].eq_ignore_ascii_case(word))
}

/// Splits a text into words. Quoted words and regular expressions stay whole.
fn words(text: &str) -> Result<Vec<String>, String> {
    let mut words: Vec<String> = Vec::new();
    let mut word = String::new();
    let mut open: Option<char> = None;
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        match open {
            Some(end) if c == end => {
                open = None;
                word.push(if end == '"' { '\u{1}' } else { '/' });
            }
            Some('/') if c == '\\' && chars.peek() == Some(&'/') => {
                word.push('/');
                chars.next();
            }
            Some(_) => word.push(c),
            None if c.is_whitespace() => {
                if !word.is_empty() {
                    words.push(std::mem::take(&mut word));
                }
            }
            None => {
                let begins = word.is_empty() || word.ends_with(['!', ':', '=']);
                if begins && c == '"' {
                    open = Some('"');
                    word.push('\u{1}');
                    continue;
                }
                if begins && c == '/' {
                    open = Some('/');
                }
                word.push(c);
            }
        }
    }
    if let Some(end) = open {
        return Err(format!("the closing {end} is missing"));
    }
    words.extend((!word.is_empty()).then_some(word));
    Ok(words)
}

fn term(word: &str, columns: &[ColumnId]) -> Result<Term, String> {
    let (not, rest) = match word.strip_prefix('!') {
        Some(rest) => (true, rest),
        None => (false, word),
    };
    let end = rest.find(|c: char| !(c.is_ascii_alphanumeric() || c == '-'));
    let (name, tail) = rest.split_at(end.unwrap_or(rest.len()));
    let sign = tail.chars().next().filter(|c| ":=<>".contains(*c));
    let Some(sign) = sign.filter(|_| !name.is_empty()) else {
        return Ok(Term { not, column: None, test: plain(rest)? });
    };
    // In views with the engine's `reason`, the operator's reason is the column `why`. In other views `reason` means
    // `why`.
    let has = |name: &str| columns.iter().any(|c| *c == name);
    let column_name = match name {
        "reason" if !has("reason") => "why",
        "machine" if !has("machine") && has("node") => "node",
        "since" if !has("since") => AGE_COLUMNS.iter().copied().find(|name| has(name)).unwrap_or(name),
        _ => name,
    };
    let Some(column) = columns.iter().find(|c| c.as_str().eq_ignore_ascii_case(column_name)).copied() else {
        // An address with a port, a URL or a MAC address does not name a column: it is text.
        let words = name.chars().all(|c| c.is_ascii_alphabetic());
        if sign == ':' && (!words || tail[1..].starts_with("//") || tail[1..].contains(':')) {
            return Ok(Term { not, column: None, test: plain(rest)? });
        }
        let text = if sign == ':' { format!(" (as text: \"{rest}\")") } else { String::new() };
        return Err(format!("there is no column {name}: {}{text}", columns.join(" ")));
    };
    let tail = &tail[1..];
    let test = match sign {
        ':' => plain(tail)?,
        '=' if tail.starts_with('/') => plain(tail)?,
        '=' => Test::Is(unquoted(tail).to_lowercase()),
        _ => {
            let (or_equal, text) = match tail.strip_prefix('=') {
                Some(text) => (true, text),
                None => (false, tail),
            };
            if TEXT_COLUMNS.contains(&column.as_str()) {
                let others: Vec<&str> =
                    columns.iter().map(|c| c.as_str()).filter(|c| !TEXT_COLUMNS.contains(c)).collect();
                let others = if others.is_empty() { "nothing here".to_owned() } else { others.join(" ") };
                return Err(format!(
                    "{column}{sign}{text}: {column} is text; {others} can be compared (as text: {column}:{text})"
                ));
            }
            let expected = number(text).ok_or_else(|| format!("{column}{sign} needs a number, or 90s, 10m, 2h, 3d"))?;
            Test::Compares(sign, or_equal, expected)
        }
    };
    Ok(Term { not, column: Some(column), test })
}

fn plain(word: &str) -> Result<Test, String> {
    if let Some(inner) = word.strip_prefix('/').and_then(|w| w.strip_suffix('/')).filter(|w| !w.is_empty()) {
        let regex = RegexBuilder::new(inner).case_insensitive(true).size_limit(1 << 20).build();
        return regex.map(Test::Matches).map_err(|e| format!("/{inner}/: {}", first_cause(&e)));
    }
    Ok(Test::Contains(unquoted(word).to_lowercase()))
}

/// Returns the last line of a regular expression's error: the cause, without the drawing.
fn first_cause(error: &impl fmt::Display) -> String {
    let text = error.to_string();
    text.lines().last().unwrap_or_default().trim_start_matches("error: ").to_owned()
}

fn unquoted(word: &str) -> String {
    word.replace('\u{1}', "")
}

/// Parses a number, or a duration in seconds: `7`, `1.5`, `90s`, `10m`, `2h`, `2h05m`, `3d`.
fn number(text: &str) -> Option<Number> {
    if let Ok(n) = text.parse::<f64>() {
        return n.is_finite().then_some(Number(n));
    }
    let (mut sum, mut digits) = (0.0, String::new());
    for c in text.chars() {
        if c.is_ascii_digit() || c == '.' {
            digits.push(c);
            continue;
        }
        let unit = match c {
            's' => 1.0,
            'm' => 60.0,
            'h' => 3600.0,
            'd' => 86_400.0,
            _ => return None,
        };
        sum += std::mem::take(&mut digits).parse::<f64>().ok()? * unit;
    }
    (digits.is_empty() && !text.is_empty()).then_some(Number(sum))
}

/// Parses a duration such as `90s`, `15m` or `2h05m`.
pub fn duration(text: &str) -> Option<Seconds> {
    number(text).map(|Number(seconds)| Seconds::new(seconds))
}

#[cfg(test)]
mod tests;

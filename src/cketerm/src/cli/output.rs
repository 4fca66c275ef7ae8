//! Output of all subcommands: data to standard output, messages to standard error. Values from etcd, Kubernetes,
//! sabakan, BMCs, receivers or files cannot send control sequences to the terminal. A test runs every subcommand on
//! hostile values (`tests/it/commands/hostile.rs`); another one lets no other source of `src/cketerm/src/cli`
//! print (`tests/it/repository.rs`).

use std::{
    fmt::{Display, Write as _},
    io::{self, IsTerminal, Write},
};

use cketerm_actions::ActionError;
use cketerm_console::terminal::screenshot::AnsiFrame;
use cketerm_model::text::{steers, visible};
use serde::Serialize;
use serde_json::{Value, ser::Formatter};

use super::{options::Output, yaml};

/// Output of a subcommand.
#[derive(Clone, Copy, Debug, Default)]
pub struct Out;

impl Out {
    /// Prints lines for people and makes control characters visible. Lines with external values come from [`Lines`] or
    /// [`columns`], in which no value can begin a line of its own.
    pub fn text(self, text: impl AsRef<str>) -> Result<(), ActionError> {
        self.write(&visible(text.as_ref(), true))
    }

    /// Prints one line.
    pub fn line(self, text: &str) -> Result<(), ActionError> {
        self.write(&(visible(text, false) + "\n"))
    }

    /// Prints a value as JSON, indented by four as `ckecli` does, or as YAML. Terminal control characters are escaped,
    /// so a parser reads the value unchanged.
    pub fn value(self, value: &impl Serialize, output: Output) -> Result<(), ActionError> {
        if output == Output::Yaml {
            let failed = |e: &dyn Display| ActionError::failed(format!("cannot be written as YAML: {e}"));
            let text = serde_yaml::to_string(value).map_err(|e| failed(&e))?;
            if !text.contains(steers) {
                return self.write(&text);
            }
            return self.write(&yaml::in_given_order(&serde_json::to_value(value).map_err(|e| failed(&e))?));
        }
        self.write(&json(value)?)
    }

    /// Prints a JSON document as it is stored, with terminal control characters escaped.
    pub fn stored_json(self, text: &str) -> Result<(), ActionError> {
        let mut out = String::with_capacity(text.len());
        for c in text.trim_end().chars() {
            match c {
                // outside of strings these characters are invalid JSON, inside they have to be escaped
                c if c.is_ascii_control() && steers(c) => out.push_str(&visible(c.encode_utf8(&mut [0; 4]), false)),
                c if steers(c) => out.push_str(&escaped(c)),
                c => out.push(c),
            }
        }
        out.push('\n');
        self.write(&out)
    }

    /// Prints a YAML document in the form of `ckecli`.
    pub fn document(self, value: &Value) -> Result<(), ActionError> {
        self.write(&yaml::document(value))
    }

    /// Prints a frame of the console. Its cells are safe already, and its escape sequences for colours are cketerm's
    /// own.
    pub fn picture(self, picture: &AnsiFrame) -> Result<(), ActionError> {
        self.write(picture.as_str())
    }

    /// Writes bytes that are no text, such as an archive. A terminal is refused.
    pub fn bytes(self, bytes: &[u8]) -> Result<(), ActionError> {
        let mut out = io::stdout().lock();
        if out.is_terminal() {
            return Err(ActionError::misused("this is no text for a terminal: redirect it, or give a file"));
        }
        let written = out.write_all(bytes).and_then(|()| out.flush());
        written.map_err(|e| ActionError::failed(format!("standard output: {e}")))
    }

    /// Prints a line on standard error. External values cannot control the terminal or look like a message of their
    /// own.
    #[allow(clippy::unused_self)]
    pub fn message(self, text: &str) {
        let mut lines = visible(text, true);
        if lines.contains('\n') {
            let indented = lines.lines().map(|l| if l.starts_with(' ') { l.to_owned() } else { format!("  {l}") });
            let indented = indented.collect::<Vec<_>>().join("\n");
            indented.trim_start().clone_into(&mut lines);
        }
        let _ = writeln!(io::stderr().lock(), "{lines}");
    }

    /// Reports whether a person can answer a question.
    #[allow(clippy::unused_self)]
    pub fn can_ask(self) -> bool {
        io::stdin().is_terminal() && io::stderr().is_terminal()
    }

    /// Prints a question on standard error, and leaves the cursor behind it.
    #[allow(clippy::unused_self)]
    pub fn question(self, text: &str) -> io::Result<()> {
        let mut out = io::stderr().lock();
        out.write_all(visible(text, false).as_bytes()).and_then(|()| out.flush())
    }

    /// Writes text that was made safe. If the reader has closed the pipe (`| head`), the program ends quietly.
    #[allow(clippy::unused_self)] // the only function that writes to standard output
    fn write(self, safe: &str) -> Result<(), ActionError> {
        let mut out = io::stdout().lock();
        match out.write_all(safe.as_bytes()).and_then(|()| out.flush()) {
            Err(e) if e.kind() == io::ErrorKind::BrokenPipe => std::process::exit(0),
            done => done.map_err(|e| ActionError::failed(format!("standard output: {e}"))),
        }
    }
}

/// Lines for people. A value in a line can neither control the terminal nor begin another line.
#[derive(Debug, Default)]
pub struct Lines(String);

impl Lines {
    /// Adds one line.
    pub fn line(&mut self, line: impl Display) {
        self.0.push_str(&visible(&line.to_string(), false));
        self.0.push('\n');
    }

    /// Adds the output of [`columns`].
    pub fn table(&mut self, table: &str) {
        self.0.push_str(table);
    }

    /// Returns all lines.
    pub fn done(self) -> String {
        self.0
    }
}

impl AsRef<str> for Lines {
    fn as_ref(&self) -> &str {
        &self.0
    }
}

fn json(value: &impl Serialize) -> Result<String, ActionError> {
    let mut text = Vec::new();
    let format = Escaping(serde_json::ser::PrettyFormatter::with_indent(b"    "));
    let mut writer = serde_json::Serializer::with_formatter(&mut text, format);
    value.serialize(&mut writer).map_err(|e| ActionError::failed(format!("cannot be written as JSON: {e}")))?;
    text.push(b'\n');
    String::from_utf8(text).map_err(|e| ActionError::failed(format!("cannot be written as JSON: {e}")))
}

/// Returns `\uXXXX`, as a surrogate pair if needed.
fn escaped(c: char) -> String {
    let mut text = String::new();
    for unit in c.encode_utf16(&mut [0; 2]) {
        let _ = std::fmt::Write::write_fmt(&mut text, format_args!("\\u{unit:04x}"));
    }
    text
}

/// Formatter for indented JSON that escapes terminal control characters in strings.
struct Escaping(serde_json::ser::PrettyFormatter<'static>);

impl Formatter for Escaping {
    fn write_string_fragment<W: ?Sized + Write>(&mut self, out: &mut W, fragment: &str) -> io::Result<()> {
        let mut rest = fragment;
        while let Some((at, c)) = rest.char_indices().find(|(_, c)| steers(*c)) {
            out.write_all(&rest.as_bytes()[..at])?;
            out.write_all(escaped(c).as_bytes())?;
            rest = &rest[at + c.len_utf8()..];
        }
        out.write_all(rest.as_bytes())
    }

    fn begin_array<W: ?Sized + Write>(&mut self, out: &mut W) -> io::Result<()> {
        self.0.begin_array(out)
    }

    fn end_array<W: ?Sized + Write>(&mut self, out: &mut W) -> io::Result<()> {
        self.0.end_array(out)
    }

    fn begin_array_value<W: ?Sized + Write>(&mut self, out: &mut W, first: bool) -> io::Result<()> {
        self.0.begin_array_value(out, first)
    }

    fn end_array_value<W: ?Sized + Write>(&mut self, out: &mut W) -> io::Result<()> {
        self.0.end_array_value(out)
    }

    fn begin_object<W: ?Sized + Write>(&mut self, out: &mut W) -> io::Result<()> {
        self.0.begin_object(out)
    }

    fn end_object<W: ?Sized + Write>(&mut self, out: &mut W) -> io::Result<()> {
        self.0.end_object(out)
    }

    fn begin_object_key<W: ?Sized + Write>(&mut self, out: &mut W, first: bool) -> io::Result<()> {
        self.0.begin_object_key(out, first)
    }

    fn begin_object_value<W: ?Sized + Write>(&mut self, out: &mut W) -> io::Result<()> {
        self.0.begin_object_value(out)
    }

    fn end_object_value<W: ?Sized + Write>(&mut self, out: &mut W) -> io::Result<()> {
        self.0.end_object_value(out)
    }
}

/// Formats columns as `ckecli -o simple` does: each as wide as its widest cell, one space between, one after the last
/// cell of a row but not of the header.
pub fn columns(header: &[&str], rows: &[Vec<String>]) -> String {
    let rows: Vec<Vec<String>> = rows.iter().map(|r| r.iter().map(|c| visible(c, false)).collect()).collect();
    let width = |i: usize| {
        let cells = rows.iter().filter_map(|r| r.get(i)).map(|c| c.chars().count());
        cells.max().unwrap_or(0).max(header.get(i).map_or(0, |h| h.chars().count()))
    };
    let widths: Vec<usize> = (0..header.len()).map(width).collect();
    let last = header.len().saturating_sub(1);
    let mut out = String::new();
    for (i, name) in header.iter().enumerate() {
        if i == last {
            out.push_str(name);
        } else {
            let _ = write!(out, "{name:<width$} ", width = widths[i]);
        }
    }
    out.push('\n');
    for row in &rows {
        for (i, cell) in row.iter().enumerate() {
            // the header's last cell does not count for the width of the last column
            let width = if i == last { 0 } else { widths.get(i).copied().unwrap_or(0) };
            let _ = write!(out, "{cell:<width$} ");
        }
        out.push('\n');
    }
    out
}

/// Formats rows that are added one by one below a table, when the final column widths are unknown.
pub fn rows(rows: &[Vec<String>]) -> String {
    let line = |cells: &Vec<String>| cells.iter().map(|c| visible(c, false)).collect::<Vec<_>>().join("  ");
    rows.iter().map(|cells| line(cells) + "\n").collect()
}

/// Returns a value's cell in a table.
pub fn cell(value: Option<&Value>) -> String {
    match value {
        None | Some(Value::Null) => String::new(),
        Some(Value::String(text)) => text.clone(),
        Some(other) => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_match_ckecli() {
        let rows = vec![vec!["0".to_owned(), "10.0.0.12".to_owned(), "queued".to_owned()]];
        assert_eq!(columns(&["Index", "Node", "Status"], &rows), "Index Node      Status\n0     10.0.0.12 queued \n");
    }

    #[test]
    fn terminal_control_characters_are_escaped_in_documents_and_survive_a_round_trip() {
        let odd: String =
            (0..=0x2fff_u32).chain(0xe0_0000..0xe0_0001).chain(0xfe00..0x1_0000).filter_map(char::from_u32).collect();
        let odd = odd + "\u{e0041}\u{1f600}";
        let value = serde_json::json!({"a": [odd], odd.clone(): {"b": "plain"}});
        for text in [json(&value).unwrap(), yaml::in_given_order(&value), yaml::document(&value)] {
            assert!(!text.contains(steers), "{:?}", text.chars().find(|c| steers(*c)));
        }
        assert_eq!(serde_json::from_str::<Value>(&json(&value).unwrap()).unwrap(), value);
    }

    #[test]
    fn a_value_cannot_start_a_new_line() {
        let mut lines = Lines::default();
        lines.line(format_args!("node {}", "a\nb\u{1b}[2J"));
        assert_eq!(lines.as_ref(), "node a␊b␛[2J\n");
    }

    #[test]
    fn json_is_indented_by_four() {
        assert_eq!(json(&serde_json::json!({"a": [1]})).unwrap(), "{\n    \"a\": [\n        1\n    ]\n}\n");
    }
}

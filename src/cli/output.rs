//! Data to standard output, messages to standard error.

use std::{
    fmt::Write as _,
    io::{self, Write},
};

use serde::Serialize;
use serde_json::Value;

use super::args::Output;
use crate::{actions::ActionError, model::text::visible};

/// Where a word prints.
#[derive(Clone, Copy, Debug, Default)]
pub struct Out;

impl Out {
    /// Text as it is. A reader that has gone (`| head`) ends the program quietly.
    #[allow(clippy::unused_self)] // one door for all output
    pub fn text(self, text: &str) -> Result<(), ActionError> {
        let mut out = io::stdout().lock();
        match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
            Err(e) if e.kind() == io::ErrorKind::BrokenPipe => std::process::exit(0),
            done => done.map_err(|e| ActionError::failed(format!("standard output: {e}"))),
        }
    }

    /// One line.
    pub fn line(self, text: &str) -> Result<(), ActionError> {
        self.text(&format!("{text}\n"))
    }

    /// A value as JSON, indented by four as `ckecli` does, or as YAML.
    pub fn value(self, value: &impl Serialize, output: Output) -> Result<(), ActionError> {
        if output == Output::Yaml {
            let text = serde_yaml::to_string(value);
            return self.text(&text.map_err(|e| ActionError::failed(format!("cannot be written as YAML: {e}")))?);
        }
        self.text(&json(value)?)
    }

    /// A line on standard error; what came from outside cannot steer the terminal.
    #[allow(clippy::unused_self)]
    pub fn message(self, text: &str) {
        let _ = writeln!(io::stderr().lock(), "{}", visible(text, true));
    }
}

fn json(value: &impl Serialize) -> Result<String, ActionError> {
    let mut text = Vec::new();
    let format = serde_json::ser::PrettyFormatter::with_indent(b"    ");
    let mut writer = serde_json::Serializer::with_formatter(&mut text, format);
    value.serialize(&mut writer).map_err(|e| ActionError::failed(format!("cannot be written as JSON: {e}")))?;
    text.push(b'\n');
    String::from_utf8(text).map_err(|e| ActionError::failed(format!("cannot be written as JSON: {e}")))
}

/// Columns as `ckecli -o simple` prints them: each as wide as its widest cell, one space between, one after the last
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

/// Rows that come one by one below a table: nobody knows how wide their columns will be.
pub fn rows(rows: &[Vec<String>]) -> String {
    let line = |cells: &Vec<String>| cells.iter().map(|c| visible(c, false)).collect::<Vec<_>>().join("  ");
    rows.iter().map(|cells| line(cells) + "\n").collect()
}

/// A value's cell in a table.
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
    fn columns_are_those_of_ckecli() {
        let rows = vec![vec!["0".to_owned(), "10.0.0.12".to_owned(), "queued".to_owned()]];
        assert_eq!(columns(&["Index", "Node", "Status"], &rows), "Index Node      Status\n0     10.0.0.12 queued \n");
    }

    #[test]
    fn json_is_indented_by_four() {
        assert_eq!(json(&serde_json::json!({"a": [1]})).unwrap(), "{\n    \"a\": [\n        1\n    ]\n}\n");
    }
}

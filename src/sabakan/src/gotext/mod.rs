//! The part of Go's template syntax that labels use (SAB-18): fields of a machine, `index .Labels "x"`, pipelines,
//! `printf`, `if`/`else`, comparisons, `and`/`or`/`not`, trim markers. Anything else is an error with its place.
//!
//! This is no crate, because the existing ones accept far more and go on where a field is missing. A label must be
//! right or refused before a thousand nodes carry it.

mod eval;
mod lex;
mod parse;

use std::fmt;

use super::machine::Machine;

/// A fault and the character where it is (counted from 1).
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("at character {at}: {what}")]
pub struct Fault {
    /// The character.
    pub at: usize,
    /// The problem.
    pub what: String,
}

impl Fault {
    fn new(at: usize, what: impl Into<String>) -> Self {
        Self { at: at + 1, what: what.into() }
    }
}

/// A parsed and checked text with actions between `{{` and `}}`.
#[derive(Clone, PartialEq)]
pub struct GoText {
    text: String,
    nodes: Vec<parse::Node>,
}

impl fmt::Debug for GoText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "GoText({:?})", self.text)
    }
}

impl GoText {
    /// Returns true if a text has any action.
    pub fn is_dynamic(text: &str) -> bool {
        text.contains("{{")
    }

    /// Parses a text. Unknown fields, functions and keywords are found here, before any machine is rendered.
    pub fn parse(text: &str) -> Result<Self, Fault> {
        Ok(Self { text: text.to_owned(), nodes: parse::parse(lex::lex(text)?)? })
    }

    /// Returns the text as it was written.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Renders the text for one machine.
    pub fn render(&self, machine: &Machine) -> Result<String, Fault> {
        let mut out = String::new();
        eval::run(&self.nodes, machine, &mut out)?;
        Ok(out)
    }
}

#[cfg(test)]
mod tests;

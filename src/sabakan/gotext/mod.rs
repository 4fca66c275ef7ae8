//! The part of Go's template syntax that labels use: fields of a machine, `index .Labels "x"`, pipelines, `printf`,
//! `if`/`else`, comparisons, `and`/`or`/`not`, trim markers (spec/sabakan.md, Template). Anything else is an error with
//! its place.
//!
//! Ours and not a crate's: those that exist read far more than this and go on where a field is missing; a label must be
//! right or refused before a thousand nodes carry it.

mod eval;
mod lex;
mod parse;

use std::fmt;

use super::machine::Machine;

/// What is wrong, and at which character of the text (counted from 1).
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("at character {at}: {what}")]
pub struct Fault {
    /// The character.
    pub at: usize,
    /// What is wrong there.
    pub what: String,
}

impl Fault {
    fn new(at: usize, what: impl Into<String>) -> Self {
        Self { at: at + 1, what: what.into() }
    }
}

/// A text with actions between `{{` and `}}`, read and checked.
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
    /// Whether a text has any action at all.
    pub fn is_dynamic(text: &str) -> bool {
        text.contains("{{")
    }

    /// Reads a text; unknown fields, functions and words are found here, before any machine is looked at.
    pub fn parse(text: &str) -> Result<Self, Fault> {
        Ok(Self { text: text.to_owned(), nodes: parse::parse(lex::lex(text)?)? })
    }

    /// As it was written.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The text for one machine.
    pub fn render(&self, machine: &Machine) -> Result<String, Fault> {
        let mut out = String::new();
        eval::run(&self.nodes, machine, &mut out)?;
        Ok(out)
    }
}

#[cfg(test)]
mod tests;

//! Mutants as plain data.

use std::ops::Range;

use serde::{Deserialize, Serialize};

/// Kind of a mutation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// Another comparison, such as `<=` for `<`.
    Comparison,
    /// `&&` for `||`, and the reverse.
    Logic,
    /// Another arithmetic operator, or `saturating_sub` for `saturating_add`.
    Arithmetic,
    /// A `!` left out.
    Negation,
    /// A condition of `if`, `while` or a match arm that is always true or always false.
    Condition,
    /// A closure of `filter`, `any` and the like that is always true or always false.
    Predicate,
    /// A function that returns a plain value at once.
    Body,
    /// A call or an assignment left out.
    Statement,
    /// An integer that is larger by one.
    Literal,
    /// A method for its opposite, such as `max` for `min`.
    Method,
}

/// Change of the text of a file, in bytes of the original.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Edit {
    /// Evaluates another expression.
    Replace {
        /// Place of the expression.
        range: Range<usize>,
        /// The other expression.
        with: String,
    },
    /// Returns a value at the beginning of a function.
    Return {
        /// Place of the first statement.
        at: usize,
        /// The value; empty if the function returns nothing.
        value: String,
    },
    /// Leaves a statement out.
    Skip {
        /// Place of the statement with its semicolon.
        range: Range<usize>,
    },
}

impl Edit {
    /// Place of the original text that the edit surrounds; empty for [`Edit::Return`].
    pub fn range(&self) -> Range<usize> {
        match self {
            Self::Replace { range, .. } | Self::Skip { range } => range.clone(),
            Self::Return { at, .. } => *at..*at,
        }
    }
}

/// One mutant.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mutant {
    /// Number of its switch; 0 until it is drawn.
    pub id: u32,
    /// Path from the root of the workspace.
    pub file: String,
    /// Line, from 1.
    pub line: usize,
    /// Column, from 1.
    pub column: usize,
    /// Kind of the mutation.
    pub kind: Kind,
    /// Function around it, with its type.
    pub function: String,
    /// Original text on one line.
    pub original: String,
    /// Text of the mutant on one line.
    pub mutated: String,
    /// Number among equal ones of the function, from 1.
    pub nth: usize,
    /// The change.
    pub edit: Edit,
}

impl Mutant {
    /// Name that stays the same as long as the function does, so that a later commit can be judged by the same draw.
    pub fn key(&self) -> String {
        let Self { file, function, original, mutated, nth, .. } = self;
        format!("{file} {function}: {original} -> {mutated} #{nth}")
    }

    /// Part of the workspace that it belongs to: `rules`, `engine`, `actions` or `store`.
    pub fn part(&self) -> &'static str {
        PARTS.iter().find(|(_, folder)| self.file.starts_with(folder)).map_or("other", |(name, _)| name)
    }
}

/// Parts of the workspace that are mutated: name and folder.
pub const PARTS: [(&str, &str); 4] = [
    ("rules", "src/rules/src/"),
    ("engine", "src/engine/src/"),
    ("store", "src/clients/src/store/"),
    ("actions", "src/actions/src/"),
];

/// Returns a text on one line.
pub fn on_one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

//! Executable specification of both queues, written from CKE's documents and `docs/spec/`, and not from the code that
//! decides. [`TABLE`] holds every step that an engine may take; [`check`] says which of them a step is, or refuses it.
//!
//! - A [`Step`] is one change of one entry, with the attempt that the same transaction writes, or one patch of a Node.
//! - A [`State`] holds the facts from right before the step. Where they come from is no matter of this crate.
//! - A [`Fact`] may be unknown. A step is refused only if a condition definitely does not hold.
//! - [`DUTIES`] holds steps that must come: what an engine that leads may not leave undone.

mod conditions;
mod state;
mod table;

#[cfg(test)]
mod tests;

use std::fmt;

pub use conditions::Condition;
pub use state::{Attempted, Cordon, Entry, Fact, Kind, Machine, Place, State, Step, unknown_if};
pub use table::{DUTIES, Duty, Row, RowName, TABLE};

/// Refusal of a step: no row of the table allows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// The step.
    pub step: String,
    /// Rows that lead between these two places, each with the conditions that did not hold.
    pub rows: Vec<(RowName, Vec<&'static Condition>)>,
}

impl Refusal {
    /// Returns the rules that the step breaks, by the row that it misses least. Empty if no row leads there at all.
    pub fn broken(&self) -> Vec<&'static str> {
        let least = self.rows.iter().min_by_key(|(_, broken)| broken.len());
        least.map_or_else(Vec::new, |(_, broken)| broken.iter().map(|condition| condition.rule).collect())
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.step)?;
        if self.rows.is_empty() {
            return write!(f, ": no row of the table leads there");
        }
        for (name, broken) in &self.rows {
            let broken: Vec<String> = broken.iter().map(|c| format!("not {} ({})", c.says, c.rule)).collect();
            write!(f, "; {name}: {}", broken.join(", "))?;
        }
        Ok(())
    }
}

/// Returns the row of the table that this step is.
///
/// # Errors
///
/// The refusal names each row between the two places with what contradicts it.
pub fn check(before: &State, step: &Step) -> Result<RowName, Refusal> {
    if !step.engine {
        // people, CKE and its tools write what they want; the rules bind cketerm
        return Ok("another writer");
    }
    let mut rows = Vec::new();
    for row in TABLE.iter().filter(|row| row.leads(step)) {
        let broken: Vec<&'static Condition> =
            row.when.iter().copied().flatten().filter(|c| (c.holds)(before, step) == Some(false)).collect();
        if broken.is_empty() {
            return Ok(row.name);
        }
        rows.push((row.name, broken));
    }
    Err(Refusal { step: step.to_string(), rows })
}

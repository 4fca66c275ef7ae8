//! Mutants that behave like the original, each with a reason: `tests/mutants/equivalent.toml`.

use anyhow::{Context, Result, bail};

use crate::mutant::Mutant;

/// One mutant that no test can kill. It is found again by its text, because lines and numbers change.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Equivalent {
    /// Path from the root of the workspace.
    pub file: String,
    /// Function around it, with its type.
    pub function: String,
    /// Original text on one line.
    pub original: String,
    /// Text of the mutant on one line.
    pub mutated: String,
    /// Number among equal ones of the function, from 1; none means all of them.
    pub nth: Option<usize>,
    /// Reason for which no behaviour changes.
    pub reason: String,
}

impl Equivalent {
    /// Reports whether a mutant is this one.
    pub fn is(&self, mutant: &Mutant) -> bool {
        self.file == mutant.file
            && self.function == mutant.function
            && self.original == mutant.original
            && self.mutated == mutant.mutated
            && self.nth.is_none_or(|nth| nth == mutant.nth)
    }
}

/// Reads the list: tables `[[mutant]]` of literal strings `name = '…'`, or `'''…'''` for a text with quotes.
///
/// # Errors
///
/// Fails if a line has another form, or a field is missing.
pub fn parse(text: &str) -> Result<Vec<Equivalent>> {
    let mut all: Vec<Equivalent> = Vec::new();
    for line in text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#')) {
        if line == "[[mutant]]" {
            all.push(Equivalent::default());
            continue;
        }
        let (name, value) = line.split_once(" = ").with_context(|| line.to_owned())?;
        let quoted = |quote: &str| value.strip_prefix(quote)?.strip_suffix(quote);
        let value = quoted("'''").or_else(|| quoted("'")).with_context(|| line.to_owned())?.to_owned();
        let last = all.last_mut().with_context(|| line.to_owned())?;
        match name {
            "file" => last.file = value,
            "function" => last.function = value,
            "original" => last.original = value,
            "mutated" => last.mutated = value,
            "nth" => last.nth = Some(value.parse().with_context(|| line.to_owned())?),
            "reason" => last.reason = value,
            _ => bail!("unknown field: {line}"),
        }
    }
    if let Some(bad) = all.iter().find(|one| one.file.is_empty() || one.original.is_empty() || one.reason.is_empty()) {
        bail!("a field is missing: {bad:?}");
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_in_the_repository_is_read() {
        parse(include_str!("../equivalent.toml")).unwrap();
    }

    #[test]
    fn fields_are_literal_strings() {
        let text = "# a comment\n[[mutant]]\nfile = 'a.rs'\nfunction = 'f'\noriginal = '''x == 'y' '''\n\
                    mutated = 'true'\nnth = '2'\nreason = 'always so'\n";
        let read = parse(text).unwrap();
        assert_eq!((read[0].original.as_str(), read[0].nth), ("x == 'y' ", Some(2)));
        assert!(parse(&text.replace("'2'", "'x'")).is_err());
        assert!(parse("[[mutant]]\nfile = 'a.rs'").is_err());
        assert!(parse("file = 'a.rs'").is_err());
        assert!(parse("[[mutant]]\nother = 'a.rs'").is_err());
    }
}

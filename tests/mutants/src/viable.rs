//! Removal of the mutants that do not compile.

use std::{collections::BTreeSet, ops::Range};

use anyhow::{Result, bail};
use serde::Deserialize;

use crate::{
    build::{Cargo, Profile},
    copy::{Copy, Places},
    mutant::Mutant,
};

/// Mutants that compile, and how many of the draw do not.
#[derive(Debug)]
pub struct Sample {
    /// Mutants that compile, in the order of the draw.
    pub mutants: Vec<Mutant>,
    /// Number of drawn mutants that do not compile.
    pub not_viable: usize,
}

/// Mutants that are drawn beyond the wanted number, in percent: about so many do not compile.
const EXTRA_PERCENT: usize = 15;

/// Takes mutants from the draw until so many of them compile, and leaves these in the copy.
///
/// # Errors
///
/// Fails if cargo fails for another reason than a mutant.
pub fn choose(copy: &mut Copy, cargo: &Cargo, drawn: &[Mutant], count: usize) -> Result<Sample> {
    let mut refused: BTreeSet<u32> = BTreeSet::new();
    let mut taken = count + count * EXTRA_PERCENT / 100;
    loop {
        let tried: Vec<Mutant> = drawn.iter().take(taken).filter(|m| !refused.contains(&m.id)).cloned().collect();
        let places = copy.write(&tried)?;
        let found = errors(cargo)?;
        eprintln!("check: {} mutants, {} errors", tried.len(), found.len());
        if found.is_empty() {
            if tried.len() < count && taken < drawn.len() {
                taken += count - tried.len() + 5;
                continue;
            }
            let mutants: Vec<Mutant> = tried.into_iter().take(count).collect();
            copy.write(&mutants)?;
            let last = mutants.last().map_or(0, |mutant| mutant.id);
            let not_viable = refused.iter().filter(|id| **id <= last).count();
            return Ok(Sample { mutants, not_viable });
        }
        let before = refused.len();
        for error in &found {
            refused.extend(blamed(error, &places));
        }
        if refused.len() == before {
            let text: Vec<&str> = found.iter().map(|error| error.text.as_str()).collect();
            bail!("errors without a mutant:\n{}", text.join("\n"));
        }
    }
}

/// An error of the compiler.
#[derive(Debug, Default)]
pub struct CompilerError {
    /// The rendered text.
    pub text: String,
    /// Its places: file and bytes, first the primary ones.
    pub places: Vec<(String, Range<usize>)>,
}

fn errors(cargo: &Cargo) -> Result<Vec<CompilerError>> {
    let output = cargo.messages(Profile::Optimized, &["check", "--lib", "--keep-going"])?;
    let found: Vec<CompilerError> = output.lines.iter().filter_map(|line| parse(line)).collect();
    if !output.well && found.is_empty() {
        bail!("cargo check failed without an error in the sources");
    }
    Ok(found)
}

#[derive(Deserialize)]
struct Line {
    message: Option<Message>,
}

#[derive(Deserialize)]
struct Message {
    level: String,
    rendered: Option<String>,
    spans: Vec<Span>,
    #[serde(default)]
    children: Vec<Message>,
}

#[derive(Deserialize)]
struct Span {
    file_name: String,
    byte_start: usize,
    byte_end: usize,
    is_primary: bool,
    expansion: Option<Box<Expansion>>,
}

#[derive(Deserialize)]
struct Expansion {
    span: Span,
}

fn parse(line: &str) -> Option<CompilerError> {
    let message = serde_json::from_str::<Line>(line).ok()?.message?;
    if message.level != "error" {
        return None;
    }
    let mut spans: Vec<&Span> = message.spans.iter().collect();
    spans.sort_by_key(|span| !span.is_primary);
    spans.extend(message.children.iter().flat_map(|child| &child.spans));
    let mut places = Vec::new();
    for span in spans {
        let mut next = Some(span);
        while let Some(span) = next {
            places.push((span.file_name.clone(), span.byte_start..span.byte_end));
            next = span.expansion.as_ref().map(|expansion| &expansion.span);
        }
    }
    let text = message.rendered.unwrap_or_default();
    (!places.is_empty()).then_some(CompilerError { text, places })
}

/// Mutants that an error is about: the innermost one around its first place that is in any, else the nearest one before
/// it in the file.
fn blamed(error: &CompilerError, places: &Places) -> Vec<u32> {
    for (file, at) in &error.places {
        let Some(of) = places.get(file) else { continue };
        let around = of.iter().filter(|(_, place)| place.start <= at.start && at.end <= place.end);
        if let Some((id, _)) = around.min_by_key(|(_, place)| place.len()) {
            return vec![*id];
        }
    }
    // an error about a whole expression, a variable or a function: the mutants inside
    for (file, at) in &error.places {
        let Some(of) = places.get(file) else { continue };
        let inside: Vec<u32> =
            of.iter().filter(|(_, p)| at.start <= p.start && p.end <= at.end).map(|(id, _)| *id).collect();
        if !inside.is_empty() {
            return inside;
        }
    }
    for (file, at) in &error.places {
        let Some(of) = places.get(file) else { continue };
        let nearest = of.iter().min_by_key(|(_, place)| place.start.abs_diff(at.start));
        if let Some((id, _)) = nearest {
            return vec![*id];
        }
    }
    Vec::new()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(start: usize, end: usize) -> CompilerError {
        CompilerError { text: String::new(), places: vec![("a.rs".to_owned(), start..end)] }
    }

    #[test]
    fn the_innermost_mutant_around_an_error_is_blamed() {
        let places = Places::from([("a.rs".to_owned(), vec![(1, 10..100), (2, 20..40), (3, 200..220)])]);
        assert_eq!(blamed(&error(25, 30), &places), [2]);
        assert_eq!(blamed(&error(50, 60), &places), [1]);
        assert_eq!(blamed(&error(190, 230), &places), [3]);
        assert_eq!(blamed(&error(240, 250), &places), [3]);
        assert!(blamed(&CompilerError::default(), &places).is_empty());
    }

    #[test]
    fn messages_of_the_compiler_are_read() {
        let line = r#"{"reason":"compiler-message","message":{"level":"error","rendered":"no","spans":[
            {"file_name":"a.rs","byte_start":1,"byte_end":2,"is_primary":false,"expansion":null},
            {"file_name":"b.rs","byte_start":3,"byte_end":4,"is_primary":true,"expansion":null}],"children":[]}}"#;
        let error = parse(line).unwrap();
        assert_eq!(error.places, [("b.rs".to_owned(), 3..4), ("a.rs".to_owned(), 1..2)]);
        assert!(parse(&line.replace("error", "warning")).is_none());
        assert!(parse(r#"{"reason":"build-finished","success":true}"#).is_none());
    }
}

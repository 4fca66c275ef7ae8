//! Mutants as branches in the text of a file.

use std::ops::Range;

use crate::mutant::{Edit, Mutant};

/// A file with its mutants.
#[derive(Debug, Default)]
pub struct Switched {
    /// The text.
    pub text: String,
    /// Place of each mutant in the text.
    pub places: Vec<(u32, Range<usize>)>,
}

/// Writes mutants into the text of their file.
///
/// A mutant inside the range of another one is only in the branch of the original.
pub fn write(text: &str, mutants: &[Mutant]) -> Switched {
    let mut sorted: Vec<&Mutant> = mutants.iter().collect();
    sorted.sort_by_key(|mutant| {
        let range = mutant.edit.range();
        (range.start, !range.is_empty(), std::cmp::Reverse(range.end))
    });
    let mut switched = Switched::default();
    render(text, 0..text.len(), &sorted, &mut switched);
    switched
}

fn render(text: &str, whole: Range<usize>, mutants: &[&Mutant], out: &mut Switched) {
    let piece = |range: Range<usize>| text.get(range).unwrap_or_default();
    let (mut at, mut left) = (whole.start, mutants);
    while let Some((first, rest)) = left.split_first() {
        let range = first.edit.range();
        out.text.push_str(piece(at..range.start));
        let inner = rest.iter().take_while(|next| !range.is_empty() && next.edit.range().start < range.end).count();
        let (inside, after) = rest.split_at(inner);
        let (begin, id) = (out.text.len(), first.id);
        match &first.edit {
            Edit::Replace { with, .. } => {
                out.text.extend(["(if ", &is_on(id), " { ", with, " } else { "]);
                render(text, range.clone(), inside, out);
                out.text.push_str(" })");
            }
            Edit::Skip { .. } => {
                out.text.extend(["if !", &is_on(id), " { "]);
                render(text, range.clone(), inside, out);
                out.text.push_str(" }");
            }
            Edit::Return { value, .. } => out.text.extend(["if ", &is_on(id), " { return ", value, "; } "]),
        }
        out.places.push((id, begin..out.text.len()));
        (at, left) = (range.end, after);
    }
    out.text.push_str(piece(at..whole.end));
}

fn is_on(id: u32) -> String {
    format!("::cketerm_model::mutant::on({id})")
}

/// Module of the copied `model` that reads the switch.
pub fn module(largest_id: u32) -> String {
    include_str!("switch_module.txt").replace("LARGEST_ID", &largest_id.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{finder, mutant::Kind};

    fn switched(text: &str, choose: impl Fn(&Mutant) -> bool) -> String {
        let mut found: Vec<Mutant> =
            finder::find("src/rules/src/a.rs", text).unwrap().into_iter().filter(choose).collect();
        for (mutant, id) in found.iter_mut().zip(1..) {
            mutant.id = id;
        }
        let switched = write(text, &found);
        assert_eq!(switched.places.len(), found.len());
        syn::parse_file(&switched.text).unwrap();
        switched.text.replace("::cketerm_model::mutant::", "")
    }

    #[test]
    fn an_expression_becomes_a_branch() {
        let text = switched("fn f() -> Entry { a < b }", |m| m.mutated.contains("<="));
        assert_eq!(text, "fn f() -> Entry { (if on(1) { (a) <= (b) } else { a < b }) }");
    }

    #[test]
    fn inner_mutants_are_in_the_branch_of_the_original() {
        let text = switched("fn f() -> Entry { if a == b { c } else { d } }", |_| true);
        let inner = "(if on(3) { (a) != (b) } else { a == b })";
        let outer = format!("(if on(1) {{ true }} else {{ (if on(2) {{ false }} else {{ {inner} }}) }})");
        assert_eq!(text, format!("fn f() -> Entry {{ if {outer} {{ c }} else {{ d }} }}"));
    }

    #[test]
    fn statements_and_bodies_are_left_out() {
        let text = switched("fn f() { a.b(1); }", |m| m.kind != Kind::Literal);
        assert_eq!(text, "fn f() { if on(1) { return ; } if !on(2) { a.b(1); } }");
    }

    #[test]
    fn every_candidate_at_once_is_still_rust() {
        let text = "fn f(a: u8) -> bool {\n    // a comment\n    x.retain(|y| y.z > 1 && !y.w);\n    \
                    if let Some(c) = d() && c.is_empty() {\n        e += 2;\n    }\n    v.iter().any(|v| v.min(3) == a)\n}\n";
        assert!(switched(text, |_| true).len() > 3 * text.len());
    }

    #[test]
    fn the_module_of_switches_is_rust() {
        syn::parse_file(&module(600)).unwrap();
    }
}

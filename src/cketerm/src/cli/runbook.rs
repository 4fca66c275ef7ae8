//! Text of docs/runbook.md, built into the program: meaning of each reason, things to check, and the key or command
//! that helps.

/// The document.
const TEXT: &str = include_str!("../../../../docs/runbook.md");

/// Section of the document about one reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Section {
    /// Name of the reason in `-o json` and metrics.
    pub name: &'static str,
    /// Markdown: paragraphs that begin with `**Means:**`, `**Check:**` and `**Helps:**`.
    pub text: &'static str,
}

/// Returns a text without its links and marks of emphasis: of `[power.md](power.md#networks)` the part in brackets.
fn without_marks(text: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, link)) = rest.split_once('[') {
        plain.push_str(before);
        rest = match link.split_once("](").and_then(|(shown, target)| Some((shown, target.split_once(')')?.1))) {
            Some((shown, after)) if !shown.contains(['[', ']']) => {
                plain.push_str(shown);
                after
            }
            Some(_) | None => {
                plain.push('[');
                link
            }
        };
    }
    plain.push_str(rest);
    plain.replace("**", "")
}

/// Returns a section for each reason, in the order in which an entry meets them.
pub fn sections() -> impl Iterator<Item = Section> {
    TEXT.split("\n## ").skip(1).filter_map(|part| {
        let (name, text) = part.split_once('\n')?;
        Some(Section { name, text: text.trim() })
    })
}

/// Returns the section of a reason; the case of its name does not matter.
pub fn section(name: &str) -> Option<Section> {
    sections().find(|s| s.name.eq_ignore_ascii_case(name))
}

impl Section {
    /// Returns the text for a terminal, without links and marks.
    pub fn plain(&self) -> String {
        without_marks(self.text)
    }

    /// Returns the paragraph that begins with this word, as one line without marks.
    pub fn part(&self, word: &str) -> String {
        let begin = format!("**{word}:**");
        let paragraph = self.text.split("\n\n").find_map(|p| p.strip_prefix(&begin)).unwrap_or_default();
        without_marks(&paragraph.split_whitespace().collect::<Vec<_>>().join(" "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cketerm_model::reason::Reason;

    /// Names of the program's reasons, from serde's error message.
    fn reasons() -> Vec<String> {
        let error = serde_json::from_str::<Reason>(r#"{"reason":"no such"}"#).unwrap_err().to_string();
        let known = error.split("expected one of ").nth(1).expect("serde lists the known names");
        known
            .split(['`', ',', ' '])
            .filter(|w| w.chars().next().is_some_and(char::is_uppercase))
            .map(str::to_owned)
            .collect()
    }

    #[test]
    fn i32_every_reason_has_a_complete_runbook_section() {
        let (mut known, mut documented) = (reasons(), sections().map(|s| s.name.to_owned()).collect::<Vec<_>>());
        known.sort();
        documented.sort();
        assert!(known.len() > 40, "{known:?}");
        assert_eq!(known, documented);
        for section in sections() {
            for word in ["Means", "Check", "Helps"] {
                assert!(section.part(word).len() >= 5, "{} has no text under {word}", section.name);
            }
        }
    }

    #[test]
    fn texts_for_a_terminal_have_no_links() {
        let text = "**Helps:** See [power.md](power.md#networks), [a\n list](b) or `[x]` and `{a: [1]}` (c).";
        assert_eq!(without_marks(text), "Helps: See power.md, a\n list or `[x]` and `{a: [1]}` (c).");
        for section in sections() {
            assert!(!section.plain().contains("]("), "{}", section.plain());
        }
    }

    #[test]
    fn every_reason_is_listed_in_reasons_md() {
        let table = include_str!("../../../../docs/reasons.md");
        let missing: Vec<String> = reasons().into_iter().filter(|r| !table.contains(&format!("`{r}`"))).collect();
        assert!(missing.is_empty(), "docs/reasons.md lacks {missing:?}");
    }
}

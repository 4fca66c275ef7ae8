//! Kubernetes label selectors of definitions and budgets (CLU-24 to CLU-26).

use std::{collections::BTreeMap, str::FromStr};

use serde::{Deserialize, Serialize};

/// `matchLabels` and `matchExpressions`, all of which must hold. The empty selector matches everything.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Selector {
    /// Labels that must have exactly these values.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub match_labels: Option<BTreeMap<String, String>>,
    /// Further conditions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub match_expressions: Option<Vec<Requirement>>,
}

/// One condition on one label.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Requirement {
    /// The label's key.
    pub key: String,
    /// Operator of the condition.
    pub operator: Operator,
    /// Values for `In` and `NotIn`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub values: Option<Vec<String>>,
}

/// The four operators of `matchExpressions`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Operator {
    /// The value is one of these.
    In,
    /// The label is absent or its value is none of these.
    NotIn,
    /// The label is present.
    Exists,
    /// The label is absent.
    DoesNotExist,
}

impl Selector {
    /// Returns true if all conditions hold for these labels.
    pub fn matches(&self, labels: &BTreeMap<String, String>) -> bool {
        self.match_labels.iter().flatten().all(|(key, value)| labels.get(key) == Some(value))
            && self.match_expressions.iter().flatten().all(|r| r.holds(labels))
    }

    /// Returns the fault with its place below `field`, or `None` if the selector is valid.
    pub fn fault(&self, field: &str) -> Option<String> {
        self.match_expressions.iter().flatten().enumerate().find_map(|(i, r)| {
            let values = r.values.as_ref().map_or(0, Vec::len);
            let at = format!("{field}.matchExpressions[{i}]");
            if r.key.is_empty() {
                return Some(format!("{at}: key is empty"));
            }
            match r.operator {
                Operator::In | Operator::NotIn if values == 0 => Some(format!("{at}: {:?} needs values", r.operator)),
                Operator::Exists | Operator::DoesNotExist if values > 0 => {
                    Some(format!("{at}: {:?} takes no values", r.operator))
                }
                _ => None,
            }
        })
    }
}

impl Requirement {
    fn holds(&self, labels: &BTreeMap<String, String>) -> bool {
        let value = labels.get(&self.key);
        let listed = |v: &String| self.values.iter().flatten().any(|x| x == v);
        match self.operator {
            Operator::In => value.is_some_and(listed),
            Operator::NotIn => !value.is_some_and(listed),
            Operator::Exists => value.is_some(),
            Operator::DoesNotExist => value.is_none(),
        }
    }
}

impl FromStr for Selector {
    type Err = String;

    /// Parses `kubectl`'s form: `a=1,b!=2,c in (x,y),d notin (z),e,!f`.
    fn from_str(text: &str) -> Result<Self, String> {
        let parts: Vec<String> = split(text).into_iter().map(|part| part.trim().to_owned()).collect();
        if parts.len() > 1 && parts.iter().any(String::is_empty) {
            return Err(format!("{text:?}: empty requirement between two commas"));
        }
        let parts = parts.into_iter().filter(|part| !part.is_empty());
        let requirements: Vec<Requirement> = parts.map(|part| requirement(&part)).collect::<Result<_, _>>()?;
        if requirements.is_empty() {
            return Err("a selector names at least one label: a=1,b!=2,c in (x,y),d,!e".to_owned());
        }
        Ok(Self { match_labels: None, match_expressions: Some(requirements) })
    }
}

/// Splits at the commas outside of parentheses.
fn split(text: &str) -> Vec<String> {
    let (mut parts, mut depth) = (vec![String::new()], 0_u32);
    for c in text.chars() {
        match c {
            '(' => depth += 1,
            ')' => depth = depth.saturating_sub(1),
            _ => {}
        }
        match parts.last_mut() {
            Some(part) if c != ',' || depth > 0 => part.push(c),
            _ => parts.push(String::new()),
        }
    }
    parts
}

fn requirement(part: &str) -> Result<Requirement, String> {
    let build = |key: &str, operator, values: Option<Vec<String>>| {
        let plain = |text: &str| text.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.' | '/'));
        let key = key.trim();
        match values.iter().flatten().find(|value| !plain(value)) {
            _ if key.is_empty() || !plain(key) => Err(format!("{part:?}: {key:?} is not a label key")),
            Some(invalid) => Err(format!("{part:?}: {invalid:?} is not a label value")),
            None => Ok(Requirement { key: key.to_owned(), operator, values }),
        }
    };
    let one = |value: &str| Some(vec![value.trim().to_owned()]);
    if let Some((key, value)) = part.split_once("!=") {
        return build(key, Operator::NotIn, one(value));
    }
    if let Some((key, value)) = part.split_once("==").or_else(|| part.split_once('=')) {
        return build(key, Operator::In, one(value));
    }
    if let Some((head, list)) = part.split_once('(') {
        let list = list.trim_end().strip_suffix(')').ok_or_else(|| format!("{part:?}: missing )"))?;
        let values = Some(list.split(',').map(|value| value.trim().to_owned()).collect());
        return match head.split_whitespace().collect::<Vec<_>>().as_slice() {
            [key, "in"] => build(key, Operator::In, values),
            [key, "notin"] => build(key, Operator::NotIn, values),
            _ => Err(format!("{part:?}: write `key in (a,b)` or `key notin (a,b)`")),
        };
    }
    match part.strip_prefix('!') {
        Some(key) => build(key, Operator::DoesNotExist, None),
        None => build(part, Operator::Exists, None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        pairs.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect()
    }

    #[test]
    fn the_empty_selector_matches_everything() {
        assert!(Selector::default().matches(&labels(&[])));
    }

    #[test]
    fn match_expressions_and_match_labels_both_apply() {
        let s: Selector = serde_json::from_str(
            r#"{"matchLabels":{"a":"1"},"matchExpressions":[{"key":"b","operator":"NotIn","values":["x"]}]}"#,
        )
        .unwrap();
        assert!(s.matches(&labels(&[("a", "1")])));
        assert!(!s.matches(&labels(&[("a", "1"), ("b", "x")])));
        assert!(!s.matches(&labels(&[("b", "y")])));
        assert_eq!(s.fault("reboot.protected_namespaces"), None);
    }

    #[test]
    fn an_operator_without_values_is_a_fault_with_its_path() {
        let s: Selector = serde_json::from_str(r#"{"matchExpressions":[{"key":"b","operator":"In"}]}"#).unwrap();
        assert!(s.fault("x").unwrap().starts_with("x.matchExpressions[0]"));
    }

    #[test]
    fn a_selector_is_parsed_in_kubectl_syntax() {
        let seen = labels(&[("rack", "3"), ("cke.cybozu.com/role", "cs"), ("gpu", "")]);
        for (text, matches) in [
            ("rack=3", true),
            ("rack==3,cke.cybozu.com/role=cs", true),
            ("rack=3,cke.cybozu.com/role!=cs", false),
            ("rack in (1, 3), gpu", true),
            ("rack notin (1,3)", false),
            ("zone notin (a)", true),
            ("!gpu", false),
            ("!zone,gpu", true),
            ("zone!=b", true),
        ] {
            assert_eq!(text.parse::<Selector>().unwrap().matches(&seen), matches, "{text}");
        }
        for (invalid, expected) in [
            ("", "at least one label"),
            (",", "empty requirement between two commas"),
            ("a=1,,b=2", "empty requirement between two commas"),
            ("=3", "is not a label key"),
            ("rack in (1", "missing )"),
            ("rack of (1)", "key in (a,b)"),
            ("a b", "is not a label key"),
            ("a=b c", "is not a label value"),
        ] {
            assert!(invalid.parse::<Selector>().unwrap_err().contains(expected), "{invalid}");
        }
    }
}

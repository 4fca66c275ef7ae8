//! Kubernetes label selectors, as the definition and budgets write them.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// `matchLabels` and `matchExpressions`, all of which must hold. The empty selector matches everything.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
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
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Requirement {
    /// The label's key.
    pub key: String,
    /// How it is compared.
    pub operator: Operator,
    /// The values for `In` and `NotIn`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub values: Option<Vec<String>>,
}

/// The four operators of `matchExpressions`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Operator {
    /// The value is one of these.
    In,
    /// The label is absent or its value is none of these.
    NotIn,
    /// The label is there.
    Exists,
    /// The label is absent.
    DoesNotExist,
}

impl Selector {
    /// Whether all conditions hold for these labels.
    pub fn matches(&self, labels: &BTreeMap<String, String>) -> bool {
        self.match_labels.iter().flatten().all(|(key, value)| labels.get(key) == Some(value))
            && self.match_expressions.iter().flatten().all(|r| r.holds(labels))
    }

    /// What is wrong with it, naming the place below `field`; `None` when it is valid.
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
    fn expressions_count_too() {
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
    fn an_operator_without_its_values_is_a_fault_with_its_place() {
        let s: Selector = serde_json::from_str(r#"{"matchExpressions":[{"key":"b","operator":"In"}]}"#).unwrap();
        assert!(s.fault("x").unwrap().starts_with("x.matchExpressions[0]"));
    }
}

//! Conditions of a pod on the node that takes it: selector, node affinity, tolerations. Taints of nodes.

use std::fmt;

use crate::{labels::Labels, names::NodeName};

/// Conditions of a pod on its node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct NodeRules {
    /// `nodeSelector`: labels that must have exactly these values.
    pub selector: Labels,
    /// Required node affinity.
    pub affinity: Option<NodeSelector>,
    /// Tolerations.
    pub tolerations: Vec<Toleration>,
}

impl NodeRules {
    /// Reports whether the pod tolerates this taint.
    pub fn tolerates(&self, taint: &NodeTaint) -> bool {
        self.tolerations.iter().any(|toleration| toleration.tolerates(taint))
    }

    /// Returns the first taint that keeps the pod away.
    pub fn untolerated<'a>(&self, taints: &'a [NodeTaint]) -> Option<&'a NodeTaint> {
        taints.iter().find(|taint| taint.effect.keeps_away() && !self.tolerates(taint))
    }

    /// Reports whether selector and affinity accept a node.
    pub fn accept(&self, name: &NodeName, labels: &Labels) -> bool {
        self.selected(labels) && self.affinity.as_ref().is_none_or(|affinity| affinity.matches(name, labels))
    }

    /// Reports whether the node selector accepts these labels.
    pub fn selected(&self, labels: &Labels) -> bool {
        self.selector.iter().all(|(key, value)| labels.get(key) == Some(value))
    }
}

/// Selector of nodes: any of its terms must match. Without a term it matches nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct NodeSelector {
    /// Alternatives.
    pub terms: Vec<NodeTerm>,
}

impl NodeSelector {
    /// Reports whether one of the terms matches a node.
    pub fn matches(&self, name: &NodeName, labels: &Labels) -> bool {
        self.terms.iter().any(|term| term.matches(name, labels))
    }
}

/// One alternative of a node selector. All its requirements must hold; an empty one matches nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct NodeTerm {
    /// `matchExpressions`: requirements on labels.
    pub labels: Vec<NodeRequirement>,
    /// `matchFields`: requirements on `metadata.name`.
    pub names: Vec<NodeRequirement>,
}

impl NodeTerm {
    fn matches(&self, name: &NodeName, labels: &Labels) -> bool {
        (!self.labels.is_empty() || !self.names.is_empty())
            && self.labels.iter().all(|r| r.holds(labels.get(&r.key).map(String::as_str)))
            && self.names.iter().all(|r| r.holds(Some(name.as_str())))
    }
}

/// One requirement on a label or the name of a node.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct NodeRequirement {
    /// Key of the label, or `metadata.name`.
    pub key: String,
    /// Comparison with the value.
    pub test: NodeTest,
}

impl NodeRequirement {
    fn holds(&self, value: Option<&str>) -> bool {
        let number = || value.and_then(|value| value.parse::<i64>().ok());
        let listed = |values: &[String]| value.is_some_and(|value| values.iter().any(|v| v == value));
        match &self.test {
            NodeTest::In(values) => listed(values),
            NodeTest::NotIn(values) => !listed(values),
            NodeTest::Exists => value.is_some(),
            NodeTest::DoesNotExist => value.is_none(),
            NodeTest::Gt(than) => number().is_some_and(|number| number > *than),
            NodeTest::Lt(than) => number().is_some_and(|number| number < *than),
        }
    }
}

/// Operators of node selectors with their values.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum NodeTest {
    /// The value is one of these.
    In(Vec<String>),
    /// The label is absent or its value is none of these.
    NotIn(Vec<String>),
    /// The label is present.
    Exists,
    /// The label is absent.
    DoesNotExist,
    /// The value is a larger integer.
    Gt(i64),
    /// The value is a smaller integer.
    Lt(i64),
}

/// Effect of a taint.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum TaintEffect {
    /// Pods are not scheduled.
    NoSchedule,
    /// Pods are rather scheduled elsewhere.
    PreferNoSchedule,
    /// Pods are not scheduled, and running ones are evicted.
    NoExecute,
}

impl TaintEffect {
    /// Returns the effect of this name.
    pub fn named(name: &str) -> Option<Self> {
        Some(match name {
            "NoSchedule" => Self::NoSchedule,
            "PreferNoSchedule" => Self::PreferNoSchedule,
            "NoExecute" => Self::NoExecute,
            _ => return None,
        })
    }

    /// Returns the name.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::NoSchedule => "NoSchedule",
            Self::PreferNoSchedule => "PreferNoSchedule",
            Self::NoExecute => "NoExecute",
        }
    }

    fn keeps_away(self) -> bool {
        match self {
            Self::NoSchedule | Self::NoExecute => true,
            Self::PreferNoSchedule => false,
        }
    }
}

/// Taint of a node.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeTaint {
    /// Key of the taint.
    pub key: String,
    /// Value of the taint.
    pub value: String,
    /// Effect of the taint.
    pub effect: TaintEffect,
}

impl NodeTaint {
    /// Builds a taint without a value whose effect is `NoSchedule`.
    pub fn no_schedule(key: &str) -> Self {
        Self { key: key.to_owned(), value: String::new(), effect: TaintEffect::NoSchedule }
    }
}

impl fmt::Display for NodeTaint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let equals = if self.value.is_empty() { "" } else { "=" };
        write!(f, "{}{equals}{}:{}", self.key, self.value, self.effect.as_str())
    }
}

/// Toleration of a pod.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Toleration {
    /// Key of the tolerated taints; all keys if there is none.
    pub key: Option<String>,
    /// Value of the tolerated taints; all values if there is none (`operator: Exists`).
    pub value: Option<String>,
    /// Effect of the tolerated taints; all effects if there is none.
    pub effect: Option<TaintEffect>,
}

impl Toleration {
    /// Reports whether it tolerates this taint.
    pub fn tolerates(&self, taint: &NodeTaint) -> bool {
        self.key.as_ref().is_none_or(|key| *key == taint.key)
            && self.value.as_ref().is_none_or(|value| *value == taint.value)
            && self.effect.is_none_or(|effect| effect == taint.effect)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(pairs: &[(&str, &str)]) -> Labels {
        pairs.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect()
    }

    fn list(values: &[&str]) -> Vec<String> {
        values.iter().map(|v| (*v).to_owned()).collect()
    }

    fn one(key: &str, test: NodeTest) -> NodeSelector {
        NodeSelector {
            terms: vec![NodeTerm { labels: vec![NodeRequirement { key: key.to_owned(), test }], names: Vec::new() }],
        }
    }

    #[test]
    fn operators_of_node_affinity() {
        let (name, labels) = (NodeName::new("n1"), labels(&[("rack", "7"), ("gpu", ""), ("zone", "a")]));
        for (key, test, expected) in [
            ("rack", NodeTest::In(list(&["6", "7"])), true),
            ("rack", NodeTest::In(Vec::new()), false),
            ("none", NodeTest::In(list(&[""])), false),
            ("rack", NodeTest::NotIn(list(&["7"])), false),
            ("none", NodeTest::NotIn(list(&["7"])), true),
            ("gpu", NodeTest::Exists, true),
            ("none", NodeTest::Exists, false),
            ("gpu", NodeTest::DoesNotExist, false),
            ("none", NodeTest::DoesNotExist, true),
            ("rack", NodeTest::Gt(6), true),
            ("rack", NodeTest::Gt(7), false),
            ("rack", NodeTest::Lt(8), true),
            ("zone", NodeTest::Lt(8), false),
            ("none", NodeTest::Lt(8), false),
        ] {
            assert_eq!(one(key, test.clone()).matches(&name, &labels), expected, "{key} {test:?}");
        }
    }

    #[test]
    fn empty_selectors_and_terms_match_nothing() {
        let name = NodeName::new("n1");
        assert!(!NodeSelector::default().matches(&name, &Labels::new()));
        assert!(!NodeSelector { terms: vec![NodeTerm::default()] }.matches(&name, &Labels::new()));
        assert!(NodeRules::default().accept(&name, &Labels::new()));
        let names = vec![NodeRequirement { key: "metadata.name".to_owned(), test: NodeTest::In(list(&["n1"])) }];
        let fields = NodeSelector { terms: vec![NodeTerm { labels: Vec::new(), names }] };
        assert!(fields.matches(&name, &Labels::new()));
        assert!(!fields.matches(&NodeName::new("n2"), &Labels::new()));
    }

    #[test]
    fn tolerations_compare_key_value_and_effect() {
        let taint = NodeTaint { key: "d".to_owned(), value: "db".to_owned(), effect: TaintEffect::NoExecute };
        assert_eq!(taint.to_string(), "d=db:NoExecute");
        assert_eq!(NodeTaint::no_schedule("a").to_string(), "a:NoSchedule");
        let text = |text: &str| Some(text.to_owned());
        for (key, value, effect, expected) in [
            (None, None, None, true),
            (text("d"), None, None, true),
            (text("d"), text("db"), None, true),
            (text("d"), text(""), None, false),
            (text("x"), None, None, false),
            (text("d"), None, Some(TaintEffect::NoExecute), true),
            (text("d"), None, Some(TaintEffect::NoSchedule), false),
        ] {
            let toleration = Toleration { key, value, effect };
            assert_eq!(toleration.tolerates(&taint), expected, "{toleration:?}");
            let rules = NodeRules { tolerations: vec![toleration], ..NodeRules::default() };
            assert_eq!(rules.untolerated(std::slice::from_ref(&taint)).is_none(), expected);
        }
        let prefer = NodeTaint { effect: TaintEffect::PreferNoSchedule, ..taint };
        assert_eq!(NodeRules::default().untolerated(&[prefer]), None);
    }
}

//! Labels, annotations and taints that a cluster definition can set on a Node: present and wanted state.

use std::{collections::BTreeMap, fmt};

use serde::{Deserialize, Serialize};

use super::cluster::Taint;

/// Names with values, sorted by name, in one allocation. There are 5,000 Nodes with about twenty of them each.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "BTreeMap<String, String>", into = "BTreeMap<String, String>")]
pub struct PackedPairs(Box<str>);

impl PackedPairs {
    /// Returns names and values in the order of the names.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        let mut parts = self.0.split_terminator('\0');
        std::iter::from_fn(move || Some((parts.next()?, parts.next()?)))
    }

    /// Returns the value of a name.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.iter().find(|(n, _)| *n == name).map(|(_, value)| value)
    }
}

impl FromIterator<(String, String)> for PackedPairs {
    fn from_iter<T: IntoIterator<Item = (String, String)>>(pairs: T) -> Self {
        let mut text = String::new();
        for (name, value) in pairs.into_iter().collect::<BTreeMap<_, _>>() {
            text.extend([name.as_str(), "\0", &value.replace('\0', " "), "\0"]);
        }
        Self(text.into_boxed_str())
    }
}

impl From<BTreeMap<String, String>> for PackedPairs {
    fn from(map: BTreeMap<String, String>) -> Self {
        map.into_iter().collect()
    }
}

impl From<PackedPairs> for BTreeMap<String, String> {
    fn from(words: PackedPairs) -> Self {
        words.iter().map(|(n, v)| (n.to_owned(), v.to_owned())).collect()
    }
}

/// Present labels, annotations and taints of a Node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeMetadata {
    /// All labels.
    pub labels: PackedPairs,
    /// Annotations, except long ones, which are data of other programs.
    pub annotations: PackedPairs,
    /// All taints.
    pub taints: Vec<Taint>,
}

/// Changes to make on a Node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct MetadataPatch {
    /// Values to set; `None` = remove.
    pub labels: BTreeMap<String, Option<String>>,
    /// Values to set; `None` = remove.
    pub annotations: BTreeMap<String, Option<String>>,
    /// The whole new list, if it changes.
    pub taints: Option<Vec<Taint>>,
}

impl fmt::Display for MetadataPatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let words = |kind: &'static str, words: &BTreeMap<String, Option<String>>| {
            let each = words.iter().map(|(name, value)| match value {
                Some(value) => format!("{kind} {name}={value}"),
                None => format!("{kind} {name} removed"),
            });
            each.collect::<Vec<_>>()
        };
        let mut all = words("label", &self.labels);
        all.extend(words("annotation", &self.annotations));
        if let Some(taints) = &self.taints {
            let each = taints.iter().map(|t| format!("{}={}:{}", t.key, t.value, t.effect));
            all.push(format!("taints [{}]", each.collect::<Vec<_>>().join(", ")));
        }
        f.write_str(&all.join(", "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packed_pairs_round_trip_through_serde() {
        let words: PackedPairs =
            [("b", "2"), ("a", ""), ("c", "x=y\n")].map(|(k, v)| (k.to_owned(), v.to_owned())).into_iter().collect();
        assert_eq!(words.iter().collect::<Vec<_>>(), [("a", ""), ("b", "2"), ("c", "x=y\n")]);
        assert_eq!((words.get("a"), words.get("d")), (Some(""), None));
        let json = serde_json::to_string(&words).unwrap();
        assert_eq!(serde_json::from_str::<PackedPairs>(&json).unwrap(), words);
        assert_eq!(PackedPairs::default().iter().count(), 0);
    }
}

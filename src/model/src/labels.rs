//! Labels of a machine, and attributes that users name without the prefix of the label.

use std::collections::BTreeMap;

/// Labels by key.
pub type Labels = BTreeMap<String, String>;

/// Returns the value of a label by name: first the whole key, then CKE's own (`cke.cybozu.com/rack`), then any key that
/// ends with the name.
pub fn attribute<'a>(labels: &'a Labels, name: &str) -> Option<&'a String> {
    let other = || labels.iter().find(|(key, _)| key.rsplit('/').next() == Some(name)).map(|(_, value)| value);
    labels.get(name).or_else(|| labels.get(&format!("cke.cybozu.com/{name}"))).or_else(other)
}

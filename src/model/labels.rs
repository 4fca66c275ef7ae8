//! Labels of a machine, and the attributes that people name without their prefix.

use std::collections::BTreeMap;

/// Labels by key.
pub type Labels = BTreeMap<String, String>;

/// The value of the label of this name: the whole key first, then CKE's own (`cke.cybozu.com/rack`), then whoever else's
/// that ends with it.
pub fn attribute<'a>(labels: &'a Labels, name: &str) -> Option<&'a String> {
    let other = || labels.iter().find(|(key, _)| key.rsplit('/').next() == Some(name)).map(|(_, value)| value);
    labels.get(name).or_else(|| labels.get(&format!("cke.cybozu.com/{name}"))).or_else(other)
}

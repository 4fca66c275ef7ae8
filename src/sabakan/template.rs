//! The template: a cluster definition whose nodes stand for kinds of machines (seed, Cluster template).

use crate::model::cluster::{self, Cluster};

/// A template that was judged.
#[derive(Clone, Debug, PartialEq)]
pub struct Template {
    /// As it was written; its nodes have no addresses.
    pub cluster: Cluster,
    /// What a person should know.
    pub warnings: Vec<String>,
}

/// Why a template is refused: everything that is wrong with it, each with its place.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the template {}", .0.join("; "))]
pub struct TemplateError(pub Vec<String>);

impl Template {
    /// Reads YAML or JSON, as `sabakan set-template` takes it and as it is stored.
    pub fn read(text: &str) -> Result<Self, TemplateError> {
        let value = cluster::parse(text).map_err(|e| TemplateError(vec![e]))?;
        let cluster = serde_json::from_value(value).map_err(|e| TemplateError(vec![format!("cannot be read: {e}")]))?;
        Ok(Self { cluster, warnings: Vec::new() })
    }
}

//! Tables, the form in which `kubectl get` requests objects.

use jiff::Timestamp;
use serde_json::{Value, json};

use crate::kubernetes::Resource;

/// Function that computes a cell from an object at a given time.
pub(super) type Cell = fn(&Value, Timestamp) -> Value;

/// One column: name, type, format, priority (0 = always, 1 = wide), cell.
pub(super) struct Column(
    pub(super) &'static str,
    pub(super) &'static str,
    pub(super) &'static str,
    pub(super) u8,
    pub(super) Cell,
);

/// Part of the object that is sent with the cells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Include {
    Nothing,
    Metadata,
    Object,
}

/// Columns of a kind.
pub(super) struct Columns {
    columns: &'static [Column],
    include: Include,
}

impl Columns {
    pub(super) fn of(_: &'static Resource, columns: &'static [Column], include: &str) -> Self {
        let include = match include {
            "None" => Include::Nothing,
            "Object" => Include::Object,
            _ => Include::Metadata,
        };
        Self { columns, include }
    }

    /// Returns these objects as a table, with the column definitions if `headers`.
    pub(super) fn table(&self, objects: &[&Value], now: Timestamp, headers: bool) -> Value {
        let rows: Vec<Value> = objects.iter().map(|object| self.row(object, now)).collect();
        let version = objects.last().map(|o| o["metadata"]["resourceVersion"].clone()).unwrap_or_default();
        let mut table = json!({"kind": "Table", "apiVersion": "meta.k8s.io/v1",
            "metadata": {"resourceVersion": version}, "columnDefinitions": null, "rows": rows});
        if headers {
            let named = self.columns.iter().map(|Column(name, kind, format, priority, _)| {
                json!({"name": name, "type": kind, "format": format, "description": "", "priority": priority})
            });
            table["columnDefinitions"] = named.collect();
        }
        table
    }

    fn row(&self, object: &Value, now: Timestamp) -> Value {
        let cells: Vec<Value> = self.columns.iter().map(|Column(.., cell)| cell(object, now)).collect();
        let mut row = json!({"cells": cells});
        match self.include {
            Include::Nothing => {}
            Include::Metadata => row["object"] = metadata(object),
            Include::Object => row["object"] = object.clone(),
        }
        row
    }
}

/// Returns only the metadata of an object.
pub(super) fn metadata(object: &Value) -> Value {
    json!({"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": object["metadata"]})
}

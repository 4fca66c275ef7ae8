//! Columns that the operator chose for each table.

use std::collections::BTreeMap;

use super::column_id::ColumnId;

/// The chosen columns by table. A table without a choice is drawn with its own columns.
pub type VisibleColumns = BTreeMap<&'static str, Vec<ColumnId>>;

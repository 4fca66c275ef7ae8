//! Contents of etcd below the prefix: keys, limits, the typed copy, and the transactions that change it. Plain data; the
//! client is in `cketerm-clients`.

pub mod apply;
pub mod keys;
pub mod kind;
pub mod leadership;
pub mod limits;
mod parse;
pub mod recent;
pub mod registry_settings;
pub mod row;
pub mod transaction;
pub mod view;

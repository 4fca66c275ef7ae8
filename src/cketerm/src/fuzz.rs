//! Fuzz tests of the parsers that need nothing from their module. Others are next to their code: etcd's values beside
//! the decision rules, Kubernetes objects, answers of notification receivers, and the console.

mod files;
mod redfish;
mod registry;
mod words;

//! The parsers that need nothing of their room: etcd's values are beside the rules that act on them, Kubernetes' objects,
//! the answers of receivers and the console each in their own room.

mod files;
mod redfish;
mod registry;
mod words;

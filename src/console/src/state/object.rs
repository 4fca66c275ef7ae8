//! Objects of *Needs you*: everything that can wait for a person.

use cketerm_model::{
    batch::BatchId,
    entry::{EntryId, QueueKind},
    names::Address,
};

use super::{HostId, View, navigation::Target};

/// Object that waits for a person.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Object {
    /// A data source, by its name.
    Source(&'static str),
    /// The leader, or that there is none.
    Leadership,
    /// A whole queue.
    Queue(QueueKind),
    /// The cluster definition, and the one that is generated from the registry.
    Definition,
    /// A batch.
    Batch(QueueKind, BatchId),
    /// An entry.
    Entry(EntryId),
    /// A Node, or a member of the definition without one, by name.
    Node(String),
    /// A BareMetalHost.
    Host(HostId),
    /// A machine of the registry, by address.
    Machine(Address),
}

impl Object {
    /// Returns the target that a verb acts on and the detail shows. `None` if the object is no row of a table.
    pub fn target(&self) -> Option<Target> {
        match self {
            Self::Entry(id) => Some(Target::Entry(*id)),
            Self::Node(name) => Some(Target::Node(name.clone())),
            Self::Host(id) => Some(Target::Host(id.clone())),
            Self::Machine(address) => Some(Target::Machine(address.clone())),
            Self::Source(_) | Self::Leadership | Self::Queue(_) | Self::Batch(..) | Self::Definition => None,
        }
    }

    /// Returns the view that shows the object. Sources and leadership have no view of their own.
    pub fn view(&self) -> View {
        match self {
            Self::Source(_) | Self::Leadership => View::Overview,
            Self::Queue(queue) | Self::Batch(queue, _) => View::of_queue(*queue),
            Self::Definition => View::Diff,
            Self::Entry(id) => View::of_queue(id.queue),
            Self::Node(_) => View::Nodes,
            Self::Host(_) => View::Hosts,
            Self::Machine(_) => View::Machines,
        }
    }
}

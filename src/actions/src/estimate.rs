//! Estimated ends for commands, which have no engine: from one read of etcd and of the history.

use cketerm_clients::store::{Store, StoreError, pages::Part as PagePart};
use cketerm_model::{
    cketerm_records::{Ending, Progress},
    entry::{EntryId, QueueKind, Stored},
    kube::KubeView,
    names::Address,
    stored::{keys::Folder, view::StoreView},
};
use cketerm_rules::{
    eta::{Answer, Part, Question, part_of},
    start::Start,
    usual::{EndedTimes, MachineClass, UsualTimes},
};
use jiff::Timestamp;

/// Ended entries that are read.
const ENDED: u32 = 200;

/// Reads the usual durations of the cluster from the newest ended entries.
pub async fn usual_times(store: &Store, view: &StoreView) -> Result<UsualTimes, StoreError> {
    let page = store.page::<Ending>(Folder::History, PagePart::Newest, ENDED).await?;
    let ended = page.values.iter().filter_map(Stored::get).map(EndedTimes::of).collect();
    Ok(UsualTimes::of(ended, |address| MachineClass::of_address(view, address)))
}

/// Sources of an estimate, beside the question.
pub struct Basis<'a> {
    /// Contents of etcd, with the leader's published reasons.
    pub view: &'a StoreView,
    /// Contents of Kubernetes; may be empty if the definition has labels.
    pub kube: &'a KubeView,
    /// Usual durations.
    pub usual: &'a UsualTimes,
    /// Present time.
    pub now: Timestamp,
}

impl Basis<'_> {
    /// Estimates the end of sets of entries of a queue, and of the whole queue as the last one. `added`: machines that
    /// would be queued, the set 0.
    pub fn answers(
        &self,
        queue: QueueKind,
        added: &[Address],
        sets: usize,
        set: &dyn Fn(EntryId) -> Option<usize>,
    ) -> Vec<Answer> {
        let Basis { view: store, kube, usual, now } = *self;
        let progress = |id: EntryId| store.progress.get(&id).and_then(Stored::get);
        let reason_of = |id: EntryId| progress(id).and_then(|progress: &Progress| progress.reason.as_ref());
        let part: &dyn Fn(EntryId) -> Part = &|id| part_of(store, &reason_of, now, id);
        let queued = store.progress.keys().filter(|id| id.queue == queue && part(**id) == Part::Ends);
        let addresses = queued.filter_map(|id| store.entry(*id)).map(|entry| entry.address().clone());
        let addresses: Vec<Address> = addresses.chain(added.iter().cloned()).collect();
        let start = &Start::of(store, kube, false, queue, &addresses, now);
        Question { store, kube, queue, usual, start, part, set, sets, added, now }.answers()
    }
}

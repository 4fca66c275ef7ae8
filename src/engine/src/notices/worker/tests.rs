//! Tests of the task of one receiver, while etcd does not answer.

use std::{collections::BTreeSet, sync::atomic::Ordering::SeqCst};

use cketerm_clients::notices::{Channel, Limits, Template};
use cketerm_model::notice::{Leadership, Notice, Pending};
use cketerm_rules::snapshot::Leading;
use jiff::Timestamp;
use tokio::sync::watch;

use super::*;
use crate::{
    counters::Counters,
    notices::Delivery,
    tests::{self as offline, CREATE_REVISION},
};

async fn worker(kinds: &[Kind], seen: Seen) -> NotificationWorker {
    let actor = offline::actor(&watch::Sender::default()).await;
    let delivery = Delivery { http: offline::http(), spawner: actor.spawner.clone() };
    let context = NotifierContext {
        actor,
        seen: watch::channel(Arc::new(seen)).1,
        delivery,
        board: Arc::default(),
        counters: Arc::new(Counters::default()),
        scenes: Arc::default(),
    };
    let receiver = Receiver {
        name: "pager".to_owned(),
        kinds: kinds.iter().copied().collect::<BTreeSet<_>>(),
        channel: Channel::Program(vec!["page".to_owned()]),
        template: Template::default(),
        limits: Limits::default(),
    };
    NotificationWorker::new(context, receiver)
}

/// Returns a pass whose history was written last at this revision.
fn pass(history: i64) -> Seen {
    let mut seen = Seen::default();
    Arc::make_mut(&mut seen.snapshot.store).grown.insert(Folder::History, history);
    seen
}

#[tokio::test(start_paused = true)]
async fn a_receiver_of_finished_or_failed_entries_reads_the_history() {
    for (kinds, reads) in [
        (&[Kind::Finished][..], true),
        (&[Kind::Failed], true),
        (&[Kind::Finished, Kind::Failed], true),
        (&[Kind::Stuck], false),
    ] {
        assert_eq!(worker(kinds, Seen::default()).await.needs_endings(), reads, "{kinds:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_history_without_new_records_is_not_read_again() {
    let mut worker = worker(&[Kind::Finished], Seen::default()).await;
    worker.read = (5, true);
    assert!(worker.endings(&pass(5), 1).await.complete);
    assert!(!worker.endings(&pass(6), 1).await.complete, "there is a new record");
    worker.read = (5, false);
    worker.unread = (0, BootTime::ZERO);
    assert!(!worker.endings(&pass(5), 1).await.complete, "the last read was not complete");
}

#[tokio::test(start_paused = true)]
async fn a_notice_waits_in_memory_while_this_engine_may_deliver_none() {
    let mut seen = Seen::default();
    let leading = Leading {
        key: "/cke/leader/1".to_owned(),
        create_revision: CREATE_REVISION,
        since: BootTime::ZERO,
        acknowledged: BootTime::ZERO,
    };
    seen.snapshot.engine.leading = Some(leading);
    let mut worker = worker(&[], seen).await;
    let notice = Notice::new(Kind::Stuck, "stuck".to_owned(), "w1 is stuck".to_owned(), Timestamp::UNIX_EPOCH);
    let state = NotifierState {
        leader: Some(Leadership { create_revision: CREATE_REVISION, host: String::new() }),
        pending: vec![Pending { notice, begun: true }],
        ..NotifierState::default()
    };
    worker.stored = Some((state.clone(), 5));
    worker.context.actor.ending.store(true, SeqCst);
    assert!(matches!(worker.round().await, Ok(GATHER)));
    assert_eq!(worker.stored, Some((state, 5)));
    assert_eq!(worker.tries, 0);
}

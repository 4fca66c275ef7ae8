use std::time::Duration;

use etcd_client::{EventType, Txn, TxnOp, WatchFilterType, WatchOptions, WatchResponse, WatchStream};

use super::*;

/// Returns the next message, if there is one once every task is idle.
async fn next_message(stream: &mut WatchStream) -> Option<WatchResponse> {
    let message = tokio::time::timeout(Duration::from_millis(1), stream.message()).await.ok()?;
    Some(message.unwrap().unwrap())
}

/// Returns the events of a message: `+key@revision` and `-key@revision`.
fn events(message: &WatchResponse) -> String {
    let event = |e: &etcd_client::Event| {
        let kv = e.kv().unwrap();
        let sign = if e.event_type() == EventType::Put { '+' } else { '-' };
        format!("{sign}{}@{}", kv.key_str().unwrap(), kv.mod_revision())
    };
    message.events().iter().map(event).collect::<Vec<_>>().join(" ")
}

/// Opens a watch and consumes its first message, which reports that the watch was created.
async fn watch(client: &mut Client, key: &str, options: WatchOptions) -> WatchStream {
    let mut stream = client.watch(key, Some(options)).await.unwrap();
    let made = stream.message().await.unwrap().unwrap();
    assert!(made.created(), "{made:?}");
    stream
}

#[tokio::test(start_paused = true)]
async fn all_events_of_a_revision_arrive_in_one_message() {
    let (etcd, mut client) = etcd();
    etcd.put("/old", "1");
    let mut stream = watch(&mut client, "/", WatchOptions::new().with_prefix()).await;
    assert!(next_message(&mut stream).await.is_none());
    let ops = [TxnOp::put("/a", "1", None), TxnOp::delete("/old", None), TxnOp::put("x", "1", None)];
    client.txn(Txn::new().and_then(ops)).await.unwrap();
    etcd.put("x", "2");
    etcd.put("/a", "2");
    let message = next_message(&mut stream).await.unwrap();
    assert_eq!((events(&message).as_str(), message.header().unwrap().revision()), ("+/a@3 -/old@3", 3));
    let deleted = message.events()[1].kv().unwrap();
    assert_eq!((deleted.create_revision(), deleted.version(), deleted.value()), (0, 0, &b""[..]));
    assert_eq!(events(&next_message(&mut stream).await.unwrap()), "+/a@5");
    assert!(next_message(&mut stream).await.is_none());
}

#[tokio::test(start_paused = true)]
async fn a_watch_from_an_old_revision_replays_changes_and_continues() {
    let (etcd, mut client) = etcd();
    for value in ["1", "2", "3"] {
        etcd.put("a", value);
    }
    etcd.delete("a");
    let mut stream = watch(&mut client, "a", WatchOptions::new().with_start_revision(3).with_prev_key()).await;
    let message = next_message(&mut stream).await.unwrap();
    assert_eq!(events(&message), "+a@3 +a@4 -a@5");
    let before: Vec<_> = message.events().iter().map(|e| e.prev_kv().unwrap().value().to_vec()).collect();
    assert_eq!(before, [b"1", b"2", b"3"]);
    etcd.put("a", "4");
    let message = next_message(&mut stream).await.unwrap();
    assert!(message.events()[0].prev_kv().is_none());
    let mut later = watch(&mut client, "a", WatchOptions::new().with_start_revision(8)).await;
    etcd.put("a", "5");
    assert!(next_message(&mut later).await.is_none());
    etcd.put("a", "6");
    assert_eq!(events(&next_message(&mut later).await.unwrap()), "+a@8");
}

#[tokio::test(start_paused = true)]
async fn a_watch_from_a_compacted_revision_is_canceled_with_the_compact_revision() {
    let (etcd, mut client) = etcd();
    for value in ["1", "2", "3", "4"] {
        etcd.put("a", value);
    }
    let mut early = watch(&mut client, "a", WatchOptions::new()).await;
    etcd.put("a", "5");
    etcd.compact(4).unwrap();
    let mut stream = watch(&mut client, "a", WatchOptions::new().with_start_revision(3)).await;
    let ended = next_message(&mut stream).await.unwrap();
    assert!(ended.canceled());
    assert_eq!((ended.compact_revision(), ended.header().unwrap().revision()), (4, 0));
    let mut stream = watch(&mut client, "a", WatchOptions::new().with_start_revision(4).with_prev_key()).await;
    let message = next_message(&mut stream).await.unwrap();
    assert_eq!(events(&message), "+a@4 +a@5 +a@6");
    assert!(message.events()[0].prev_kv().is_none());
    // A watch that kept up lost nothing.
    assert_eq!(events(&next_message(&mut early).await.unwrap()), "+a@6");
}

#[tokio::test(start_paused = true)]
async fn watch_filters_suppress_puts_or_deletions() {
    let (etcd, mut client) = etcd();
    let filtered = |f| WatchOptions::new().with_filters([f]);
    let mut deletions = watch(&mut client, "a", filtered(WatchFilterType::NoPut)).await;
    let mut puts = watch(&mut client, "a", filtered(WatchFilterType::NoDelete)).await;
    etcd.put("a", "1");
    etcd.delete("a");
    assert_eq!(events(&next_message(&mut deletions).await.unwrap()), "-a@3");
    assert_eq!(events(&next_message(&mut puts).await.unwrap()), "+a@2");
    assert!(next_message(&mut puts).await.is_none() && next_message(&mut deletions).await.is_none());
}

#[tokio::test(start_paused = true)]
async fn watches_share_a_stream_and_are_canceled_individually() {
    let (etcd, mut client) = etcd();
    let mut stream = watch(&mut client, "a", WatchOptions::new()).await;
    stream.watch("b", Some(WatchOptions::new().with_watch_id(7))).await.unwrap();
    stream.watch("b", Some(WatchOptions::new().with_watch_id(7))).await.unwrap();
    stream.watch("z", Some(WatchOptions::new().with_range("y"))).await.unwrap();
    assert_eq!(next_message(&mut stream).await.unwrap().watch_id(), 7);
    let outcome = next_message(&mut stream).await.unwrap();
    assert!(outcome.created() && outcome.canceled() && outcome.watch_id() == -1);
    assert_eq!(outcome.cancel_reason(), "mvcc: duplicate watch ID provided on the WatchStream");
    assert_eq!(next_message(&mut stream).await.unwrap().cancel_reason(), "mvcc: watcher range is empty");
    etcd.put("b", "1");
    etcd.put("a", "1");
    let (first, second) = (next_message(&mut stream).await.unwrap(), next_message(&mut stream).await.unwrap());
    assert_eq!((first.watch_id(), events(&first).as_str()), (7, "+b@2"));
    assert_eq!((second.watch_id(), events(&second).as_str()), (0, "+a@3"));
    stream.cancel(7).await.unwrap();
    let ended = next_message(&mut stream).await.unwrap();
    assert!(ended.canceled() && ended.watch_id() == 7 && ended.compact_revision() == 0);
    etcd.put("b", "2");
    assert!(next_message(&mut stream).await.is_none());
    drop(stream);
    assert!(etcd.state().sessions.is_empty());
}

#[tokio::test(start_paused = true)]
async fn progress_is_reported_on_request_and_every_ten_minutes() {
    let (etcd, mut client) = etcd();
    let begun = Instant::now();
    let mut stream = watch(&mut client, "a", WatchOptions::new().with_progress_notify()).await;
    etcd.put("x", "1");
    stream.request_progress().await.unwrap();
    let progress = next_message(&mut stream).await.unwrap();
    assert_eq!((progress.watch_id(), progress.header().unwrap().revision(), progress.events().len()), (-1, 2, 0));
    let progress = stream.message().await.unwrap().unwrap();
    assert_eq!((progress.watch_id(), progress.header().unwrap().revision(), progress.events().len()), (0, 2, 0));
    assert_eq!(begun.elapsed().as_secs(), 600);
    // etcd 3.6 sends no progress while a watch of the stream has not begun.
    let mut later = watch(&mut client, "a", WatchOptions::new().with_start_revision(4)).await;
    later.request_progress().await.unwrap();
    assert!(next_message(&mut later).await.is_none());
    etcd.put("x", "1");
    etcd.put("x", "1");
    later.request_progress().await.unwrap();
    assert_eq!(next_message(&mut later).await.unwrap().header().unwrap().revision(), 4);
}

#[tokio::test(start_paused = true)]
async fn watches_can_be_cut_and_stalled() {
    let (etcd, mut client) = etcd();
    let mut stream = watch(&mut client, "a", WatchOptions::new()).await;
    etcd.stall_watches(true);
    etcd.put("a", "1");
    etcd.put("a", "2");
    stream.request_progress().await.unwrap();
    assert!(next_message(&mut stream).await.is_none());
    let mut new_watch = watch(&mut client, "a", WatchOptions::new().with_start_revision(2)).await;
    assert!(next_message(&mut new_watch).await.is_none());
    etcd.stall_watches(false);
    assert_eq!(events(&next_message(&mut stream).await.unwrap()), "+a@2 +a@3");
    assert_eq!(next_message(&mut stream).await.unwrap().header().unwrap().revision(), 3);
    assert_eq!(events(&next_message(&mut new_watch).await.unwrap()), "+a@2 +a@3");
    let waiting = tokio::spawn(async move { outcome(stream.message().await) });
    tokio::time::sleep(Duration::from_millis(1)).await;
    etcd.cut_watches();
    assert_eq!(waiting.await.unwrap(), "Unavailable: no leader");
    let mut again = watch(&mut client, "a", WatchOptions::new()).await;
    etcd.put("a", "3");
    assert_eq!(events(&next_message(&mut again).await.unwrap()), "+a@4");
}

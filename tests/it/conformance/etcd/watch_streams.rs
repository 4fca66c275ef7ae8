//! Several watches on one stream, cancelling, progress.

use std::sync::Arc;

use etcd_client::WatchOptions;
use serde_json::{Value, json};

use super::{super::target::Target, session::Session};

crate::conformance::cases!("etcd watch stream":
    two_watches, ids_of_ones_own, an_id_that_is_taken, the_same_key_twice, cancelled, an_unknown_id_cancelled, progress_of_one,
    progress_of_several, progress_without_a_watch, a_second_watch_from_the_past);

async fn two_watches(target: Arc<Target>) -> Value {
    let mut t = Session::new(&target, "two").await;
    let mut stream = t.watch("a", None).await;
    t.note_message(&mut stream).await;
    stream.watch(t.k("b"), None).await.expect("a watch");
    t.note_message(&mut stream).await;
    t.put("a", "1", None).await;
    t.note_message(&mut stream).await;
    t.put("b", "1", None).await;
    t.note_message(&mut stream).await;
    t.put("c", "1", None).await;
    t.put("a", "2", None).await;
    t.note_message(&mut stream).await;
    t.end()
}

async fn ids_of_ones_own(target: Arc<Target>) -> Value {
    let mut t = Session::new(&target, "own-ids").await;
    let mut stream = t.watch("a", Some(WatchOptions::new().with_watch_id(77))).await;
    t.note_message(&mut stream).await;
    stream.watch(t.k("b"), None).await.expect("a watch");
    t.note_message(&mut stream).await;
    t.put("a", "1", None).await;
    t.note_message(&mut stream).await;
    t.put("b", "1", None).await;
    t.note_message(&mut stream).await;
    t.end()
}

async fn an_id_that_is_taken(target: Arc<Target>) -> Value {
    let mut t = Session::new(&target, "taken").await;
    let mut stream = t.watch("a", Some(WatchOptions::new().with_watch_id(7))).await;
    t.note_message(&mut stream).await;
    stream.watch(t.k("b"), Some(WatchOptions::new().with_watch_id(7))).await.expect("a watch");
    t.note_message(&mut stream).await;
    t.put("b", "1", None).await;
    t.put("a", "1", None).await;
    t.note_message(&mut stream).await;
    t.end()
}

async fn the_same_key_twice(target: Arc<Target>) -> Value {
    let mut t = Session::new(&target, "twice").await;
    let mut stream = t.watch("a", None).await;
    t.note_message(&mut stream).await;
    stream.watch(t.k(""), Some(WatchOptions::new().with_prefix())).await.expect("a watch");
    t.note_message(&mut stream).await;
    t.put("a", "1", None).await;
    let mut both = Vec::new();
    for _ in 0..2 {
        let message = stream.message().await.expect("the stream works").expect("a message");
        both.push((message.watch_id(), message.events().len()));
    }
    both.sort_unstable();
    t.note("both heard", json!(both));
    t.end()
}

async fn cancelled(target: Arc<Target>) -> Value {
    let mut t = Session::new(&target, "cancelled").await;
    let mut stream = t.watch("a", None).await;
    t.note_message(&mut stream).await;
    stream.watch(t.k("b"), None).await.expect("a watch");
    t.note_message(&mut stream).await;
    stream.cancel(0).await.expect("sent");
    t.note_message(&mut stream).await;
    t.put("a", "1", None).await;
    t.put("b", "1", None).await;
    t.note_message(&mut stream).await;
    t.end()
}

async fn an_unknown_id_cancelled(target: Arc<Target>) -> Value {
    let mut t = Session::new(&target, "unknown-id").await;
    let mut stream = t.watch("a", None).await;
    t.note_message(&mut stream).await;
    stream.cancel(99).await.expect("sent");
    t.put("a", "1", None).await;
    t.note_message(&mut stream).await;
    t.end()
}

async fn progress_of_one(target: Arc<Target>) -> Value {
    let mut t = Session::new(&target, "progress").await;
    let mut stream = t.watch("a", None).await;
    t.note_message(&mut stream).await;
    t.put("b", "1", None).await;
    stream.request_progress().await.expect("sent");
    t.note_message(&mut stream).await;
    t.put("a", "1", None).await;
    t.note_message(&mut stream).await;
    stream.request_progress().await.expect("sent");
    t.note_message(&mut stream).await;
    t.end()
}

async fn progress_of_several(target: Arc<Target>) -> Value {
    let mut t = Session::new(&target, "progress-several").await;
    let mut stream = t.watch("a", None).await;
    t.note_message(&mut stream).await;
    stream.watch(t.k("b"), None).await.expect("a watch");
    t.note_message(&mut stream).await;
    stream.request_progress().await.expect("sent");
    t.note_message(&mut stream).await;
    t.put("b", "1", None).await;
    t.note_message(&mut stream).await;
    t.end()
}

async fn progress_without_a_watch(target: Arc<Target>) -> Value {
    let mut t = Session::new(&target, "progress-none").await;
    let mut stream = t.watch("a", None).await;
    t.note_message(&mut stream).await;
    stream.cancel(0).await.expect("sent");
    t.note_message(&mut stream).await;
    stream.request_progress().await.expect("sent");
    stream.watch(t.k("b"), None).await.expect("a watch");
    // Without a watch a server may skip the progress report: accept either message, keep the creation.
    for _ in 0..2 {
        let message = stream.message().await.expect("the stream works").expect("a message");
        if message.created() {
            t.note("created", json!(message.watch_id()));
            break;
        }
        t.note("progress", json!(message.watch_id()));
    }
    t.end()
}

async fn a_second_watch_from_the_past(target: Arc<Target>) -> Value {
    let mut t = Session::new(&target, "second-past").await;
    t.fill(&[("a", "1"), ("b", "1"), ("b", "2")]).await;
    let mut stream = t.watch("a", None).await;
    t.note_message(&mut stream).await;
    let from = t.base + 1;
    stream.watch(t.k("b"), Some(WatchOptions::new().with_start_revision(from))).await.expect("a watch");
    t.note_message(&mut stream).await;
    t.events(&mut stream, 2, true).await;
    t.put("a", "2", None).await;
    t.events(&mut stream, 1, true).await;
    t.end()
}

//! Compacted history. These cases change the server for all others.

use std::sync::Arc;

use serde_json::Value;

use super::{
    super::target::Target,
    lists::token,
    session::{PODS, Session},
};

crate::conformance::cases!("expired": a_forgotten_history, a_list_of_now);

async fn a_forgotten_history(target: Arc<Target>) -> Value {
    let mut k = Session::new(target).await;
    for name in ["a", "b"] {
        k.pod(name).await;
    }
    let first = k.get(&format!("{PODS}?limit=1")).await;
    let version = k.version(PODS).await;
    k.pod("c").await;
    k.target.forget().await;
    let query = format!("resourceVersion={version}&resourceVersionMatch=Exact");
    k.note_object("a list at a version", &format!("{PODS}?{query}"), &["/items/0/metadata/name"]).await;
    k.note_object("a page at a version", &format!("{PODS}?{query}&limit=5"), &["/items/0/metadata/name"]).await;
    let answer = k.get(&format!("{PODS}?limit=1&continue={}", token(&first.body))).await;
    k.note_answer("a token", &answer, &["/metadata/continue"]);
    let again = k.get(&format!("{PODS}?limit=9&continue={}", token(&answer.body))).await;
    k.note_answer(
        "the token it gave instead",
        &again,
        &["/items/0/metadata/name", "/items/1/metadata/name", "/items/2/metadata/name"],
    );
    for more in ["", "&allowWatchBookmarks=true", "&timeoutSeconds=9"] {
        let mut watch = k.watch(&format!("{PODS}?watch=true&resourceVersion={version}{more}")).await;
        k.events("a watch", &mut watch, 2, &[]).await;
    }
    k.end()
}

async fn a_list_of_now(target: Arc<Target>) -> Value {
    let mut k = Session::new(target).await;
    k.pod("a").await;
    k.target.compact().await;
    k.note_object("now", PODS, &["/items/0/metadata/name", "/items/1"]).await;
    let version = k.version(PODS).await;
    let mut watch = k.watch(&format!("{PODS}?watch=true&resourceVersion={version}")).await;
    k.pod("b").await;
    k.events("from now", &mut watch, 1, &[]).await;
    k.end()
}

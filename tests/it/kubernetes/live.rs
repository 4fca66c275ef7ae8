//! The live copy with a server that streams lists and with one that cannot, across restarts and gaps.

use std::{collections::BTreeSet, time::Duration};

use cketerm_clients::kubernetes::{Live, Release, Streaming};
use cketerm_model::{
    boot_time::Seconds,
    clock::Clock,
    drain::Verdict,
    entry::EntryId,
    kube::{HOSTS_SOURCE, Owner},
    names::NodeName,
};
use serde_json::json;

use super::servers::{Server, both, dedicated, permit, until};
use crate::{
    power::hosts::{HOSTS, define},
    world::wait_for,
};

async fn follow(server: &Server, streaming: Streaming) -> Live {
    let live = Live::follow(&server.kube().await, streaming);
    until("all four lists are synced", || live.borrow().synced()).await;
    live
}

#[tokio::test(flavor = "multi_thread")]
async fn lists_are_streamed_if_the_server_supports_it_and_paged_otherwise() {
    for server in both() {
        let (api, ns) = (server.api().await, server.api().await.namespace().await);
        let node = api.node("10.3.0.1").await;
        api.budget(&ns, "b").await;
        api.budget_status(&ns, "b", 0, (1, 3, 2)).await;
        let template =
            json!({"metadata": {"labels": {"d": "1"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
        api.post(
            &format!("/apis/apps/v1/namespaces/{ns}/daemonsets"),
            json!({"metadata": {"name": "d"}, "spec": {"selector": {"matchLabels": {"d": "1"}}, "template": template,
                "updateStrategy": {"type": "OnDelete"}}}),
        )
        .await;
        let before = server.requests().len();
        let live = follow(server, Streaming::Auto).await;
        let view = live.borrow();
        assert_eq!(view.by_address.get("10.3.0.1"), Some(&NodeName::new(&node)));
        assert_eq!(view.budgets[&(ns.clone(), "b".to_owned())].allowed, 1);
        assert!(view.daemon_sets.values().any(|d| d.namespace == ns && d.on_delete));
        assert_eq!(view.namespaces[&ns].labels["team"], "a");
        until("identity, rights and clock are known", || {
            let view = live.borrow();
            view.cluster_uid.is_some() && view.rights_known && view.clock_ahead.is_some()
        })
        .await;
        drop(live);
        // Watches are logged when they end.
        until("the server has logged the watches", || {
            server.requests()[before..].iter().any(|(_, uri)| uri.starts_with("/api/v1/nodes?watch=true"))
        })
        .await;
        let paged = server.requests()[before..].iter().any(|(_, uri)| uri.starts_with("/api/v1/nodes?limit=500"));
        let streamed = server.requests()[before..].iter().any(|(_, uri)| uri.contains("sendInitialEvents"));
        assert!(streamed && (paged || !server.old));
        let live = follow(server, Streaming::Off).await;
        assert!(live.borrow().nodes.contains_key(node.as_str()));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn changes_owner_records_and_deletions_reach_the_copy_at_once() {
    for server in both() {
        let (api, kube) = (server.api().await, server.kube().await);
        let live = follow(server, Streaming::Auto).await;
        let node = api.node("10.3.1.1").await;
        until("the node is Ready", || live.borrow().nodes.get(node.as_str()).is_some_and(|n| n.ready)).await;
        let row = live.borrow().nodes[node.as_str()].clone();
        let owner = Owner {
            lease: 1,
            entry: "reboots/1".parse::<EntryId>().unwrap(),
            schedulable_before: true,
            uid: row.uid.clone(),
            boot_id: row.boot_id.clone(),
            taken_over_rebooting: false,
            called_done: false,
            since: None,
            recordoned: 0,
        };
        let row = kube.stamp(&permit(), &row, &owner, true, true).await.unwrap();
        until("the node is marked", || live.borrow().marked.contains(node.as_str())).await;
        kube.release(&permit(), &row, Release { uncordon: true, drop_keep: false }).await.unwrap();
        until("the mark is removed", || !live.borrow().marked.contains(node.as_str())).await;
        let not_ready = json!({"status": {"conditions": [{"type": "Ready", "status": "Unknown"}]}});
        api.merge(&format!("/api/v1/nodes/{node}/status"), not_ready).await;
        until("the node is not Ready", || live.borrow().not_ready.contains(node.as_str())).await;
        api.delete(&format!("/api/v1/nodes/{node}")).await;
        until("the node is removed", || {
            let view = live.borrow();
            !view.nodes.contains_key(node.as_str())
                && !view.not_ready.contains(node.as_str())
                && !view.by_address.contains_key("10.3.1.1")
        })
        .await;
    }
}

/// On one thread, so that nothing is read between a request and the look at what it changed at once.
#[tokio::test]
async fn pods_are_watched_on_exactly_the_requested_nodes() {
    for server in both() {
        let (api, ns) = (server.api().await, server.api().await.namespace().await);
        let (a, b) = (api.node("10.3.2.1").await, api.node("10.3.2.2").await);
        api.pod(&ns, "a0", &a).await;
        api.pod(&ns, "b0", &b).await;
        let live = follow(server, Streaming::Auto).await;
        assert!(live.borrow().pods.is_empty());
        live.watch_pods(BTreeSet::from([NodeName::new(&a)]));
        assert!(
            live.borrow().pods[a.as_str()].pods.is_empty() && !live.borrow().pods[a.as_str()].synced,
            "the node gets an unsynced entry at once"
        );
        until("the pods of a are synced", || live.borrow().pods[a.as_str()].synced).await;
        assert_eq!(live.borrow().pods[a.as_str()].pods.len(), 1);
        assert!(live.borrow().sources["pods"].synced && !live.borrow().pods.contains_key(b.as_str()));
        api.pod(&ns, "a1", &a).await;
        until("the new pod is Ready", || {
            live.borrow().pods[a.as_str()].pods.values().any(|p| p.name == "a1" && p.ready)
        })
        .await;
        api.delete(&format!("/api/v1/namespaces/{ns}/pods/a0")).await;
        until("the deleted pod is removed", || live.borrow().pods[a.as_str()].pods.len() == 1).await;
        live.watch_pods(BTreeSet::from([NodeName::new(&b)]));
        assert!(!live.borrow().pods.contains_key(a.as_str()));
        until("the pods of b are synced", || live.borrow().pods[b.as_str()].synced).await;
        live.watch_pods(BTreeSet::from([&a, &b].map(NodeName::new)));
        assert!(!live.borrow().pods[a.as_str()].synced, "a node that is watched again must not count as synced");
        until("the pods of both nodes are synced", || live.borrow().pods.values().all(|p| p.synced)).await;
        live.watch_pods(BTreeSet::new());
        assert!(live.borrow().pods.is_empty() && !live.borrow().sources.contains_key("pods"));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_idle_healthy_server_never_looks_stale() {
    for server in both() {
        let live = follow(server, Streaming::Auto).await;
        for _ in 0..24 {
            tokio::time::sleep(Duration::from_millis(500)).await;
            let now = Clock::host().boot();
            for (name, source) in &live.borrow().sources {
                let age = now - source.last_seen;
                assert!(age < Seconds::new(10.0), "the last data of {name} is {age} old");
                assert_eq!(source.error, None);
            }
        }
    }
}

/// Objects that were deleted during the gap are gone afterwards, and requests in the meantime are answered.
#[tokio::test(flavor = "multi_thread")]
async fn the_copy_is_complete_again_after_a_restart_and_a_compaction() {
    for old in [false, true] {
        let Some((world, server)) = dedicated(old) else { continue };
        let api = server.api().await;
        let (kept_node, deleted_node) = (api.node("10.3.3.1").await, api.node("10.3.3.2").await);
        let live = follow(&server, Streaming::Auto).await;
        world.act("kill", "apiserver");
        until("the live copy reports an error", || live.borrow().sources["nodes"].error.is_some()).await;
        assert!(live.borrow().nodes.contains_key(deleted_node.as_str()), "known nodes must be kept during an outage");
        let mut etcd = etcd_client::Client::connect([&server.etcd], None).await.unwrap();
        etcd.delete(format!("/registry/minions/{deleted_node}"), None).await.unwrap();
        let revision = etcd.put("/noise", "1", None).await.unwrap().header().unwrap().revision();
        etcd.compact(revision, None).await.unwrap();
        world.act("start", "apiserver");
        let mut left = 600;
        while live.borrow().nodes.contains_key(deleted_node.as_str()) || live.borrow().sources["nodes"].error.is_some()
        {
            tokio::time::sleep(Duration::from_millis(50)).await;
            left -= 1;
            assert!(left > 0, "{:?}", live.borrow().sources);
        }
        assert!(live.borrow().nodes.contains_key(kept_node.as_str()));
        let api = server.api().await;
        let new = api.node("10.3.3.3").await;
        until("the new node is Ready", || live.borrow().nodes.get(new.as_str()).is_some_and(|n| n.ready)).await;
        // The server accepts connections but sends nothing.
        world.act("freeze", "apiserver");
        until("all sources report an error", || live.borrow().sources.values().all(|s| s.error.is_some())).await;
        world.act("thaw", "apiserver");
        until("no source reports an error", || live.borrow().sources.values().all(|s| s.error.is_none())).await;
        api.delete(&format!("/api/v1/nodes/{new}")).await;
        until("the watch reports the deletion", || !live.borrow().nodes.contains_key(new.as_str())).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_drained_node_of_ten_pods_costs_at_most_sixteen_requests() {
    let Some((_world, server)) = dedicated(false) else { return };
    let (api, kube) = (server.api().await, server.kube().await);
    let (ns, node) = (api.namespace().await, api.node("10.3.4.1").await);
    for i in 0..10 {
        api.pod(&ns, &format!("p{i}"), &node).await;
    }
    let live = follow(&server, Streaming::Auto).await;
    until("the rights are known", || live.borrow().rights_known).await;
    let before = server.requests().len();
    let row = live.borrow().nodes[node.as_str()].clone();
    let owner = Owner {
        lease: 1,
        entry: "reboots/1".parse::<EntryId>().unwrap(),
        schedulable_before: true,
        uid: row.uid.clone(),
        boot_id: row.boot_id.clone(),
        taken_over_rebooting: false,
        called_done: false,
        since: None,
        recordoned: 0,
    };
    live.watch_pods(BTreeSet::from([NodeName::new(&node)]));
    kube.stamp(&permit(), &row, &owner, true, true).await.unwrap();
    until("the pods are synced", || live.borrow().pods[node.as_str()].synced).await;
    let view = live.borrow();
    let write_permit = permit();
    let evictions = view.pods[node.as_str()].pods.values().map(|pod| kube.evict(&write_permit, pod, &[], false));
    for verdict in futures::future::join_all(evictions).await {
        assert_eq!(verdict, Verdict::Accepted);
    }
    until("all pods are terminating", || {
        live.borrow().pods[node.as_str()].pods.values().all(|p| p.terminating_since.is_some())
    })
    .await;
    // Delete the pods, as the kubelet would.
    for i in 0..10 {
        api.delete(&format!("/api/v1/namespaces/{ns}/pods/p{i}")).await;
    }
    until("no pods are left", || live.borrow().pods[node.as_str()].pods.is_empty()).await;
    kube.node(&NodeName::new(node.clone())).await.unwrap();
    assert!(kube.pods_on(&NodeName::new(node.clone())).await.unwrap().is_empty());
    live.watch_pods(BTreeSet::new());
    drop(live);
    until("the server has logged the watch of pods", || {
        server.requests()[before..].iter().any(|(_, uri)| uri.contains("fieldSelector") && uri.contains("watch"))
    })
    .await;
    let requests: Vec<_> = server.requests()[before..]
        .iter()
        .filter(|(_, uri)| !uri.contains("watch=true") || uri.contains("fieldSelector"))
        .filter(|(_, uri)| !uri.starts_with("/readyz"))
        .cloned()
        .collect();
    eprintln!("a drained node of ten pods: {} requests", requests.len());
    assert!((13..=16).contains(&requests.len()), "{requests:#?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn without_the_baremetalhost_crd_there_are_no_hosts_and_no_error() {
    let Some((world, server)) = dedicated(false) else { return };
    define(&world);
    let api = server.api().await;
    let host = json!({
        "apiVersion": "metal3.io/v1alpha1", "kind": "BareMetalHost", "metadata": {"name": "h1", "namespace": "default"},
        "spec": {"online": true, "bmc": {"address": "redfish://bmc", "credentialsName": "c"}},
    });
    api.post(HOSTS, host).await;
    let live = follow(&server, Streaming::Auto).await;
    live.watch_hosts(true);
    until("the host is known", || live.borrow().hosts.len() == 1).await;
    api.delete("/apis/apiextensions.k8s.io/v1/customresourcedefinitions/baremetalhosts.metal3.io").await;
    // the rows disappear with the objects; the missing kind is known once the watch cannot be reopened
    let none = || {
        let view = live.borrow();
        let source = &view.sources[HOSTS_SOURCE];
        let crd_missing = source.error.as_ref().is_some_and(|error| error.contains("CRD is not installed"));
        view.hosts.is_empty() && source.synced && crd_missing
    };
    wait_for("the missing CRD is reported and no host is left", 60, || none().then_some(()));
}

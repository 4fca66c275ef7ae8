//! Cordons with their record, conditioned on the Node's resourceVersion, and the API server's endpoints.

use cketerm_clients::kubernetes::{Release, WriteError};
use cketerm_model::{
    cketerm_records::Who,
    entry::EntryId,
    fence::Person,
    kube::{EndpointsRow, NodeRow, Owner},
    names::{Address, NodeName},
};
use serde_json::json;

use super::servers::{both, permit, unique_name};

fn owner(node: &NodeRow) -> Owner {
    Owner {
        lease: 7,
        entry: "reboots/3".parse::<EntryId>().unwrap(),
        schedulable_before: !node.unschedulable,
        uid: node.uid.clone(),
        boot_id: node.boot_id.clone(),
        taken_over_rebooting: false,
        called_done: false,
        since: None,
        recordoned: 0,
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn i9_cordon_and_owner_record_are_one_patch_that_fails_on_a_stale_version() {
    for server in both() {
        let (api, kube) = (server.api().await, server.kube().await);
        let name = api.node("10.1.0.1").await;
        let before = kube.node(&NodeName::new(name.clone())).await.unwrap().unwrap();
        assert!(
            before.ready
                && before.addresses.contains(&Address::new("10.1.0.1".to_owned()))
                && before.boot_id == "boot-1"
        );
        assert_eq!(before.volumes_in_use, ["kubernetes.io/csi/x"]);
        let keys: Vec<_> = before.shown_labels.iter().map(|(k, _)| k.as_str()).collect();
        assert_eq!(keys, ["cke.cybozu.com/role", "node-role.kubernetes.io/worker", "topology.kubernetes.io/zone"]);

        let after = kube.stamp(&permit(), &before, &owner(&before), true, true).await.unwrap();
        assert!(after.unschedulable && after.cke_mark);
        assert_eq!(after.owner(), Some(&owner(&before)));
        // I23: a patch by an older leader, or after any other patch, must fail.
        let late = kube.stamp(&permit(), &before, &owner(&before), true, true).await;
        assert_eq!(late, Err(WriteError::Conflict));
        let full_release = Release { uncordon: true, drop_keep: false };
        assert_eq!(kube.release(&permit(), &before, full_release).await, Err(WriteError::Conflict));

        let free = kube.release(&permit(), &after, full_release).await.unwrap();
        assert!(!free.unschedulable && !free.cke_mark && free.owner.is_none());
        let object = api.get(&format!("/api/v1/nodes/{name}")).await;
        assert_eq!(object["spec"].get("unschedulable"), None);
        assert_eq!(object["metadata"]["labels"]["noise"], "x", "other fields of the Node must not change");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn i11_an_administrators_cordon_outlives_cketerms() {
    for server in both() {
        let (api, kube) = (server.api().await, server.kube().await);
        let name = api.node("10.1.0.2").await;
        let path = format!("/api/v1/nodes/{name}");
        api.merge(&path, json!({"spec": {"unschedulable": true}})).await;
        let before = kube.node(&NodeName::new(name.clone())).await.unwrap().unwrap();
        let stamped = kube.stamp(&permit(), &before, &owner(&before), false, false).await.unwrap();
        assert!(stamped.unschedulable && !stamped.cke_mark && !stamped.owner().unwrap().schedulable_before);
        let after = kube.release(&permit(), &stamped, Release::default()).await.unwrap();
        assert!(after.unschedulable && after.owner.is_none());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn i12_uncordoning_a_node_with_keep_cordoned_is_reported() {
    for server in both() {
        let (api, kube) = (server.api().await, server.kube().await);
        let name = api.node("10.1.0.3").await;
        let before = kube.node(&NodeName::new(name.clone())).await.unwrap().unwrap();
        let stamped = kube.stamp(&permit(), &before, &owner(&before), true, true).await.unwrap();
        kube.annotate_keep_cordoned(&Person::asks(&Who::default()), &NodeName::new(name.clone()), true).await.unwrap();
        let stale = kube.release(&permit(), &stamped, Release { uncordon: true, drop_keep: false }).await;
        assert_eq!(stale, Err(WriteError::Conflict), "the release was decided before the administrator's annotation");
        let kept = kube.node(&NodeName::new(name.clone())).await.unwrap().unwrap();
        assert!(kept.keep_cordoned);
        let after = kube.release(&permit(), &kept, Release { uncordon: false, drop_keep: true }).await.unwrap();
        assert!(after.unschedulable && !after.keep_cordoned && !after.cke_mark && after.owner.is_none());
        kube.annotate_keep_cordoned(&Person::asks(&Who::default()), &NodeName::new(name.clone()), true).await.unwrap();
        kube.annotate_keep_cordoned(&Person::asks(&Who::default()), &NodeName::new(name.clone()), false).await.unwrap();
        assert!(!kube.node(&NodeName::new(name.clone())).await.unwrap().unwrap().keep_cordoned);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_deleted_node_and_an_unreadable_owner_record_are_reported() {
    for server in both() {
        let (api, kube) = (server.api().await, server.kube().await);
        let ghost =
            NodeRow { name: NodeName::new(unique_name("ghost")), resource_version: "1".into(), ..NodeRow::default() };
        assert_eq!(kube.stamp(&permit(), &ghost, &owner(&ghost), true, true).await, Err(WriteError::NotFound));
        assert_eq!(
            kube.annotate_keep_cordoned(&Person::asks(&Who::default()), &ghost.name, true).await,
            Err(WriteError::NotFound)
        );
        assert_eq!(kube.node(&ghost.name).await, Ok(None));
        let name = api.node("10.1.0.4").await;
        let broken = json!({"metadata": {"annotations": {"cketerm.io/owner": "not JSON"}}});
        api.merge(&format!("/api/v1/nodes/{name}"), broken).await;
        let row = kube.node(&NodeName::new(name.clone())).await.unwrap().unwrap();
        assert!(row.owner.as_ref().unwrap().as_ref().unwrap_err().contains("cketerm.io/owner"));
        let right = super::connections::impersonating(server, "nobody").await;
        let refused = right.stamp(&permit(), &row, &owner(&row), true, true).await.unwrap_err().to_string();
        assert!(refused.contains("403") && refused.contains(&name) && refused.contains("docs/rbac.yaml"), "{refused}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_address_is_removed_from_endpoints_and_restored_but_never_the_last_one() {
    for server in both() {
        let (api, kube) = (server.api().await, server.kube().await);
        for (ns, name, port) in [("default", "kubernetes", 6443), ("kube-system", "cke-etcd", 2379)] {
            let addresses = json!([{"ip": "10.2.0.1"}, {"ip": "10.2.0.2", "nodeName": "n2"}]);
            api.post(
                &format!("/api/v1/namespaces/{ns}/endpoints"),
                json!({"metadata": {"name": name}, "subsets": [{"addresses": addresses, "ports": [{"port": port}]}]}),
            )
            .await;
            api.post(
                &format!("/apis/discovery.k8s.io/v1/namespaces/{ns}/endpointslices"),
                json!({"metadata": {"name": name, "labels": {"kubernetes.io/service-name": name}},
                    "addressType": "IPv4", "ports": [{"port": port}],
                    "endpoints": [{"addresses": ["10.2.0.1"]}, {"addresses": ["10.2.0.2"], "nodeName": "n2"}]}),
            )
            .await;
        }
        let live = cketerm_clients::kubernetes::Live::follow(&kube, cketerm_clients::kubernetes::Streaming::Auto);
        live.watch_endpoints(true);
        super::servers::until("four endpoints objects are known", || live.borrow().endpoints.len() == 4).await;
        assert!(live.borrow().sources["endpoints"].synced);
        for row in &live.borrow().endpoints {
            assert_eq!(row.addresses, ["10.2.0.1", "10.2.0.2"]);
            kube.set_endpoints(&permit(), row, &[Address::new("10.2.0.2")]).await.unwrap();
            let stale = kube.set_endpoints(&permit(), row, &[Address::new("10.2.0.1")]).await;
            assert_eq!(stale, Err(WriteError::Conflict));
        }
        let one = |row: &EndpointsRow| row.addresses == ["10.2.0.2"];
        super::servers::until("each object has one address", || live.borrow().endpoints.iter().all(one)).await;
        for row in &live.borrow().endpoints {
            assert!(matches!(kube.set_endpoints(&permit(), row, &[]).await, Err(WriteError::Refused { .. })));
            let both = ["10.2.0.1", "10.2.0.2"].map(Address::new);
            kube.set_endpoints(&permit(), row, &both).await.unwrap();
        }
        let slice = api.get("/apis/discovery.k8s.io/v1/namespaces/kube-system/endpointslices/cke-etcd").await;
        assert_eq!(slice["ports"][0]["port"], 2379);
        assert_eq!(slice["endpoints"][0]["nodeName"], "n2");
        assert_eq!(slice["endpoints"].as_array().unwrap().len(), 2);
        live.watch_endpoints(false);
        super::servers::until("no endpoints are known", || live.borrow().endpoints.is_empty()).await;
    }
}

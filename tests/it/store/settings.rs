//! Settings that are stored once: schema, policy, constraints, identity, definition.

use cketerm_clients::store::{StoreError, election::Candidacy, operator::AuditNote};
use cketerm_model::{
    fence::Person,
    policy::{ApiServerOrder, EngineChoice},
};
use cketerm_runtime::heartbeat::Heartbeat;

use super::{
    etcd::{Etcd, any, versions},
    person, registration, who,
};

fn set_by<'a>(person: &'a Person, reason: Option<&'a str>) -> AuditNote<'a> {
    AuditNote::new(person, "policy set", "policy", reason)
}

#[tokio::test(flavor = "multi_thread")]
async fn the_first_policy_campaigns_only_without_traces_of_cke() {
    for (trace, choice) in [
        (None, EngineChoice::Cketerm),
        (Some("/cke/leader//7a"), EngineChoice::Cke),
        (Some("/cke/status"), EngineChoice::Cke),
        (Some("/cke/records"), EngineChoice::Cke),
        // CKE's queues alone do not show which program wrote them
        (Some("/cke/reboots/write-index"), EngineChoice::Cketerm),
    ] {
        let Some(etcd) = any() else { return };
        let store = etcd.store().await;
        if let Some(key) = trace {
            etcd.ctl(&["put", key, "1"]);
        }
        assert_eq!(store.ensure_schema(&who()).await, Ok(2));
        let stored = store.policy().await.unwrap().unwrap();
        assert_eq!(stored.get().unwrap().engine, choice, "{trace:?}");
        let view = store.read_view().await.unwrap();
        let (schema, policy) = (view.schema.unwrap(), view.policy.unwrap());
        assert_eq!(schema.mod_revision, policy.mod_revision, "schema and policy must be written in one transaction");
        // the choice is made only once
        etcd.ctl(&["put", "/cke/records", "4"]);
        assert_eq!(store.ensure_schema(&who()).await, Ok(2));
        assert_eq!(store.policy().await.unwrap().unwrap().mod_revision, policy.mod_revision);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cketerm_candidate_is_no_trace_of_cke() {
    let Some(etcd) = any() else { return };
    let store = etcd.store().await;
    let ttl = std::time::Duration::from_secs(5);
    let _candidacy = Candidacy::campaign(&store, ttl, "ours", registration(), &Heartbeat::new(ttl)).await.unwrap();
    store.ensure_schema(&who()).await.unwrap();
    assert_eq!(store.policy().await.unwrap().unwrap().get().unwrap().engine, EngineChoice::Cketerm);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_newer_schema_is_never_written() {
    let Some(etcd) = any() else { return };
    let store = etcd.store().await;
    etcd.ctl(&["put", "/cke/cketerm/schema", "3"]);
    assert_eq!(store.ensure_schema(&who()).await, Ok(3));
    let error = store.update_policy(set_by(&person(), None), |_| Ok(())).await.unwrap_err();
    assert!(error.to_string().contains("newer"), "{error}");
    assert_eq!(etcd.value("/cke/cketerm/policy"), "");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_policy_changes_by_field_keeps_unknown_ones_and_is_audited() {
    let Some(etcd) = any() else { return };
    let store = etcd.store().await;
    etcd.ctl(&["put", "/cke/cketerm/schema", "1"]);
    etcd.ctl(&["put", "/cke/cketerm/policy", r#"{"engine":"always","of_tomorrow":{"x":1}}"#]);
    let first = |p: &mut cketerm_model::policy::Policy| {
        p.api_server_order = ApiServerOrder::First;
        Ok(())
    };
    store.update_policy(set_by(&person(), Some("older rules")), first).await.unwrap();
    let policy: serde_json::Value = serde_json::from_str(&etcd.value("/cke/cketerm/policy")).unwrap();
    assert_eq!(policy["of_tomorrow"]["x"], 1);
    assert_eq!((&policy["engine"], &policy["api_server_order"]), (&"always".into(), &"first".into()));
    assert!(etcd.ctl(&["get", "--prefix", "/cke/cketerm/audit/"]).contains("older rules"));
    let error = store.update_policy(set_by(&person(), None), |_| Err("no such value".to_owned())).await.unwrap_err();
    assert_eq!(error, StoreError::NotAllowed("no such value".to_owned()));
}

#[tokio::test(flavor = "multi_thread")]
async fn constraints_are_written_like_ckecli_and_extra_fields_are_kept_separately() {
    let Some(etcd) = any() else { return };
    let store = etcd.store().await;
    assert_eq!(store.constraints().await, Ok(None));
    store
        .update_constraints(&person(), None, |c| {
            c.control_plane_count = 3;
            Ok(())
        })
        .await
        .unwrap();
    assert_eq!(
        etcd.value("/cke/constraints"),
        r#"{"control-plane-count":3,"minimum-workers-rate":80,"maximum-unreachable-nodes-for-reboot":0,"maximum-repair-queue-entries":0,"wait-seconds-to-repair-rebooting":0}"#
    );
    store
        .update_constraints(&person(), None, |c| {
            c.maximum_workers = Some(9);
            Ok(())
        })
        .await
        .unwrap();
    assert_eq!(etcd.value("/cke/cketerm/constraints"), r#"{"maximum-workers":9}"#);
    // ckecli drops the field; cketerm's copy stays in force and returns with the next change
    etcd.ctl(&["put", "/cke/constraints", r#"{"control-plane-count":3,"minimum-workers-rate":70,"x":1}"#]);
    assert_eq!(store.constraints().await.unwrap().unwrap().maximum_workers, Some(9));
    assert_eq!(store.read_view().await.unwrap().constraints().maximum_workers, Some(9));
    store
        .update_constraints(&person(), None, |c| {
            c.minimum_workers_rate = 60;
            Ok(())
        })
        .await
        .unwrap();
    let stored: serde_json::Value = serde_json::from_str(&etcd.value("/cke/constraints")).unwrap();
    assert_eq!((&stored["maximum-workers"], &stored["x"]), (&9.into(), &1.into()));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_identity_is_proposed_once_confirmed_by_an_operator_and_replaced_explicitly() {
    let Some(etcd) = any() else { return };
    let store = etcd.store().await;
    let proposed = store.propose_identity("uid-1", &who()).await.unwrap();
    assert_eq!((proposed.uid.as_str(), proposed.confirmed_by), ("uid-1", None));
    assert_eq!(store.propose_identity("uid-2", &who()).await.unwrap().uid, "uid-1");
    let error = store.confirm_identity("uid-2", None, &person()).await.unwrap_err().to_string();
    assert!(error.contains("--replace uid-1"), "{error}");
    let confirmed = store.confirm_identity("uid-1", None, &person()).await.unwrap();
    assert_eq!(confirmed.confirmed_by, Some(who()));
    assert!(store.confirm_identity("uid-2", Some("uid-9"), &person()).await.is_err());
    assert_eq!(store.confirm_identity("uid-2", Some("uid-1"), &person()).await.unwrap().uid, "uid-2");
    assert_eq!(store.identity().await.unwrap().unwrap().get().unwrap().uid, "uid-2");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_definition_beyond_etcds_size_limit_is_refused_with_the_remedy() {
    let Some(etcd) = any() else { return };
    let store = etcd.store().await;
    let error = store.set_cluster(&"x".repeat(1_700_000), None, &person(), None).await.unwrap_err().to_string();
    for words in ["/cke/cluster", "1700012", "cketerm sends at most 128 operations and 1572608 bytes"] {
        assert!(error.contains(words), "{error}");
    }
    // the largest text that fits is accepted
    let text = "x".repeat(3 * 512 * 1024 - 4096 - "/cke/cluster".len());
    store.set_cluster(&text, Some(0), &person(), None).await.unwrap();
    let error = store.set_cluster("{}", Some(0), &person(), None).await.unwrap_err();
    assert!(matches!(error, StoreError::Conflict { .. }), "{error}");
}

/// A higher limit of etcd changes nothing, and the message does not advise it.
#[tokio::test(flavor = "multi_thread")]
async fn the_size_limit_that_is_exceeded_is_named() {
    let Some(version) = versions().pop() else { return };
    let higher = Etcd::start(&version, &["--max-request-bytes=8388608".to_owned()]);
    let error = higher.store().await.set_cluster(&"x".repeat(1_700_000), None, &person(), None).await.unwrap_err();
    assert!(error.to_string().contains("make it smaller") && !error.to_string().contains("raise"), "{error}");
    let lower = Etcd::start(&version, &["--max-request-bytes=600000".to_owned()]);
    let error = lower.store().await.set_cluster(&"x".repeat(1_300_000), None, &person(), None).await.unwrap_err();
    assert!(error.to_string().contains("raise its --max-request-bytes"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_etcd_without_space_is_reported_with_the_remedy() {
    let Some(version) = versions().pop() else { return };
    let etcd = Etcd::start(&version, &["--quota-backend-bytes=4000000".to_owned()]);
    let store = etcd.store().await;
    let mut refused = None;
    for _ in 0..20 {
        if let Err(error) = store.set_cluster(&"x".repeat(1_000_000), None, &person(), None).await {
            refused = Some(error.to_string());
            break;
        }
    }
    let error = refused.unwrap();
    for words in [etcd.url.as_str(), "space exceeded", "etcdctl alarm disarm"] {
        assert!(error.contains(words), "{error}");
    }
    store.read_view().await.unwrap();
}

//! Endpoints of API servers, which they leave before a reboot (SAF-32).

use cketerm_model::{kube::EndpointsRow, names::Address, policy::ManageEndpoints, reason::Reason};

use super::scene::Scene;
use crate::{decide::Effect, preflight_fault::PreflightFault};

fn with_endpoints(scene: Scene, namespace: &str, name: &str, lasts: &[u8]) -> Scene {
    scene.with(|s| {
        s.kube.endpoints.push(EndpointsRow {
            kind: "Endpoints".to_owned(),
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            addresses: lasts.iter().map(|last| Address::new(Scene::address(*last))).collect(),
            ..EndpointsRow::default()
        });
    })
}

/// Returns the last parts of the addresses that are written.
fn written(scene: &Scene) -> Option<Vec<String>> {
    let last = |address: &Address| address.rsplit('.').next().unwrap_or_default().to_owned();
    scene.decide().effects.into_iter().find_map(|planned| match planned.effect {
        Effect::SetEndpoints { addresses, .. } => Some(addresses.iter().map(last).collect()),
        _ => None,
    })
}

#[test]
fn saf32_an_api_server_that_serves_returns_to_the_endpoints_that_are_managed() {
    let lacking = with_endpoints(Scene::new(0), "kube-system", "cke-etcd", &[1, 2]);
    assert_eq!(written(&lacking), Some(vec!["1".to_owned(), "2".to_owned(), "3".to_owned()]));
    assert_eq!(written(&lacking.clone().node(3, |n| n.ready = false)), None);
    assert_eq!(written(&lacking.clone().with(|s| s.policy.manage_endpoints = ManageEndpoints::Off)), None);
    let foreign = with_endpoints(Scene::new(0), "default", "kubernetes", &[1, 2]);
    assert_eq!(written(&foreign), None, "CKE does not manage them");
    assert!(written(&foreign.with(|s| s.policy.manage_endpoints = ManageEndpoints::On)).is_some());
}

#[test]
fn saf4_in_another_cluster_no_api_server_returns_to_endpoints() {
    let lacking = with_endpoints(Scene::new(0), "kube-system", "cke-etcd", &[1, 2]);
    let mismatch = PreflightFault::IdentityMismatch { recorded: "a".to_owned(), found: "b".to_owned() };
    assert!(written(&lacking).is_some());
    assert_eq!(written(&lacking.with(|s| s.snap.engine.observing.push(mismatch))), None);
}

#[test]
fn saf32_an_api_server_leaves_the_endpoints_before_its_command() {
    let drained = with_endpoints(Scene::new(0).draining(0, 2, 5), "kube-system", "cke-etcd", &[1, 2, 3]);
    assert_eq!(written(&drained), Some(vec!["1".to_owned(), "3".to_owned()]));
    assert!(!matches!(drained.effect(0), Some(Effect::Power { .. })));
    let last = with_endpoints(Scene::new(0).draining(0, 2, 5), "kube-system", "cke-etcd", &[2]);
    assert!(matches!(last.effect(0), Some(Effect::Power { .. })), "it is never removed as the last one");
}

#[test]
fn saf32_a_command_waits_for_endpoints_that_cannot_be_read_unless_nobody_manages_them() {
    let unread = |policy: ManageEndpoints, forbidden: bool| {
        Scene::new(0).draining(0, 2, 5).with(|s| {
            s.policy.manage_endpoints = policy;
            let source = s.kube.sources.get_mut("endpoints").unwrap();
            (source.synced, source.forbidden, source.error) = (false, forbidden, Some("no route".to_owned()));
        })
    };
    let commands = |scene: &Scene| matches!(scene.effect(0), Some(Effect::Power { .. }));
    let waits = unread(ManageEndpoints::Auto, false);
    assert!(!commands(&waits));
    assert!(matches!(waits.reason(0), Reason::EffectFailed { why, .. } if why == "no route"));
    assert!(!commands(&unread(ManageEndpoints::On, true)));
    assert!(commands(&unread(ManageEndpoints::Auto, true)), "without the right, `auto` means that nobody manages them");
    assert!(commands(&unread(ManageEndpoints::Off, false)));
}

//! Gate of a drain by the landing check.

use std::collections::BTreeSet;

use cketerm_model::{names::NodeName, placement::PlacementPod, reason::Reason};

use super::scene::{claim, controller, node, pod, view};
use crate::landing::gate;

fn reason(pods: Vec<PlacementPod>, unprotected: &[&str]) -> Option<Reason> {
    let unprotected: BTreeSet<String> = unprotected.iter().map(|uid| (*uid).to_owned()).collect();
    gate(&view(vec![node("a1", 4), node("a2", 1)], pods), &NodeName::new("a1"), &unprotected)
}

#[test]
fn pods_that_fit_nowhere_else_hold_the_drain() {
    assert_eq!(reason(vec![pod("web-1", "a1", 1)], &[]), None);
    let Some(Reason::PodsCannotLand { count, pod: first, why }) =
        reason(vec![pod("big-1", "a1", 2), pod("big-2", "a1", 2)], &[])
    else {
        panic!("both pods are too large for the other node")
    };
    assert_eq!((count, first.as_str()), (2, "shop/big-1"));
    assert!(why.contains("CPU"), "{why}");
}

#[test]
fn pods_that_fit_alone_but_not_together_hold_the_drain() {
    let two = || vec![pod("web-1", "a1", 1), pod("web-2", "a1", 1)];
    let Some(Reason::PodsCannotLand { count: 1, why, .. }) = reason(two(), &[]) else {
        panic!("the other node has room for one of them: {:?}", reason(two(), &[]))
    };
    assert!(why.contains("together"), "{why}");
    assert_eq!(reason(two(), &["web-2"]), None, "the protected one may get the place");
}

#[test]
fn unprotected_pods_jobs_and_pods_that_return_hold_no_drain() {
    let big = || pod("big-1", "a1", 2);
    assert_eq!(reason(vec![big()], &["big-1"]), None, "its namespace is not protected");
    let job = PlacementPod { controller: Some(controller("Job", "big")), ..big() };
    assert_eq!(reason(vec![job], &[]), None);
    let bare = PlacementPod { controller: None, ..big() };
    assert_eq!(reason(vec![bare], &[]), None, "no controller makes it anew");
    let mut local = pod("db-0", "a1", 1);
    let mut cluster = view(vec![node("a1", 4), node("a2", 4)], Vec::new());
    claim(&mut cluster, &mut local, "data", &["a1"]);
    cluster.pods.push(local);
    assert_eq!(gate(&cluster, &NodeName::new("a1"), &BTreeSet::new()), None, "it runs again after the reboot");
}

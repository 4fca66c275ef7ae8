//! Every answer to evictions and guarded writes, and its meaning (REB-27).

use cketerm_clients::kubernetes::Kube;
use cketerm_model::{
    drain::{Undecided, Verdict},
    kube::{BudgetRow, PodRow},
    names::NodeName,
    reason::PodHold,
};
use serde_json::{Value, json};

use super::servers::{Api, both, permit};

/// One namespace with pods `p0` … and a client that evicts them.
struct Scene {
    api: Api,
    kube: Kube,
    ns: String,
    node: String,
}

impl Scene {
    async fn of(server: &super::servers::Server, pods: usize) -> Self {
        let (api, kube) = (server.api().await, server.kube().await);
        let (ns, node) = (api.namespace().await, api.node("10.0.0.1").await);
        for i in 0..pods {
            api.pod(&ns, &format!("p{i}"), &node).await;
        }
        Self { api, kube, ns, node }
    }

    async fn row(&self, name: &str) -> PodRow {
        self.kube
            .pods_on(&NodeName::new(self.node.clone()))
            .await
            .unwrap()
            .into_iter()
            .find(|p| p.name == name)
            .unwrap()
    }

    fn budget_row(&self, name: &str) -> BudgetRow {
        BudgetRow { namespace: self.ns.clone(), name: name.to_owned(), healthy: 3, needed: 2, ..BudgetRow::default() }
    }

    async fn evict_as(&self, pod: &PodRow, dry_run: bool) -> Verdict {
        let row = self.budget_row("b");
        self.kube.evict(&permit(), pod, &[&row], dry_run).await
    }

    async fn evict(&self, name: &str) -> Verdict {
        self.evict_as(&self.row(name).await, false).await
    }

    async fn dry_run(&self, name: &str) -> Verdict {
        self.evict_as(&self.row(name).await, true).await
    }

    fn path(&self, name: &str) -> String {
        format!("/api/v1/namespaces/{}/pods/{name}", self.ns)
    }

    async fn allowed(&self) -> Value {
        let path = format!("/apis/policy/v1/namespaces/{}/poddisruptionbudgets/b", self.ns);
        self.api.get(&path).await["status"]["disruptionsAllowed"].clone()
    }

    fn budget_lag(&self) -> Verdict {
        let hold = PodHold::BudgetLag { budget: format!("{}/b", self.ns) };
        Verdict::Held { hold, retry_after: Some(10) }
    }

    fn budget_hold(&self, healthy: i32, needed: i32) -> Verdict {
        let hold = PodHold::Budget { budget: format!("{}/b", self.ns), healthy, needed, cause: None };
        Verdict::Held { hold, retry_after: None }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn i20_a_budget_with_a_lagging_controller_is_retried_after_ten_seconds() {
    for server in both() {
        let s = Scene::of(server, 1).await;
        s.api.budget(&s.ns, "b").await;
        assert_eq!(s.evict("p0").await, s.budget_lag(), "the budget's status was never written");
        assert_eq!(s.dry_run("p0").await, s.budget_lag(), "a dry run must give the same result");
        s.api.budget_status(&s.ns, "b", 0, (0, 3, 2)).await;
        let path = format!("/apis/policy/v1/namespaces/{}/poddisruptionbudgets/b", s.ns);
        s.api.merge(&path, json!({"spec": {"maxUnavailable": 2}})).await;
        s.api.budget_status(&s.ns, "b", 1, (5, 3, 2)).await;
        assert_eq!(
            s.evict("p0").await,
            s.budget_lag(),
            "observedGeneration lags, although the status allows the eviction"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn i20_a_refusal_names_the_budget_and_its_numbers() {
    for server in both() {
        let s = Scene::of(server, 1).await;
        s.api.budget(&s.ns, "b").await;
        s.api.budget_status(&s.ns, "b", 0, (0, 3, 2)).await;
        assert_eq!(s.evict("p0").await, s.budget_hold(3, 2));
        assert_eq!(s.dry_run("p0").await, s.budget_hold(3, 2));
        // The numbers in the server's answer take precedence over the older row.
        s.api.budget_status(&s.ns, "b", 0, (0, 1, 2)).await;
        s.api.phase(&s.ns, "p0", "Running", false).await;
        assert_eq!(s.evict("p0").await, s.budget_hold(1, 2), "an unready pod below the healthy minimum");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn unready_finished_pending_and_terminating_pods_are_evicted_despite_the_budget() {
    for server in both() {
        let s = Scene::of(server, 5).await;
        s.api.budget(&s.ns, "b").await;
        s.api.budget_status(&s.ns, "b", 0, (0, 2, 2)).await;
        s.api.phase(&s.ns, "p0", "Running", false).await;
        assert_eq!(s.evict("p0").await, Verdict::Accepted, "an unready pod at the healthy minimum");
        let (a, b) = (s.evict("p0").await, s.row("p0").await);
        assert_eq!(a, Verdict::Accepted, "terminating");
        assert!(b.terminating_since.is_some());
        for (name, phase) in [("p1", "Succeeded"), ("p2", "Failed"), ("p3", "Pending")] {
            s.api.phase(&s.ns, name, phase, false).await;
            assert_eq!(s.evict(name).await, Verdict::Accepted, "{phase}");
        }
        let path = format!("/apis/policy/v1/namespaces/{}/poddisruptionbudgets/b", s.ns);
        s.api.merge(&path, json!({"spec": {"unhealthyPodEvictionPolicy": "AlwaysAllow"}})).await;
        s.api.budget_status(&s.ns, "b", 0, (0, 1, 2)).await;
        s.api.phase(&s.ns, "p4", "Running", false).await;
        assert_eq!(s.evict("p4").await, Verdict::Accepted, "AlwaysAllow");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn i45_a_dry_run_changes_neither_pods_nor_budget_and_checks_each_pod_alone() {
    for server in both() {
        let s = Scene::of(server, 3).await;
        s.api.budget(&s.ns, "b").await;
        s.api.budget_status(&s.ns, "b", 0, (1, 3, 2)).await;
        for name in ["p0", "p1", "p2"] {
            assert_eq!(s.dry_run(name).await, Verdict::Accepted);
            assert_eq!(s.row(name).await.terminating_since, None);
        }
        assert_eq!(s.allowed().await, 1);
        assert_eq!(s.evict("p0").await, Verdict::Accepted);
        assert_eq!(s.allowed().await, 0, "an eviction must use up the budget");
        assert!(s.row("p0").await.terminating_since.is_some());
        assert_eq!(s.evict("p1").await, s.budget_hold(3, 2));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn i17_a_new_pod_of_the_same_name_is_neither_evicted_nor_deleted() {
    for server in both() {
        let s = Scene::of(server, 1).await;
        let old = s.row("p0").await;
        s.api.delete(&s.path("p0")).await;
        s.api.pod(&s.ns, "p0", &s.node).await;
        let replaced = Verdict::Held { hold: PodHold::Replaced, retry_after: None };
        assert_eq!(s.evict_as(&old, false).await, replaced);
        assert_eq!(s.kube.delete_pod(&permit(), &old).await, replaced);
        assert_eq!(s.row("p0").await.terminating_since, None);
        // Even a refused eviction uses up the budget, so the live copy is compared first.
        s.api.budget(&s.ns, "b").await;
        s.api.budget_status(&s.ns, "b", 0, (1, 3, 2)).await;
        assert_eq!(s.evict_as(&old, false).await, replaced);
        assert_eq!(s.allowed().await, 0);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn i20_several_budgets_a_terminating_namespace_and_a_missing_pod_are_distinguished() {
    for server in both() {
        let s = Scene::of(server, 2).await;
        let gone = s.row("p1").await;
        s.api.delete(&s.path("p1")).await;
        assert_eq!(s.evict_as(&gone, false).await, Verdict::Gone);
        assert_eq!(s.kube.delete_pod(&permit(), &gone).await, Verdict::Gone);

        s.api.budget(&s.ns, "b").await;
        s.api.budget(&s.ns, "c").await;
        let (b, c, pod) = (s.budget_row("b"), s.budget_row("c"), s.row("p0").await);
        let budgets = vec![b.full_name(), c.full_name()];
        let verdict = s.kube.evict(&permit(), &pod, &[&b, &c], false).await;
        assert_eq!(verdict, Verdict::Held { hold: PodHold::ManyBudgets { budgets }, retry_after: None });

        s.api.call("DELETE", &format!("/api/v1/namespaces/{}", s.ns), Value::Null, "application/json").await;
        let verdict = s.evict("p0").await;
        assert_eq!(verdict, Verdict::Held { hold: PodHold::NamespaceTerminating, retry_after: None });
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_is_deleted_by_its_uid_and_a_dry_run_leaves_it() {
    for server in both() {
        let s = Scene::of(server, 1).await;
        let dry_run = json!({"kind": "DeleteOptions", "apiVersion": "v1", "dryRun": ["All"]});
        let (code, _) = s.api.call("DELETE", &s.path("p0"), dry_run, "application/json").await;
        assert_eq!(code, 200);
        let pod = s.row("p0").await;
        assert_eq!(pod.terminating_since, None);
        assert_eq!(s.kube.delete_pod(&permit(), &pod).await, Verdict::Accepted);
        let after = s.row("p0").await;
        let grace = after.grace_ends.unwrap().duration_since(after.terminating_since.unwrap());
        assert_eq!(grace.as_secs(), 1, "the pod's own grace period");
        let age = jiff::Timestamp::now().duration_since(after.terminating_since.unwrap()).as_secs();
        assert!((0..=3).contains(&age), "the deletion must start now, not after the grace period: {age}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_missing_right_and_an_unreachable_server_are_named() {
    for server in both() {
        let s = Scene::of(server, 1).await;
        let pod = s.row("p0").await;
        let nobody = super::connections::impersonating(server, "nobody").await;
        let Verdict::Failed(text) = nobody.evict(&permit(), &pod, &[], false).await else { panic!() };
        assert!(text.contains("create pods/eviction") && text.contains("docs/rbac.yaml"), "{text}");
        let missing = nobody.missing_rights().await.unwrap();
        for right in ["patch nodes", "create pods/eviction", "watch poddisruptionbudgets.policy"] {
            assert!(missing.iter().any(|m| m == right), "{missing:?}");
        }
        assert_eq!(s.kube.missing_rights().await.unwrap(), Vec::<String>::new());
        let unreachable_server = super::connections::unreachable_server().await;
        let verdict = unreachable_server.evict(&permit(), &pod, &[], false).await;
        assert!(matches!(verdict, Verdict::Undecided { by: Undecided::Silence, .. }), "{verdict:?}");
    }
}

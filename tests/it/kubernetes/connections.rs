//! Connection errors: kubeconfigs of no server, of another cluster, or with wrong credentials.

use cketerm_clients::kubernetes::{Kube, KubeError, KubeSettings, Live, Streaming};
use cketerm_model::{boot_time::Seconds, clock::Clock};

use super::servers::{Server, both, connect, until};

/// Writes a kubeconfig, which exists as long as it is held: a connection reads it once.
fn write(text: &str) -> tempfile::TempPath {
    let file = tempfile::Builder::new().prefix("kubeconfig-").tempfile().unwrap();
    std::fs::write(file.path(), text).unwrap();
    file.into_temp_path()
}

/// Client of the administrator who impersonates another user.
pub(crate) async fn impersonating(server: &Server, user: &str) -> Kube {
    let text = std::fs::read_to_string(server.kubeconfig()).unwrap();
    connect(&write(&text.replace("user: {token:", &format!("user: {{as: {user}, token:")))).await
}

const UNREACHABLE_KUBECONFIG: &str = "apiVersion: v1\nkind: Config\ncurrent-context: here\n\
    contexts: [{name: here, context: {cluster: c, user: u}}]\n\
    clusters: [{name: c, cluster: {server: 'http://127.0.0.1:9'}}]\nusers: [{name: u, user: {}}]\n";

/// Client of an address without a server.
pub(crate) async fn unreachable_server() -> Kube {
    connect(&write(UNREACHABLE_KUBECONFIG)).await
}

async fn connection_error(settings: KubeSettings) -> String {
    Kube::connect(&settings, Clock::host()).await.unwrap_err().to_string()
}

#[tokio::test]
async fn a_broken_kubeconfig_is_named_without_showing_its_secrets() {
    let broken = write(concat!(
        "apiVersion: v1\nkind: Config\nclusters: [{name: t, cluster: {server: x}\n",
        "users: [{name: t, user: {token: \"s3cr3t\"}}]\n"
    ));
    let text =
        connection_error(KubeSettings { kubeconfig: Some(broken.to_path_buf()), ..KubeSettings::default() }).await;
    assert!(text.contains(&broken.display().to_string()), "{text}");
    assert!(!text.contains("s3cr3t"), "{text}");
}

#[tokio::test]
async fn an_unusable_kubeconfig_is_named_with_the_error() {
    assert_eq!(Kube::connect(&KubeSettings::default(), Clock::host()).await.unwrap_err(), KubeError::NotConfigured);
    let with = |kubeconfig: &str, context: Option<&str>| KubeSettings {
        kubeconfig: Some(kubeconfig.into()),
        context: context.map(str::to_owned),
        in_cluster: false,
    };
    let text = connection_error(with("/nonexistent/kubeconfig", None)).await;
    assert!(text.contains("/nonexistent/kubeconfig") && text.contains("No such file"), "{text}");
    let file = write(UNREACHABLE_KUBECONFIG);
    let text = connection_error(with(file.to_str().unwrap(), Some("there"))).await;
    assert!(text.contains("context there") && text.contains("it has: here"), "{text}");
    let file = write("contexts: nonsense");
    let text = connection_error(with(file.to_str().unwrap(), None)).await;
    assert!(text.contains(file.to_str().unwrap()), "{text}");
    if std::env::var_os("KUBERNETES_SERVICE_HOST").is_none() {
        let text = connection_error(KubeSettings { in_cluster: true, ..KubeSettings::default() }).await;
        assert!(text.contains("service account"), "{text}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_unreachable_server_is_reported_with_url_kubeconfig_and_context() {
    let kube = unreachable_server().await;
    let text = kube.nodes().await.unwrap_err().to_string();
    for part in ["http://127.0.0.1:9", "kubeconfig-", "context here", "refused", "check"] {
        assert!(text.contains(part), "{part} is not in: {text}");
    }
    // The live copy reports the same error and keeps trying.
    let live = Live::follow(&kube, Streaming::Auto);
    until("the live copy reports an error", || live.borrow().sources["nodes"].error.is_some()).await;
    let view = live.borrow();
    assert!(!view.synced() && view.cluster_uid.is_none());
    let error = view.sources["nodes"].error.clone().unwrap();
    assert!(error.contains("http://127.0.0.1:9"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn wrong_credentials_and_an_untrusted_ca_are_distinguished() {
    for server in both() {
        let text = std::fs::read_to_string(server.kubeconfig()).unwrap();
        let token = text.split("token: \"").nth(1).unwrap().split('"').next().unwrap();
        let kube = connect(&write(&text.replace(token, "wrong"))).await;
        let error = kube.nodes().await.unwrap_err();
        assert!(matches!(error, KubeError::Unauthorized { .. }), "{error}");
        assert!(error.to_string().contains("renew the token"), "{error}");
        let live = Live::follow(&kube, Streaming::Auto);
        until("the live copy reports the error 401", || {
            live.borrow().sources["nodes"].error.as_ref().is_some_and(|e| e.contains("401"))
        })
        .await;
        for other in both().into_iter().filter(|o| o.dir != server.dir) {
            let foreign = text.replace(server.dir.to_str().unwrap(), other.dir.to_str().unwrap());
            let error = connect(&write(&foreign)).await.nodes().await.unwrap_err().to_string();
            assert!(error.contains("certificate"), "{error}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_is_identified_by_uid_and_its_clock_by_the_date_header() {
    let mut seen = Vec::new();
    for server in both() {
        let kube = server.kube().await;
        seen.push(kube.cluster_uid().await.unwrap());
        assert!(kube.clock_ahead().await.unwrap().abs() < Seconds::new(1.0));
        let wrong = jiff::Timestamp::now().checked_sub(jiff::SignedDuration::from_secs(3600)).unwrap();
        let hour_ago = cketerm_runtime::tokio_clock::starting_at(wrong);
        let settings = KubeSettings { kubeconfig: Some(server.kubeconfig()), ..KubeSettings::default() };
        let ahead = Kube::connect(&settings, hour_ago).await.unwrap().clock_ahead().await.unwrap();
        assert!((ahead - Seconds::new(3600.0)).abs() < Seconds::new(1.0), "{ahead}");
    }
    seen.sort();
    let all = seen.len();
    seen.dedup();
    assert_eq!(seen.len(), all, "two clusters must have different UIDs");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_documented_rights_suffice_and_a_missing_one_is_named() {
    for server in both() {
        let api = server.api().await;
        let roles = "/apis/rbac.authorization.k8s.io/v1/clusterroles";
        for document in serde_yaml::Deserializer::from_str(include_str!("../../../docs/rbac.yaml")) {
            let role: serde_json::Value = serde::Deserialize::deserialize(document).unwrap();
            // only the roles that the queues need; the others are for people and for Metal3
            if role["metadata"]["name"] != "cketerm" && role["metadata"]["name"] != "cketerm-endpoints" {
                continue;
            }
            api.post(
                "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings",
                serde_json::json!({"metadata": {"name": role["metadata"]["name"]},
                    "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role["metadata"]["name"]},
                    "subjects": [{"kind": "User", "name": "least", "apiGroup": "rbac.authorization.k8s.io"}]}),
            )
            .await;
            api.post(roles, role).await;
        }
        let least = impersonating(server, "least").await;
        assert_eq!(least.missing_rights().await.unwrap(), Vec::<String>::new());
        let live = Live::follow(&least, Streaming::Auto);
        live.watch_endpoints(true);
        until("all lists and the endpoints are synced", || {
            let view = live.borrow();
            view.synced() && view.sources["endpoints"].synced && view.cluster_uid.is_some()
        })
        .await;
        let nobody = Live::follow(&impersonating(server, "nobody").await, Streaming::Auto);
        until("the live copy reports the missing right", || nobody.borrow().sources["nodes"].error.is_some()).await;
        let error = nobody.borrow().sources["nodes"].error.clone().unwrap();
        assert!(
            error.contains("cannot list resource \"nodes\"") || error.contains("cannot watch resource \"nodes\""),
            "{error}"
        );
        assert!(error.contains("docs/rbac.yaml"), "{error}");
    }
}

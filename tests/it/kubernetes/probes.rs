//! Probes of API servers by their own address. Credentials are sent only to a server with the cluster's certificate.

use std::{
    net::{TcpListener, TcpStream},
    time::Duration,
};

use cketerm_clients::kubernetes::{Kube, KubeSettings, ProbeResult};
use cketerm_model::clock::Clock;

use super::servers::both;

const TIMEOUT: Duration = Duration::from_secs(5);

/// Leads to the server under another address of this host, which its certificate does not name.
fn under_another_address(server: &str) -> String {
    let listener = TcpListener::bind("127.0.0.2:0").unwrap();
    let url = format!("https://{}/readyz", listener.local_addr().unwrap());
    let server = server.trim_start_matches("https://").to_owned();
    std::thread::spawn(move || {
        for client in listener.incoming().flatten() {
            let upstream = TcpStream::connect(&server).unwrap();
            for (mut from, mut to) in [
                (client.try_clone().unwrap(), upstream.try_clone().unwrap()),
                (upstream.try_clone().unwrap(), client.try_clone().unwrap()),
            ] {
                std::thread::spawn(move || std::io::copy(&mut from, &mut to));
            }
        }
    });
    url
}

#[tokio::test(flavor = "multi_thread")]
async fn credentials_are_sent_only_where_the_certificate_verifies() {
    for server in both() {
        let kube = server.kube().await;
        let url = format!("{}/readyz", kube.server());
        assert_eq!(kube.probe_at(&url, TIMEOUT).await, Some(ProbeResult::Answered(200)));
        let elsewhere = kube.probe_at(&under_another_address(kube.server()), TIMEOUT).await;
        let Some(ProbeResult::Untrusted(why)) = elsewhere else {
            panic!("a certificate that does not name 127.0.0.2 must be rejected: {elsewhere:?}")
        };
        assert!(why.contains("SAN"), "{why}");
        assert_eq!(kube.probe_at("http://127.0.0.1:1/readyz", TIMEOUT).await, None, "a probe must not use plain HTTP");
        assert!(matches!(kube.probe_at("https://127.0.0.1:1/readyz", TIMEOUT).await, Some(ProbeResult::Silent(_))));
        // unknown credentials are refused, whatever anonymous callers may see
        let text = std::fs::read_to_string(server.kubeconfig()).unwrap();
        let token = text.split("token: \"").nth(1).and_then(|t| t.split('"').next()).unwrap().to_owned();
        let file = server.dir.join("kubeconfig-stranger");
        std::fs::write(&file, text.replace(&token, "nobody")).unwrap();
        let settings = KubeSettings { kubeconfig: Some(file), ..KubeSettings::default() };
        let stranger = Kube::connect(&settings, Clock::host()).await.unwrap();
        assert_eq!(stranger.probe_at(&url, TIMEOUT).await, Some(ProbeResult::Answered(401)));
    }
}

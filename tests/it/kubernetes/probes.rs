//! Probes of API servers by their own address. Credentials are sent only to a server with the cluster's certificate.

use std::{
    net::{TcpListener, TcpStream},
    time::Duration,
};

use cketerm::{
    clock::Clock,
    kubernetes::{Asked, Kube, KubeSettings},
};

use super::servers::both;

const WITHIN: Duration = Duration::from_secs(5);

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
        assert_eq!(kube.ask_at(&url, WITHIN).await, Some(Asked::Answered(200)));
        let elsewhere = kube.ask_at(&under_another_address(kube.server()), WITHIN).await;
        let Some(Asked::Untrusted(why)) = elsewhere else {
            panic!("the certificate does not name 127.0.0.2: {elsewhere:?}")
        };
        assert!(why.contains("SAN"), "{why}");
        assert_eq!(kube.ask_at("http://127.0.0.1:1/readyz", WITHIN).await, None, "never in the clear");
        assert!(matches!(kube.ask_at("https://127.0.0.1:1/readyz", WITHIN).await, Some(Asked::Silent(_))));
        // unknown credentials are refused, whatever anonymous callers may see
        let text = std::fs::read_to_string(server.kubeconfig()).unwrap();
        let token = text.split("token: \"").nth(1).and_then(|t| t.split('"').next()).unwrap().to_owned();
        let file = server.dir.join("kubeconfig-stranger");
        std::fs::write(&file, text.replace(&token, "nobody")).unwrap();
        let settings = KubeSettings { kubeconfig: Some(file), ..KubeSettings::default() };
        let stranger = Kube::connect(&settings, Clock::Host).await.unwrap();
        assert_eq!(stranger.ask_at(&url, WITHIN).await, Some(Asked::Answered(401)));
    }
}

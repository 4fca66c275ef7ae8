//! Connections: TLS, user and password, unreachable endpoints, and the messages of failures.

use std::{collections::BTreeMap, path::Path, process::Command, time::Duration};

use cketerm_clients::store::{EtcdSettings, Store, StoreError, election::Candidacy, live::Live};
use cketerm_model::{clock::Clock, stored::keys::SwitchName};
use cketerm_runtime::heartbeat::Heartbeat;

use super::{
    addresses,
    etcd::{Etcd, any, free_port, versions},
    person, registration, request,
};
use crate::stalls::{Stopwatch, undisturbed};

async fn connect(settings: &EtcdSettings) -> Result<Store, StoreError> {
    Store::connect(settings, Clock::host()).await
}

pub fn openssl(dir: &Path, args: &str) {
    let out = Command::new("openssl").args(args.split_whitespace()).current_dir(dir).output().unwrap();
    assert!(out.status.success(), "openssl {args}: {}", String::from_utf8_lossy(&out.stderr));
}

/// An authority, a server's and a client's certificate.
fn certificates(dir: &Path) {
    authority(dir, &["server", "client"]);
}

/// An authority, another one, and certificates for these names.
pub fn authority(dir: &Path, names: &[&str]) {
    let new = "-newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes";
    openssl(dir, &format!("req -x509 {new} -days 2 -subj /CN=ca -keyout ca.key -out ca.crt"));
    openssl(dir, &format!("req -x509 {new} -days 2 -subj /CN=other -keyout other.key -out other.crt"));
    std::fs::write(dir.join("ext"), "subjectAltName=IP:127.0.0.1\nextendedKeyUsage=serverAuth,clientAuth\n").unwrap();
    for name in names {
        openssl(dir, &format!("req {new} -subj /CN={name} -keyout {name}.key -out {name}.csr"));
        openssl(
            dir,
            &format!(
                "x509 -req -in {name}.csr -CA ca.crt -CAkey ca.key -CAcreateserial -days 2 -extfile ext -out {name}.crt"
            ),
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn tls_with_a_client_certificate_works_and_an_untrusted_ca_is_named() {
    for version in versions() {
        let dir = tempfile::tempdir().unwrap();
        certificates(dir.path());
        let file = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
        let read = |name: &str| Some(std::fs::read(dir.path().join(name)).unwrap());
        let args = ["--cert-file", &file("server.crt"), "--key-file", &file("server.key")].map(str::to_owned);
        let ca = ["--client-cert-auth=true".to_owned(), format!("--trusted-ca-file={}", file("ca.crt"))];
        let etcd = Etcd::serve(&version, "https", &[&args[..], &ca[..]].concat());
        let good = EtcdSettings {
            tls_ca: read("ca.crt"),
            tls_cert: read("client.crt"),
            tls_key: read("client.key"),
            ..etcd.settings()
        };
        let store = connect(&good).await.unwrap();
        store.set_switch(SwitchName::Reboots, false, &person(), None).await.unwrap();
        assert!(!store.switch(SwitchName::Reboots).await.unwrap().enabled());

        let foreign = EtcdSettings { tls_ca: read("other.crt"), ..good.clone() };
        let error = connect(&foreign).await.unwrap().read_view().await.unwrap_err().to_string();
        for words in [etcd.url.as_str(), "certificate", "check tls-ca"] {
            assert!(error.contains(words), "{error}");
        }
        let plain = EtcdSettings { endpoints: vec![etcd.url.replace("https", "http")], ..EtcdSettings::default() };
        let error = connect(&plain).await.unwrap().read_view().await.unwrap_err().to_string();
        assert!(error.contains("check http or https"), "{error}");
        let no_cert = EtcdSettings { tls_cert: None, tls_key: None, ..good.clone() };
        let error = connect(&no_cert).await.unwrap().read_view().await.unwrap_err().to_string();
        assert!(error.contains("certificate"), "{error}");
        let half = EtcdSettings { tls_key: None, ..good };
        assert!(connect(&half).await.unwrap_err().to_string().contains("belong together"));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn user_and_password_work_and_wrong_ones_are_reported_with_the_remedy() {
    undisturbed(async || {
        for version in versions() {
            let mut etcd = Etcd::start(&version, &[]);
            let (plain, url) = (etcd.settings(), etcd.url.clone());
            let settings = |user: &str, password: &str| EtcdSettings {
                username: Some(user.to_owned()),
                password: Some(password.to_owned()),
                ..plain.clone()
            };
            // a server without authentication accepts a user name
            let early = connect(&settings("cke", "secret")).await.unwrap();
            early.read_view().await.unwrap();
            for args in ["user add root:pw", "user grant-role root root", "user add cke:secret", "role add cke"] {
                etcd.ctl(&args.split(' ').collect::<Vec<_>>());
            }
            etcd.ctl(&["role", "grant-permission", "--prefix", "cke", "readwrite", "/cke/"]);
            etcd.ctl(&["user", "grant-role", "cke", "cke"]);
            etcd.ctl(&["auth", "enable"]);

            let store = connect(&settings("cke", "secret")).await.unwrap();
            store.set_switch(SwitchName::Reboots, false, &person(), None).await.unwrap();
            let live = Live::follow(&store);
            super::etcd::wait_until(
                "the live copy is synced with rights on the prefix only",
                Duration::from_secs(5),
                || live.borrow().synced && live.borrow().error.is_none(),
            )
            .await;

            let error = connect(&settings("cke", "wrong")).await.unwrap_err();
            assert!(matches!(error, StoreError::Denied { .. }), "{error}");
            for words in [url.as_str(), "invalid user ID or password", "etcd.password"] {
                assert!(error.to_string().contains(words), "{error}");
            }
            let error = connect(&etcd.settings()).await.unwrap().read_view().await.unwrap_err();
            assert!(matches!(error, StoreError::Denied { .. }), "{error}");
            let elsewhere = EtcdSettings { prefix: "/other/".to_owned(), ..settings("cke", "secret") };
            let error = connect(&elsewhere).await.unwrap().read_view().await.unwrap_err().to_string();
            assert!(error.contains("permission denied") && error.contains("/other/"), "{error}");

            // a token is requested at once, even if one endpoint is unreachable
            let away = format!("http://127.0.0.1:{}", free_port());
            let some = EtcdSettings { endpoints: vec![away, url.clone()], ..settings("cke", "secret") };
            for _ in 0..5 {
                connect(&some).await.unwrap();
            }

            // after a restart etcd knows no token
            let candidacy = {
                let ttl = Duration::from_secs(20);
                Candidacy::campaign(&store, ttl, "host", registration(), &Heartbeat::new(ttl)).await.unwrap()
            };
            etcd.down();
            super::etcd::wait_until("the live copy reports an error", Duration::from_secs(5), || {
                live.borrow().error.is_some()
            })
            .await;
            etcd.up();
            store.set_switch(SwitchName::Reboots, true, &person(), None).await.unwrap();
            super::etcd::wait_until("the live copy follows etcd again", Duration::from_secs(8), || {
                live.borrow().reboots.switch.enabled()
            })
            .await;
            let kept = tokio::time::timeout(Duration::from_secs(8), candidacy.lost()).await;
            assert!(kept.is_err() && candidacy.life().remaining() > Duration::from_secs(10));
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_unreachable_endpoint_is_named_with_cause_and_remedy() {
    let url = format!("http://127.0.0.1:{}", free_port());
    let settings = EtcdSettings { endpoints: vec![url.clone()], ..EtcdSettings::default() };
    let store = connect(&settings).await.unwrap();
    let began = Stopwatch::start();
    let error = store.read_view().await.unwrap_err().to_string();
    assert!(began.elapsed() < Duration::from_secs(4));
    for words in [url.as_str(), "refused", "check that etcd runs there"] {
        assert!(error.contains(words), "{error}");
    }
    let error = store.set_switch(SwitchName::Reboots, true, &person(), None).await.unwrap_err();
    assert!(matches!(error, StoreError::Unreachable { .. }), "the error must show that nothing was written: {error}");
    // with a user name, connecting itself sends a request
    let named = EtcdSettings { username: Some("u".to_owned()), ..settings };
    let error = connect(&named).await.unwrap_err();
    assert!(matches!(error, StoreError::Unreachable { .. }) && error.to_string().contains(&url), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn one_unreachable_endpoint_of_three_causes_no_error() {
    let Some(etcd) = any() else { return };
    let away = format!("http://127.0.0.1:{}", free_port());
    let endpoints = vec![away.clone(), etcd.url.clone(), etcd.url.replace("127.0.0.1", "localhost")];
    let store = connect(&EtcdSettings { endpoints, ..EtcdSettings::default() }).await.unwrap();
    for round in 0..40 {
        store.set_switch(SwitchName::Reboots, round % 2 == 0, &person(), None).await.unwrap();
        store.read_view().await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn invalid_settings_are_refused_by_name() {
    for endpoint in ["ftp://x:1", "http://", "http://a b:1"] {
        let settings = EtcdSettings { endpoints: vec![endpoint.to_owned()], ..EtcdSettings::default() };
        let error = connect(&settings).await.unwrap_err();
        assert!(matches!(error, StoreError::Settings(_)), "{endpoint}: {error}");
    }
}

/// Each member dies in turn, and one hangs: requests that went through it continue through the others.
#[tokio::test(flavor = "multi_thread")]
async fn the_loss_of_one_of_three_members_costs_neither_lock_nor_copy_nor_writes() {
    let Some(version) = versions().pop() else { return };
    let mut members = Etcd::cluster(&version);
    let endpoints: Vec<String> = members.iter().map(|m| m.url.clone()).collect();
    let store = connect(&EtcdSettings { endpoints, ..EtcdSettings::default() }).await.unwrap();
    // as CKE's by default
    let ttl = Duration::from_mins(1);
    let mut candidacy = Candidacy::campaign(&store, ttl, "host", registration(), &Heartbeat::new(ttl)).await.unwrap();
    let fence = candidacy.elected().await.unwrap();
    let live = Live::follow(&store);
    let mut added = 0;
    for (round, (member, stop, go)) in
        [(0, "-KILL", ""), (1, "-STOP", "-CONT"), (1, "-KILL", ""), (2, "-KILL", "")].into_iter().enumerate()
    {
        members[member].signal(stop);
        let began = Stopwatch::start();
        let mut good = 0;
        // repeat until three writes in a row succeed; detecting a hanging member takes time
        while good < 3 {
            match store.add_reboots(&person(), &addresses(1), &request(), &BTreeMap::new()).await {
                Ok(_) => (good, added) = (good + 1, added + 1),
                Err(error) => {
                    good = 0;
                    assert!(began.elapsed() < Duration::from_secs(30), "round {round}: {error}");
                }
            }
        }
        assert!(!fence.life().remaining().is_zero(), "round {round}: the lease has expired");
        super::etcd::wait_until("the live copy follows etcd again", Duration::from_secs(30), || {
            live.borrow().reboots.entries.len() >= added && live.borrow().error.is_none()
        })
        .await;
        if go.is_empty() {
            members[member].down();
            members[member].up();
        } else {
            members[member].signal(go);
        }
    }
    assert!(tokio::time::timeout(Duration::from_millis(10), candidacy.lost()).await.is_err());
    assert!(fence.life().remaining() > ttl / 4);
}

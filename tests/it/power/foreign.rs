//! I50: BareMetalHosts on a real API server that name addresses outside the BMC networks, and listeners there that
//! record all requests.

use std::{
    io::{Read, Write},
    net::TcpListener,
    path::Path,
    process::Command,
    sync::{Arc, Mutex},
};

use serde_json::{Value, json};

use super::hosts::{HOSTS, define};
use crate::world::{
    Options, World,
    cluster::machines,
    history::value,
    program::{Daemon, cketerm, config},
    skipped, wait_for,
};

/// The site-wide login in the form of a Basic header: `admin:hunter2`.
const LOGIN: &str = "YWRtaW46aHVudGVyMg==";

/// A listener that answers as a BMC does, with every request that it got.
struct Listener {
    port: u16,
    requests: Arc<Mutex<Vec<String>>>,
}

trait Stream: Read + Write {}
impl<T: Read + Write> Stream for T {}

impl Listener {
    /// Starts it on this address: over TLS with an untrusted certificate, or with a redirect of every request to
    /// `redirect`.
    fn start(ip: &str, tls: Option<Arc<rustls::ServerConfig>>, redirect: Option<String>) -> Self {
        let listener = TcpListener::bind((ip, 0)).unwrap();
        let (port, requests) = (listener.local_addr().unwrap().port(), Arc::default());
        let kept: Arc<Mutex<Vec<String>>> = Arc::clone(&requests);
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let Ok(stream) = stream else { return };
                let (tls, kept, redirect) = (tls.clone(), Arc::clone(&kept), redirect.clone());
                std::thread::spawn(move || {
                    let mut stream: Box<dyn Stream> = match tls {
                        None => Box::new(stream),
                        Some(config) => {
                            let Ok(session) = rustls::ServerConnection::new(config) else { return };
                            Box::new(rustls::StreamOwned::new(session, stream))
                        }
                    };
                    serve(stream.as_mut(), &kept, redirect.as_deref());
                });
            }
        });
        Self { port, requests }
    }

    fn requests(&self) -> Vec<String> {
        self.requests.lock().unwrap().clone()
    }

    /// Received requests that contain a login.
    fn logins(&self) -> Vec<String> {
        let secret = |head: &&String| {
            let lower = head.to_lowercase();
            ["authorization:", "x-auth-token:", "password"].iter().any(|name| lower.contains(name))
        };
        self.requests().iter().filter(secret).cloned().collect()
    }
}

/// Serves the requests of one connection until it closes.
fn serve(stream: &mut dyn Stream, requests: &Mutex<Vec<String>>, redirect: Option<&str>) {
    let (mut kept, mut part) = (Vec::new(), [0; 4096]);
    loop {
        match stream.read(&mut part) {
            Ok(n) if n > 0 => kept.extend_from_slice(&part[..n]),
            _ => return,
        }
        let text = String::from_utf8_lossy(&kept).into_owned();
        let Some((request, _)) = text.split_once("\r\n\r\n") else { continue };
        requests.lock().unwrap().push(text.clone());
        let path = request.split(' ').nth(1).unwrap_or_default().to_owned();
        let body = if path.contains("/Systems/") {
            json!({"PowerState": "On", "Actions": {"#ComputerSystem.Reset": {"target": "/redfish/v1/Systems/1/Reset"}}})
        } else {
            json!({"Systems": {"@odata.id": "/redfish/v1/Systems"}, "Members": [{"@odata.id": "/redfish/v1/Systems/1"}]})
        };
        let (status, more) = match redirect {
            Some(redirect) if path.contains("/Systems") => {
                ("307 Temporary Redirect", format!("location: {redirect}{path}\r\n"))
            }
            _ => ("200 OK", String::new()),
        };
        let body = body.to_string();
        let answer = format!("HTTP/1.1 {status}\r\n{more}content-length: {}\r\n\r\n{body}", body.len());
        if stream.write_all(answer.as_bytes()).and_then(|()| stream.flush()).is_err() {
            return;
        }
        kept.clear();
    }
}

/// An untrusted certificate for `localhost` and 127.0.0.1.
fn tls(dir: &Path) -> Option<Arc<rustls::ServerConfig>> {
    use rustls::pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject};
    let (key, crt) = (dir.join("foreign.key"), dir.join("foreign.crt"));
    let made = Command::new("openssl")
        .args(["req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost"])
        .args(["-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1", "-keyout"])
        .args([&key, Path::new("-out"), &crt])
        .output();
    if !made.is_ok_and(|o| o.status.success()) {
        return skipped("no openssl: no certificate for a listener");
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
    let chain = vec![CertificateDer::from_pem_file(&crt).unwrap()];
    let key = PrivateKeyDer::from_pem_file(&key).unwrap();
    Some(Arc::new(config.with_no_client_auth().with_single_cert(chain, key).unwrap()))
}

/// A world with the resource definition, and an engine's configuration whose file of BMCs has this text.
fn site(bmcs_yaml: &str, kwok: bool) -> Option<World> {
    let world = World::start(Options { kwok, ..Options::default() })?;
    define(&world);
    write_bmcs(&world, bmcs_yaml);
    let settings = config(world.dir(), "engine.yaml", &world.etcd, Some(&world.kubeconfig), 5);
    let text = std::fs::read_to_string(&settings).unwrap() + "power: {bmcs: bmcs.yaml}\n";
    std::fs::write(settings, text).unwrap();
    Some(world)
}

fn write_bmcs(world: &World, text: &str) {
    let file = world.dir().join("bmcs.yaml");
    std::fs::write(&file, text).unwrap();
    std::fs::set_permissions(&file, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
}

/// Adds a host whose only address is the node's.
fn add(world: &World, name: &str, node: &str, bmc: &str, secret: &str) {
    let host = json!({
        "apiVersion": "metal3.io/v1alpha1", "kind": "BareMetalHost", "metadata": {"name": name, "namespace": "default"},
        "spec": {"online": true, "externallyProvisioned": true,
            "bmc": {"address": bmc, "credentialsName": secret, "disableCertificateVerification": true}},
    });
    world.ok("POST", HOSTS, Some(&host));
    let status = json!({"status": {"hardware": {"hostname": name, "nics": [{"ip": node}]}}});
    world.ok("PATCH", &format!("{HOSTS}/{name}/status"), Some(&status));
}

fn host_error(world: &World, name: &str) -> Option<String> {
    let host = world.ok("GET", &format!("{HOSTS}/{name}"), None);
    host["status"]["errorMessage"].as_str().filter(|text| !text.is_empty()).map(str::to_owned)
}

#[test]
fn i50_no_credentials_are_sent_to_a_bmc_outside_the_allowed_networks() {
    let bmcs_yaml = "networks: [{cidr: 127.0.0.3, http: true}, 127.0.0.4]\n\
                defaults: {username: admin, password: hunter2, sign-in: basic}\n";
    let Some(world) = site(bmcs_yaml, false) else { return };
    let Some(tls) = tls(world.dir()) else { return };
    world.set_up(&machines(1, 0), &json!({}));
    world.run(&["policy", "set", "metal3_controller", "true"]);
    let secret = json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": {"name": "other", "namespace": "kube-system"},
        "stringData": {"username": "foreign", "password": "namespace"},
    });
    world.ok("POST", "/api/v1/namespaces/kube-system/secrets", Some(&secret));
    let (http, https) = (Listener::start("127.0.0.1", None, None), Listener::start("127.0.0.1", Some(tls), None));
    let allowed = Listener::start("127.0.0.3", None, None);
    let redirect = Listener::start("127.0.0.3", None, Some(format!("http://127.0.0.1:{}", http.port)));
    let tls_only = Listener::start("127.0.0.4", None, None);
    for (name, node, bmc, secret, expected) in [
        ("https", "10.0.0.1", format!("https://127.0.0.1:{}", https.port), "", "outside the networks"),
        ("http", "10.0.0.2", format!("redfish+http://127.0.0.1:{}", http.port), "", "outside the networks"),
        ("name", "10.0.0.3", format!("https://localhost:{}", https.port), "", "outside the allowed BMC networks"),
        (
            "names",
            "10.0.0.4",
            format!("redfish+http://localhost:{}", http.port),
            "",
            "outside the allowed BMC networks",
        ),
        ("odd", "10.0.0.5", format!("https://2130706433:{}", https.port), "", "unusual"),
        ("plain", "10.0.0.6", format!("redfish+http://127.0.0.4:{}", tls_only.port), "", "plain HTTP"),
        ("away", "10.0.0.7", format!("redfish+http://127.0.0.3:{}", redirect.port), "", "another server"),
        (
            "secret",
            "10.0.0.8",
            format!("redfish+http://127.0.0.3:{}", allowed.port),
            "../../kube-system/secrets/other",
            "is missing",
        ),
    ] {
        add(&world, name, node, &bmc, secret);
        let output = cketerm(&world.dir().join("engine.yaml"), &["power", "status", node]);
        // for a Secret the command prints `lacks`
        let expected = if expected == "is missing" { "lacks" } else { expected };
        assert!(output.code != 0 && output.stderr.contains(expected), "{name}: {output:?}");
    }
    let engine = Daemon::start(world.dir(), &world.dir().join("engine.yaml"), "engine");
    for (name, expected) in [
        ("https", "outside the networks"),
        ("http", "outside the networks"),
        ("name", "outside the allowed BMC networks"),
        ("names", "outside the allowed BMC networks"),
        ("odd", "unusual"),
        ("plain", "plain HTTP"),
        ("away", "another server"),
        ("secret", "is missing"),
    ] {
        let why = wait_for(&format!("the host {name} reports an error"), 90, || host_error(&world, name));
        assert!(why.contains(expected), "{name}: {why}");
    }
    for (name, listener) in [("http", &http), ("https", &https), ("plain", &tls_only)] {
        assert_eq!(listener.requests(), Vec::<String>::new(), "{name}: no request may be sent");
    }
    assert!(allowed.logins().is_empty(), "a Secret of another namespace must not be used: {:?}", allowed.requests());
    assert!(
        redirect.logins().iter().all(|head| head.contains(LOGIN)) && !redirect.logins().is_empty(),
        "inside the allowed networks the login must be sent"
    );
    // The list changes while the engine runs: the networks of open connections are checked again.
    add(&world, "good", "10.0.0.9", &format!("redfish+http://127.0.0.3:{}", allowed.port), "");
    wait_for("the good host is on", 60, || {
        (world.ok("GET", &format!("{HOSTS}/good"), None)["status"]["poweredOn"] == true).then_some(())
    });
    assert!(allowed.logins().iter().all(|head| head.contains(LOGIN)), "{:?}", allowed.logins());
    write_bmcs(&world, &bmcs_yaml.replace("127.0.0.3, http: true", "127.0.0.9, http: true"));
    let hard = json!({"metadata": {"annotations": {"reboot.metal3.io/x": "{\"mode\": \"hard\"}"}}});
    world.ok("PATCH", &format!("{HOSTS}/good?fieldManager=kubectl-annotate"), Some(&hard));
    let why = wait_for("the host good reports an error", 60, || host_error(&world, "good"));
    assert!(why.contains("outside the networks"), "{why}");
    assert!(
        !allowed.requests().iter().any(|head| head.starts_with("POST ")),
        "no reset may be sent to a removed network"
    );
    assert!(!engine.logged().contains("hunter2") && !engine.logged().contains(LOGIN));
}

#[test]
fn i50_without_bmc_networks_the_engine_registers_the_lack_and_starts_no_drain() {
    let Some(world) = site("defaults: {username: admin, password: hunter2}\n", true) else { return };
    let machines = machines(1, 1);
    let program = crate::binary::cketerm();
    let reboot = json!({
        "reboot_command": [program, "power", "cycle"], "boot_check_command": [program, "power", "booted"],
        "command_timeout_seconds": 120,
    });
    world.set_up(&machines, &reboot);
    world.add_nodes(&machines);
    let file = world.dir().join("engine.yaml");
    let checked = cketerm(&file, &["config", "check"]);
    assert!(
        checked.code == 0
            && checked.stdout.contains("warning: power.bmcs: ")
            && checked.stdout.contains("no `networks`"),
        "{checked:?}"
    );
    let listener = Listener::start("127.0.0.1", None, None);
    let url = format!("http://127.0.0.1:{}", listener.port);
    add(&world, &machines[1].name, &machines[1].address, &format!("redfish+{url}"), "");
    world.queue(&[&machines[1]]);
    let _engine = Daemon::start(world.dir(), &file, "engine");
    // the engine defers for a minute to a candidate with complete settings
    world.wait_or_explain(0, "the reason names the missing network list", 120, || {
        let why = world.run(&["rq", "why", "0"]);
        why.contains("no BMC network is allowed").then_some(())
    });
    let registered = crate::world::history::changes(&world.etcd, "/cke/cketerm/engines/");
    let registered: Vec<Value> =
        registered.iter().filter(|c| c.value.is_some()).map(super::super::world::history::Change::json).collect();
    assert!(registered.iter().any(|r| r["missing_settings"] == json!(["bmc-networks"])), "{registered:?}");
    assert!(world.cordoned().is_empty() && world.entries()[&0]["status"] == "queued", "no drain may start");
    // The file is corrected while the engine runs, and the engine continues without a restart.
    let text =
        "networks: [{cidr: 127.0.0.1, http: true}]\ndefaults: {username: admin, password: hunter2, poll-seconds: 1}\n";
    write_bmcs(&world, text);
    world.wait_for_entry_status(0, "rebooting", 60);
    assert!(value(&world.etcd, "/cke/reboots/data/0000000000000000").is_some());
}

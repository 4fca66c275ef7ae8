//! A validating admission webhook for evictions, as `KubeVirt` and storage operators have one: an HTTPS server in this
//! process, registered at a real kube-apiserver.

use std::{
    collections::BTreeMap,
    io::{BufRead, BufReader, Write},
    net::{TcpListener, TcpStream},
    sync::{Arc, Mutex},
    time::Duration,
};

use base64::Engine as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject};
use serde_json::{Value, json};

use super::{World, wait_for};
use crate::store::connection::authority;

/// Its name in denials.
pub const NAME: &str = "evictions.example.com";

/// Behaviour for the evictions of one pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Behaviour {
    /// Allows them.
    Allow,
    /// Denies all of them with this code, including dry runs.
    Deny(u16),
    /// Denies this many evictions with 429, and every dry run until then.
    DenyTimes(usize),
    /// Answers this many requests later than the API server waits.
    Late(usize),
    /// Fails this many requests with 500.
    Fail(usize),
}

/// A request that it got: the pod, and whether it was a dry run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Asked {
    pub pod: String,
    pub dry_run: bool,
}

/// The server. It serves until the process ends.
#[derive(Clone, Default)]
pub struct Webhook {
    behaviours: Arc<Mutex<BTreeMap<String, Behaviour>>>,
    asked: Arc<Mutex<Vec<Asked>>>,
}

impl Webhook {
    /// Serves, registers at the API server of this world, and waits until that sends requests.
    pub fn register(world: &World, behaviours: &[(&str, Behaviour)], probe: &str) -> Self {
        let dir = world.dir().join("webhook");
        std::fs::create_dir_all(&dir).expect("a folder");
        authority(&dir, &["server"]);
        let certificates = CertificateDer::pem_file_iter(dir.join("server.crt")).expect("a certificate");
        let certificates = certificates.map(|c| c.expect("a certificate")).collect();
        let key = PrivateKeyDer::from_pem_file(dir.join("server.key")).expect("a key");
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = rustls::ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .expect("versions")
            .with_no_client_auth()
            .with_single_cert(certificates, key)
            .expect("a pair");
        let listener = TcpListener::bind("127.0.0.1:0").expect("loopback");
        let port = listener.local_addr().expect("an address").port();
        let webhook = Self::default();
        for (pod, behaviour) in behaviours {
            webhook.behave(pod, *behaviour);
        }
        let (served, config) = (webhook.clone(), Arc::new(config));
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let (served, config) = (served.clone(), Arc::clone(&config));
                std::thread::spawn(move || served.serve(stream, config));
            }
        });
        let ca = base64::engine::general_purpose::STANDARD.encode(std::fs::read(dir.join("ca.crt")).expect("a CA"));
        let configuration = json!({
            "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration",
            "metadata": {"name": "evictions"},
            "webhooks": [{
                "name": NAME, "failurePolicy": "Fail", "sideEffects": "NoneOnDryRun", "timeoutSeconds": 1,
                "admissionReviewVersions": ["v1"],
                "clientConfig": {"url": format!("https://127.0.0.1:{port}/evictions"), "caBundle": ca},
                "rules": [{"operations": ["CREATE"], "apiGroups": [""], "apiVersions": ["v1"],
                    "resources": ["pods/eviction"], "scope": "Namespaced"}]}]});
        let path = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations";
        world.ok("POST", path, Some(&configuration));
        wait_for("the API server calls the webhook", 30, || {
            let eviction = json!({"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": probe},
                "deleteOptions": {"dryRun": ["All"]}});
            world.call("POST", &format!("/api/v1/namespaces/default/pods/{probe}/eviction"), Some(&eviction));
            (!webhook.asked().is_empty()).then_some(())
        });
        webhook.asked.lock().unwrap().clear();
        webhook
    }

    /// Sets the behaviour for this pod from now on.
    pub fn behave(&self, pod: &str, behaviour: Behaviour) {
        self.behaviours.lock().unwrap().insert(pod.to_owned(), behaviour);
    }

    /// Requests that it got so far.
    pub fn asked(&self) -> Vec<Asked> {
        self.asked.lock().unwrap().clone()
    }

    /// Number of requests for evictions of this pod, without dry runs.
    pub fn evictions(&self, pod: &str) -> usize {
        self.asked().iter().filter(|a| a.pod == pod && !a.dry_run).count()
    }

    fn serve(&self, mut stream: TcpStream, config: Arc<rustls::ServerConfig>) {
        let mut session = rustls::ServerConnection::new(config).expect("a session");
        let mut stream = BufReader::new(rustls::Stream::new(&mut session, &mut stream));
        while let Some(body) = request(&mut stream) {
            let review: Value = serde_json::from_slice(&body).expect("an AdmissionReview");
            let answer = self.answer(&review["request"]).to_string();
            let (status, answer) = match answer.as_str() {
                "null" => ("500 Internal Server Error", "the webhook broke"),
                answer => ("200 OK", answer),
            };
            let head = format!("HTTP/1.1 {status}\r\nContent-Type: application/json\r\nContent-Length: ");
            let text = format!("{head}{}\r\n\r\n{answer}", answer.len());
            // the client may have closed the connection
            if stream.get_mut().write_all(text.as_bytes()).is_err() || stream.get_mut().flush().is_err() {
                return;
            }
        }
    }

    /// The review to answer with; null = 500.
    fn answer(&self, request: &Value) -> Value {
        let pod = request["name"].as_str().expect("a pod").to_owned();
        let dry_run = request["dryRun"] == true;
        let behaviour = self.behaviours.lock().unwrap().get(&pod).copied().unwrap_or(Behaviour::Allow);
        let (before, evictions) = (self.asked().iter().filter(|a| a.pod == pod).count(), self.evictions(&pod));
        self.asked.lock().unwrap().push(Asked { pod: pod.clone(), dry_run });
        let allowed = json!({"uid": request["uid"], "allowed": true});
        let denied = |code: u16, message: String| json!({"uid": request["uid"], "allowed": false, "status": {"code": code, "message": message}});
        let response = match behaviour {
            Behaviour::Deny(code) => denied(code, format!("{pod} stays")),
            Behaviour::DenyTimes(times) if evictions < times => {
                denied(429, format!("Eviction triggered evacuation of VMI \"default/{pod}\""))
            }
            Behaviour::Fail(times) if before < times => return Value::Null,
            Behaviour::Late(times) if before < times => {
                std::thread::sleep(Duration::from_millis(1500));
                allowed
            }
            Behaviour::Allow | Behaviour::DenyTimes(_) | Behaviour::Fail(_) | Behaviour::Late(_) => allowed,
        };
        json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response})
    }
}

/// Body of the next request on this connection.
fn request(stream: &mut impl BufRead) -> Option<Vec<u8>> {
    let (mut length, mut line) = (0, String::new());
    loop {
        line.clear();
        if stream.read_line(&mut line).ok()? == 0 {
            return None;
        }
        let text = line.trim_end();
        if text.is_empty() {
            break;
        }
        if let Some((name, value)) = text.split_once(':')
            && name.eq_ignore_ascii_case("content-length")
        {
            length = value.trim().parse().ok()?;
        }
    }
    let mut body = vec![0; length];
    stream.read_exact(&mut body).ok()?;
    Some(body)
}

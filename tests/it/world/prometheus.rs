//! A Prometheus for tests: an HTTP or HTTPS server in this process, whose answers can be set.

use std::{
    io::{BufRead, BufReader, Read, Write},
    net::TcpListener,
    path::Path,
    sync::{Arc, Mutex},
    time::Duration,
};

use rustls::pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject};
use serde_json::{Value, json};

/// Behaviour for every query of one kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Behaviour {
    /// The result is empty.
    #[default]
    Quiet,
    /// The result has one series, of an alert with this name.
    Fires(&'static str),
    /// An error with this status.
    Status(u16),
    /// No answer for a minute.
    Hangs,
    /// A body that is not JSON.
    Garbage,
    /// A body of 10 MB.
    Large,
}

/// A request that it got: its line, and the value of its header `Authorization`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Asked {
    pub line: String,
    pub authorization: String,
}

#[derive(Default)]
struct State {
    alerts: Behaviour,
    other: Behaviour,
    asked: Vec<Asked>,
}

/// The server. It serves until the process ends.
#[derive(Clone)]
pub struct Prometheus {
    /// Base URL on which it listens.
    pub url: String,
    state: Arc<Mutex<State>>,
}

impl Prometheus {
    /// Starts a server in which nothing fires.
    pub fn start() -> Self {
        Self::serve_on("http", None)
    }

    /// Starts one with the certificate `server.crt` in this folder.
    pub fn start_tls(dir: &Path) -> Self {
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
        Self::serve_on("https", Some(Arc::new(config)))
    }

    fn serve_on(scheme: &str, tls: Option<Arc<rustls::ServerConfig>>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("loopback");
        let url = format!("{scheme}://{}", listener.local_addr().expect("an address"));
        let prometheus = Self { url, state: Arc::default() };
        let served = prometheus.clone();
        std::thread::spawn(move || {
            for mut stream in listener.incoming().flatten() {
                let (served, tls) = (served.clone(), tls.clone());
                std::thread::spawn(move || match tls {
                    None => served.serve(stream),
                    Some(config) => {
                        let mut session = rustls::ServerConnection::new(config).expect("a session");
                        served.serve(rustls::Stream::new(&mut session, &mut stream));
                    }
                });
            }
        });
        prometheus
    }

    /// Sets the behaviour for queries of alerts, and for the others.
    pub fn behave(&self, alerts: Behaviour, other: Behaviour) {
        let mut state = self.state.lock().unwrap();
        (state.alerts, state.other) = (alerts, other);
    }

    /// Requests that it got so far.
    pub fn asked(&self) -> Vec<Asked> {
        self.state.lock().unwrap().asked.clone()
    }

    fn serve(&self, stream: impl Read + Write) {
        let mut stream = BufReader::new(stream);
        while let Some(asked) = request(&mut stream) {
            let behaviour = {
                let mut state = self.state.lock().unwrap();
                state.asked.push(asked.clone());
                if asked.line.contains("query=ALERTS%7B") { state.alerts } else { state.other }
            };
            let (status, body) = match behaviour {
                Behaviour::Quiet => (200, result(&[])),
                Behaviour::Fires(name) => {
                    let labels = json!({"__name__": "ALERTS", "alertname": name, "alertstate": "firing"});
                    (200, result(&[json!({"metric": labels, "value": [1.5, "1"]})]))
                }
                Behaviour::Status(status) => (status, json!({"status": "error", "error": "broken"}).to_string()),
                Behaviour::Hangs => {
                    std::thread::sleep(Duration::from_mins(1));
                    return;
                }
                Behaviour::Garbage => (200, "<html>welcome</html>".to_owned()),
                Behaviour::Large => (200, " ".repeat(10 << 20)),
            };
            let answer = format!("HTTP/1.1 {status} Said\r\ncontent-length: {}\r\n\r\n{body}", body.len());
            let stream = stream.get_mut();
            // the client may have closed the connection
            if stream.write_all(answer.as_bytes()).is_err() || stream.flush().is_err() {
                return;
            }
        }
    }
}

fn result(series: &[Value]) -> String {
    json!({"status": "success", "data": {"resultType": "vector", "result": series}}).to_string()
}

/// Next request on this connection. It has no body.
fn request(stream: &mut impl BufRead) -> Option<Asked> {
    let (mut asked, mut line) = (Asked { line: String::new(), authorization: String::new() }, String::new());
    loop {
        line.clear();
        if stream.read_line(&mut line).ok()? == 0 {
            return None;
        }
        let text = line.trim_end();
        if text.is_empty() {
            return Some(asked);
        }
        match text.split_once(": ") {
            _ if asked.line.is_empty() => text.clone_into(&mut asked.line),
            Some((name, value)) if name.eq_ignore_ascii_case("authorization") => {
                value.clone_into(&mut asked.authorization);
            }
            _ => {}
        }
    }
}

//! Health probe of one API server at its own address (SAF-30).

use std::{error::Error, io, time::Duration};

use http::Uri;
use kube::client::Body;
use rustls::CertificateError;

use super::{call::get, connect::Kube, error::chain};

/// Outcome of a probe of one API server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ProbeResult {
    /// The certificate is the cluster's. Holds the status code of the answer to our credentials.
    Answered(u16),
    /// The certificate does not verify against the cluster's CA, with the cause. Nothing was sent.
    Untrusted(String),
    /// No answer, with the cause.
    Silent(String),
}

impl Kube {
    /// Requests this `https` URL with our credentials. Returns none if that is impossible: another scheme, or no CA of
    /// the cluster is configured.
    pub async fn probe_at(&self, url: &str, within: Duration) -> Option<ProbeResult> {
        let probe_clients = self.probe_clients.as_ref()?;
        let uri: Uri = url.parse().ok()?;
        let authority = uri.authority().filter(|_| uri.scheme_str() == Some("https"))?;
        let client = match probe_clients.client(&format!("https://{authority}")) {
            Ok(client) => client,
            Err(why) => return Some(ProbeResult::Silent(why)),
        };
        let path = uri.path_and_query().map_or("/", |path| path.as_str());
        let request = match get(path) {
            Ok(request) => request.map(Body::from),
            Err(e) => return Some(ProbeResult::Silent(e.to_string())),
        };
        Some(match tokio::time::timeout(within, client.send(request)).await {
            Ok(Ok(answer)) => ProbeResult::Answered(answer.status().as_u16()),
            Ok(Err(e)) => match certificate_error(&e) {
                Some(why) => ProbeResult::Untrusted(why),
                None => ProbeResult::Silent(chain(&e)),
            },
            Err(_) => ProbeResult::Silent(format!("no answer within {} s", within.as_secs())),
        })
    }
}

/// Returns the fault of the server's certificate, if that is the cause of the error.
fn certificate_error(error: &(dyn Error + 'static)) -> Option<String> {
    let mut cause = Some(error);
    while let Some(e) = cause {
        if let Some(rustls::Error::InvalidCertificate(why)) = e.downcast_ref() {
            return Some(match why {
                CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => {
                    "its certificate lacks this address among its subject alternative names (SAN)".to_owned()
                }
                why => format!("its certificate does not verify against the cluster's CA: {why}"),
            });
        }
        // `source` of an I/O error skips the error that it holds and returns that error's source
        let inside = e.downcast_ref::<io::Error>().and_then(io::Error::get_ref);
        cause = inside.map(|inner| inner as &(dyn Error + 'static)).or_else(|| e.source());
    }
    None
}

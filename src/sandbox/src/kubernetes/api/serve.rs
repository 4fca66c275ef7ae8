//! Access to the API: a client inside the process, and a router for loopback.

use axum::{Router, body::Body};
use bytes::Bytes;
use http::{Request, Response};
use http_body_util::BodyExt;
use tower::{BoxError, ServiceExt, service_fn, util::BoxCloneSyncService};

use super::{Api, status_error::StatusError};

/// Connection between a client and the API. Requests are whole; responses may be streams. An error means that the
/// connection failed or broke before the response.
pub type Wire = BoxCloneSyncService<Request<Bytes>, Response<Body>, BoxError>;

/// Maximum size of a request body in bytes.
const MAX_BODY_BYTES: usize = 16 << 20;

impl Api {
    /// Returns the connection.
    pub fn wire(&self) -> Wire {
        let api = self.clone();
        BoxCloneSyncService::new(service_fn(move |request: Request<Bytes>| {
            let api = api.clone();
            async move {
                if !api.available() {
                    let refused = std::io::Error::from(std::io::ErrorKind::ConnectionRefused);
                    return Err(BoxError::from(refused));
                }
                Ok(api.handle(request).await)
            }
        }))
    }

    /// Returns a client in the same process.
    pub fn client(&self) -> kube::Client {
        self.client_through(|wire| wire)
    }

    /// Returns a client in the same process, with a layer on its connection, for faults or a user name.
    pub fn client_through(&self, wrap: impl FnOnce(Wire) -> Wire) -> kube::Client {
        let wire = wrap(self.wire());
        let service = service_fn(move |request: Request<kube::client::Body>| {
            let wire = wire.clone();
            async move {
                let (head, body) = request.into_parts();
                let body = body.collect().await?.to_bytes();
                wire.oneshot(Request::from_parts(head, body)).await
            }
        });
        kube::Client::new(service, "default")
    }

    /// Returns a router with everything, for a server on loopback over plain HTTP.
    pub fn router(&self) -> Router {
        let api = self.clone();
        Router::new().fallback(move |request: Request<Body>| {
            let api = api.clone();
            async move {
                if !api.available() {
                    return unavailable();
                }
                let (head, body) = request.into_parts();
                match axum::body::to_bytes(body, MAX_BODY_BYTES).await {
                    Ok(body) => {
                        let caller = api.caller(&head.headers);
                        api.handle_after_webhooks(Request::from_parts(head, body), caller).await
                    }
                    Err(_) => too_large(),
                }
            }
        })
    }
}

fn unavailable() -> Response<Body> {
    let status_error =
        StatusError::new(503, "ServiceUnavailable", "the server is currently unable to handle the request");
    status(&status_error)
}

fn too_large() -> Response<Body> {
    status(&StatusError::new(413, "RequestEntityTooLarge", "Request entity too large: limit is 16777216"))
}

fn status(status_error: &StatusError) -> Response<Body> {
    let mut response = Response::new(Body::from(status_error.body.to_string()));
    *response.status_mut() = http::StatusCode::from_u16(status_error.code).unwrap_or_default();
    let headers = response.headers_mut();
    headers.insert("content-type", http::HeaderValue::from_static("application/json"));
    headers.insert("connection", http::HeaderValue::from_static("close"));
    response
}

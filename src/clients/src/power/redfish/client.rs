//! One BMC: requests, sign-in, redirects, and the meaning of its answers.

use std::{
    fmt,
    sync::{Mutex, PoisonError},
};

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, Request, StatusCode, header};
use jiff::Timestamp;
use serde_json::{Value, json};

use super::{
    address::{Address, ROOT},
    error::BmcError,
};
use crate::{
    net::{Answer, Http, NoAnswer},
    power::{
        login::Login,
        text::{shorten, shown},
    },
};

/// Number of redirects that are followed. A system's name instead of its id takes one.
const MAX_REDIRECTS: usize = 3;

/// Way to sign in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SignIn {
    /// A session if the BMC offers them, else Basic.
    #[default]
    Auto,
    /// HTTP Basic, with each request.
    Basic,
    /// A session only.
    Session,
}

/// An open session: its token, and the path to close it.
#[derive(Clone)]
struct Session {
    token: String,
    session_path: Option<String>,
}

/// A BMC. It signs in at the first request. [`Bmc::close`] ends the session, because BMCs allow only a few.
pub struct Bmc {
    http: Http,
    pub(super) origin: String,
    pub(super) system: Option<String>,
    login: Option<Login>,
    how: SignIn,
    session: Mutex<Option<Session>>,
}

impl fmt::Debug for Bmc {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Bmc").field("origin", &self.origin).field("system", &self.system).finish_non_exhaustive()
    }
}

/// An answer: the headers and the body, which is `Null` if there is none.
type HeadersAndBody = (HeaderMap, Value);

impl Bmc {
    /// Creates a BMC on this HTTP client, which must not follow redirects by itself.
    pub fn new(http: Http, address: Address, login: Option<Login>, how: SignIn) -> Self {
        Self { http, origin: address.origin, system: address.system, login, how, session: Mutex::new(None) }
    }

    /// Returns scheme, host and port, as messages name the BMC.
    pub fn origin(&self) -> &str {
        &self.origin
    }

    /// Ends the session, if there is one. A failure only costs the BMC one session until it times out.
    pub async fn close(&self) {
        let session = self.session.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Some(Session { token, session_path: Some(session_path) }) = session else { return };
        let headers = [("x-auth-token", token)];
        if let Err(e) = self.follow(Method::DELETE, &session_path, &headers, None).await {
            tracing::debug!(bmc = self.origin, error = %e, "the session was not closed");
        }
    }

    /// Reads the service root, which needs no sign-in. Signs in if the BMC offers sessions.
    pub(super) async fn open(&self) -> Result<Value, BmcError> {
        let (_, root) = self.follow(Method::GET, ROOT, &[], None).await?;
        if root.get("Systems").is_none() {
            return Err(self.not_redfish(&format!("GET {ROOT}"), "the service root names no Systems"));
        }
        let open = self.session.lock().unwrap_or_else(PoisonError::into_inner).is_some();
        if let Some(login) = self.login.as_ref().filter(|_| self.how != SignIn::Basic && !open) {
            match link(&root["Links"]["Sessions"]) {
                Some(session_path) => self.sign_in(login, session_path).await?,
                None if self.how == SignIn::Session => {
                    return Err(self.not_redfish(&format!("GET {ROOT}"), "it offers no sessions; use sign-in: basic"));
                }
                None => {}
            }
        }
        Ok(root)
    }

    async fn sign_in(&self, login: &Login, session_path: &str) -> Result<(), BmcError> {
        let body = json!({"UserName": login.username, "Password": login.password});
        match self.follow(Method::POST, session_path, &[], Some(&body)).await {
            Ok((headers, _)) => {
                let text = |name: &str| headers.get(name).and_then(|v| v.to_str().ok()).map(str::to_owned);
                let Some(token) = text("x-auth-token") else {
                    return Err(self.not_redfish(&format!("POST {session_path}"), "a session without X-Auth-Token"));
                };
                let session = Session { token, session_path: text("location") };
                *self.session.lock().unwrap_or_else(PoisonError::into_inner) = Some(session);
                Ok(())
            }
            Err(e @ BmcError::Unauthorized { .. }) => Err(e),
            // All sessions are taken, or the session service is disabled: Basic may still work.
            Err(e) if self.how == SignIn::Auto => {
                tracing::debug!(bmc = self.origin, error = %e, "cannot open a session; using Basic");
                Ok(())
            }
            Err(e) => Err(e),
        }
    }

    /// Sends a GET of a link.
    pub(super) async fn get(&self, path: &str) -> Result<Value, BmcError> {
        Ok(self.get_with_date(path).await?.0)
    }

    /// Sends a GET of a link. Also returns the BMC's time from `Date`.
    pub(super) async fn get_with_date(&self, path: &str) -> Result<(Value, Option<Timestamp>), BmcError> {
        let (headers, value) = self.request_with_session(Method::GET, path, None).await?;
        let date = headers.get(header::DATE).and_then(|v| v.to_str().ok());
        let plain = date.and_then(|d| d.strip_suffix(" GMT"));
        let at = plain.and_then(|d| jiff::fmt::rfc2822::parse(&format!("{d} +0000")).ok());
        Ok((value, at.map(|z| z.timestamp())))
    }

    /// Sends a POST once. If it fails with 401 because the session expired, the BMC did not take it, so it is sent
    /// again.
    pub(super) async fn post(&self, path: &str, body: &Value) -> Result<Value, BmcError> {
        Ok(self.request_with_session(Method::POST, path, Some(body)).await?.1)
    }

    async fn request_with_session(
        &self,
        method: Method,
        path: &str,
        body: Option<&Value>,
    ) -> Result<HeadersAndBody, BmcError> {
        let session = self.session.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let had_session = session.is_some();
        let answer = self.follow(method.clone(), path, &self.auth_headers(session), body).await;
        if !(had_session && matches!(answer, Err(BmcError::Unauthorized { code: 401, .. }))) {
            return answer;
        }
        // The session expired.
        *self.session.lock().unwrap_or_else(PoisonError::into_inner) = None;
        self.open().await?;
        let session = self.session.lock().unwrap_or_else(PoisonError::into_inner).clone();
        self.follow(method, path, &self.auth_headers(session), body).await
    }

    /// Returns the authentication header.
    fn auth_headers(&self, session: Option<Session>) -> Vec<(&'static str, String)> {
        match (session, &self.login) {
            (Some(session), _) => vec![("x-auth-token", session.token)],
            (None, Some(login)) => vec![("authorization", basic(login))],
            (None, None) => Vec::new(),
        }
    }

    /// Sends a request, follows redirects that stay on the BMC, and reads the answer.
    async fn follow(
        &self,
        mut method: Method,
        path: &str,
        headers: &[(&'static str, String)],
        body: Option<&Value>,
    ) -> Result<HeadersAndBody, BmcError> {
        let what = format!("{method} {}", shorten(path));
        let mut path = self.same_origin_path(path, &what)?;
        for _ in 0..=MAX_REDIRECTS {
            let body = body.filter(|_| method != Method::GET);
            let answer = self.send(&method, &path, headers, body).await;
            let answer =
                answer.map_err(|why| BmcError::Silent { bmc: self.origin.clone(), what: what.clone(), why: why.0 })?;
            let status = answer.status();
            if !status.is_redirection() {
                let (parts, bytes) = answer.into_parts();
                return self.read(&what, status, parts.headers, &bytes);
            }
            let to = answer.headers().get(header::LOCATION).and_then(|v| v.to_str().ok());
            let Some(to) = to else { return Err(self.not_redfish(&what, "a redirect without a location")) };
            path = self.same_origin_path(to, &what)?;
            if status == StatusCode::SEE_OTHER {
                method = Method::GET;
            }
        }
        Err(self.not_redfish(&what, "too many redirects"))
    }

    async fn send(
        &self,
        method: &Method,
        path: &str,
        headers: &[(&'static str, String)],
        body: Option<&Value>,
    ) -> Answer {
        let mut request = Request::builder().method(method).uri(format!("{}{path}", self.origin));
        request = request.header("accept", "application/json").header("odata-version", "4.0");
        for (name, value) in headers {
            let value = HeaderValue::from_str(value).map(|mut value| {
                // keeps it out of the logs of libraries
                value.set_sensitive(true);
                value
            });
            // the error of an invalid header value would contain the value
            request = request.header(*name, value.map_err(|_| request_error())?);
        }
        if body.is_some() {
            request = request.header("content-type", "application/json");
        }
        let bytes = body.map_or_else(Bytes::new, |body| body.to_string().into());
        let request = request.body(bytes).map_err(|_| request_error())?;
        self.http.send(request).await
    }

    fn read(
        &self,
        what: &str,
        status: StatusCode,
        headers: HeaderMap,
        bytes: &[u8],
    ) -> Result<HeadersAndBody, BmcError> {
        let bmc = || self.origin.clone();
        let code = status.as_u16();
        if matches!(code, 401 | 403) {
            return Err(BmcError::Unauthorized { bmc: bmc(), what: what.to_owned(), code });
        }
        let value = serde_json::from_slice::<Value>(bytes);
        if !status.is_success() {
            let message = value.as_ref().ok().and_then(error_message).unwrap_or_else(|| {
                let name = status.canonical_reason().unwrap_or("no reason given");
                name.to_owned()
            });
            return Err(BmcError::Refused { bmc: bmc(), what: what.to_owned(), code, message });
        }
        match value {
            Ok(value) => Ok((headers, value)),
            // No body, or one that is no JSON: only a GET needs one.
            Err(_) if !what.starts_with("GET ") => Ok((headers, Value::Null)),
            Err(e) => Err(self.not_redfish(what, &format!("invalid JSON: {e}"))),
        }
    }

    /// Returns a link as a path on this BMC.
    fn same_origin_path(&self, to: &str, what: &str) -> Result<String, BmcError> {
        let elsewhere = || BmcError::Elsewhere { bmc: self.origin.clone(), what: what.to_owned(), to: shown(to) };
        let path = match to.strip_prefix(&self.origin) {
            Some(path) => path,
            None if to.starts_with('/') && !to.starts_with("//") => to,
            None => return Err(elsewhere()),
        };
        // `https://bmc.example.evil` begins with `https://bmc.example` too.
        if path.starts_with('/') { Ok(path.to_owned()) } else { Err(elsewhere()) }
    }

    pub(super) fn not_redfish(&self, what: &str, why: &str) -> BmcError {
        BmcError::NotRedfish { bmc: self.origin.clone(), what: what.to_owned(), why: why.to_owned() }
    }
}

fn request_error() -> NoAnswer {
    NoAnswer("cannot build the request; check the user name and password for unusual characters".to_owned())
}

/// Returns the target of a link.
pub(super) fn link(value: &Value) -> Option<&str> {
    value["@odata.id"].as_str()
}

/// Returns the text of an error: that of the extended information if there is any.
fn error_message(value: &Value) -> Option<String> {
    let error = &value["error"];
    let more = error["@Message.ExtendedInfo"].as_array().into_iter().flatten();
    let texts: Vec<&str> = more.filter_map(|m| m["Message"].as_str()).filter(|t| !t.is_empty()).collect();
    let text = if texts.is_empty() { error["message"].as_str()?.to_owned() } else { texts.join("; ") };
    Some(shorten(&text))
}

/// Returns the value of a Basic authentication header.
fn basic(login: &Login) -> String {
    let both = format!("{}:{}", login.username, login.password).into_bytes();
    // A byte string of Kubernetes is serialised as base64.
    let encoded = serde_json::to_value(k8s_openapi::ByteString(both)).unwrap_or_default();
    format!("Basic {}", encoded.as_str().unwrap_or_default())
}

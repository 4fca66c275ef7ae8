//! Client of Prometheus, for the site's gates (policy `start_gates`; REB-63, REB-64): instant queries, sent by GET.
//!
//! Everything but a complete, understood answer is an error. A result that is missed would let a reboot start.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
    time::Duration,
};

use bytes::Bytes;
use cketerm_model::{
    secret,
    start_gates::{ALERTS, GateState, MAX_TIMEOUT, StartGates},
    text::visible,
};
use futures::{
    StreamExt,
    stream::{BoxStream, FuturesUnordered},
};
use http::{Request, StatusCode};
use serde::Deserialize;
use serde_json::Value;

use crate::{
    kubernetes::percent_encode,
    net::{Http, Trust},
    notices,
};

/// Limit of the answer's size in bytes.
pub const MOST_BYTES: usize = 1 << 20;
/// Number of alerts that are named.
const NAMED_ALERTS: usize = 5;
/// Number of characters that are shown of a name, of a text from Prometheus, and of a whole error.
const NAME_CHARS: usize = 60;
const TEXT_CHARS: usize = 200;
const STATE_CHARS: usize = 400;

/// Clients of Prometheus. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Prometheus {
    http: Result<Http, String>,
    /// Whether the client is of the network, where a policy may name other authorities.
    network: bool,
}

impl Prometheus {
    /// Creates a client for the network.
    pub fn network() -> Self {
        Self { http: client(&Trust::Host), network: true }
    }

    /// Creates a client from one that answers inside the process, for the sandbox.
    pub fn in_process(http: Http) -> Self {
        Self { http: Ok(http), network: false }
    }

    /// Asks for every gate at once. The states come in the order of the answers, by the gates' names.
    pub fn ask(&self, settings: &StartGates) -> BoxStream<'static, (String, GateState)> {
        let http = self.client_for(settings);
        let timeout = Duration::from_secs(settings.timeout_seconds.clamp(1, MAX_TIMEOUT));
        let each = settings.gates().into_iter().map(|(gate, expression)| {
            let request = http.clone().and_then(|http| Ok((http, request(settings, &expression)?)));
            let (gate, url) = (gate.to_owned(), settings.shown_url());
            async move {
                let answer = async {
                    let (http, request) = request?;
                    query(&http, request, timeout).await.map_err(|why| format!("{url} {why}"))
                };
                let state = match answer.await {
                    Ok(result) if result.is_empty() => GateState::Open,
                    Ok(result) if gate == ALERTS => GateState::Closed(named_alerts(&result)),
                    Ok(result) => GateState::Closed(named_series(&result)),
                    Err(why) => GateState::Failed(cut(&why, STATE_CHARS)),
                };
                (gate, state)
            }
        });
        each.collect::<FuturesUnordered<_>>().boxed()
    }

    /// Returns the client that trusts the authorities of these settings. Their file is read each time.
    fn client_for(&self, settings: &StartGates) -> Result<Http, String> {
        match settings.ca_file.as_ref().filter(|_| self.network) {
            None => self.http.clone(),
            Some(file) => {
                let pem = std::fs::read(file).map_err(|e| format!("ca_file: {file} cannot be read: {e}"))?;
                client(&Trust::Only(pem)).map_err(|why| format!("ca_file: {file}: {why}"))
            }
        }
    }
}

fn client(trust: &Trust) -> Result<Http, String> {
    // each request has a timeout of its own, which is shorter
    Http::for_queries(Duration::from_secs(MAX_TIMEOUT), MOST_BYTES, trust).map_err(|e| e.to_string())
}

fn request(settings: &StartGates, expression: &str) -> Result<Request<Bytes>, String> {
    let base = settings.prometheus.trim_end_matches('/');
    let url = format!("{base}/api/v1/query?query={}", percent_encode(expression));
    let mut request = Request::get(url).header(http::header::ACCEPT, "application/json");
    if let Some(file) = &settings.header_file {
        for (name, value) in notices::headers_of(Path::new(file))? {
            request = request.header(name, value);
        }
    }
    if let Some(file) = &settings.bearer_token_file {
        let token = notices::secret(Path::new(file)).map_err(|why| format!("bearer_token_file: {why}"))?;
        let value = http::HeaderValue::try_from(format!("Bearer {token}"));
        let mut value = value.map_err(|_| format!("bearer_token_file: {file} holds no token"))?;
        value.set_sensitive(true);
        request = request.header(http::header::AUTHORIZATION, value);
    }
    let request = request.body(Bytes::new()).map_err(|_| format!("{} is not a URL", settings.shown_url()))?;
    let has_host = request.uri().host().is_some_and(|host| !host.is_empty());
    if has_host { Ok(request) } else { Err(format!("{} is not a URL", settings.shown_url())) }
}

/// Answer of Prometheus, as far as it matters.
#[derive(Deserialize)]
struct Answer {
    status: String,
    #[serde(default)]
    data: Option<Data>,
    #[serde(default)]
    error: Option<String>,
    #[serde(default)]
    warnings: Option<Vec<String>>,
    /// Whether a store of `VictoriaMetrics` did not answer.
    #[serde(default, rename = "isPartial")]
    is_partial: bool,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Data {
    result_type: String,
    result: Value,
}

/// One series of a result.
#[derive(Debug, Deserialize)]
struct Series {
    metric: BTreeMap<String, String>,
    /// The time and the sample, which is not read: a series without one is no result of an instant query.
    #[serde(alias = "histogram", rename = "value")]
    _value: Value,
}

/// Sends one query, and returns the series of its result. The error continues a sentence that begins with the URL.
async fn query(http: &Http, request: Request<Bytes>, timeout: Duration) -> Result<Vec<Series>, String> {
    let answer = match tokio::time::timeout(timeout, http.send(request)).await {
        Ok(answer) => answer.map_err(|e| format!("gives no answer: {}", shown(&e.to_string())))?,
        Err(_) => return Err(format!("gives no answer: none in {} s", timeout.as_secs())),
    };
    let status = answer.status();
    let parsed: Result<Answer, _> = serde_json::from_slice(answer.body());
    if status != StatusCode::OK {
        let redirect = if status.is_redirection() { ", a redirect, which is not followed" } else { "" };
        let error = parsed.ok().and_then(|answer| answer.error);
        let error = error.map_or_else(String::new, |error| format!(": {}", shown(&error)));
        return Err(format!("answered {}{redirect}{error}", status.as_u16()));
    }
    let answer = parsed.map_err(|e| format!("gave an answer that is not of Prometheus: {}", shown(&e.to_string())))?;
    let Some(data) = answer.data.filter(|_| answer.status == "success") else {
        return Err(format!("answered {}: {}", shown(&answer.status), shown(&answer.error.unwrap_or_default())));
    };
    if data.result_type != "vector" {
        let kind = shown(&data.result_type);
        return Err(format!("answered with a {kind}, which is never empty: the query must select or compare series"));
    }
    let result: Vec<Series> = serde_json::from_value(data.result)
        .map_err(|e| format!("gave an answer that is not of Prometheus: {}", shown(&e.to_string())))?;
    // A store that did not answer may have held the series.
    let partial = || answer.is_partial.then(|| "the answer is partial".to_owned());
    let warning = answer.warnings.unwrap_or_default().into_iter().next().or_else(partial);
    match warning.filter(|_| result.is_empty()) {
        Some(warning) => Err(format!("answered with no series, but with a warning: {}", shown(&warning))),
        None => Ok(result),
    }
}

/// Returns the beginning of a text from elsewhere, in one line and without secrets.
fn shown(text: &str) -> String {
    secret::beginning(visible(text.trim(), false).as_bytes(), TEXT_CHARS)
}

fn cut(text: &str, chars: usize) -> String {
    visible(text, false).chars().take(chars).collect()
}

/// Returns the names of alerts, sorted, so that the text changes only if they do.
fn named_alerts(result: &[Series]) -> String {
    let name = |series: &Series| cut(series.metric.get("alertname").map_or("unnamed", String::as_str), NAME_CHARS);
    let names: BTreeSet<String> = result.iter().map(name).collect();
    let more = names.len().saturating_sub(NAMED_ALERTS);
    let first = names.into_iter().take(NAMED_ALERTS).collect::<Vec<_>>().join(", ");
    if more > 0 { format!("{first} and {more} more alerts") } else { first }
}

/// Returns the first series of a result in the order of their labels.
fn named_series(result: &[Series]) -> String {
    let Some(first) = result.iter().map(|series| &series.metric).min() else { return String::new() };
    let labels: Vec<String> = first.iter().map(|(name, value)| format!("{name}={value:?}")).collect();
    let series = cut(&format!("{{{}}}", labels.join(", ")), TEXT_CHARS);
    match result.len() {
        1 => format!("the query has the result {series}"),
        number => format!("the query has {number} results, such as {series}"),
    }
}

#[cfg(test)]
mod tests;

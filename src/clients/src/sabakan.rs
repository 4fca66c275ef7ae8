//! Client of sabakan: one GraphQL query, sent by POST to the stored URL (SAB-1 to SAB-7).
//!
//! Everything but a complete, understood answer is an error with a message. A machine that is missed would look
//! removed, and its node would leave the definition (SAB-8).

use std::time::Duration;

use bytes::Bytes;
use cketerm_model::{secret, text::visible};
use cketerm_sabakan::machine::{self, MachineError, Machines};
use http::{Request, StatusCode};
use serde_json::{Map, Value, json};

use crate::net::Http;

/// Timeout of one request. For 20,000 machines sabakan takes 4.8 s.
pub const TIMEOUT: Duration = Duration::from_mins(1);
/// Limit of the answer's size in bytes, enough for some 200,000 machines.
pub const MOST_BYTES: usize = 128 << 20;

const FIELDS: &str = "\
    spec { serial labels { name value } rack indexInRack role ipv4 registerDate retireDate bmc { bmcType ipv4 } }
    status { state timestamp duration }";

/// Query to sabakan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Question {
    /// The machines that a definition is made of.
    Members,
    /// The machines that automatic repair considers.
    Broken,
}

impl Question {
    /// Returns the GraphQL query. The default conditions are defaults of its variables, so they hold for an absent
    /// variable. An explicit `null` removes them (SAB-3).
    fn query(self) -> String {
        let (having, not_having) = match self {
            Self::Members => ("null", "{roles: [\"boot\"], states: [RETIRED]}"),
            Self::Broken => ("{states: [UNHEALTHY, UNREACHABLE]}", "{roles: [\"boot\"]}"),
        };
        format!(
            "query ckeSearch($having: MachineParams = {having}, $notHaving: MachineParams = {not_having}) {{\n  \
             searchMachines(having: $having, notHaving: $notHaving) {{\n{FIELDS}\n  }}\n}}"
        )
    }
}

/// Reason why there is no usable answer. Each message names the URL.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum QueryError {
    /// The URL is invalid.
    #[error("sabakan: {url:?} is not a URL ({why}); set it with `cketerm sabakan set-url URL`")]
    Url {
        /// The stored URL.
        url: String,
        /// The problem.
        why: String,
    },
    /// No answer, no answer in time, or the connection broke.
    #[error("sabakan at {url} does not answer: {why}")]
    Silent {
        /// The requested URL.
        url: String,
        /// The cause.
        why: String,
    },
    /// A status other than 200.
    #[error("sabakan at {url} answered {status}: {error_text}{remedy}")]
    Status {
        /// The requested URL.
        url: String,
        /// The status.
        status: u16,
        /// Text of the body.
        error_text: String,
        /// Remedy with its separator. May be empty.
        remedy: &'static str,
    },
    /// Status 200 with an unusable answer.
    #[error("sabakan at {url}: {cause}")]
    Answer {
        /// The requested URL.
        url: String,
        /// The problem.
        cause: MachineError,
    },
}

/// Sends one query with these variables as they are stored.
pub async fn ask(
    http: &Http,
    url: &str,
    question: Question,
    variables: &Map<String, Value>,
) -> Result<Machines, QueryError> {
    let text = send(http, url, &question.query(), variables).await?;
    // 20,000 machines are 12 MB of JSON: not on a thread that others wait for
    machine::read(&text).map_err(|cause| QueryError::Answer { url: secret::url(url), cause })
}

/// Sends one query and returns the body of a 200.
async fn send(http: &Http, url: &str, query: &str, variables: &Map<String, Value>) -> Result<String, QueryError> {
    let bad_url = |why: String| QueryError::Url { url: secret::url(url), why };
    let mut body = json!({"query": query});
    if !variables.is_empty() {
        body["variables"] = Value::Object(variables.clone());
    }
    let request = Request::post(url).header("content-type", "application/json").body(Bytes::from(body.to_string()));
    let request = request.map_err(|e| bad_url(e.to_string()))?;
    if request.uri().host().is_none() {
        return Err(bad_url("it is not absolute".to_owned()));
    }
    let silent = |why: String| QueryError::Silent { url: secret::url(url), why };
    let answer = match tokio::time::timeout(TIMEOUT, http.send(request)).await {
        Ok(answer) => answer.map_err(|e| silent(e.to_string()))?,
        Err(_) => return Err(silent(format!("no answer in {} s", TIMEOUT.as_secs()))),
    };
    let status = answer.status();
    if status != StatusCode::OK {
        let remedy = match status.as_u16() {
            404 => "; the URL must end in /graphql: `cketerm sabakan set-url URL`",
            422 => "; see `cketerm sabakan get-variables`",
            _ => "",
        };
        let error_text = error_text(answer.body());
        return Err(QueryError::Status { url: secret::url(url), status: status.as_u16(), error_text, remedy });
    }
    String::from_utf8(answer.into_body().to_vec()).map_err(|_| silent("the answer is not UTF-8".to_owned()))
}

/// Returns the message of an error body, in one line.
fn error_text(body: &[u8]) -> String {
    const MOST: usize = 300;
    let value: Option<Value> = serde_json::from_slice(body).ok();
    let errors = value.as_ref().and_then(|v| v["errors"].as_array()).map(|errors| {
        let each = errors.iter().map(|e| {
            let place = e["path"].as_array().filter(|p| !p.is_empty()).map(|p| {
                let parts: Vec<String> =
                    p.iter().map(|x| x.as_str().map_or_else(|| x.to_string(), str::to_owned)).collect();
                format!(" at {}", parts.join("."))
            });
            format!("{}{}", e["message"].as_str().unwrap_or("no message"), place.unwrap_or_default())
        });
        each.collect::<Vec<_>>().join("; ")
    });
    let text = errors
        .or_else(|| value.as_ref().and_then(|v| v["error"].as_str()).map(str::to_owned))
        .unwrap_or_else(|| String::from_utf8_lossy(body).trim().to_owned());
    let text = visible(&text, false);
    if text.is_empty() { "nothing".to_owned() } else { text.chars().take(MOST).collect() }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;
    use http::Response;

    use super::*;
    use crate::net::NoAnswer;

    fn http_answering(status: u16, body: &'static str) -> Http {
        Http::by(move |_| {
            let mut response = Response::new(Bytes::from_static(body.as_bytes()));
            *response.status_mut() = StatusCode::from_u16(status).unwrap();
            std::future::ready(Ok(response)).boxed()
        })
    }

    async fn asked(http: &Http) -> Result<Machines, QueryError> {
        ask(http, "http://h:1/graphql", Question::Members, &Map::new()).await
    }

    #[tokio::test]
    async fn an_incomplete_answer_is_an_error_with_the_url_and_the_servers_message() {
        for (status, body, words) in [
            (200, r#"{"errors":[{"message":"not found","path":["machine"]}],"data":null}"#, "not found"),
            (200, r#"{"errors":[{"message":"half"}],"data":{"searchMachines":[]}}"#, "half"),
            (200, r#"{"data":null}"#, "searchMachines"),
            (200, "<html>", "not a valid answer of sabakan"),
            (
                422,
                r#"{"errors":[{"message":"unknown field","path":["variable","having","foo"]}],"data":null}"#,
                "422: unknown field at variable.having.foo; see `cketerm sabakan get-variables`",
            ),
            (400, r#"{"errors":[{"message":"transport not supported"}],"data":null}"#, "transport not supported"),
            (404, r#"{"error":"requested resource is not found","request_id":"7","status":404}"#, "end in /graphql"),
            (500, "", "answered 500: nothing"),
            (502, "Bad\u{1b}[31m", "answered 502: Bad"),
            (204, "", "answered 204"),
        ] {
            let why = asked(&http_answering(status, body)).await.unwrap_err().to_string();
            assert!(why.contains("http://h:1/graphql") && why.contains(words), "{status} {body}: {why}");
            assert!(!why.contains('\u{1b}'), "{why:?}");
        }
        let refused = Http::by(|_| std::future::ready(Err(NoAnswer("connection refused".to_owned()))).boxed());
        assert!(asked(&refused).await.unwrap_err().to_string().contains("does not answer: connection refused"));
        for url in ["", "/graphql", "no url"] {
            let why = ask(&refused, url, Question::Members, &Map::new()).await.unwrap_err().to_string();
            assert!(why.contains("set-url"), "{url}: {why}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_request_without_an_answer_times_out() {
        let http_pending = Http::by(|_| std::future::pending().boxed());
        assert!(asked(&http_pending).await.unwrap_err().to_string().contains("no answer in 60 s"));
    }

    #[tokio::test]
    async fn an_absent_variable_stays_absent_and_null_is_passed() {
        let (body_sender, mut bodies) = tokio::sync::mpsc::unbounded_channel();
        let http = Http::by(move |request: Request<Bytes>| {
            let _ = body_sender.send(serde_json::from_slice::<Value>(request.body()).unwrap());
            let body = r#"{"data":{"searchMachines":[]}}"#;
            std::future::ready(Ok(Response::new(Bytes::from_static(body.as_bytes())))).boxed()
        });
        asked(&http).await.unwrap();
        assert_eq!(bodies.recv().await.unwrap().get("variables"), None);
        let variables = cketerm_sabakan::variables::parse(r#"{"notHaving": null}"#).unwrap();
        ask(&http, "http://h/graphql", Question::Broken, &variables).await.unwrap();
        let body = bodies.recv().await.unwrap();
        assert_eq!(body["variables"], json!({"notHaving": null}));
        assert!(
            body["query"].as_str().unwrap().contains("$having: MachineParams = {states: [UNHEALTHY, UNREACHABLE]}")
        );
    }
}

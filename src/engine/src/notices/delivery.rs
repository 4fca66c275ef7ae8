//! One delivery and its result: a POST, or a program that reads the notice.

use std::time::Duration;

use cketerm_clients::{
    net::Http,
    notices::{Channel, Receiver, Template},
};
use cketerm_model::{attempt::Ended, notice::Notice, secret::beginning, text::visible};
use http::{StatusCode, header::RETRY_AFTER};

use crate::command::{CommandLine, Purpose, Spawner};

/// Longest wait that a receiver may request.
const LONGEST_WAIT: Duration = Duration::from_mins(10);
/// Number of characters kept of an answer.
const KEPT: usize = 300;

/// Result of a delivery.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DeliveryResult {
    /// Received. Holds the answer.
    Delivered(String),
    /// The receiver works but rejects this notice. Holds the reason. It may accept other notices.
    Rejected(String),
    /// Not known to be received.
    Failed {
        /// Short reason.
        why: String,
        /// Wait that the receiver requested.
        wait: Option<Duration>,
    },
}

impl DeliveryResult {
    fn failed(why: String) -> Self {
        Self::Failed { why, wait: None }
    }
}

/// Sender of notices. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Delivery {
    /// HTTP client for webhooks.
    pub http: Http,
    /// Runs programs, by the rules of the definition's commands.
    pub spawner: Spawner,
}

impl Delivery {
    /// Delivers one notice, within the receiver's timeout. The result contains no secret.
    pub async fn deliver(&self, receiver: &Receiver, notice: &Notice) -> DeliveryResult {
        let body = receiver.template.render(notice).or_else(|why| {
            // The template was tried on samples when it was read. The default template is better than no notice.
            tracing::warn!(receiver = receiver.name, why, "the template failed; sending with the default template");
            Template::default().render(notice)
        });
        let body = match body {
            Ok(body) => body,
            Err(why) => return DeliveryResult::Rejected(why),
        };
        match &receiver.channel {
            Channel::Program(argv) => self.run(receiver, argv.clone(), notice, body).await,
            Channel::Webhook { .. } => self.post(receiver, &body).await,
        }
    }

    async fn run(&self, receiver: &Receiver, argv: Vec<String>, notice: &Notice, body: String) -> DeliveryResult {
        let line = CommandLine {
            argv,
            bound: receiver.limits.timeout.as_secs().max(1),
            // It ends with the engine; the next leader sends the notice again.
            purpose: Purpose::Check,
            start_before: None,
            entry: notice.entry.clone().unwrap_or_default(),
            attempt: notice.id.clone(),
            input: Some(body),
            label: None,
            output: None,
        };
        let (end, stdout, stderr) = self.spawner.run(&line).await;
        let result = short(if stderr.trim().is_empty() { &stdout } else { &stderr }.as_bytes());
        match end {
            Ended::Exit(0) => DeliveryResult::Delivered(short(stdout.as_bytes())),
            end if result.is_empty() => DeliveryResult::failed(end.to_string()),
            end => DeliveryResult::failed(format!("{end}: {result}")),
        }
    }

    async fn post(&self, receiver: &Receiver, body: &str) -> DeliveryResult {
        let request = match receiver.request(body) {
            Ok(Some(request)) => request,
            Ok(None) => return DeliveryResult::failed("not a webhook".to_owned()),
            Err(why) => return DeliveryResult::failed(why),
        };
        let limit = receiver.limits.timeout;
        let answer = match tokio::time::timeout(limit, self.http.send(request)).await {
            Ok(Ok(answer)) => answer,
            Ok(Err(e)) => return DeliveryResult::failed(e.to_string()),
            Err(_) => return DeliveryResult::failed(format!("no answer in {} s", limit.as_secs_f64())),
        };
        let (status, result) = (answer.status(), short(answer.body()));
        let answer_text = if result.is_empty() { status.to_string() } else { format!("{status}: {result}") };
        match status {
            s if s.is_success() => DeliveryResult::Delivered(answer_text),
            s if s.is_redirection() => DeliveryResult::failed(format!("{answer_text} (redirects are not followed)")),
            StatusCode::BAD_REQUEST | StatusCode::PAYLOAD_TOO_LARGE | StatusCode::UNPROCESSABLE_ENTITY => {
                DeliveryResult::Rejected(answer_text)
            }
            _ => {
                let seconds = answer.headers().get(RETRY_AFTER).and_then(|v| v.to_str().ok()?.trim().parse().ok());
                let wait = seconds.map(|s| Duration::from_secs(s).min(LONGEST_WAIT));
                DeliveryResult::Failed { why: answer_text, wait }
            }
        }
    }
}

/// Returns the beginning of an answer, on one line.
fn short(text: &[u8]) -> String {
    let text = text.trim_ascii();
    let line = visible(&beginning(text, KEPT + 1), false);
    let mut cut: String = line.chars().take(KEPT).collect();
    if cut.len() < line.len() {
        cut.push('…');
    }
    cut
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use bytes::Bytes;
    use futures::FutureExt;
    use http::{Request, Response};

    use super::*;
    use cketerm_clients::{
        net::NoAnswer,
        notices::{Limits, SecretUrl, UrlSource, sample},
    };
    use cketerm_model::notice::Kind;

    fn receiver(channel: Channel) -> Receiver {
        let limits = Limits { timeout: Duration::from_secs(3), ..Limits::default() };
        Receiver { name: "r".to_owned(), kinds: Kind::CHOICE.into(), channel, template: Template::default(), limits }
    }

    fn webhook() -> Receiver {
        let url = UrlSource::Inline(SecretUrl::parse("http://hooks.example.com/SECRET").unwrap());
        receiver(Channel::Webhook { url, headers: None })
    }

    fn delivery(answer: impl Fn(Request<Bytes>) -> cketerm_clients::net::Answer + Send + Sync + 'static) -> Delivery {
        let answer = Arc::new(answer);
        let http = Http::by(move |request| {
            let answer = Arc::clone(&answer);
            async move { answer(request) }.boxed()
        });
        Delivery { http, spawner: Spawner::new("/no/such/helper".into(), None, &[]) }
    }

    #[allow(clippy::unnecessary_wraps)] // as services answer
    fn status(code: u16, retry: Option<&str>, body: &str) -> cketerm_clients::net::Answer {
        let mut response = Response::new(Bytes::from(body.to_owned()));
        *response.status_mut() = StatusCode::from_u16(code).unwrap();
        if let Some(retry) = retry {
            response.headers_mut().insert(RETRY_AFTER, retry.parse().unwrap());
        }
        Ok(response)
    }

    #[tokio::test]
    async fn http_statuses_map_to_delivered_rejected_or_failed() {
        let failed = |why: &str, wait: Option<u64>| DeliveryResult::Failed {
            why: why.to_owned(),
            wait: wait.map(Duration::from_secs),
        };
        let cases = [
            (200, None, "ok", DeliveryResult::Delivered("200 OK: ok".to_owned())),
            (204, None, "", DeliveryResult::Delivered("204 No Content".to_owned())),
            (400, None, "invalid_payload", DeliveryResult::Rejected("400 Bad Request: invalid_payload".to_owned())),
            (422, None, "", DeliveryResult::Rejected("422 Unprocessable Entity".to_owned())),
            (302, None, "", failed("302 Found (redirects are not followed)", None)),
            (404, None, "no\nteam", failed("404 Not Found: no␊team", None)),
            (429, Some("30"), "", failed("429 Too Many Requests", Some(30))),
            (503, Some("99999"), "", failed("503 Service Unavailable", Some(600))),
            (500, Some("soon"), "", failed("500 Internal Server Error", None)),
        ];
        for (code, retry, body, expected) in cases {
            let delivery = delivery(move |_| status(code, retry, body));
            assert_eq!(delivery.deliver(&webhook(), &sample(Kind::Stuck)).await, expected, "{code}");
        }
    }

    #[tokio::test]
    async fn a_webhook_gets_the_json_and_errors_contain_no_secret() {
        let got = Arc::new(Mutex::new(Vec::new()));
        let kept = Arc::clone(&got);
        let delivery = delivery(move |request| {
            kept.lock().unwrap().push(request);
            Err(NoAnswer("connection refused or unreachable".to_owned()))
        });
        let result = delivery.deliver(&webhook(), &sample(Kind::Failed)).await;
        assert_eq!(result, DeliveryResult::failed("connection refused or unreachable".to_owned()));
        let request = got.lock().unwrap().pop().unwrap();
        let body: serde_json::Value = serde_json::from_slice(request.body()).unwrap();
        assert_eq!(
            (request.method().as_str(), request.uri().path(), &body["kind"]),
            ("POST", "/SECRET", &"failed".into())
        );
    }

    #[tokio::test(start_paused = true)]
    async fn a_slow_webhook_times_out() {
        let http = Http::by(|_| futures::future::pending().boxed());
        let delivery = Delivery { http, spawner: Spawner::new("/no/such/helper".into(), None, &[]) };
        let result = delivery.deliver(&webhook(), &sample(Kind::Stuck)).await;
        assert_eq!(result, DeliveryResult::failed("no answer in 3 s".to_owned()));
    }

    #[tokio::test]
    async fn a_program_that_cannot_be_started_fails_with_its_cause() {
        let delivery = delivery(|_| status(200, None, ""));
        let result = delivery.deliver(&receiver(Channel::Program(vec!["x".to_owned()])), &sample(Kind::Stuck)).await;
        assert!(matches!(&result, DeliveryResult::Failed { why, .. } if why.contains("/no/such/helper")), "{result:?}");
    }
}

//! Fuzz tests of receivers' answers, and of cketerm's records of sent notices.

use std::time::Duration;

use bytes::Bytes;
use cketerm_clients::{
    net::Http,
    notices::{Channel, Limits, Receiver, SecretUrl, Template, UrlSource, sample},
};
use cketerm_fuzz::{Fuzz, Took, one_line};
use cketerm_model::notice::{Kind, NotifierState};
use futures::FutureExt as _;
use http::{Response, StatusCode, header::RETRY_AFTER};

use super::delivery::{Delivery, DeliveryResult};
use crate::command::Spawner;

#[test]
fn fuzz_receiver_answers() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
    let url = UrlSource::Inline(SecretUrl::parse("http://hooks.example.com/hunter2").unwrap());
    let receiver = Receiver {
        name: "r".to_owned(),
        kinds: Kind::CHOICE.into(),
        channel: Channel::Webhook { url, headers: None },
        template: Template::default(),
        limits: Limits { timeout: Duration::from_secs(3), ..Limits::default() },
    };
    let seeds = ["200 ok", "503 99999999999999999999", "429 30\nslow down", "302 x", "422 invalid_payload", "500 -1"];
    Fuzz::new("notice-answer", 500).seeds(seeds).run(|bytes| {
        let text = String::from_utf8_lossy(bytes).into_owned();
        let (code, rest) = text.split_once(' ').unwrap_or((&text, ""));
        let status = code.parse().ok().and_then(|n: u16| StatusCode::from_u16(n).ok()).unwrap_or(StatusCode::OK);
        let mut response = Response::new(Bytes::copy_from_slice(bytes));
        *response.status_mut() = status;
        let first = rest.lines().next().unwrap_or_default();
        if let Ok(value) = http::HeaderValue::from_str(first) {
            response.headers_mut().insert(RETRY_AFTER, value);
        }
        let http = Http::by(move |_| std::future::ready(Ok(response.clone())).boxed());
        let delivery = Delivery { http, spawner: Spawner::new("/no/such/helper".into(), None, &[]) };
        let delivery = runtime.block_on(delivery.deliver(&receiver, &sample(Kind::Stuck)));
        let (answer_text, took) = match &delivery {
            DeliveryResult::Delivered(answer_text) => (answer_text, Took::Accepted),
            DeliveryResult::Rejected(why) => (why, Took::Refused),
            DeliveryResult::Failed { why, wait } => {
                if wait.is_some_and(|wait| wait > Duration::from_mins(10)) {
                    return Err(format!("the wait is too long: {wait:?}"));
                }
                (why, Took::Refused)
            }
        };
        one_line(answer_text)?;
        if answer_text.chars().count() > 400 {
            Err(format!("the kept text is too long: {} characters", answer_text.chars().count()))
        } else {
            Ok(took)
        }
    });
}

#[test]
fn fuzz_notifier_records() {
    let seeds = [serde_json::to_string(&NotifierState::default()).unwrap()];
    Fuzz::new("notice-record", 300)
        .seeds(seeds)
        .run(|bytes| Ok(Took::of(&serde_json::from_slice::<NotifierState>(bytes))));
}

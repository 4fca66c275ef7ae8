//! A webhook that misbehaves: it is slow, answers 500, accepts a notice without an answer, and is down at times. After
//! the faults have ended it behaves well.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
    time::Duration,
};

use bytes::Bytes;
use cketerm_clients::{
    net::{Http, NoAnswer},
    notices::{Channel, Limits, Receiver, SecretUrl, Template, UrlSource},
    store::Store,
};
use cketerm_model::{clock::Clock, notice::Kind};
use fastrand::Rng;
use futures::FutureExt;
use http::{Request, Response};

use crate::observers::record::Received;

/// A webhook, shared by all engines of a run.
#[derive(Clone)]
pub struct WebhookReceiver {
    deliveries: Arc<Mutex<Vec<Received>>>,
    random: Arc<Mutex<Rng>>,
    healthy: Arc<AtomicBool>,
    clock: Clock,
}

impl WebhookReceiver {
    pub fn new(rng: Rng, clock: Clock) -> Self {
        Self { deliveries: Arc::default(), random: Arc::new(Mutex::new(rng)), healthy: Arc::default(), clock }
    }

    /// Receivers as the configuration of every engine has them.
    pub fn receivers() -> Arc<Vec<Receiver>> {
        let url = UrlSource::Inline(SecretUrl::parse("http://hook.sandbox/").unwrap());
        let limits = Limits { timeout: Duration::from_secs(5), per_minute: 60 };
        let receiver = |name: &str, url, kinds| {
            let channel = Channel::Webhook { url, headers: None };
            Receiver { name: name.to_owned(), kinds, channel, template: Template::default(), limits }
        };
        // one receiver that never subscribes to endings, like a pager
        let pager = UrlSource::Inline(SecretUrl::parse("http://pager.sandbox/").unwrap());
        let pager_kinds = [Kind::Stuck, Kind::Broken].into();
        Arc::new(vec![receiver("hook", url, Kind::CHOICE.into()), receiver("pager", pager, pager_kinds)])
    }

    /// HTTP client through which the engine `by` reaches it.
    pub fn http(&self, by: &str) -> Http {
        let (webhook_receiver, by) = (self.clone(), by.to_owned());
        Http::by(move |request: Request<Bytes>| {
            let (webhook_receiver, by) = (webhook_receiver.clone(), by.clone());
            async move { webhook_receiver.take(&by, &request).await }.boxed()
        })
    }

    /// Makes it behave well from now on.
    pub fn heal(&self) {
        self.healthy.store(true, SeqCst);
    }

    /// Makes it misbehave from now on.
    pub fn fail(&self) {
        self.healthy.store(false, SeqCst);
    }

    pub fn received(&self) -> Vec<Received> {
        self.deliveries.lock().unwrap().clone()
    }

    async fn take(&self, by: &str, request: &Request<Bytes>) -> cketerm_clients::net::Answer {
        if request.uri().host() == Some("pager.sandbox") {
            return Ok(Response::new(Bytes::new()));
        }
        let roll = if self.healthy.load(SeqCst) { 100 } else { self.random.lock().unwrap().u32(..100) };
        match roll {
            // the notice never arrives
            0..15 => return Err(NoAnswer("connection refused or unreachable".to_owned())),
            // the sender gives up before the answer
            15..20 => tokio::time::sleep(Duration::from_secs(20)).await,
            20..40 => tokio::time::sleep(Duration::from_millis(u64::from(roll) * 50)).await,
            _ => {}
        }
        let status = if (40..50).contains(&roll) { 500 } else { 200 };
        let notice = serde_json::from_slice(request.body()).unwrap_or_default();
        self.deliveries.lock().unwrap().push(Received {
            at: self.clock.wall(),
            by: by.to_owned(),
            notice,
            taken: status == 200,
        });
        // accepted, but the sender never learns that
        if (50..60).contains(&roll) {
            return Err(NoAnswer("the connection was closed".to_owned()));
        }
        let mut response = Response::new(Bytes::new());
        *response.status_mut() = http::StatusCode::from_u16(status).unwrap();
        Ok(response)
    }
}

/// Waits until no notice is left to be delivered.
pub async fn delivered(store: &Store) {
    let key = store.keys().notices("hook");
    loop {
        tokio::time::sleep(Duration::from_secs(5)).await;
        let Ok(Some(raw)) = store.raw(&key).await else { continue };
        let stored: serde_json::Value = serde_json::from_str(&raw.text).unwrap_or_default();
        if stored["pending"].as_array().is_some_and(Vec::is_empty) {
            return;
        }
    }
}

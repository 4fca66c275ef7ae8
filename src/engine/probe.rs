//! Probes of the control planes: is each API server alive, as this engine sees it (spec/safety.md, Policy:
//! `control_plane_probe`).
//!
//! 2xx, 401 and 403 mean alive; the certificate is not verified, for it is liveness that is asked and not identity.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
    time::Duration,
};

use tokio::sync::{Notify, watch};

use super::snapshot::{Probe, secs};
use crate::{clock::Clock, net::Http};

/// Between probes while an API server is in work or next, and else.
const OFTEN: Duration = Duration::from_secs(2);
const SELDOM: Duration = Duration::from_secs(15);
/// How long one answer is waited for.
pub const TIMEOUT: Duration = Duration::from_secs(5);

/// What to probe: URLs by address, and how often.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Targets {
    /// URL by address.
    pub urls: BTreeMap<String, String>,
    /// An API server is in work or next.
    pub often: bool,
}

/// Probes in the background.
pub struct Prober {
    targets: watch::Sender<Targets>,
    seen: Arc<Mutex<BTreeMap<String, Probe>>>,
    changed: Arc<Notify>,
    task: tokio::task::JoinHandle<()>,
}

impl Drop for Prober {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Prober {
    /// Starts with no targets.
    pub fn start(clock: &Clock, http: Http) -> Self {
        let (targets, inbox) = watch::channel(Targets::default());
        let seen = Arc::new(Mutex::new(BTreeMap::new()));
        let changed = Arc::new(Notify::new());
        let task = crate::tasks::spawn(run(http, inbox, Arc::clone(&seen), Arc::clone(&changed), clock.clone()));
        Self { targets, seen, changed, task }
    }

    /// Probes exactly these from now on; a change takes effect at once.
    pub fn aim(&self, targets: Targets) {
        self.targets.send_if_modified(|now| {
            let new = *now != targets;
            if new {
                *now = targets;
            }
            new
        });
    }

    /// What was seen so far, by address.
    pub fn seen(&self) -> BTreeMap<String, Probe> {
        self.seen.lock().map(|seen| seen.clone()).unwrap_or_default()
    }

    /// Resolves when a probe turns good or bad, or is good for the first time.
    pub async fn changed(&self) {
        self.changed.notified().await;
    }
}

async fn run(
    http: Http,
    mut targets: watch::Receiver<Targets>,
    seen: Arc<Mutex<BTreeMap<String, Probe>>>,
    changed: Arc<Notify>,
    clock: Clock,
) {
    loop {
        let Targets { urls, often } = targets.borrow_and_update().clone();
        if let Ok(mut seen) = seen.lock() {
            seen.retain(|address, probe| urls.get(address) == Some(&probe.url));
        }
        let each = urls.iter().map(|(address, url)| {
            let http = &http;
            async move { (address, url, ask(http, url).await) }
        });
        let answers = futures::future::join_all(each).await;
        let at = secs(clock.boot());
        let mut turned = false;
        if let Ok(mut seen) = seen.lock() {
            for (address, url, answer) in answers {
                let probe = seen.entry(address.clone()).or_default();
                probe.url.clone_from(url);
                turned |= note(probe, answer, at);
            }
        }
        if turned {
            changed.notify_one();
        }
        let pause = if often { OFTEN } else { SELDOM };
        tokio::select! {
            biased;
            () = tokio::time::sleep(pause) => {}
            gone = targets.changed() => if gone.is_err() { return },
        }
    }
}

/// Puts one answer in; says whether good turned bad or bad turned good.
fn note(probe: &mut Probe, answer: Result<(), String>, at: f64) -> bool {
    match answer {
        Ok(()) => {
            let turned = probe.good_since.is_none();
            probe.last_good = Some(at);
            probe.good_since.get_or_insert(at);
            probe.error = None;
            turned
        }
        Err(why) => {
            let turned = probe.error.is_none();
            probe.good_since = None;
            probe.error = Some(why);
            turned
        }
    }
}

async fn ask(http: &Http, url: &str) -> Result<(), String> {
    let status = http.get(url).await.map_err(|e| e.to_string())?.status();
    if status.is_success() || matches!(status.as_u16(), 401 | 403) { Ok(()) } else { Err(status.to_string()) }
}

/// The URL of one control plane: an IPv6 address gets its brackets.
pub fn url(pattern: &str, address: &str) -> String {
    let host = if address.contains(':') { format!("[{address}]") } else { address.to_owned() };
    pattern.replace("{address}", &host)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_good_streak_begins_anew_after_a_bad_answer() {
        let mut probe = Probe::default();
        assert!(note(&mut probe, Ok(()), 1.0));
        assert!(!note(&mut probe, Ok(()), 2.0));
        assert_eq!((probe.good_since, probe.last_good), (Some(1.0), Some(2.0)));
        assert!(note(&mut probe, Err("503".to_owned()), 3.0));
        assert_eq!(probe.good_since, None);
        assert!(note(&mut probe, Ok(()), 4.0));
        assert_eq!(probe.good_since, Some(4.0));
    }

    #[test]
    fn an_ipv6_address_is_bracketed() {
        assert_eq!(url("https://{address}:6443/readyz", "fd00::1"), "https://[fd00::1]:6443/readyz");
    }
}

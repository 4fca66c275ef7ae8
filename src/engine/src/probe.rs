//! Probes of the control planes' API servers, as this engine sees them (SAF-30, policy `control_plane_probe`).
//!
//! The kubeconfig's credentials are sent only if the server's certificate verifies against the cluster's CA. Otherwise
//! the request goes without credentials. 2xx means alive. 401, 403 and redirects mean "not known": they block work like
//! a bad answer, but do not prove that the server is down.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
    time::Duration,
};

use cketerm_clients::{
    kubernetes::{Kube, ProbeResult},
    net::Http,
};
use cketerm_model::{boot_time::BootTime, clock::Clock, names::Address};
use cketerm_rules::snapshot::Probe;
use cketerm_runtime::tasks::OwnedTask;
use tokio::sync::{Notify, watch};

/// Time between probes: `OFTEN` while an API server is in progress or next, else `SELDOM`.
const OFTEN: Duration = Duration::from_secs(2);
const SELDOM: Duration = Duration::from_secs(15);
/// Timeout of one probe.
pub const TIMEOUT: Duration = Duration::from_secs(5);

/// Targets of the probes: URLs by address, and how often to probe.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Targets {
    /// URL by address.
    pub urls: BTreeMap<Address, String>,
    /// Whether an API server is in progress or next.
    pub often: bool,
}

/// Background task that probes.
pub struct Prober {
    targets: watch::Sender<Targets>,
    seen: Arc<Mutex<BTreeMap<Address, Probe>>>,
    changed: Arc<Notify>,
    _task: OwnedTask,
}

impl Prober {
    /// Starts without targets. `kube` provides the credentials, which are sent if the certificate is the cluster's.
    pub fn start(clock: &Clock, http: Http, kube: Option<Kube>) -> Self {
        let (targets, inbox) = watch::channel(Targets::default());
        let seen = Arc::new(Mutex::new(BTreeMap::new()));
        let changed = Arc::new(Notify::new());
        let task = OwnedTask::spawn(run((http, kube), inbox, Arc::clone(&seen), Arc::clone(&changed), clock.clone()));
        Self { targets, seen, changed, _task: task }
    }

    /// Sets the targets to exactly these; a change takes effect at once.
    pub fn aim(&self, targets: Targets) {
        self.targets.send_if_modified(|now| {
            let new = *now != targets;
            if new {
                *now = targets;
            }
            new
        });
    }

    /// Returns the results so far, by address.
    pub fn seen(&self) -> BTreeMap<Address, Probe> {
        self.seen.lock().map(|seen| seen.clone()).unwrap_or_default()
    }

    /// Resolves when a probe turns good or bad, or is good for the first time.
    pub async fn changed(&self) {
        self.changed.notified().await;
    }
}

async fn run(
    (http, kube): (Http, Option<Kube>),
    mut targets: watch::Receiver<Targets>,
    seen: Arc<Mutex<BTreeMap<Address, Probe>>>,
    changed: Arc<Notify>,
    clock: Clock,
) {
    loop {
        let Targets { urls, often } = targets.borrow_and_update().clone();
        if let Ok(mut seen) = seen.lock() {
            seen.retain(|address, probe| urls.get(address) == Some(&probe.url));
        }
        let each = urls.iter().map(|(address, url)| {
            let (http, kube) = (&http, kube.as_ref());
            async move { (address, url, probe_url(http, kube, url).await) }
        });
        let answers = futures::future::join_all(each).await;
        let at = clock.boot();
        let mut changed_state = false;
        if let Ok(mut seen) = seen.lock() {
            for (address, url, answer) in answers {
                let probe = seen.entry(address.clone()).or_default();
                probe.url.clone_from(url);
                changed_state |= record_answer(probe, answer, at);
            }
        }
        if changed_state {
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

/// Meaning of one answer.
#[derive(Clone, Debug, PartialEq, Eq)]
enum ProbeAnswer {
    Alive,
    Bad(String),
    /// Proves nothing. Holds the reason and the remedy.
    Inconclusive(String),
}

/// Records one answer; reports whether the probe turned from good to bad or back.
fn record_answer(probe: &mut Probe, answer: ProbeAnswer, at: BootTime) -> bool {
    let (error, not_known) = match answer {
        ProbeAnswer::Alive => (None, None),
        ProbeAnswer::Bad(why) => (Some(why), None),
        ProbeAnswer::Inconclusive(why) => (None, Some(why)),
    };
    let good = error.is_none() && not_known.is_none();
    let changed_state = if good {
        probe.good_since.is_none()
    } else {
        (probe.error.is_none(), probe.not_known.is_none()) != (error.is_none(), not_known.is_none())
    };
    if good {
        probe.last_good = Some(at);
        probe.good_since.get_or_insert(at);
    } else {
        probe.good_since = None;
    }
    (probe.error, probe.not_known) = (error, not_known);
    changed_state
}

async fn probe_url(http: &Http, kube: Option<&Kube>, url: &str) -> ProbeAnswer {
    let asked = match kube {
        Some(kube) => kube.probe_at(url, TIMEOUT).await,
        None => None,
    };
    let untrusted = match asked {
        Some(ProbeResult::Answered(status)) => return judge(status, None),
        Some(ProbeResult::Silent(why)) => return ProbeAnswer::Bad(why),
        Some(ProbeResult::Untrusted(why)) => why,
        None => "no CA of the cluster is configured for this URL".to_owned(),
    };
    match http.get(url).await {
        Ok(answer) => judge(answer.status().as_u16(), Some(&untrusted)),
        Err(e) => ProbeAnswer::Bad(e.to_string()),
    }
}

/// Returns the meaning of a status code. `untrusted` is the reason why the request went without credentials.
fn judge(status: u16, untrusted: Option<&str>) -> ProbeAnswer {
    match (status, untrusted) {
        (200..=299, _) => ProbeAnswer::Alive,
        (401 | 403, Some(why)) => ProbeAnswer::Inconclusive(format!(
            "{status}: credentials not sent, because {why}; fix that, or set policy control_plane_probe to `node`"
        )),
        (401 | 403, None) => ProbeAnswer::Inconclusive(format!(
            "{status} for cketerm's credentials: grant them this path, or set policy control_plane_probe to `node`"
        )),
        (300..=399, _) => ProbeAnswer::Inconclusive(format!(
            "{status}, a redirect, which is not followed: name the API server's own URL in policy control_plane_probe, or \
             set it to `node`"
        )),
        (status, _) => ProbeAnswer::Bad(status.to_string()),
    }
}

/// Returns the URL of one control plane; an IPv6 address gets its brackets.
pub fn url(pattern: &str, address: &Address) -> String {
    let host = if address.contains(':') { format!("[{address}]") } else { address.to_string() };
    pattern.replace("{address}", &host)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bad_answer_resets_the_good_streak() {
        let mut probe = Probe::default();
        assert!(record_answer(&mut probe, ProbeAnswer::Alive, BootTime::new(1.0)));
        assert!(!record_answer(&mut probe, ProbeAnswer::Alive, BootTime::new(2.0)));
        assert_eq!((probe.good_since, probe.last_good), (Some(BootTime::new(1.0)), Some(BootTime::new(2.0))));
        assert!(record_answer(&mut probe, ProbeAnswer::Bad("503".to_owned()), BootTime::new(3.0)));
        assert_eq!(probe.good_since, None);
        assert!(record_answer(&mut probe, ProbeAnswer::Alive, BootTime::new(4.0)));
        assert_eq!(probe.good_since, Some(BootTime::new(4.0)));
    }

    #[test]
    fn an_inconclusive_answer_names_cause_and_remedy() {
        let lacks = "its certificate lacks this address among its subject alternative names (SAN)";
        let not_known = |status, untrusted| match judge(status, untrusted) {
            ProbeAnswer::Inconclusive(why) => why,
            other => panic!("{status}: {other:?}"),
        };
        for status in [401, 403] {
            let why = not_known(status, Some(lacks));
            assert!(why.contains("SAN") && why.contains("control_plane_probe to `node`"), "{why}");
            assert!(not_known(status, None).contains("grant"), "{}", not_known(status, None));
        }
        assert!(not_known(302, None).contains("redirect"));
        assert_eq!(judge(200, Some(lacks)), ProbeAnswer::Alive, "anonymous requests are allowed, so the answer counts");
        assert_eq!(judge(503, None), ProbeAnswer::Bad("503".to_owned()));
        assert_eq!(judge(404, None), ProbeAnswer::Bad("404".to_owned()));
    }

    #[test]
    fn an_inconclusive_answer_ends_the_good_streak_without_an_error() {
        let mut probe = Probe::default();
        record_answer(&mut probe, ProbeAnswer::Alive, BootTime::new(1.0));
        assert!(record_answer(&mut probe, ProbeAnswer::Inconclusive("401".to_owned()), BootTime::new(2.0)));
        assert_eq!((probe.good_since, probe.error.clone()), (None, None));
        assert!(probe.not_known.is_some());
        assert!(record_answer(&mut probe, ProbeAnswer::Bad("503".to_owned()), BootTime::new(3.0)));
        assert_eq!((probe.not_known.clone(), probe.error.clone()), (None, Some("503".to_owned())));
        assert!(record_answer(&mut probe, ProbeAnswer::Alive, BootTime::new(4.0)));
    }

    #[test]
    fn an_ipv6_address_is_bracketed() {
        assert_eq!(url("https://{address}:6443/readyz", &Address::new("fd00::1")), "https://[fd00::1]:6443/readyz");
    }
}

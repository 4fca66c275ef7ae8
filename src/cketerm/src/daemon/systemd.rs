//! Notifications to systemd, if it requests them (`sd_notify(3)`).

use std::{
    os::{
        linux::net::SocketAddrExt,
        unix::net::{SocketAddr, UnixDatagram},
    },
    time::Duration,
};

use cketerm_runtime::heartbeat::Heartbeat;

/// Sends one state to `NOTIFY_SOCKET`.
pub fn notify(state: &str) {
    let Some(path) = std::env::var_os("NOTIFY_SOCKET").and_then(|p| p.into_string().ok()) else { return };
    let address = match path.strip_prefix('@') {
        Some(name) => SocketAddr::from_abstract_name(name),
        None => SocketAddr::from_pathname(&path),
    };
    let sent = address.and_then(|a| UnixDatagram::unbound()?.send_to_addr(state.as_bytes(), &a));
    if let Err(e) = sent {
        tracing::warn!(error = %e, "could not notify systemd of {state}");
    }
}

/// Feeds the unit's `WatchdogSec` from the heartbeat of the engine's main loop. While the loop is silent, nothing is
/// sent.
pub async fn feed_watchdog(heartbeat: Heartbeat) {
    let variable = |name: &str| std::env::var(name).ok();
    let Some(limit) = watchdog(variable("WATCHDOG_USEC"), variable("WATCHDOG_PID"), std::process::id()) else { return };
    let mut last_fed = None;
    loop {
        let beats = heartbeat.beats();
        if last_fed != Some(beats) {
            notify("WATCHDOG=1");
            last_fed = Some(beats);
        }
        tokio::time::sleep(limit / 3).await;
    }
}

/// Returns a warning if the unit's watchdog would end the process before it can give up the lock by itself.
pub fn watchdog_too_short(ttl: Duration) -> Option<String> {
    let variable = |name: &str| std::env::var(name).ok();
    // the variable with the process id is ignored, because `config check` runs in another process
    let interval = watchdog(variable("WATCHDOG_USEC"), None, 0)?;
    too_short(interval, Heartbeat::new(ttl).limit())
}

fn too_short(interval: Duration, stuck_limit: Duration) -> Option<String> {
    (interval <= stuck_limit).then(|| {
        format!(
            "WatchdogSec of the unit is {} s, but a stuck engine gives up the lock after {} s (half of \
             engine.lease_ttl_seconds): increase it, or systemd ends the process first and nobody leads until the \
             lease has expired",
            interval.as_secs(),
            stuck_limit.as_secs()
        )
    })
}

/// Returns the unit's watchdog interval for this process.
fn watchdog(micros: Option<String>, pid: Option<String>, own: u32) -> Option<Duration> {
    let micros = micros?.parse().ok().filter(|micros| *micros > 0)?;
    let for_this_process = pid.is_none_or(|pid| pid.parse() == Ok(own));
    for_this_process.then(|| Duration::from_micros(micros))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_watchdog_interval_not_above_the_heartbeat_limit_gives_a_warning() {
        let limit = |ttl| Heartbeat::new(Duration::from_secs(ttl)).limit();
        let minute = Duration::from_mins(1);
        assert_eq!(too_short(minute, limit(60)), None, "the shipped unit allows enough time");
        assert!(too_short(minute, limit(120)).unwrap().contains("gives up the lock after 60 s"));
        assert!(too_short(minute, limit(300)).is_some());
        assert!(too_short(Duration::from_secs(10), limit(2)).is_some(), "the limit is at least 10 s");
    }

    #[test]
    fn the_watchdog_interval_applies_only_to_the_requested_process() {
        let interval = |micros: &str, pid: Option<&str>| watchdog(Some(micros.to_owned()), pid.map(str::to_owned), 7);
        assert_eq!(interval("60000000", Some("7")), Some(Duration::from_mins(1)));
        assert_eq!(interval("60000000", None), Some(Duration::from_mins(1)));
        assert_eq!(interval("60000000", Some("8")), None);
        assert_eq!(interval("0", None), None);
        assert_eq!(interval("soon", None), None);
        assert_eq!(watchdog(None, None, 7), None);
    }
}

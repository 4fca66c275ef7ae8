//! Policy editor: sets windows, groups and freezes at the worst moments.

use std::time::Duration;

use cketerm_actions::Operator;
use fastrand::Rng;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep, sleep_until};

use crate::{plan::FAULT_PERIOD, selection::Selection};

/// Windows of some minutes in an hour, now and then with others for a rack.
fn windows(rng: &mut Rng) -> Value {
    let minutes = |rng: &mut Rng| {
        let (length, phase) = (rng.usize(1..5), rng.usize(0..5));
        let of: Vec<String> = (0..60).filter(|m| (m + phase) / length % 2 == 0).map(|m| m.to_string()).collect();
        vec![format!("{} * * * *", of.join(","))]
    };
    let zone = ["UTC", "Asia/Kolkata", "Europe/Berlin"][rng.usize(..3)];
    let margin = [0, 5, 30, 50][rng.usize(..4)];
    let mut windows = json!({"time_zone": zone, "margin_seconds": margin});
    if rng.u32(0..4) != 0 {
        windows["allow"] = json!(minutes(rng));
    }
    if rng.u32(0..3) == 0 {
        windows["deny"] = json!(minutes(rng));
    }
    if rng.u32(0..3) == 0 {
        windows["machines"] = json!([{"name": "own", "rack": rng.u32(0..2), "allow": minutes(rng)}]);
    }
    if rng.u32(0..3) == 0 {
        let queue = ["reboot", "repair"][rng.usize(..2)];
        windows["queues"] = json!([queue]);
    }
    windows
}

/// Acts until the end of the day. A change may be refused (windows in which nothing could start); that is part of the
/// scenario.
pub async fn work(operator: Operator, mut rng: Rng, began: Instant, selection: &Selection) {
    let (mut at, mut n) = (began, 0);
    loop {
        at += Duration::from_millis(rng.u64(5_000..150_000));
        if at >= began + FAULT_PERIOD {
            return;
        }
        sleep_until(at).await;
        let mut random = rng.fork();
        if selection.has(&format!("o{n}")) {
            act(&operator, &mut random).await;
        }
        n += 1;
    }
}

async fn act(operator: &Operator, rng: &mut Rng) {
    match rng.u32(0..10) {
        0..3 => {
            let _ = operator.set_policy("windows", &windows(rng).to_string(), None).await;
        }
        3..5 => {
            let _ = operator.set_policy("windows", "none", None).await;
        }
        5..7 => {
            let seconds = rng.i64(5..120);
            let now = operator.store.clock().wall();
            let until = now + jiff::SignedDuration::from_secs(seconds);
            let _ = operator.freeze(until, "simulated").await;
        }
        7 => {
            let _ = operator.unfreeze(Some("simulated")).await;
        }
        8 => {
            let (order, check) = (["budgets", "queue"][rng.usize(..2)], ["require", "advise"][rng.usize(..2)]);
            let _ = operator.set_policy("worker_order", order, None).await;
            let _ = operator.set_policy("landing_check", check, None).await;
        }
        _ => {
            let groups = [r#"{"by": "rack"}"#, r#"{"by": "rack", "limit": 2}"#, "none"][rng.usize(..3)];
            let _ = operator.set_policy("groups", groups, None).await;
        }
    }
}

/// Removes everything that would hold the queues back.
pub async fn reset(operator: &Operator) {
    for (name, value) in [("windows", "none"), ("freeze", "none"), ("groups", "none"), ("landing_check", "advise")] {
        while operator.set_policy(name, value, None).await.is_err() {
            sleep(Duration::from_secs(1)).await;
        }
    }
}

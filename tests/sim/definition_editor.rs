//! Edits of the definition while engines work with it: limits, tries, members.

use std::time::Duration;

use cketerm_actions::Operator;
use fastrand::Rng;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep, sleep_until};

use crate::{plan::FAULT_PERIOD, selection::Selection};

/// Edits the definition now and then, and restores it in the end.
pub async fn edit(operator: Operator, definition: Value, mut rng: Rng, began: Instant, selection: &Selection) {
    let (mut at, mut n) = (began, 0);
    loop {
        at += Duration::from_millis(rng.u64(30_000..300_000));
        if at >= began + FAULT_PERIOD {
            break;
        }
        sleep_until(at).await;
        let mut random = rng.fork();
        if selection.has(&format!("d{n}")) {
            let edited = random_edit(&definition, &mut random);
            // an edit may be refused; that is part of the scenario
            let _ = operator.set_cluster(&edited.to_string(), Some("simulated")).await;
            sleep(Duration::from_secs(random.u64(5..120))).await;
            restore(&operator, &definition).await;
        }
        n += 1;
    }
    restore(&operator, &definition).await;
}

async fn restore(operator: &Operator, definition: &Value) {
    while operator.set_cluster(&definition.to_string(), None).await.is_err() {
        sleep(Duration::from_secs(1)).await;
    }
}

fn random_edit(definition: &Value, rng: &mut Rng) -> Value {
    let mut edited = definition.clone();
    match rng.u32(0..6) {
        0 => edited["reboot"]["max_concurrent_reboots"] = json!(rng.u32(1..4)),
        1 => edited["repair"]["max_concurrent_repairs"] = json!(rng.u32(1..4)),
        2 => edited["reboot"]["command_retries"] = json!(rng.u32(0..3)),
        // one worker is not a member for a while
        _ => {
            let workers = |n: &Value| n["control_plane"] != true;
            let Some(nodes) = edited["nodes"].as_array_mut() else { return edited };
            let places: Vec<usize> = (0..nodes.len()).filter(|i| workers(&nodes[*i])).collect();
            nodes.remove(places[rng.usize(..places.len())]);
        }
    }
    edited
}

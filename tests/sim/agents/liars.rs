//! Agents that break the rules with code of their own.

use std::{collections::BTreeMap, time::Duration};

use cketerm_clients::kubernetes::{Carry, Kube, agent_annotations};
use cketerm_model::{
    agent::{ANSWER_ANNOTATION, Answer, Order, json, report_changes},
    names::NodeName,
};
use jiff::SignedDuration;
use tokio::time::{Instant, sleep};

use super::{conduct::Conduct, processes::Process};

/// Interval between two looks.
const POLL: Duration = Duration::from_secs(2);

/// A liar at work.
struct Liar<'a> {
    process: &'a Process,
    kube: Kube,
    node: NodeName,
}

/// Runs a liar.
pub async fn run(process: &Process) {
    let node = NodeName::new(process.machine.name.as_str());
    let liar = Liar { process, kube: process.kube(), node };
    let (wait, reboots) = {
        let mut rng = process.rng.lock().unwrap();
        (Duration::from_secs(rng.u64(60..400)), rng.bool())
    };
    let (began, mut known) = (Instant::now(), None);
    loop {
        sleep(POLL).await;
        let order = liar.look().await;
        // in half of the cases just when there is an order, which nobody answers then
        if process.conduct == Conduct::Unordered && (began.elapsed() > wait || reboots && order.is_some()) {
            return process.request_reboot(None);
        }
        let Some(order) = order else { continue };
        if known.replace(order.id.clone()) == Some(order.id.clone()) {
            continue;
        }
        // it does not look at the boot id
        if process.conduct == Conduct::Twice {
            liar.answer(&order).await;
            process.request_reboot(Some(&order));
        }
        if order.boot_id != process.boot_id {
            continue;
        }
        match process.conduct {
            Conduct::Late => {
                let left = order.deadline.duration_since(process.agents.clock.wall()) + SignedDuration::from_secs(2);
                sleep(Duration::try_from(left).unwrap_or_default() + wait / 8).await;
                liar.answer(&order).await;
                process.request_reboot(Some(&order));
            }
            Conduct::AnswersForAnotherBoot => {
                liar.answer(&Order { boot_id: format!("not-{}", order.boot_id), ..order.clone() }).await;
                if reboots {
                    process.request_reboot(Some(&order));
                }
            }
            Conduct::AnswersAnother => {
                let id = format!("not-{}", order.id);
                // for the same attempt, or for another one
                let attempt = if reboots { order.attempt.clone() } else { "reboots-0-0".to_owned() };
                liar.answer(&Order { id, attempt, ..order.clone() }).await;
                if reboots {
                    process.request_reboot(Some(&order));
                }
            }
            Conduct::Honest
            | Conduct::WrongClock(_)
            | Conduct::Forgets
            | Conduct::Lies
            | Conduct::WrongBootId
            | Conduct::Twice
            | Conduct::Unordered => {}
        }
    }
}

impl Liar<'_> {
    /// Writes the report of an honest agent, and returns the order.
    async fn look(&self) -> Option<Order> {
        let row = self.kube.node(&self.node).await.ok()??;
        let seen = agent_annotations(&row);
        let changes = report_changes(&seen, &self.process.report(), None);
        if !changes.is_empty() {
            let _ = self.kube.annotate_node(&row, &changes, Carry::Out).await;
        }
        seen.order()?.ok()
    }

    /// Answers, whatever has happened to the order.
    async fn answer(&self, order: &Order) {
        let (order_id, attempt, boot_id) = (order.id.clone(), order.attempt.clone(), order.boot_id.clone());
        let at = self.process.agents.clock.wall();
        let text = json(&Answer { order_id, attempt, boot_id, at, obeyed: true, why: None });
        let change = BTreeMap::from([(ANSWER_ANNOTATION, Some(text))]);
        for _ in 0..8 {
            if let Ok(Some(row)) = self.kube.node(&self.node).await
                && self.kube.annotate_node(&row, &change, Carry::Out).await.is_ok()
            {
                return;
            }
        }
    }
}

//! Answers to orders, and the reboot after an answer.

use std::collections::BTreeMap;

use cketerm_clients::kubernetes::{Carry, WriteError, agent_annotations};
use cketerm_model::{
    agent::{ANSWER_ANNOTATION, Answer, Order, json},
    kube::NodeRow,
};
use cketerm_rules::agent::Refusal;

use super::Agent;

/// Number of attempts of an answer. The kubelet writes the Node's status meanwhile.
const TRIES: u32 = 8;

impl Agent<'_> {
    fn answer(&self, attempt: &str, why: Option<String>) -> BTreeMap<&'static str, Option<String>> {
        let answer = Answer {
            attempt: attempt.to_owned(),
            boot_id: self.report.boot_id.clone(),
            at: self.kube.clock().wall(),
            obeyed: why.is_none(),
            why,
        };
        BTreeMap::from([(ANSWER_ANNOTATION, Some(json(&answer)))])
    }

    /// Refuses an order. After a conflict the next state of the Node is judged anew.
    pub(super) async fn refuse(&mut self, node: &NodeRow, attempt: &str, why: &Refusal) {
        (self.tell)(&format!("order {attempt} refused: {why}"));
        match self.kube.annotate_node(node, &self.answer(attempt, Some(why.to_string())), Carry::Out).await {
            Ok(_) | Err(WriteError::Conflict) => {}
            Err(e) => self.fail(&format!("the refusal was not written: {e}")),
        }
    }

    /// Answers that the order is obeyed, and reboots. The answer is written only while the order is there, so a driver
    /// that withdraws its order knows which of the two came first.
    pub(super) async fn obey(&mut self, node: &NodeRow, order: &Order) {
        if let Err(why) = self.announce(node, order).await {
            return self.fail(&format!("order {} not obeyed: {why}", order.attempt));
        }
        (self.tell)(&format!("order {} obeyed: {}", order.attempt, self.settings.reboot));
        let Err(why) = self.settings.reboot.run().await else { return };
        (self.tell)(&format!("the reboot failed: {why}"));
        let failed = self.answer(&order.attempt, Some(format!("the reboot failed: {why}")));
        if let Ok(Some(node)) = self.kube.node(&node.name).await
            && let Err(e) = self.kube.annotate_node(&node, &failed, Carry::Out).await
        {
            self.fail(&format!("the failure was not reported: {e}"));
        }
    }

    /// Writes the answer. Errors: the order was withdrawn, or the answer is not known to be written.
    async fn announce(&self, node: &NodeRow, order: &Order) -> Result<(), String> {
        let (mut row, mut last) = (node.clone(), String::new());
        for _ in 0..TRIES {
            // The driver says until when the order may be obeyed.
            if self.kube.clock().wall() >= order.deadline {
                return Err("its deadline has passed".to_owned());
            }
            match self.kube.annotate_node(&row, &self.answer(&order.attempt, None), Carry::Out).await {
                Ok(_) => return Ok(()),
                Err(e @ (WriteError::Conflict | WriteError::NoAnswer(_))) => last = e.to_string(),
                Err(e @ (WriteError::NotFound | WriteError::Refused { .. })) => return Err(e.to_string()),
            }
            let found = self.kube.node(&row.name).await.map_err(|e| e.to_string())?;
            row = found.filter(|found| found.uid == node.uid).ok_or("the Node was deleted")?;
            let annotations = agent_annotations(&row);
            if annotations.answer().is_some_and(|answer| answer.attempt == order.attempt) {
                return Ok(());
            }
            if annotations.order().is_none_or(|found| found.as_ref() != Ok(order)) {
                return Err("it was withdrawn".to_owned());
            }
        }
        Err(format!("the answer was not written: {last}"))
    }
}

//! The agent's side of an order, step by step: record, answer, reboot. It knows the machine only through [`Machine`], so
//! the simulation runs it too (`tests/sim/agents.rs`).

use std::collections::BTreeMap;

use cketerm_clients::kubernetes::{Carry, Kube, WriteError, agent_annotations};
use cketerm_model::{
    agent::{ANSWER_ANNOTATION, Answer, Order, Report, json, report_changes},
    fault,
    kube::NodeRow,
};
use cketerm_rules::agent::{Judgement, Obeyed, Refusal, judge};

/// Number of attempts of an answer. The kubelet writes the Node's status meanwhile.
const TRIES: u32 = 8;

/// The machine on which an agent runs.
pub trait Machine {
    /// Reads the record of obeyed orders. Errors: it cannot be read, so nothing may be obeyed.
    fn obeyed(&self) -> Result<Obeyed, String>;

    /// Replaces the record. When it returns, the new one is on the disk.
    fn record(&self, obeyed: &Obeyed) -> Result<(), String>;

    /// Asks whether the machine would take a reboot now. Errors: it would not.
    fn may_reboot(&self) -> impl Future<Output = Result<(), String>>;

    /// Requests the reboot for this order. Errors: it was not taken.
    fn reboot(&self, order: &Order) -> impl Future<Output = Result<(), String>>;
}

/// An agent that reports and obeys.
pub struct Agent<'a, M> {
    kube: Kube,
    machine: M,
    report: Report,
    /// Receiver of a line for people.
    tell: &'a (dyn Fn(&str) + Sync),
    /// The last failure, which is not printed again.
    last_failure: String,
}

impl<'a, M: Machine> Agent<'a, M> {
    /// Creates an agent that sends this report.
    pub fn new(kube: Kube, machine: M, report: Report, tell: &'a (dyn Fn(&str) + Sync)) -> Self {
        Self { kube, machine, report, tell, last_failure: String::new() }
    }

    /// Does what is due for this state of the Node. `cause`: reason for which the sentinel asks for a reboot.
    pub async fn step(&mut self, node: &NodeRow, cause: Option<&str>) {
        let annotations = agent_annotations(node);
        let obeyed = self.machine.obeyed();
        let now = self.kube.clock().wall();
        let judgement = judge(&annotations, &self.report.boot_id, now, obeyed.as_ref().map_err(String::as_str));
        match (judgement, obeyed) {
            (Judgement::Nothing, _) => {}
            (Judgement::Refuse(order, why), _) => return self.refuse(node, order.as_ref(), &why).await,
            (Judgement::Obey(order), Ok(obeyed)) => {
                if let Err(why) = self.machine.may_reboot().await {
                    return self.refuse(node, Some(&order), &Refusal::Blocked(why)).await;
                }
                // The record comes first: an agent that ends right after it never obeys this order again.
                let next = obeyed.and(&order.attempt, &self.report.boot_id);
                if let Err(why) = self.machine.record(&next) {
                    return self.refuse(node, Some(&order), &Refusal::NoRecord(why)).await;
                }
                return self.obey(node, &order).await;
            }
            // Without a record nothing is obeyed.
            (Judgement::Obey(_), Err(why)) => self.fail(&why),
        }
        let changes = report_changes(&annotations, &self.report, cause);
        if changes.is_empty() {
            return self.last_failure.clear();
        }
        match self.kube.annotate_node(node, &changes, Carry::Out).await {
            Ok(_) => (self.tell)(&format!("reported: {}", cause.unwrap_or("no reboot is needed"))),
            // The change that came in between is on its way.
            Err(WriteError::Conflict) => {}
            Err(e) => self.fail(&format!("the report was not written: {e}")),
        }
    }

    /// Prints a failure once.
    pub fn fail(&mut self, why: &str) {
        if self.last_failure != why {
            (self.tell)(why);
            why.clone_into(&mut self.last_failure);
        }
    }

    /// Returns the text of an answer; `None`: to an order that cannot be read.
    fn answer(&self, order: Option<&Order>, why: Option<String>) -> String {
        let (order_id, attempt) = order.map(|order| (order.id.clone(), order.attempt.clone())).unwrap_or_default();
        let (boot_id, at) = (self.report.boot_id.clone(), self.kube.clock().wall());
        json(&Answer { order_id, attempt, boot_id, at, obeyed: why.is_none(), why })
    }

    async fn write_answer(&self, node: &NodeRow, text: &str) -> Result<(), WriteError> {
        let change = BTreeMap::from([(ANSWER_ANNOTATION, Some(text.to_owned()))]);
        self.kube.annotate_node(node, &change, Carry::Out).await.map(drop)
    }

    /// Refuses an order. After a conflict the next state of the Node is judged anew.
    async fn refuse(&mut self, node: &NodeRow, order: Option<&Order>, why: &Refusal) {
        let attempt = order.map(|order| order.attempt.as_str()).unwrap_or_default();
        (self.tell)(&format!("order {attempt} refused: {why}"));
        match self.write_answer(node, &self.answer(order, Some(why.to_string()))).await {
            Ok(()) | Err(WriteError::Conflict) => {}
            Err(e) => self.fail(&format!("the refusal was not written: {e}")),
        }
    }

    /// Answers that the order is obeyed, and reboots. The answer is written only while the order is there, so a driver
    /// that withdraws its order knows which of the two came first.
    async fn obey(&mut self, node: &NodeRow, order: &Order) {
        if let Err(why) = self.announce(node, order).await {
            return self.fail(&format!("order {} not obeyed: {why}", order.attempt));
        }
        // The answer may have been under way for long, and nobody waits for it any more.
        let why = if self.is_over(order) {
            "the deadline passed while the answer was written".to_owned()
        } else {
            (self.tell)(&format!("order {} obeyed: the machine reboots", order.attempt));
            fault!(AgentRebootsTwice => drop(self.machine.reboot(order).await));
            let Err(why) = self.machine.reboot(order).await else { return };
            format!("the reboot failed: {why}")
        };
        (self.tell)(&why);
        let failed = self.answer(Some(order), Some(why));
        if let Ok(Some(node)) = self.kube.node(&node.name).await
            && let Err(e) = self.write_answer(&node, &failed).await
        {
            self.fail(&format!("the failure was not reported: {e}"));
        }
    }

    /// Reports whether the deadline has passed.
    fn is_over(&self, order: &Order) -> bool {
        self.kube.clock().wall() >= order.deadline
    }

    /// Writes the answer. Errors: the order was withdrawn or has an answer of another agent, or the answer is not known
    /// to be written.
    async fn announce(&self, node: &NodeRow, order: &Order) -> Result<(), String> {
        let (mut row, mut last, text) = (node.clone(), String::new(), self.answer(Some(order), None));
        for _ in 0..TRIES {
            // The driver says until when the order may be obeyed.
            if self.is_over(order) {
                return Err("its deadline has passed".to_owned());
            }
            match self.write_answer(&row, &text).await {
                Ok(()) => return Ok(()),
                Err(e @ (WriteError::Conflict | WriteError::NoAnswer(_))) => last = e.to_string(),
                Err(e @ (WriteError::NotFound | WriteError::Refused { .. })) => return Err(e.to_string()),
            }
            let found = self.kube.node(&row.name).await.map_err(|e| e.to_string())?;
            row = found.filter(|found| found.uid == node.uid).ok_or("the Node was deleted")?;
            let annotations = agent_annotations(&row);
            if annotations.answer.as_ref() == Some(&text) {
                return Ok(());
            }
            fault!(WithdrawnOrderObeyed => continue);
            if annotations.order().is_none_or(|found| found.as_ref() != Ok(order)) {
                return Err("it was withdrawn".to_owned());
            }
            // Another agent of this machine may run while its pod is being replaced.
            if annotations.answer().is_some_and(|answer| answer.is_to(order, &[&self.report.boot_id])) {
                return Err("another agent has answered it".to_owned());
            }
        }
        Err(format!("the answer was not written: {last}"))
    }
}

//! Judgement of a node's agent about an order to reboot: obey it once, or refuse it.

use std::fmt;

use cketerm_model::{
    agent::{AgentAnnotations, Order},
    fault,
    kube::NodeRow,
};
use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};

/// Allowance for clocks that differ: an order is obeyed only until this long before its deadline.
pub const CLOCK_ALLOWANCE: SignedDuration = SignedDuration::from_secs(5);
/// Longest time until a deadline. A later one is a wrong clock, or no order of cketerm.
pub const MAX_DEADLINE: SignedDuration = SignedDuration::from_hours(1);
/// Number of attempts that a record keeps.
const MAX_ATTEMPTS: usize = 32;

/// Record of the orders that were obeyed since the machine booted. It is stored on the node, before the reboot.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Obeyed {
    /// Boot id of the machine.
    pub boot_id: String,
    /// Ids of the attempts, the latest last.
    pub attempts: Vec<String>,
}

impl Obeyed {
    /// Returns the record with one more attempt. Attempts of earlier boots are dropped: their boot id refuses them.
    #[must_use]
    pub fn and(&self, attempt: &str, boot_id: &str) -> Self {
        let mut attempts = if self.boot_id == boot_id { self.attempts.clone() } else { Vec::new() };
        attempts.push(attempt.to_owned());
        let surplus = attempts.len().saturating_sub(MAX_ATTEMPTS);
        attempts.drain(..surplus);
        Self { boot_id: boot_id.to_owned(), attempts }
    }

    fn contains(&self, attempt: &str) -> bool {
        self.attempts.iter().any(|known| known == attempt)
    }
}

/// Result of a judgement.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Judgement {
    /// There is no order, or it was answered.
    Nothing,
    /// Record the attempt, answer, reboot.
    Obey(Order),
    /// Answer that this order is refused; `None` if it cannot be read.
    Refuse(Option<Order>, Refusal),
}

/// Reason of a refusal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The order cannot be read.
    Unreadable(String),
    /// It is for another boot.
    OtherBoot {
        /// Boot id in the order.
        ordered: String,
        /// Present boot id.
        present: String,
    },
    /// Its deadline has passed, or is about to.
    Late {
        /// The deadline.
        deadline: Timestamp,
        /// Time by the agent's clock.
        now: Timestamp,
    },
    /// Its deadline is too far away.
    TooEarly {
        /// The deadline.
        deadline: Timestamp,
        /// Time by the agent's clock.
        now: Timestamp,
    },
    /// The attempt was recorded in this boot, for an order that has no answer or for an earlier one.
    Recorded,
    /// The record of obeyed attempts cannot be read or written.
    NoRecord(String),
    /// The machine would not take a reboot now, for example because of a block lock of another program.
    Blocked(String),
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unreadable(why) => write!(f, "the order cannot be read: {why}"),
            Self::OtherBoot { ordered, present } => {
                write!(f, "the order is for boot {ordered}, and the machine has booted since (now {present})")
            }
            Self::Late { deadline, now } => {
                write!(f, "the deadline {deadline} is over or less than 5 s away; the node's clock says {now:.0}")
            }
            Self::TooEarly { deadline, now } => {
                write!(f, "the deadline {deadline} is more than an hour away; the node's clock says {now:.0}")
            }
            Self::Recorded => {
                f.write_str("the agent recorded this attempt before, and obeys no attempt twice; order another try")
            }
            Self::NoRecord(why) => write!(f, "the agent cannot record that it obeys: {why}"),
            Self::Blocked(why) => write!(f, "the machine takes no reboot now: {why}"),
        }
    }
}

/// Returns the reason why a Node's agent would not get or obey an order now: it has not reported for this boot.
pub fn report_fault(node: &NodeRow) -> Option<String> {
    let name = &node.name;
    match AgentAnnotations::of(|name| node.described.annotations.get(name)).report() {
        None => Some(format!("no agent reports on Node {name}: run `cketerm agent` there (docs/agent.md)")),
        Some(report) if report.boot_id != node.boot_id => {
            Some(format!("the agent of Node {name} has not reported since the last boot: look at its pod"))
        }
        Some(_) => None,
    }
}

/// Judges the order on a Node. `boot_id` and `now` are the machine's own. `obeyed` is the stored record, or the reason
/// why it cannot be read.
pub fn judge(seen: &AgentAnnotations, boot_id: &str, now: Timestamp, obeyed: Result<&Obeyed, &str>) -> Judgement {
    let order = match seen.order() {
        None => return Judgement::Nothing,
        Some(Ok(order)) => order,
        Some(Err(why)) => {
            let answered = seen.answer().is_some_and(|answer| answer.attempt.is_empty());
            let refuse = || Judgement::Refuse(None, Refusal::Unreadable(why));
            return if answered { Judgement::Nothing } else { refuse() };
        }
    };
    if seen.answer().is_some_and(|answer| answer.is_to(&order, &[&order.boot_id, boot_id])) {
        return Judgement::Nothing;
    }
    let is_of_this_boot = order.boot_id == boot_id;
    fault!(OrderBootIgnored => is_of_this_boot = true);
    let is_late = now + CLOCK_ALLOWANCE > order.deadline;
    let refusal = if !is_of_this_boot {
        Refusal::OtherBoot { ordered: order.boot_id.clone(), present: boot_id.to_owned() }
    } else if is_late {
        Refusal::Late { deadline: order.deadline, now }
    } else if order.deadline > now + MAX_DEADLINE {
        Refusal::TooEarly { deadline: order.deadline, now }
    } else {
        match obeyed {
            Err(why) => Refusal::NoRecord(why.to_owned()),
            Ok(obeyed) => {
                let is_recorded = obeyed.boot_id == boot_id && obeyed.contains(&order.attempt);
                if !is_recorded {
                    return Judgement::Obey(order);
                }
                Refusal::Recorded
            }
        }
    };
    Judgement::Refuse(Some(order), refusal)
}

#[cfg(test)]
mod tests {
    use cketerm_model::agent::{Answer, json};

    use super::*;

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_second(1_000_000 + seconds).unwrap()
    }

    fn order() -> Order {
        Order { id: "o1".into(), attempt: "a1".into(), boot_id: "b1".into(), deadline: at(60) }
    }

    fn with(order: &Order, answer: Option<&Answer>) -> AgentAnnotations {
        AgentAnnotations { order: Some(json(order)), answer: answer.map(json), ..AgentAnnotations::default() }
    }

    #[test]
    fn an_order_is_obeyed_once_and_refused_when_stale() {
        let order = order();
        let answer = |attempt: &str, obeyed| Answer {
            order_id: String::new(),
            attempt: attempt.into(),
            boot_id: "b1".into(),
            at: at(0),
            obeyed,
            why: None,
        };
        let recorded = |boot: &str| Obeyed { boot_id: boot.into(), attempts: vec!["a0".into(), "a1".into()] };
        let fresh = Obeyed::default();
        for (what, seen, boot_id, now, obeyed, expected) in [
            ("a fresh order", with(&order, None), "b1", 0, Ok(&fresh), Ok(true)),
            ("another attempt was answered", with(&order, Some(&answer("a0", true))), "b1", 0, Ok(&fresh), Ok(true)),
            ("it was obeyed", with(&order, Some(&answer("a1", true))), "b1", 0, Ok(&fresh), Ok(false)),
            ("it was refused", with(&order, Some(&answer("a1", false))), "b1", 0, Ok(&fresh), Ok(false)),
            (
                "it was obeyed, and the machine booted",
                with(&order, Some(&answer("a1", true))),
                "b2",
                0,
                Ok(&fresh),
                Ok(false),
            ),
            ("no order", AgentAnnotations::default(), "b1", 0, Ok(&fresh), Ok(false)),
            ("another boot", with(&order, None), "b2", 0, Ok(&fresh), Err("for boot b1, and the machine has booted")),
            ("just in time", with(&order, None), "b1", 55, Ok(&fresh), Ok(true)),
            ("within the allowance", with(&order, None), "b1", 56, Ok(&fresh), Err("is over or less than 5 s away")),
            ("late", with(&order, None), "b1", 600, Ok(&fresh), Err("is over or less than 5 s away")),
            ("an hour away", with(&order, None), "b1", -3540, Ok(&fresh), Ok(true)),
            ("a clock far behind", with(&order, None), "b1", -4000, Ok(&fresh), Err("more than an hour away")),
            ("recorded, not answered", with(&order, None), "b1", 0, Ok(&recorded("b1")), Err("recorded this attempt")),
            ("recorded in another boot", with(&order, None), "b1", 0, Ok(&recorded("b0")), Ok(true)),
            ("no record", with(&order, None), "b1", 0, Err("disk full"), Err("cannot record that it obeys: disk full")),
        ] {
            let judgement = judge(&seen, boot_id, at(now), obeyed);
            match expected {
                Ok(true) => assert_eq!(judgement, Judgement::Obey(order.clone()), "{what}"),
                Ok(false) => assert_eq!(judgement, Judgement::Nothing, "{what}"),
                Err(text) => {
                    let Judgement::Refuse(refused, refusal) = judgement else { panic!("{what}: {judgement:?}") };
                    assert_eq!(refused, Some(order.clone()), "{what}");
                    assert!(refusal.to_string().contains(text), "{what}: {refusal}");
                }
            }
        }
    }

    /// A new queue begins again with the attempt `reboots-0-1`.
    #[test]
    fn an_answer_to_another_order_for_an_attempt_of_the_same_name_is_no_answer() {
        let order = order();
        let judged = |order_id: &str, boot_id: &str, obeyed: &Obeyed| {
            let (order_id, attempt, boot_id) = (order_id.into(), "a1".into(), boot_id.into());
            let answer = Answer { order_id, attempt, boot_id, at: at(0), obeyed: true, why: None };
            judge(&with(&order, Some(&answer)), "b1", at(0), Ok(obeyed))
        };
        let fresh = Obeyed::default();
        assert_eq!(judged("o1", "b1", &fresh), Judgement::Nothing);
        assert_eq!(judged("o0", "b1", &fresh), Judgement::Obey(order.clone()));
        // It is obeyed at most once nevertheless, and the driver learns that.
        let recorded = fresh.and("a1", "b1");
        assert_eq!(judged("o0", "b1", &recorded), Judgement::Refuse(Some(order.clone()), Refusal::Recorded));
        // An earlier version answers without an id.
        assert_eq!(judged("", "b1", &fresh), Judgement::Nothing);
        assert_eq!(judged("", "b0", &fresh), Judgement::Obey(order.clone()));
    }

    #[test]
    fn an_unreadable_order_is_refused_once() {
        let seen = AgentAnnotations { order: Some("reboot!".into()), ..AgentAnnotations::default() };
        let fresh = Obeyed::default();
        let judgement = judge(&seen, "b1", at(0), Ok(&fresh));
        assert!(matches!(judgement, Judgement::Refuse(None, Refusal::Unreadable(_))));
        let (order_id, attempt) = (String::new(), String::new());
        let answer = Answer { order_id, attempt, boot_id: "b1".into(), at: at(0), obeyed: false, why: None };
        let answered = AgentAnnotations { answer: Some(json(&answer)), ..seen };
        assert_eq!(judge(&answered, "b1", at(0), Ok(&fresh)), Judgement::Nothing);
    }

    #[test]
    fn a_record_keeps_the_attempts_of_this_boot() {
        let mut record = Obeyed::default().and("a0", "b0");
        for number in 1..100 {
            record = record.and(&format!("a{number}"), "b1");
        }
        assert_eq!(record.attempts.len(), MAX_ATTEMPTS);
        assert!(record.contains("a99") && !record.contains("a0"));
        assert_eq!(record.and("x", "b2").attempts, ["x"]);
    }
}

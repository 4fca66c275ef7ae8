//! Comparison of two answers of sabakan: whether a plan that changes nothing still holds for the newer one.
//!
//! Every answer differs from the one before, because each machine has been longer in its state. A plan depends on these
//! durations only through the time after which a machine may leave, and on the present time only through the steps of a
//! lifetime.

use cketerm_model::boot_time::Seconds;
use jiff::Timestamp;

use crate::machine::Machine;

/// Machines of an answer, and the wall time of the plan that was made from them, or would be.
#[derive(Clone, Copy, Debug)]
pub struct PlannedMachines<'a> {
    /// The machines in the answer's order.
    pub machines: &'a [Machine],
    /// Present time of the plan.
    pub now: Timestamp,
}

/// Reports whether both give the same plan, if all other inputs are the same. `wait` is the time for which a machine
/// must have been retiring or retired before it is removed. Texts with a duration or with days may differ.
pub fn give_the_same_plan(was: PlannedMachines<'_>, is: PlannedMachines<'_>, wait: Seconds) -> bool {
    let alike = |(old, new): (&Machine, &Machine)| {
        // a strategy removes at `wait`, the other one only after it
        old.duration.cmp(&wait) == new.duration.cmp(&wait)
            && old.lifetime_steps(was.now) == new.lifetime_steps(is.now)
            && is_the_same_but_for_time(old, new)
    };
    was.machines.len() == is.machines.len() && was.machines.iter().zip(is.machines).all(alike)
}

fn is_the_same_but_for_time(old: &Machine, new: &Machine) -> bool {
    let Machine {
        serial,
        labels,
        rack,
        index_in_rack,
        role,
        address,
        ipv4,
        register_date,
        retire_date,
        bmc_type,
        bmc_ipv4,
        state,
        since: _,
        duration: _,
    } = old;
    (state, rack, index_in_rack) == (&new.state, &new.rack, &new.index_in_rack)
        && (serial, role, address, ipv4) == (&new.serial, &new.role, &new.address, &new.ipv4)
        && (register_date, retire_date) == (&new.register_date, &new.retire_date)
        && (labels, bmc_type, bmc_ipv4) == (&new.labels, &new.bmc_type, &new.bmc_ipv4)
}

#[cfg(test)]
mod tests {
    use cketerm_model::names::Address;
    use jiff::SignedDuration;

    use super::*;
    use crate::{
        State,
        machine::Date,
        tests::{machine, now},
    };

    const WAIT: Seconds = Seconds::new(300.0);

    fn same(old: &Machine, new: &Machine, later: SignedDuration) -> bool {
        let was = PlannedMachines { machines: std::slice::from_ref(old), now: now() };
        let is = PlannedMachines { machines: std::slice::from_ref(new), now: now().checked_add(later).unwrap() };
        give_the_same_plan(was, is, WAIT)
    }

    #[test]
    fn only_a_crossed_wait_or_lifetime_step_makes_a_later_answer_another_one() {
        let minute = SignedDuration::from_mins(1);
        let old = Machine { state: State::Retired, duration: Seconds::new(100.0), ..machine(1) };
        let aged = |seconds: f64| Machine { duration: Seconds::new(seconds), since: Some(now()), ..old.clone() };
        assert!(same(&old, &aged(160.0), minute));
        assert!(!same(&old, &aged(300.0), minute), "it may leave with the strategy `weighted`");
        assert!(!same(&aged(300.0), &aged(301.0), minute), "it may leave with the strategy `all-healthy`");
        assert!(same(&aged(301.0), &aged(361.0), minute));
        let retires_in = |days: i64| {
            let at = now().checked_add(SignedDuration::from_hours(24 * days)).unwrap();
            Machine { retire_date: Date::utc(at), ..old.clone() }
        };
        let day = SignedDuration::from_hours(24);
        assert!(same(&retires_in(300), &retires_in(300), day));
        assert!(!same(&retires_in(251), &retires_in(251), day), "250 days are no longer exceeded");
        assert!(!same(&retires_in(-250), &retires_in(-250), day));
    }

    /// Changes of one field each.
    const CHANGES: [fn(&mut Machine); 12] = [
        |m| m.serial.push('x'),
        |m| m.labels.push(("a".into(), "b".into())),
        |m| m.rack += 1,
        |m| m.index_in_rack += 1,
        |m| m.role.push('x'),
        |m| m.address = Address::new("10.9.9.9"),
        |m| m.ipv4.push("10.9.9.9".into()),
        |m| m.register_date = Date::utc(now()),
        |m| m.retire_date.offset = jiff::tz::Offset::constant(9),
        |m| m.bmc_type.push('x'),
        |m| m.bmc_ipv4.push('1'),
        |m| m.state = State::Unreachable,
    ];

    #[test]
    fn every_other_field_counts() {
        let old = machine(1);
        for (at, change) in CHANGES.into_iter().enumerate() {
            let mut new = old.clone();
            change(&mut new);
            assert!(!same(&old, &new, SignedDuration::ZERO), "change {at}");
        }
        let none = PlannedMachines { machines: &[], now: now() };
        let one = PlannedMachines { machines: std::slice::from_ref(&old), now: now() };
        assert!(!give_the_same_plan(none, one, WAIT), "a machine appeared");
        assert!(!give_the_same_plan(one, none, WAIT), "a machine is gone");
    }
}

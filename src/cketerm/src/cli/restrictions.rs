//! Restrictions of new work in the queues: a stop, a freeze, a closed maintenance window.

use cketerm_model::{
    acceptance::LeaderKind,
    entry::{QueueKind, Stored},
    freeze::Freeze,
    policy::Policy,
    stored::view::StoreView,
    time::whole_seconds,
};
use jiff::{Timestamp, tz::TimeZone};

use super::Context;

/// Formats a time with weekday and offset.
pub fn local_time(zone: &TimeZone, at: Timestamp) -> String {
    at.to_zoned(zone.clone()).strftime("%a %Y-%m-%d %H:%M %:z").to_string()
}

/// Returns the freeze of the policy, if it holds at this time.
pub fn frozen(policy: &Policy, at: Timestamp) -> Option<&Freeze> {
    policy.freeze.as_ref().filter(|freeze| freeze.holds(at))
}

/// Formats a time in the zone of the windows, or in UTC without windows.
pub fn moment(policy: &Policy, at: Timestamp) -> String {
    policy.time_zone().map_or_else(|| at.to_string(), |zone| local_time(&zone, at))
}

/// Prints what blocks new work of this queue, and which rules are not in force.
pub fn print_restrictions(view: &StoreView, queue: QueueKind, now: Timestamp, context: &Context) {
    if let Some(stopped) = view.stopped.as_ref().and_then(Stored::get) {
        context.print_message(&format!(
            "STOPPED by {} since {}: `cketerm resume` enables the queues again",
            stopped.who,
            whole_seconds(stopped.at)
        ));
    }
    if let Some(notice) = notice(&view.policy(), queue, now) {
        let not_in_force_why = not_in_force(view).map(|why| format!(" (NOT IN FORCE: {why})")).unwrap_or_default();
        context.print_message(&format!("{notice}{not_in_force_why}"));
    }
}

/// Returns the reason why windows, freezes and groups are not in force, or `None` if they are or none are set.
pub fn not_in_force(view: &StoreView) -> Option<String> {
    let leadership = view.leadership();
    (leadership.lead == LeaderKind::Cke).then_some(leadership.message)
}

/// Returns one line about what blocks new work now, or `None`.
fn notice(policy: &Policy, queue: QueueKind, now: Timestamp) -> Option<String> {
    if let Some(freeze) = frozen(policy, now) {
        return Some(format!("FROZEN until {}: {} ({})", freeze.until, freeze.reason, freeze.who));
    }
    let windows = policy.windows.as_ref().filter(|windows| windows.bind(queue))?;
    let (_, general) = windows.all().next()?;
    let window_state = general.state_at(now);
    let but = if windows.by_machine() { "; some machines have their own: `cketerm windows`" } else { "" };
    Some(match (window_state.open, window_state.closes, window_state.opens) {
        (true, None, _) => return None,
        (true, Some(closes), _) => format!("the window closes {}{but}", local_time(&general.zone, closes)),
        (false, _, Some(opens)) => format!("outside the window, it opens {}{but}", local_time(&general.zone, opens)),
        (false, _, None) => format!("outside the window, which never opens{but}"),
    })
}

#[cfg(test)]
mod tests {
    use cketerm_model::window::Windows;
    use serde_json::json;

    use super::*;

    #[test]
    fn a_notice_names_the_next_opening_in_the_windows_time_zone() {
        let nights = "time_zone: Europe/Berlin\nallow: ['* 22-23 * * 1-5', '* 0-4 * * 2-6']\ndeny: ['* * 1 * *']";
        let nights = Policy { windows: Some(Windows::read(nights).unwrap()), ..Policy::default() };
        let at = "2026-10-23T12:00:00Z".parse().unwrap();
        assert_eq!(
            notice(&nights, QueueKind::Reboot, at).unwrap(),
            "outside the window, it opens Fri 2026-10-23 22:00 +02:00"
        );
        assert_eq!(notice(&Policy::default(), QueueKind::Reboot, at), None);
    }

    #[test]
    fn a_freeze_is_noticed_until_it_ends() {
        let at: Timestamp = "2026-10-23T12:00:00Z".parse().unwrap();
        let freeze =
            json!({"until": "2026-10-24T00:00:00Z", "reason": "quarter end", "who": {"user": "ann", "host": "h"}});
        let frozen = Policy { freeze: serde_json::from_value(freeze).unwrap(), ..Policy::default() };
        assert!(notice(&frozen, QueueKind::Repair, at).unwrap().starts_with("FROZEN"));
        assert_eq!(notice(&frozen, QueueKind::Repair, "2026-10-24T00:00:00Z".parse().unwrap()), None, "freeze is over");
    }
}

//! `freeze`, `unfreeze`, `windows`: limits on the time in which work may start.

use std::path::PathBuf;

use cketerm_actions::{ActionError, refusal};
use cketerm_model::{
    acceptance::OperatorCommand,
    policy::Policy,
    time::ahead_in,
    window::{Window, Windows, length},
};
use clap::Args;
use jiff::{Timestamp, tz::TimeZone};
use serde_json::{Value, json};

use super::{
    Context,
    input_file::read,
    options::{Handover, Output, Reason},
    output::Lines,
    restrictions::{frozen, local_time, not_in_force},
};

/// Arguments of `freeze`.
#[derive(Args, Debug)]
pub struct FreezeArgs {
    /// End: 2026-11-21T10:00:00Z, with any offset; 90m, 12h, 7d; or "tomorrow 08:00" in the windows' time zone
    #[arg(long, value_name = "TIME")]
    until: String,
    /// Reason (needed); every header shows it
    #[arg(long, value_name = "TEXT")]
    reason: Option<String>,
    #[command(flatten)]
    #[allow(missing_docs)]
    handover: Handover,
}

/// Arguments of `windows`.
#[derive(Args, Debug)]
pub struct WindowsArgs {
    /// Check the windows of this file (YAML or JSON, - = stdin); contacts no server
    #[arg(long, value_name = "FILE")]
    pub check: Option<PathBuf>,
    /// Time to check: 2026-11-21T10:00:00Z; in 90m, 12h, 7d; or "tomorrow 08:00" [default: now]
    #[arg(long, value_name = "TIME")]
    at: Option<String>,
    /// Number of openings of each window
    #[arg(short, value_name = "N", default_value_t = 5)]
    n: usize,
}

/// Freezes both queues.
pub async fn freeze(args: &FreezeArgs, context: &Context) -> Result<(), ActionError> {
    let operator = context.operator().await?.for_handover(args.handover.for_handover);
    let now = operator.store.clock().wall();
    let view = operator.store.leaders().await?;
    let Some(reason) = &args.reason else {
        // nobody thinks of a reason for a freeze that is refused
        let handover = args.handover.for_handover;
        return Err(match refusal(OperatorCommand::Freeze, &view.leadership(), false, handover) {
            Some(why) => ActionError::refused(why),
            None => ActionError::misused("a freeze needs a reason: give --reason TEXT; every header shows it"),
        });
    };
    let zone = view.policy().time_zone();
    let until = ahead_in(&args.until, now, zone.as_ref().unwrap_or(&TimeZone::UTC));
    let until = until.map_err(|why| ActionError::misused(format!("--until {why}")))?;
    let before = operator.freeze(until, reason).await?;
    let instead = before.map_or_else(String::new, |b| format!(" (it was until {}: {})", b.until, b.reason));
    let until = match &zone {
        Some(zone) => format!("{until} ({})", local_time(zone, until)),
        None => until.to_string(),
    };
    // the engine of another program does not read cketerm's policy
    match operator.acceptance_note(OperatorCommand::Freeze).await {
        Some(note) => context.print_message(&format!("stored: frozen until {until}{instead}; {note}")),
        None => context.print_message(&format!(
            "frozen until {until}{instead}: nothing new starts, drains stop and nodes are uncordoned"
        )),
    }
    Ok(())
}

/// Ends a freeze early.
pub async fn unfreeze(reason: &Reason, context: &Context) -> Result<(), ActionError> {
    match context.operator().await?.unfreeze(reason.get()).await? {
        Some(freeze) => {
            context.print_message(&format!("freeze ended; it was until {}: {}", freeze.until, freeze.reason));
        }
        None => context.print_message("no freeze was active"),
    }
    Ok(())
}

/// Prints whether the windows are open, and when they open next.
pub async fn windows(args: &WindowsArgs, context: &Context) -> Result<(), ActionError> {
    let (policy, now, not_in_force_why) = read_policy(args, context).await?;
    let at = match &args.at {
        None => now,
        Some(text) => {
            let zone = policy.time_zone().unwrap_or(TimeZone::UTC);
            let at = text.parse().or_else(|_| ahead_in(text, now, &zone));
            at.map_err(|why| ActionError::misused(format!("--at {why}")))?
        }
    };
    let unusable_reason = policy.windows.as_ref().and_then(|windows| windows.unusable_reason(at));
    match context.output(Output::Table) {
        Output::Table => {
            if let Some(why) = not_in_force_why {
                context.print_message(&format!("NOT IN FORCE: {why}, and CKE knows neither windows nor freezes"));
            }
            context.out.text(text(&policy, at, args.n))?;
        }
        form => context.out.value(&value(&policy, at, args.n), form)?,
    }
    match unusable_reason {
        Some(why) => Err(ActionError::failed(why)),
        None => Ok(()),
    }
}

/// Returns the file's windows or the policy, the time, and the reason why the policy is not in force.
async fn read_policy(
    args: &WindowsArgs,
    context: &Context,
) -> Result<(Policy, Timestamp, Option<String>), ActionError> {
    if let Some(file) = &args.check {
        let windows = Windows::read(&read(file)?);
        let windows = windows.map_err(|why| ActionError::failed(format!("{}: {why}", file.display())))?;
        return Ok((Policy { windows: Some(windows), ..Policy::default() }, Timestamp::now(), None));
    }
    let store = context.store().await?;
    let now = store.clock().wall();
    let view = store.leaders().await?;
    let not_in_force_why = not_in_force(&view);
    match view.policy.map(|stored| (stored.key, stored.value)) {
        Some((_, Ok(policy))) => {
            let not_in_force_why = not_in_force_why.filter(|_| policy.windows.is_some() || policy.freeze.is_some());
            Ok((Policy::clone(&policy), now, not_in_force_why))
        }
        Some((key, Err(why))) => Err(ActionError::failed(format!(
            "{key} cannot be read: {why}; engines only observe until it is fixed with etcdctl"
        ))),
        None => Ok((Policy::default(), now, None)),
    }
}

fn text(policy: &Policy, at: Timestamp, n: usize) -> String {
    let mut out = Lines::default();
    if let Some(freeze) = frozen(policy, at) {
        out.line(format_args!("FROZEN until {}: {} ({})", freeze.until, freeze.reason, freeze.who));
    }
    let Some(windows) = &policy.windows else {
        out.line("no windows: work may start at any time");
        return out.done();
    };
    out.line(format_args!(
        "time zone {}, no drain starts in the last {} s",
        windows.time_zone(),
        windows.margin_seconds()
    ));
    for (name, window) in windows.all() {
        let window_state = window.state_at(at);
        let moment = |at: Timestamp| local_time(&window.zone, at);
        let state = match (window_state.open, window_state.closes, window_state.opens) {
            (true, Some(closes), _) => format!("open, closes {}", moment(closes)),
            (true, None, _) => "open for a year or more".to_owned(),
            (false, _, Some(opens)) => format!("closed, opens {}", moment(opens)),
            (false, _, None) => "closed, never opens".to_owned(),
        };
        out.line(format_args!("{}: {state}", name.unwrap_or("all machines")));
        for (opens, closes) in window.openings(at).take(n) {
            match closes {
                Some(closes) => out.line(format_args!(
                    "  {} - {}  {}",
                    moment(opens),
                    closes.to_zoned(window.zone.clone()).strftime("%a %H:%M"),
                    length(closes.duration_since(opens))
                )),
                None => out.line(format_args!("  {} - for a year or more", moment(opens))),
            }
        }
    }
    out.done()
}

fn value(policy: &Policy, at: Timestamp, n: usize) -> Value {
    let one = |(name, window): (Option<&str>, &Window)| {
        let state = window.state_at(at);
        let openings: Vec<Value> =
            window.openings(at).take(n).map(|(opens, closes)| json!({"opens": opens, "closes": closes})).collect();
        json!({"name": name, "open": state.open, "closes": state.closes, "opens": state.opens, "openings": openings})
    };
    let windows = policy.windows.as_ref();
    json!({
        "at": at,
        "frozen": frozen(policy, at),
        "time_zone": windows.map(Windows::time_zone),
        "margin_seconds": windows.map(Windows::margin_seconds),
        "windows": windows.map(|windows| windows.all().map(one).collect::<Vec<_>>()).unwrap_or_default(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn policy(text: &str) -> Policy {
        Policy { windows: Some(Windows::read(text).unwrap()), ..Policy::default() }
    }

    #[test]
    fn the_next_openings_are_shown_in_the_windows_time_zone() {
        let nights =
            policy("time_zone: Europe/Berlin\nallow: ['* 22-23 * * 1-5', '* 0-4 * * 2-6']\ndeny: ['* * 1 * *']");
        // the clocks go back on Sunday night, so Monday's window is no longer in summer time
        let at = "2026-10-23T12:00:00Z".parse().unwrap();
        assert_eq!(
            text(&nights, at, 2),
            "time zone Europe/Berlin, no drain starts in the last 300 s\n\
             all machines: closed, opens Fri 2026-10-23 22:00 +02:00\n\
             \x20 Fri 2026-10-23 22:00 +02:00 - Sat 05:00  7h\n\
             \x20 Mon 2026-10-26 22:00 +01:00 - Tue 05:00  7h\n"
        );
        let json = value(&nights, at, 1);
        assert_eq!(json["windows"][0]["openings"][0]["opens"], "2026-10-23T20:00:00Z");
        assert_eq!(json["windows"][0]["open"], false);
    }

    #[test]
    fn a_freeze_is_shown_before_windows() {
        let at: Timestamp = "2026-10-23T12:00:00Z".parse().unwrap();
        let freeze =
            json!({"until": "2026-10-24T00:00:00Z", "reason": "quarter end", "who": {"user": "ann", "host": "h"}});
        let frozen = Policy { freeze: serde_json::from_value(freeze).unwrap(), ..Policy::default() };
        assert!(text(&frozen, at, 1).starts_with("FROZEN until 2026-10-24T00:00:00Z: quarter end (ann@h)\n"));
    }
}

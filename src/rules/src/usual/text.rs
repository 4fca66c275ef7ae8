//! Durations as screens and commands show them.

use jiff::SignedDuration;

use super::Usual;

/// Formats a duration in at most six characters, with seconds below ten minutes: `42s`, `1m52s`, `12m`, `2h05m`, `4d`.
pub fn span(duration: SignedDuration) -> String {
    let seconds = duration.as_secs().max(0);
    match seconds {
        0..60 => format!("{seconds}s"),
        60..600 if seconds % 60 > 0 => format!("{}m{:02}s", seconds / 60, seconds % 60),
        60..3600 => format!("{}m", seconds / 60),
        3600..86_400 => format!("{}h{:02}m", seconds / 3600, seconds % 3600 / 60),
        _ => format!("{}d", seconds / 86_400),
    }
}

/// Formats an elapsed time.
fn elapsed_text(elapsed: SignedDuration) -> String {
    // Minutes alone keep an idle screen idle.
    if elapsed.as_secs() < 60 { span(elapsed) } else { span(SignedDuration::from_secs(elapsed.as_secs() / 60 * 60)) }
}

impl Usual {
    /// Returns the usual duration as text, from the median to the p90: `20–40s`, `1m52s–2m31s`.
    pub fn range(&self) -> String {
        let (median, p90) = (rounded(self.median), rounded(self.p90));
        let (low, high) = (span(median), span(p90));
        if low == high {
            low
        } else if p90.as_secs() < 60 {
            format!("{}–{high}", median.as_secs())
        } else {
            format!("{low}–{high}")
        }
    }

    /// Returns an elapsed time beside the usual one: `58s, usual 20–40s`.
    pub fn compared(&self, elapsed: SignedDuration) -> String {
        format!("{}, usual {}", elapsed_text(elapsed), self.range())
    }
}

/// Rounds to whole seconds.
fn rounded(duration: SignedDuration) -> SignedDuration {
    SignedDuration::from_secs((duration + SignedDuration::from_millis(500)).as_secs())
}

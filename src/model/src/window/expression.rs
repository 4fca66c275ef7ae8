//! One cron-like expression: five fields that a local minute matches or not.
//!
//! cketerm has its own matcher. The crates for cron (`cron`, `croner`) compute the next time of an event, in chrono's
//! types. A window needs to know whether a minute matches, and the next minute that does or does not, for a union of
//! expressions less another union. One word of bits for each hour answers both.

use jiff::civil::Date;

/// A field: its name, its smallest and largest number, and names for the numbers from the smallest on.
struct Field {
    name: &'static str,
    min: u32,
    max: u32,
    names: &'static [&'static str],
}

const MINUTE: Field = Field { name: "minute", min: 0, max: 59, names: &[] };
const HOUR: Field = Field { name: "hour", min: 0, max: 23, names: &[] };
const DAY: Field = Field { name: "day of month", min: 1, max: 31, names: &[] };
const MONTH: Field = Field {
    name: "month",
    min: 1,
    max: 12,
    names: &["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"],
};
/// 7 is Sunday too.
const WEEKDAY: Field =
    Field { name: "day of week", min: 0, max: 7, names: &["sun", "mon", "tue", "wed", "thu", "fri", "sat"] };

/// Days of each month in a leap year.
const DAYS_IN_MONTH: [u32; 12] = [31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];

/// `minute hour day-of-month month day-of-week`, as in cron: `*`, numbers, lists, ranges, steps, names of months and
/// weekdays. If both fields for days are restricted, a match of one is enough, as in cron.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Expression {
    text: String,
    minutes: u64,
    hours: u64,
    days: u64,
    months: u64,
    weekdays: u64,
    /// Whether the field is `*`. Then only the other field for days decides.
    any_day: bool,
    any_weekday: bool,
}

impl Expression {
    /// Parses an expression. The error names the field.
    pub fn parse(text: &str) -> Result<Self, String> {
        let fields: Vec<&str> = text.split_whitespace().collect();
        let [minutes, hours, days, months, weekdays] = fields.as_slice() else {
            return Err(format!(
                "{text:?} has {} fields, expected five: minute, hour, day of month, month, day of week",
                fields.len()
            ));
        };
        let read = |field: &Field, part: &str| field.bits(part).map_err(|why| format!("{text:?}: {why}"));
        let weekdays_read = read(&WEEKDAY, weekdays)?;
        let found = Self {
            text: text.to_owned(),
            minutes: read(&MINUTE, minutes)?,
            hours: read(&HOUR, hours)?,
            days: read(&DAY, days)?,
            months: read(&MONTH, months)?,
            weekdays: weekdays_read & 0x7f | weekdays_read >> 7 & 1,
            any_day: any(days),
            any_weekday: any(weekdays),
        };
        let by_weekday = !found.any_day && !found.any_weekday;
        if !by_weekday && !found.has_possible_day() {
            return Err(format!("{text:?} never matches: no month in {months:?} has a day in {days:?} (day of month)"));
        }
        Ok(found)
    }

    /// Returns the original text.
    pub fn text(&self) -> &str {
        &self.text
    }

    fn has_possible_day(&self) -> bool {
        (1..)
            .zip(DAYS_IN_MONTH)
            .any(|(month, longest)| self.months >> month & 1 == 1 && (1..=longest).any(|day| self.days >> day & 1 == 1))
    }

    /// Reports whether minutes of this local day can match.
    pub fn on(&self, date: Date) -> bool {
        let bit = |bits: u64, number: i8| bits >> number & 1 == 1;
        let day = bit(self.days, date.day());
        let weekday = bit(self.weekdays, date.weekday().to_sunday_zero_offset());
        bit(self.months, date.month())
            && match (self.any_day, self.any_weekday) {
                (false, false) => day || weekday,
                _ => day && weekday,
            }
    }

    /// Returns the matching minutes of this hour on a matching day; bit 0 is the first minute.
    pub fn minutes(&self, hour: usize) -> u64 {
        if self.hours >> hour & 1 == 1 { self.minutes } else { 0 }
    }
}

fn any(field: &str) -> bool {
    matches!(field, "*" | "?")
}

impl Field {
    /// Returns the named numbers, one bit each.
    fn bits(&self, text: &str) -> Result<u64, String> {
        text.split(',').try_fold(0, |bits, part| Ok(bits | self.part(part)?))
    }

    /// Parses `*`, `a` or `a-b`, each with an optional `/step`. `a/step` extends to the end, as in cron.
    fn part(&self, part: &str) -> Result<u64, String> {
        let (range, step) = match part.split_once('/') {
            None => (part, None),
            Some((range, step)) => match step.parse::<u32>() {
                Ok(step) if step > 0 => (range, Some(step)),
                _ => return Err(format!("{part:?}: the step must be a positive number (field {})", self.name)),
            },
        };
        let (from, to) = match range.split_once('-') {
            _ if any(range) => (self.min, if self.min == 0 && self.max == 7 { 6 } else { self.max }),
            Some((from, to)) => (self.number(from, part)?, self.number(to, part)?),
            None => {
                let from = self.number(range, part)?;
                (from, if step.is_some() { self.max } else { from })
            }
        };
        if from > to {
            return Err(format!(
                "{part:?} goes backwards: write {from}-{},{}-{to} (field {})",
                self.max, self.min, self.name
            ));
        }
        let step = usize::try_from(step.unwrap_or(1)).unwrap_or(usize::MAX);
        Ok((from..=to).step_by(step).fold(0, |bits, number| bits | 1 << number))
    }

    fn number(&self, text: &str, part: &str) -> Result<u32, String> {
        let lower = text.to_ascii_lowercase();
        if let Some(place) = self.names.iter().position(|name| *name == lower) {
            return Ok(self.min + u32::try_from(place).unwrap_or(0));
        }
        match text.parse::<u32>() {
            Ok(number) if text.bytes().all(|b| b.is_ascii_digit()) && (self.min..=self.max).contains(&number) => {
                Ok(number)
            }
            Ok(number) => Err(format!("{number} is not in {}-{} (field {})", self.min, self.max, self.name)),
            Err(_) => Err(format!("{part:?} is not a number in {}-{} (field {})", self.min, self.max, self.name)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn matches(text: &str, local: &str) -> bool {
        let (expression, at) = (Expression::parse(text).unwrap(), local.parse::<jiff::civil::DateTime>().unwrap());
        let hour = usize::try_from(at.hour()).unwrap();
        expression.on(at.date()) && expression.minutes(hour) >> at.minute() & 1 == 1
    }

    #[test]
    fn a_minute_matches_or_not() {
        for (text, local, is) in [
            ("* * * * *", "2026-08-01T12:34", true),
            ("34 12 1 8 6", "2026-08-01T12:34", true),
            ("33 12 * * *", "2026-08-01T12:34", false),
            ("30-40/2 * * * *", "2026-08-01T12:34", true),
            ("30-40/2 * * * *", "2026-08-01T12:35", false),
            ("5/20 * * * *", "2026-08-01T12:45", true),
            ("*/15,34 * * * *", "2026-08-01T12:34", true),
            ("* 22-23,0-4 * * *", "2026-08-01T04:59", true),
            ("* 22-23,0-4 * * *", "2026-08-01T05:00", false),
            ("* * * aug sat", "2026-08-01T00:00", true),
            ("* * * AUG Mon-Fri", "2026-08-01T00:00", false),
            ("* * * * 7", "2026-08-02T00:00", true),
            ("* * * * 0", "2026-08-02T00:00", true),
            ("* * * * */2", "2026-08-02T00:00", true),
            ("* * ? * 5-7", "2026-08-02T00:00", true),
            // As in cron: if both fields for days are restricted, one match is enough.
            ("* * 15 * 6", "2026-08-01T00:00", true),
            ("* * 1 * 3", "2026-08-01T00:00", true),
            ("* * 2 * 3", "2026-08-01T00:00", false),
            ("0 0 29 2 *", "2028-02-29T00:00", true),
        ] {
            assert_eq!(matches(text, local), is, "{text} at {local}");
        }
    }

    #[test]
    fn an_invalid_expression_is_refused_with_its_field() {
        for (text, expected) in [
            ("", "has 0 fields"),
            ("* * * *", "expected five"),
            ("@daily", "expected five"),
            ("60 * * * *", "60 is not in 0-59 (field minute)"),
            ("* 24 * * *", "(field hour)"),
            ("* * 0 * *", "0 is not in 1-31 (field day of month)"),
            ("* * * 13 *", "(field month)"),
            ("* * * foo *", "\"foo\" is not a number in 1-12 (field month)"),
            ("* * * * 8", "(field day of week)"),
            ("* 22-4 * * *", "\"22-4\" goes backwards: write 22-23,0-4 (field hour)"),
            ("*/0 * * * *", "step must be a positive number (field minute)"),
            ("1- * * * *", "is not a number"),
            ("+1 * * * *", "1 is not in"),
            ("1,,2 * * * *", "is not a number"),
            ("30 2 30 2 *", "never matches: no month in \"2\" has a day in \"30\""),
            ("0 0 31 4,6,9,11 *", "never matches"),
        ] {
            let why = Expression::parse(text).unwrap_err();
            assert!(why.contains(expected) && why.contains(text), "{text}: {why}");
        }
        assert!(Expression::parse("30 2 30 2 1").is_ok(), "a matching weekday in February is enough, as in cron");
    }
}

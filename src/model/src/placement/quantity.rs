//! Quantities of Kubernetes, such as `250m`, `1.5`, `4Gi` and `1e3`.

use std::str::FromStr;

/// Billionths in one unit.
const NANOS: i128 = 1_000_000_000;
/// Billionths in one thousandth.
const NANOS_OF_MILLI: i128 = 1_000_000;
/// Decimals that are kept. Further ones round up.
const DECIMALS: usize = 10;
/// Ten to the power of [`DECIMALS`].
const DECIMAL_SCALE: i128 = 10_000_000_000;

/// Parsed quantity. Values beyond every real resource saturate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Quantity {
    nanos: i128,
}

/// Reason why a text is no quantity.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is not a quantity")]
pub struct QuantityError {
    text: Box<str>,
}

impl Quantity {
    /// Returns whole units, rounded up like in Kubernetes.
    pub fn units(self) -> i64 {
        ceiling(self.nanos, NANOS)
    }

    /// Returns thousandths, rounded up like in Kubernetes.
    pub fn millis(self) -> i64 {
        ceiling(self.nanos, NANOS_OF_MILLI)
    }
}

/// Divides and rounds towards positive infinity. The result saturates.
fn ceiling(value: i128, by: i128) -> i64 {
    let rest = i128::from(value.rem_euclid(by) != 0);
    let whole = value.div_euclid(by).saturating_add(rest);
    i64::try_from(whole).unwrap_or(if whole > 0 { i64::MAX } else { i64::MIN })
}

/// Factor of a suffix: billionths are the number times `multiply`, divided by `divide`.
struct Scale {
    multiply: i128,
    divide: i128,
}

impl Scale {
    fn parse(suffix: &str) -> Option<Self> {
        let times = |multiply: i128| Some(Self { multiply, divide: 1 });
        let decimal = |power: u32| times(NANOS * 10_i128.pow(power));
        let binary = |power: u32| times(NANOS << (10 * power));
        match suffix {
            "n" => times(1),
            "u" => times(1_000),
            "m" => times(NANOS_OF_MILLI),
            "" => times(NANOS),
            "k" => decimal(3),
            "M" => decimal(6),
            "G" => decimal(9),
            "T" => decimal(12),
            "P" => decimal(15),
            "E" => decimal(18),
            "Ki" => binary(1),
            "Mi" => binary(2),
            "Gi" => binary(3),
            "Ti" => binary(4),
            "Pi" => binary(5),
            "Ei" => binary(6),
            _ => Self::exponent(suffix.strip_prefix(['e', 'E'])?),
        }
    }

    /// Parses the digits after `e`, with an optional sign.
    fn exponent(text: &str) -> Option<Self> {
        let digits = text.strip_prefix(['+', '-']).unwrap_or(text);
        if digits.is_empty() || !digits.bytes().all(|b| b.is_ascii_digit()) {
            return None;
        }
        let size = digits.parse::<u32>().unwrap_or(u32::MAX);
        let power = |exponent: u32| 10_i128.checked_pow(exponent).unwrap_or(i128::MAX);
        Some(if !text.starts_with('-') {
            Self { multiply: power(size.saturating_add(9)), divide: 1 }
        } else if size <= 9 {
            Self { multiply: power(9 - size), divide: 1 }
        } else {
            Self { multiply: 1, divide: power(size - 9) }
        })
    }
}

/// Splits a text after its leading digits.
fn split_digits(text: &str) -> (&str, &str) {
    text.split_at(text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len()))
}

/// Returns the value of digits, saturating.
fn value(digits: &str) -> i128 {
    digits.bytes().fold(0_i128, |sum, digit| sum.saturating_mul(10).saturating_add(i128::from(digit - b'0')))
}

impl FromStr for Quantity {
    type Err = QuantityError;

    fn from_str(text: &str) -> Result<Self, QuantityError> {
        let invalid = || QuantityError { text: text.chars().take(40).collect::<String>().into() };
        let unsigned = text.strip_prefix(['+', '-']).unwrap_or(text);
        let (whole, rest) = split_digits(unsigned);
        let (decimals, suffix) = rest.strip_prefix('.').map_or(("", rest), split_digits);
        if whole.is_empty() && decimals.is_empty() {
            return Err(invalid());
        }
        let scale = Scale::parse(suffix).ok_or_else(invalid)?;
        let (kept, dropped) = decimals.split_at(decimals.len().min(DECIMALS));
        let padded = format!("{kept:0<DECIMALS$}");
        let up = |product: i128, by: i128| product / by + i128::from(product % by != 0);
        let integer = value(whole).saturating_mul(scale.multiply);
        let fraction = up(value(&padded).saturating_mul(scale.multiply), DECIMAL_SCALE);
        let inexact = i128::from(dropped.bytes().any(|b| b != b'0'));
        let sum = integer.saturating_add(fraction).saturating_add(inexact);
        let nanos = up(sum, scale.divide);
        Ok(Self { nanos: if text.starts_with('-') { -nanos } else { nanos } })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn units(text: &str) -> i64 {
        text.parse::<Quantity>().unwrap().units()
    }

    fn millis(text: &str) -> i64 {
        text.parse::<Quantity>().unwrap().millis()
    }

    #[test]
    fn every_suffix_is_parsed() {
        for (text, expected) in [
            ("0", 0),
            ("12", 12),
            ("+3", 3),
            ("2k", 2_000),
            ("2M", 2_000_000),
            ("2G", 2_000_000_000),
            ("2T", 2_000_000_000_000),
            ("2P", 2_000_000_000_000_000),
            ("2E", 2_000_000_000_000_000_000),
            ("2Ki", 2_048),
            ("2Mi", 2 << 20),
            ("2Gi", 2 << 30),
            ("2Ti", 2 << 40),
            ("2Pi", 2 << 50),
            ("2Ei", 2 << 60),
            ("1.5Gi", 1_610_612_736),
            ("1e3", 1_000),
            ("1E3", 1_000),
            ("1.5e+3", 1_500),
            ("2000e-3", 2),
            (".5k", 500),
            ("5.", 5),
            ("007", 7),
        ] {
            assert_eq!(units(text), expected, "{text}");
        }
        for (text, expected) in [
            ("250m", 250),
            ("1", 1_000),
            ("0.1", 100),
            ("1500u", 2),
            ("1n", 1),
            ("3.5", 3_500),
            ("1e-3", 1),
            ("2k", 2_000_000),
        ] {
            assert_eq!(millis(text), expected, "{text}");
        }
    }

    #[test]
    fn fractions_round_up_as_in_kubernetes() {
        assert_eq!((units("1m"), units("1.0000000000000001"), units("1.9"), units("-1.9")), (1, 2, 2, -1));
        assert_eq!((units("1e-40"), units("0e-40"), millis("0.00000000000000000001")), (1, 0, 1));
    }

    #[test]
    fn huge_numbers_saturate() {
        for text in ["9999999999999999999999999999999999999999999999999Ei", "1e99999999999", "8Ei", "1e38", "99E"] {
            assert_eq!(units(text), i64::MAX, "{text}");
            assert_eq!(units(&format!("-{text}")), if text == "8Ei" { i64::MIN } else { units(&format!("-{text}")) });
            assert!(units(&format!("-{text}")) < 0, "{text}");
        }
        assert_eq!(units(&"9".repeat(10_000)), i64::MAX);
        assert_eq!(units(&format!("0.{}", "0".repeat(10_000))), 0);
    }

    #[test]
    fn other_texts_are_refused() {
        for text in [
            "", " ", "NaN", "inf", "-", "+", ".", "1 ", " 1", "1x", "1ki", "1KI", "1Kim", "--1", "1.2.3", "1e", "1e+",
            "1e1.5", "0x10", "１", "1,5", "e3", "m",
        ] {
            assert!(text.parse::<Quantity>().is_err(), "{text:?}");
        }
    }
}

//! Fingerprints of states. Two states that differ only in when they were reached, or in the numbers that etcd and
//! Kubernetes gave to their revisions, have one fingerprint.

use std::{
    hash::{BuildHasher, Hasher},
    io,
};

use cketerm_model::boot_time::Seconds;
use foldhash::quality::FixedState;
use serde::Serialize;
use serde_json::ser::{Formatter, Serializer};

/// Revisions start here, so that they are told apart from other numbers.
pub const FIRST_REVISION: i64 = 1_000_000;
/// Boot times start here, for the same reason.
pub const FIRST_BOOT: f64 = 100_000.0;
/// Date of all timestamps.
const DATE: &str = "2026-08-01T";
/// Seconds since the midnight of [`DATE`] at the start of each world.
pub const START_SECONDS: i64 = 6 * 3600;
/// Ages beyond this are alike: it is longer than every time limit of these worlds.
const OLD: i64 = 900;

/// Writer of a canonical form.
pub struct Canon {
    form: Form,
    text: Vec<u8>,
}

/// Replaces times by ages, and revisions by places.
struct Form {
    /// Seconds since the start of the world.
    now: i64,
    /// Revisions in the order in which they were met.
    revisions: Vec<i64>,
}

impl Canon {
    /// Begins the form of a state at this time.
    pub fn new(now: i64) -> Self {
        Self { form: Form { now, revisions: Vec::with_capacity(64) }, text: Vec::with_capacity(4096) }
    }

    /// Adds a part of the state.
    pub fn add(&mut self, part: &impl Serialize) {
        // writing to memory does not fail, and the types of a snapshot have no maps with odd keys
        let _ = part.serialize(&mut Serializer::with_formatter(&mut self.text, &mut self.form));
        self.text.push(b'\n');
    }

    /// Returns the fingerprint.
    pub fn fingerprint(self) -> u64 {
        let mut known = self.form.revisions.clone();
        known.sort_unstable();
        known.dedup();
        let mut hasher = FixedState::with_seed(7).build_hasher();
        hasher.write(&self.text);
        for revision in &self.form.revisions {
            let place = known.binary_search(revision).unwrap_or_default();
            hasher.write_u16(u16::try_from(place).unwrap_or(u16::MAX));
        }
        hasher.finish()
    }
}

impl Form {
    fn age<W: ?Sized + io::Write>(&self, writer: &mut W, at: i64) -> io::Result<()> {
        let age = (self.now - at).clamp(-OLD * 100, OLD);
        write!(writer, "~{age}")
    }

    fn revision<W: ?Sized + io::Write>(&mut self, writer: &mut W, revision: i64) -> io::Result<()> {
        self.revisions.push(revision);
        writer.write_all(b"#")
    }
}

/// Returns the seconds since the start of the world that a timestamp means.
fn seconds_of(text: &str) -> Option<i64> {
    let time = text.strip_prefix(DATE)?;
    let number = |from: usize| time.get(from..from + 2)?.parse::<i64>().ok();
    Some(number(0)? * 3600 + number(3)? * 60 + number(6)? - START_SECONDS)
}

impl Formatter for &mut Form {
    fn write_i64<W: ?Sized + io::Write>(&mut self, writer: &mut W, value: i64) -> io::Result<()> {
        if value >= FIRST_REVISION { self.revision(writer, value) } else { write!(writer, "{value}") }
    }

    fn write_f64<W: ?Sized + io::Write>(&mut self, writer: &mut W, value: f64) -> io::Result<()> {
        let since = Seconds::new(value - FIRST_BOOT).whole();
        if value >= FIRST_BOOT { self.age(writer, since) } else { write!(writer, "{value}") }
    }

    fn write_string_fragment<W: ?Sized + io::Write>(&mut self, writer: &mut W, text: &str) -> io::Result<()> {
        if let Some(at) = seconds_of(text) {
            return self.age(writer, at);
        }
        // a resourceVersion
        match text.parse::<i64>() {
            Ok(number) if number >= FIRST_REVISION => self.revision(writer, number),
            _ => writer.write_all(text.as_bytes()),
        }
    }
}

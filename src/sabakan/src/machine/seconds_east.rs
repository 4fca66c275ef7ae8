//! A zone as seconds east of UTC, for stored snapshots.

use jiff::tz::Offset;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error as _};

#[allow(clippy::trivially_copy_pass_by_ref)] // the signature is serde's
pub(super) fn serialize<S: Serializer>(zone: &Offset, out: S) -> Result<S::Ok, S::Error> {
    zone.seconds().serialize(out)
}

pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Offset, D::Error> {
    Offset::from_seconds(i32::deserialize(from)?).map_err(D::Error::custom)
}

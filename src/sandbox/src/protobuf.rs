//! Hand-written protobuf for messages without generated code. The messages are few and flat: numbers, strings and
//! nested messages.

use bytes::{Buf, Bytes};

/// Fields of a message, last one first, because the last occurrence of a field counts.
#[derive(Debug, Default)]
pub(super) struct Fields(Vec<(u64, Field)>);

#[derive(Debug)]
enum Field {
    Number(u64),
    Bytes(Bytes),
}

impl Fields {
    /// Reads a message. Returns `None` if the bytes are not a message.
    pub fn read(mut from: Bytes) -> Option<Self> {
        let mut fields = Vec::new();
        while from.has_remaining() {
            let tag = varint(&mut from)?;
            let field = match tag & 7 {
                0 => Field::Number(varint(&mut from)?),
                1 => Field::Number(from.try_get_u64_le().ok()?),
                2 => {
                    let length = usize::try_from(varint(&mut from)?).ok().filter(|l| *l <= from.len())?;
                    Field::Bytes(from.split_to(length))
                }
                5 => Field::Number(u64::from(from.try_get_u32_le().ok()?)),
                _ => return None,
            };
            fields.push((tag >> 3, field));
        }
        fields.reverse();
        Some(Self(fields))
    }

    /// Returns a bytes field; empty if it is missing.
    pub fn bytes(&self, number: u64) -> Bytes {
        self.message(number).unwrap_or_default()
    }

    /// Returns the bytes of a nested message, if present.
    pub fn message(&self, number: u64) -> Option<Bytes> {
        self.0.iter().find_map(|(n, field)| match field {
            Field::Bytes(bytes) if *n == number => Some(bytes.clone()),
            _ => None,
        })
    }

    /// Returns the bytes of all fields with this number, in order.
    pub fn all(&self, number: u64) -> impl Iterator<Item = Bytes> {
        self.0.iter().rev().filter_map(move |(n, field)| match field {
            Field::Bytes(bytes) if *n == number => Some(bytes.clone()),
            _ => None,
        })
    }

    /// Returns a string field; empty if it is missing.
    pub fn text(&self, number: u64) -> String {
        String::from_utf8_lossy(&self.bytes(number)).into_owned()
    }

    /// Returns a number field; 0 if it is missing.
    pub fn number(&self, number: u64) -> u64 {
        self.optional_number(number).unwrap_or(0)
    }

    /// Returns a number field, if present.
    pub fn optional_number(&self, number: u64) -> Option<u64> {
        self.0.iter().find_map(|(n, field)| match field {
            Field::Number(value) if *n == number => Some(*value),
            _ => None,
        })
    }
}

fn varint(from: &mut Bytes) -> Option<u64> {
    let mut value = 0_u64;
    for shift in (0..64).step_by(7) {
        let byte = from.try_get_u8().ok()?;
        value |= u64::from(byte & 0x7f) << shift;
        if byte < 0x80 {
            return Some(value);
        }
    }
    None
}

/// A message under construction.
#[derive(Debug, Default)]
pub(super) struct Message(Vec<u8>);

impl Message {
    /// Adds a number; 0 is omitted.
    pub fn number(mut self, number: u8, value: u64) -> Self {
        if value != 0 {
            self.0.push(number << 3);
            self.varint(value);
        }
        self
    }

    /// Adds bytes: a string or an encoded message.
    pub fn bytes(mut self, number: u8, value: &[u8]) -> Self {
        self.0.push(number << 3 | 2);
        self.varint(value.len() as u64);
        self.0.extend_from_slice(value);
        self
    }

    /// Adds a nested message.
    pub fn message(self, number: u8, value: &Self) -> Self {
        self.bytes(number, &value.0)
    }

    /// Returns the encoded message.
    pub fn into_bytes(self) -> Bytes {
        self.0.into()
    }

    fn varint(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.0.push(u8::try_from(value & 0x7f).unwrap_or_default() | 0x80);
            value >>= 7;
        }
        self.0.push(u8::try_from(value).unwrap_or_default());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_encoded_message_round_trips_and_invalid_bytes_are_rejected() {
        let inner = Message::default().number(1, 300).bytes(2, b"/cke/");
        let fields = Fields::read(
            Message::default()
                .message(1, &Message::default().number(1, u64::MAX).number(3, 7))
                .bytes(2, b"name")
                .message(3, &inner)
                .into_bytes(),
        )
        .unwrap();
        assert_eq!((fields.text(2).as_str(), fields.text(9).as_str(), fields.number(9)), ("name", "", 0));
        let inner = Fields::read(fields.message(3).unwrap()).unwrap();
        assert_eq!((inner.number(1), inner.text(2).as_str()), (300, "/cke/"));
        let header = Fields::read(fields.message(1).unwrap()).unwrap();
        assert_eq!((header.number(1), header.number(3)), (u64::MAX, 7));
        for bad in [&b"\x0a\x05ab"[..], b"\x08", b"\x0b", b"\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff"] {
            assert!(Fields::read(Bytes::copy_from_slice(bad)).is_none(), "{bad:?}");
        }
    }
}

//! Protobuf by hand, for the service of users and roles alone.
//!
//! `etcd-client` keeps the messages of `AuthStatus` to itself, so that nobody outside can implement its trait for this
//! service. Its messages are few and flat: numbers, texts, and one message inside another.

use bytes::{Buf, BufMut, Bytes};
use tonic::{
    Status,
    codec::{Codec, DecodeBuf, Decoder, EncodeBuf, Encoder},
};

use super::state::{CLUSTER, MEMBER, TERM};

/// Passes messages on as they are.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Raw;

impl Codec for Raw {
    type Encode = Bytes;
    type Decode = Bytes;
    type Encoder = Self;
    type Decoder = Self;

    fn encoder(&mut self) -> Self {
        Self
    }

    fn decoder(&mut self) -> Self {
        Self
    }
}

impl Encoder for Raw {
    type Item = Bytes;
    type Error = Status;

    fn encode(&mut self, item: Bytes, to: &mut EncodeBuf<'_>) -> Result<(), Status> {
        to.put(item);
        Ok(())
    }
}

impl Decoder for Raw {
    type Item = Bytes;
    type Error = Status;

    fn decode(&mut self, from: &mut DecodeBuf<'_>) -> Result<Option<Bytes>, Status> {
        Ok(Some(from.copy_to_bytes(from.remaining())))
    }
}

/// The fields of a message, the last one first, for that one counts.
#[derive(Debug, Default)]
pub(super) struct Fields(Vec<(u64, Field)>);

#[derive(Debug)]
enum Field {
    Number(u64),
    Bytes(Bytes),
}

impl Fields {
    /// Reads a message; nothing when it is none.
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

    /// Bytes, empty when they are missing.
    pub fn bytes(&self, number: u64) -> Bytes {
        self.message(number).unwrap_or_default()
    }

    /// The bytes of a message within it, if there is one.
    pub fn message(&self, number: u64) -> Option<Bytes> {
        self.0.iter().find_map(|(n, field)| match field {
            Field::Bytes(bytes) if *n == number => Some(bytes.clone()),
            _ => None,
        })
    }

    /// A text, empty when it is missing.
    pub fn text(&self, number: u64) -> String {
        String::from_utf8_lossy(&self.bytes(number)).into_owned()
    }

    /// A number, 0 when it is missing.
    pub fn number(&self, number: u64) -> u64 {
        let found = self.0.iter().find_map(|(n, field)| match field {
            Field::Number(value) if *n == number => Some(*value),
            _ => None,
        });
        found.unwrap_or(0)
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

/// A message that is being written.
#[derive(Debug, Default)]
pub(super) struct Message(Vec<u8>);

impl Message {
    /// An answer: its first field is the header at a revision.
    pub fn answer(revision: i64) -> Self {
        let header = Self::default().number(1, CLUSTER).number(2, MEMBER);
        let header = header.number(3, revision.unsigned_abs()).number(4, TERM);
        Self::default().bytes(1, &header.0)
    }

    /// With a number; 0 is left out.
    pub fn number(mut self, number: u8, value: u64) -> Self {
        if value != 0 {
            self.0.push(number << 3);
            self.varint(value);
        }
        self
    }

    /// With bytes, a text or a message.
    pub fn bytes(mut self, number: u8, value: &[u8]) -> Self {
        self.0.push(number << 3 | 2);
        self.varint(value.len() as u64);
        self.0.extend_from_slice(value);
        self
    }

    /// With a message within it.
    pub fn message(self, number: u8, value: &Self) -> Self {
        self.bytes(number, &value.0)
    }

    /// As it goes over the wire.
    pub fn done(self) -> Bytes {
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
    fn what_is_written_is_read_and_what_is_no_message_is_refused() {
        let inner = Message::default().number(1, 300).bytes(2, b"/cke/");
        let fields = Fields::read(Message::answer(7).bytes(2, b"name").message(3, &inner).done()).unwrap();
        assert_eq!((fields.text(2).as_str(), fields.text(9).as_str(), fields.number(9)), ("name", "", 0));
        let inner = Fields::read(fields.message(3).unwrap()).unwrap();
        assert_eq!((inner.number(1), inner.text(2).as_str()), (300, "/cke/"));
        let header = Fields::read(fields.message(1).unwrap()).unwrap();
        assert_eq!((header.number(1), header.number(3)), (CLUSTER, 7));
        for bad in [&b"\x0a\x05ab"[..], b"\x08", b"\x0b", b"\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff"] {
            assert!(Fields::read(Bytes::copy_from_slice(bad)).is_none(), "{bad:?}");
        }
    }
}

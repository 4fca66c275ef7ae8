//! Hand-written protobuf for the service of users and roles. `etcd-client` does not export the messages of
//! `AuthStatus`, so its trait for this service cannot be implemented outside that crate.

use bytes::{Buf, BufMut, Bytes};
use tonic::{
    Status,
    codec::{Codec, DecodeBuf, Decoder, EncodeBuf, Encoder},
};

use super::header::{CLUSTER, MEMBER, TERM};
use crate::protobuf::Message;

/// Codec that passes messages on unchanged.
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

/// Begins a response. Its first field is the header at a revision.
pub(super) fn answer(revision: i64) -> Message {
    let header = Message::default().number(1, CLUSTER).number(2, MEMBER);
    let header = header.number(3, revision.unsigned_abs()).number(4, TERM);
    Message::default().message(1, &header)
}

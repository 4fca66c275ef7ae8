//! Conversion from versions to etcd's messages, and the size of requests.

use etcd_client::proto::{
    PbDeleteRequest, PbEvent, PbKeyValue, PbPutRequest, PbRangeRequest, PbTargetUnion, PbTxnOpRequest, PbTxnRequest,
};

use super::{RpcError, revisions::Version};

/// etcd's default limit for a write (`--max-request-bytes`).
const MAX_REQUEST_BYTES: usize = 1536 << 10;
/// Bytes that gRPC allows beyond that limit before it refuses the message.
const GRPC_OVERHEAD: usize = 512 << 10;
/// Bytes that Raft's entry adds to a request.
const RAFT_ENTRY_OVERHEAD: usize = 18;

/// Returns a key in the form that reads return.
pub(super) fn key_value(version: &Version) -> PbKeyValue {
    PbKeyValue {
        key: version.key.to_vec(),
        create_revision: version.create_revision,
        mod_revision: version.mod_revision,
        version: version.version,
        value: version.value.as_ref().map(|v| v.to_vec()).unwrap_or_default(),
        lease: version.lease,
    }
}

/// Returns a change in the form that watches deliver. A deletion carries only its key and revision.
pub(super) fn event(version: &Version, before: Option<&Version>) -> PbEvent {
    PbEvent { r#type: i32::from(version.value.is_none()), kv: Some(key_value(version)), prev_kv: before.map(key_value) }
}

/// Refuses a message that is larger than gRPC's limit.
pub(super) fn check_message(size: usize) -> Result<(), tonic::Status> {
    if size <= MAX_REQUEST_BYTES + GRPC_OVERHEAD {
        return Ok(());
    }
    let text = format!("grpc: received message larger than max ({size} vs. {})", MAX_REQUEST_BYTES + GRPC_OVERHEAD);
    Err(tonic::Status::resource_exhausted(text))
}

/// Refuses a write that is too large, as late as etcd does.
pub(super) fn check_write(size: usize) -> Result<(), RpcError> {
    if size + RAFT_ENTRY_OVERHEAD > MAX_REQUEST_BYTES { Err(RpcError::TooLarge) } else { Ok(()) }
}

/// Returns the encoded size of a put in bytes.
pub(super) fn put_size(r: &PbPutRequest) -> usize {
    bytes(&r.key)
        + bytes(&r.value)
        + number(r.lease)
        + 2 * (usize::from(r.prev_kv) + usize::from(r.ignore_value) + usize::from(r.ignore_lease))
}

/// Returns the encoded size of a deletion in bytes.
pub(super) fn delete_size(r: &PbDeleteRequest) -> usize {
    bytes(&r.key) + bytes(&r.range_end) + 2 * usize::from(r.prev_kv)
}

/// Returns the encoded size of a read in bytes.
pub(super) fn range_size(r: &PbRangeRequest) -> usize {
    let numbers = [r.limit, r.revision, i64::from(r.sort_order), i64::from(r.sort_target)];
    let bounds = [r.min_mod_revision, r.max_mod_revision, r.min_create_revision, r.max_create_revision];
    bytes(&r.key)
        + bytes(&r.range_end)
        + numbers.into_iter().chain(bounds).map(number).sum::<usize>()
        + 2 * (usize::from(r.serializable) + usize::from(r.keys_only) + usize::from(r.count_only))
}

/// Returns the encoded size of a transaction in bytes.
pub(super) fn txn_size(r: &PbTxnRequest) -> usize {
    let compares = r.compare.iter().map(|c| {
        let target = match &c.target_union {
            None => 0,
            Some(PbTargetUnion::Value(value)) => nested(value.len()),
            Some(
                PbTargetUnion::Version(n)
                | PbTargetUnion::CreateRevision(n)
                | PbTargetUnion::ModRevision(n)
                | PbTargetUnion::Lease(n),
            ) => 1 + varint(n.unsigned_abs()),
        };
        let end = bytes(&c.range_end);
        let inner = number(i64::from(c.result)) + number(i64::from(c.target)) + bytes(&c.key) + target;
        nested(inner + end + usize::from(end > 0))
    });
    let ops = r.success.iter().chain(&r.failure).map(|op| {
        let inner = match &op.request {
            None => return nested(0),
            Some(PbTxnOpRequest::RequestRange(r)) => range_size(r),
            Some(PbTxnOpRequest::RequestPut(r)) => put_size(r),
            Some(PbTxnOpRequest::RequestDeleteRange(r)) => delete_size(r),
            Some(PbTxnOpRequest::RequestTxn(r)) => txn_size(r),
        };
        nested(nested(inner))
    });
    compares.sum::<usize>() + ops.sum::<usize>()
}

fn bytes(value: &[u8]) -> usize {
    if value.is_empty() { 0 } else { nested(value.len()) }
}

fn nested(length: usize) -> usize {
    1 + varint(length as u64) + length
}

fn number(value: i64) -> usize {
    match value {
        0 => 0,
        ..0 => 11,
        _ => 1 + varint(value.unsigned_abs()),
    }
}

fn varint(value: u64) -> usize {
    (64 - (value | 1).leading_zeros() as usize).div_ceil(7)
}

//! Reads, writes and transactions: validation of the request, and execution.

use std::{cmp::Ordering, collections::BTreeSet, sync::Arc};

use bytes::Bytes;
use etcd_client::proto::{
    PbCompare, PbCompareTarget, PbDeleteRequest, PbDeleteResponse, PbPutRequest, PbPutResponse, PbRangeRequest,
    PbRangeResponse, PbResponseHeader, PbResponseOp, PbTargetUnion, PbTxnOpRequest, PbTxnOpResponse, PbTxnRequest,
    PbTxnRequestOp, PbTxnResponse,
};

use super::{
    RpcError,
    key_range::KeyRange,
    revisions::{Revisions, Version},
    state::State,
    wire::key_value,
};

/// etcd's default limit of operations in one transaction (`--max-txn-ops`).
const MAX_TXN_OPS: usize = 128;

/// Returns a header inside a transaction. It carries only the revision.
#[allow(clippy::unnecessary_wraps)] // prost's messages need an `Option`
fn inner_header(revision: i64) -> Option<PbResponseHeader> {
    Some(PbResponseHeader { revision, ..PbResponseHeader::default() })
}

/// Validates a read without looking at the keys.
pub(super) fn check_range(request: &PbRangeRequest) -> Result<(), RpcError> {
    if request.key.is_empty() {
        return Err(RpcError::EmptyKey);
    }
    if !(0..=2).contains(&request.sort_order) || !(0..=4).contains(&request.sort_target) {
        return Err(RpcError::InvalidSort);
    }
    Ok(())
}

/// Validates a put without looking at the keys.
pub(super) fn check_put(request: &PbPutRequest) -> Result<(), RpcError> {
    match request {
        request if request.key.is_empty() => Err(RpcError::EmptyKey),
        request if request.ignore_value && !request.value.is_empty() => Err(RpcError::ValueProvided),
        request if request.ignore_lease && request.lease != 0 => Err(RpcError::LeaseProvided),
        _ => Ok(()),
    }
}

/// Validates a deletion without looking at the keys.
pub(super) fn check_delete(request: &PbDeleteRequest) -> Result<(), RpcError> {
    if request.key.is_empty() { Err(RpcError::EmptyKey) } else { Ok(()) }
}

/// Validates a transaction: its size, its operations, and that no key is written twice.
pub(super) fn check_txn(request: &PbTxnRequest) -> Result<(), RpcError> {
    check_operations(request, MAX_TXN_OPS)?;
    written_keys(&request.success)?;
    written_keys(&request.failure)?;
    Ok(())
}

fn check_operations(request: &PbTxnRequest, most: usize) -> Result<(), RpcError> {
    let longest = request.compare.len().max(request.success.len()).max(request.failure.len());
    if longest > most {
        return Err(RpcError::TooManyOps);
    }
    if request.compare.iter().any(|c| c.key.is_empty()) {
        return Err(RpcError::EmptyKey);
    }
    for op in request.success.iter().chain(&request.failure) {
        match &op.request {
            None => return Err(RpcError::KeyNotFound),
            Some(PbTxnOpRequest::RequestRange(request)) => check_range(request)?,
            Some(PbTxnOpRequest::RequestPut(request)) => check_put(request)?,
            Some(PbTxnOpRequest::RequestDeleteRange(request)) => check_delete(request)?,
            Some(PbTxnOpRequest::RequestTxn(request)) => check_operations(request, most - longest)?,
        }
    }
    Ok(())
}

/// Returns the keys that a list of operations puts and the ranges that it deletes. A put must not overlap with another
/// put or a deletion. Both branches of a nested transaction may put the same key, because only one of them is executed.
fn written_keys(ops: &[PbTxnRequestOp]) -> Result<(BTreeSet<&[u8]>, Vec<KeyRange>), RpcError> {
    let mut deleted: Vec<KeyRange> = ops
        .iter()
        .filter_map(|op| match &op.request {
            Some(PbTxnOpRequest::RequestDeleteRange(request)) => Some(KeyRange::new(&request.key, &request.range_end)),
            _ => None,
        })
        .collect();
    let mut put = BTreeSet::new();
    for op in ops {
        let Some(PbTxnOpRequest::RequestTxn(inner)) = &op.request else { continue };
        let (success_keys, success_deleted) = written_keys(&inner.success)?;
        let (failure_keys, failure_deleted) = written_keys(&inner.failure)?;
        let both: BTreeSet<&[u8]> = success_keys.union(&failure_keys).copied().collect();
        if both.iter().any(|key| put.contains(key) || deleted.iter().any(|key_range| key_range.contains(key))) {
            return Err(RpcError::DuplicateKey);
        }
        put.extend(both);
        deleted.extend(success_deleted.into_iter().chain(failure_deleted));
    }
    for op in ops {
        let Some(PbTxnOpRequest::RequestPut(request)) = &op.request else { continue };
        if deleted.iter().any(|key_range| key_range.contains(&request.key)) || !put.insert(&request.key) {
            return Err(RpcError::DuplicateKey);
        }
    }
    Ok((put, deleted))
}

/// Reports whether a transaction may change anything. A transaction that only reads is not written to the Raft log.
pub(super) fn is_write(request: &PbTxnRequest) -> bool {
    request.success.iter().chain(&request.failure).any(|op| match &op.request {
        Some(PbTxnOpRequest::RequestTxn(request)) => is_write(request),
        Some(PbTxnOpRequest::RequestPut(_) | PbTxnOpRequest::RequestDeleteRange(_)) => true,
        Some(PbTxnOpRequest::RequestRange(_)) | None => false,
    })
}

/// Executes a read.
pub(super) fn range(revisions: &Revisions, request: &PbRangeRequest) -> Result<PbRangeResponse, RpcError> {
    revisions.check(request.revision)?;
    let key_range = KeyRange::new(&request.key, &request.range_end);
    let header = inner_header(revisions.visible_revision());
    let mut found: Vec<&Arc<Version>> = revisions.range(&key_range, request.revision).collect();
    let count = i64::try_from(found.len()).unwrap_or(i64::MAX);
    if request.count_only {
        return Ok(PbRangeResponse { header, count, ..PbRangeResponse::default() });
    }
    let within = |value: i64, least: i64, most: i64| (least == 0 || value >= least) && (most == 0 || value <= most);
    found.retain(|v| {
        within(v.mod_revision, request.min_mod_revision, request.max_mod_revision)
            && within(v.create_revision, request.min_create_revision, request.max_create_revision)
    });
    let limit = usize::try_from(request.limit).ok().filter(|l| *l > 0).unwrap_or(usize::MAX);
    let bounds =
        [request.min_mod_revision, request.max_mod_revision, request.min_create_revision, request.max_create_revision];
    if request.sort_order == 0 && bounds == [0; 4] {
        // As in etcd: without an order it reads no more than it must, but sorts the keys that it has read anyway.
        found.truncate(limit.saturating_add(1));
        revisions.note_read(found.len());
    } else {
        // It reads the values of the whole range before it leaves out some, also if only keys are asked for.
        revisions.note_read(usize::try_from(count).unwrap_or(usize::MAX));
    }
    // Sort targets: key, version, create revision, mod revision, value.
    match request.sort_target {
        1 => found.sort_by_key(|v| v.version),
        2 => found.sort_by_key(|v| v.create_revision),
        3 => found.sort_by_key(|v| v.mod_revision),
        4 => found.sort_by(|a, b| a.value.cmp(&b.value)),
        _ => {}
    }
    if request.sort_order == 2 {
        found.reverse();
    }
    let more = found.len() > limit;
    let mut kvs: Vec<_> = found.into_iter().take(limit).map(|v| key_value(v)).collect();
    if request.keys_only {
        for kv in &mut kvs {
            kv.value = Vec::new();
        }
    }
    Ok(PbRangeResponse { header, kvs, more, count })
}

impl State {
    /// Checks the preconditions of a put: the key whose value or lease it keeps, and its lease.
    fn check_put_preconditions(&self, request: &PbPutRequest) -> Result<(), RpcError> {
        if (request.ignore_value || request.ignore_lease) && self.revisions.get(&request.key).is_none() {
            return Err(RpcError::KeyNotFound);
        }
        if request.lease != 0 && self.leases.get(request.lease).is_none() {
            return Err(RpcError::LeaseNotFound);
        }
        Ok(())
    }

    fn apply_put(&mut self, request: PbPutRequest) -> PbPutResponse {
        let before = self.revisions.get(&request.key).cloned();
        let kept = |keep: bool| before.as_deref().filter(|_| keep);
        let value =
            kept(request.ignore_value).and_then(|b| b.value.clone()).unwrap_or_else(|| Bytes::from(request.value));
        let lease = kept(request.ignore_lease).map_or(request.lease, |b| b.lease);
        self.put(&request.key, value, lease);
        let prev_kv = kept(request.prev_kv).map(key_value);
        PbPutResponse { header: inner_header(self.revisions.visible_revision()), prev_kv }
    }

    fn apply_delete(&mut self, request: &PbDeleteRequest) -> PbDeleteResponse {
        let found = self.delete(&KeyRange::new(&request.key, &request.range_end));
        let prev_kvs = if request.prev_kv { found.iter().map(|v| key_value(v)).collect() } else { Vec::new() };
        let deleted = i64::try_from(found.len()).unwrap_or(i64::MAX);
        PbDeleteResponse { header: inner_header(self.revisions.visible_revision()), deleted, prev_kvs }
    }

    /// Executes a single put.
    pub fn put_request(&mut self, request: PbPutRequest) -> Result<PbPutResponse, RpcError> {
        self.check_space()?;
        self.check_put_preconditions(&request)?;
        let answer = self.apply_put(request);
        self.finish();
        Ok(PbPutResponse { header: self.header(), ..answer })
    }

    /// Executes a single deletion.
    pub fn delete_request(&mut self, request: &PbDeleteRequest) -> PbDeleteResponse {
        let answer = self.apply_delete(request);
        self.finish();
        PbDeleteResponse { header: self.header(), ..answer }
    }

    /// Executes a transaction. All comparisons, also those of nested transactions, see the state before it. A failure
    /// of any operation is detected before the first one is executed.
    pub fn txn_request(&mut self, request: PbTxnRequest) -> Result<PbTxnResponse, RpcError> {
        if !written_keys(&request.success)?.0.is_empty() || !written_keys(&request.failure)?.0.is_empty() {
            self.check_space()?;
        }
        let mut path = Vec::new();
        self.plan_branches(&request, &mut path)?;
        let mut path = path.into_iter();
        let answer = self.apply_txn(request, &mut path)?;
        self.finish();
        Ok(PbTxnResponse { header: self.header(), ..answer })
    }

    /// Records the branches that are taken, outermost first. Checks that all their operations can be executed.
    fn plan_branches(&self, request: &PbTxnRequest, path: &mut Vec<bool>) -> Result<(), RpcError> {
        let succeeded = request.compare.iter().all(|c| self.holds(c));
        path.push(succeeded);
        for op in if succeeded { &request.success } else { &request.failure } {
            match &op.request {
                Some(PbTxnOpRequest::RequestRange(request)) => self.revisions.check(request.revision)?,
                Some(PbTxnOpRequest::RequestPut(request)) => self.check_put_preconditions(request)?,
                Some(PbTxnOpRequest::RequestTxn(request)) => self.plan_branches(request, path)?,
                Some(PbTxnOpRequest::RequestDeleteRange(_)) | None => {}
            }
        }
        Ok(())
    }

    fn apply_txn(
        &mut self,
        request: PbTxnRequest,
        path: &mut std::vec::IntoIter<bool>,
    ) -> Result<PbTxnResponse, RpcError> {
        let succeeded = path.next().unwrap_or_default();
        let mut responses = Vec::new();
        for op in if succeeded { request.success } else { request.failure } {
            let response = match op.request {
                Some(PbTxnOpRequest::RequestRange(request)) => {
                    PbTxnOpResponse::ResponseRange(range(&self.revisions, &request)?)
                }
                Some(PbTxnOpRequest::RequestPut(request)) => PbTxnOpResponse::ResponsePut(self.apply_put(request)),
                Some(PbTxnOpRequest::RequestDeleteRange(request)) => {
                    PbTxnOpResponse::ResponseDeleteRange(self.apply_delete(&request))
                }
                Some(PbTxnOpRequest::RequestTxn(request)) => {
                    PbTxnOpResponse::ResponseTxn(self.apply_txn(request, path)?)
                }
                None => continue,
            };
            responses.push(PbResponseOp { response: Some(response) });
        }
        Ok(PbTxnResponse { header: Some(PbResponseHeader::default()), succeeded, responses })
    }

    /// Reports whether a comparison holds for every key of its range. A missing key compares as zeros. A comparison of
    /// a missing key's value never holds.
    fn holds(&self, c: &PbCompare) -> bool {
        let found: Vec<&Arc<Version>> = self.revisions.range(&KeyRange::new(&c.key, &c.range_end), 0).collect();
        if found.is_empty() {
            return c.target != PbCompareTarget::Value as i32 && compares(c, None);
        }
        found.into_iter().all(|v| compares(c, Some(v)))
    }
}

fn compares(c: &PbCompare, version: Option<&Version>) -> bool {
    let number = |of: fn(&Version) -> i64| version.map_or(0, of);
    let operand = match &c.target_union {
        Some(
            PbTargetUnion::Version(n)
            | PbTargetUnion::CreateRevision(n)
            | PbTargetUnion::ModRevision(n)
            | PbTargetUnion::Lease(n),
        ) => *n,
        _ => 0,
    };
    let order = match c.target {
        0 => number(|v| v.version).cmp(&operand),
        1 => number(|v| v.create_revision).cmp(&operand),
        2 => number(|v| v.mod_revision).cmp(&operand),
        3 => {
            let operand: &[u8] = match &c.target_union {
                Some(PbTargetUnion::Value(value)) => value,
                _ => &[],
            };
            version.and_then(|v| v.value.as_deref()).unwrap_or_default().cmp(operand)
        }
        4 => number(|v| v.lease).cmp(&operand),
        _ => Ordering::Equal,
    };
    match c.result {
        0 => order == Ordering::Equal,
        1 => order == Ordering::Greater,
        2 => order == Ordering::Less,
        3 => order != Ordering::Equal,
        _ => true,
    }
}

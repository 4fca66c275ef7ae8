//! Limits of etcd for one request.

use crate::reason::TooLarge;

/// etcd's default limit of operations in one transaction.
pub const MAX_OPS: usize = 128;
/// etcd's default limit of one request in bytes (1.5 MiB), less the frame around it.
pub const MAX_REQUEST_BYTES: usize = 3 * 512 * 1024 - 256;
/// Share of one value; the rest is for the audit record beside it.
pub const MAX_VALUE_BYTES: usize = 3 * 512 * 1024 - 4096;

/// Checks that a value fits into one request of etcd.
pub fn check_size(key: &str, value: &str) -> Result<(), TooLarge> {
    let bytes = key.len() + value.len();
    if bytes > MAX_VALUE_BYTES { Err(TooLarge { operations: 1, bytes }) } else { Ok(()) }
}

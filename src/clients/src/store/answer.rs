//! Answers of etcd and the meaning of its errors: whether the request was executed, whether it may be repeated, and the
//! remedy.

use std::{future::Future, time::Duration};

use cketerm_model::reason::TooLarge;
use etcd_client::{Compare, Error, GetOptions, GetResponse, TxnOp, TxnResponse};

use super::{commit::BoundedTxn, connect::Store, error::StoreError};

/// Number of tries of a request that was certainly not executed, and the pause before the second try. A refused
/// connection is faster than a successful one, so the other endpoints need a moment to connect.
const MAX_TRIES: u32 = 6;
const RETRY_DELAY: Duration = Duration::from_millis(15);

/// Messages of etcd and gRPC for a request beyond their limits.
const TOO_LARGE: [&str; 3] = ["request is too large", "too many operations", "larger than max"];

/// Beginning of a timeout's cause.
const NO_ANSWER_WITHIN: &str = "no answer within";

/// Meaning of an error.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Failure {
    /// No answer; `sent` = the request may have reached etcd.
    NoAnswer { cause: String, sent: bool },
    /// User, password or permission.
    Denied(String),
    /// Refused; nothing was written.
    Refused(String),
    /// A transaction beyond a limit: etcd's defaults, which are checked before it is sent, or lower limits of this
    /// etcd.
    TooLarge(TooLarge),
    /// The lease is gone.
    NoLease,
    /// The revision has been compacted.
    Compacted,
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        let status = match error {
            Error::GRpcStatus(status) => status,
            Error::LeaseKeepAliveError(text) if text.contains("not found") => return Self::NoLease,
            Error::TransportError(e) => return Self::NoAnswer { cause: error_chain(&e), sent: false },
            other => return Self::NoAnswer { cause: other.to_string(), sent: true },
        };
        let text = status.message().trim_start_matches("etcdserver: ").to_owned();
        // The numbers are gRPC's codes.
        match status.code() as i32 {
            3 if text.contains("authentication failed") || text.contains("user name is empty") => Self::Denied(text),
            5 if text.contains("lease") => Self::NoLease,
            7 | 16 => Self::Denied(text),
            11 if text.contains("compacted") => Self::Compacted,
            3 | 5 | 6 | 8 | 9 | 11 | 12 => Self::Refused(text),
            _ => {
                let cause = error_chain(&status);
                let sent = !["connect error", "dns error", "handshake"].iter().any(|w| cause.contains(w));
                Self::NoAnswer { cause, sent }
            }
        }
    }
}

/// Returns an error with its causes, each once, without gRPC's frame around them.
fn error_chain(error: &(dyn std::error::Error + 'static)) -> String {
    let mut texts: Vec<String> = Vec::new();
    let mut next = Some(error);
    while let Some(e) = next {
        let text = e.to_string();
        // A status prints its code and metadata; only its message is useful.
        let text = match text.split_once("message: \"") {
            Some((_, rest)) => rest.split('"').next().unwrap_or_default().to_owned(),
            None => text,
        };
        if !text.is_empty() && text != "transport error" && !texts.iter().any(|t| t.contains(&text)) {
            texts.push(text);
        }
        next = e.source();
    }
    if texts.is_empty() { error.to_string() } else { texts.join(": ") }
}

impl Store {
    /// Sends one request, bounded by the timeout.
    pub(crate) async fn with_timeout<T>(&self, request: impl Future<Output = Result<T, Error>>) -> Result<T, Failure> {
        match tokio::time::timeout(self.timeout(), request).await {
            Ok(Ok(answer)) => Ok(answer),
            Ok(Err(error)) => Err(error.into()),
            Err(_) => Err(Failure::NoAnswer { cause: format!("{NO_ANSWER_WITHIN} {:?}", self.timeout()), sent: true }),
        }
    }

    /// Sends a request that may be repeated (a read, or a write that is safe to repeat), and tries other endpoints if
    /// one is down.
    pub(crate) async fn with_retries<T, F>(&self, request: impl Fn() -> F) -> Result<T, Failure>
    where
        F: Future<Output = Result<T, Error>>,
    {
        let mut tries = 0_u32;
        loop {
            tries += 1;
            match self.with_timeout(request()).await {
                // A timeout is not repeated against the only endpoint.
                Err(Failure::NoAnswer { cause, .. })
                    if tries < MAX_TRIES
                        && (!cause.starts_with(NO_ANSWER_WITHIN) || (tries < 2 && self.has_several_endpoints())) =>
                {
                    tokio::time::sleep(RETRY_DELAY * tries).await;
                }
                other => return other,
            }
        }
    }

    /// Reads one key or range.
    pub(crate) async fn get(&self, key: impl Into<Vec<u8>>, options: GetOptions) -> Result<GetResponse, Failure> {
        let key = key.into();
        self.with_retries(|| {
            let (mut kv, key, options) = (self.kv(), key.clone(), options.clone());
            async move { kv.get(key, Some(options)).await }
        })
        .await
    }

    /// Runs several reads at one revision.
    pub(crate) async fn get_all(&self, reads: Vec<(String, GetOptions)>) -> Result<TxnResponse, Failure> {
        let ops: Vec<TxnOp> = reads.into_iter().map(|(key, options)| TxnOp::get(key, Some(options))).collect();
        let reads = BoundedTxn::new(Vec::new(), ops, Vec::new()).map_err(Failure::TooLarge)?;
        self.with_retries(|| {
            let (mut kv, txn) = (self.kv(), reads.txn());
            async move { kv.txn(txn).await }
        })
        .await
    }

    /// Sends a transaction; repeats it only while it has certainly not been sent.
    pub(crate) async fn transact(
        &self,
        compares: Vec<Compare>,
        ops: Vec<TxnOp>,
        otherwise: Vec<TxnOp>,
    ) -> Result<TxnResponse, Failure> {
        let txn = BoundedTxn::new(compares, ops, otherwise).map_err(Failure::TooLarge)?;
        let mut tries = 0_u32;
        loop {
            tries += 1;
            let (mut kv, sent) = (self.kv(), txn.txn());
            match self.with_timeout(async move { kv.txn(sent).await }).await {
                Err(Failure::Refused(text)) if TOO_LARGE.iter().any(|words| text.contains(words)) => {
                    return Err(Failure::TooLarge(txn.size()));
                }
                Err(Failure::NoAnswer { sent: false, .. }) if tries < MAX_TRIES => {
                    tokio::time::sleep(RETRY_DELAY * tries).await;
                }
                other => return other,
            }
        }
    }

    /// Returns the error for a failed read, or for a write that was certainly not executed.
    pub(crate) async fn store_error(&self, what: &str, failure: Failure) -> StoreError {
        let endpoints = self.endpoints().to_owned();
        match failure {
            Failure::NoAnswer { cause, .. } => self.unreachable(cause).await,
            Failure::Denied(cause) => {
                let remedy = if cause.contains("permission") {
                    format!("grant the user read and write on {}", self.keys().prefix())
                } else {
                    "check etcd.username and etcd.password".to_owned()
                };
                StoreError::Denied { endpoints, cause, remedy }
            }
            Failure::Refused(cause) => {
                let cause = if cause.contains("database space exceeded") {
                    format!("{cause}; compact and defragment it, then `etcdctl alarm disarm`")
                } else {
                    cause
                };
                StoreError::Refused { what: what.to_owned(), endpoints, cause }
            }
            Failure::TooLarge(size) => {
                StoreError::TooLarge { key: what.to_owned(), operations: size.operations, bytes: size.bytes }
            }
            Failure::NoLease => {
                StoreError::Refused { what: what.to_owned(), endpoints, cause: "the lease is gone".to_owned() }
            }
            Failure::Compacted => StoreError::Refused {
                what: what.to_owned(),
                endpoints,
                cause: "the revision was compacted while it was being read; try again".to_owned(),
            },
        }
    }
}

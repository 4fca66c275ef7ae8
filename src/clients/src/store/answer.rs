//! Answers of etcd: timeouts, repetition of requests, and errors with their remedy.

use std::{future::Future, time::Duration};

use etcd_client::{Error, GetOptions, GetResponse, KeyValue, TxnOpResponse};

use super::{connect::Store, error::StoreError, failure::Failure};

/// Number of tries of a request that was certainly not executed, and the pause before the second try. A refused
/// connection is faster than a successful one, so the other endpoints need a moment to connect.
pub(super) const MAX_TRIES: u32 = 6;
pub(super) const RETRY_DELAY: Duration = Duration::from_millis(15);

/// Beginning of a timeout's cause.
const NO_ANSWER_WITHIN: &str = "no answer within";

/// Returns the key that a read in a transaction found: of one key, or of a range with a limit of one key.
pub(super) fn found_key(answer: TxnOpResponse) -> Option<KeyValue> {
    match answer {
        TxnOpResponse::Get(mut got) => got.take_kvs().pop(),
        _ => None,
    }
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

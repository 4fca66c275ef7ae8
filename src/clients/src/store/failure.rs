//! Meaning of etcd's errors: whether the request was executed, and whether it may be repeated.

use cketerm_model::reason::TooLarge;
use etcd_client::{Error, WatchResponse};

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

/// Returns the reason for which etcd cancelled a watch; `None` if it did not.
pub(super) fn cancellation(answer: &WatchResponse) -> Option<Failure> {
    answer.canceled().then(|| match answer.compact_revision() {
        0 => Failure::Refused(format!("the watch was cancelled: {}", answer.cancel_reason())),
        _ => Failure::Compacted,
    })
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

#[cfg(test)]
mod tests {
    use tonic::{Code, Status};

    use super::*;

    fn of(code: Code, text: &str) -> Failure {
        Failure::from(Error::GRpcStatus(Status::new(code, text)))
    }

    #[test]
    fn an_answer_of_etcd_tells_whether_the_request_was_carried_out() {
        let refused = |text: &str| Failure::Refused(text.to_owned());
        let denied = |text: &str| Failure::Denied(text.to_owned());
        let cases = [
            (Code::InvalidArgument, "etcdserver: authentication failed, invalid user ID or password", None),
            (Code::InvalidArgument, "etcdserver: user name is empty", None),
            (Code::InvalidArgument, "etcdserver: key is not provided", Some(refused("key is not provided"))),
            (Code::PermissionDenied, "etcdserver: permission denied", Some(denied("permission denied"))),
            (Code::Unauthenticated, "etcdserver: invalid auth token", Some(denied("invalid auth token"))),
            (Code::NotFound, "etcdserver: requested lease not found", Some(Failure::NoLease)),
            (Code::NotFound, "etcdserver: member not found", Some(refused("member not found"))),
            (Code::OutOfRange, "etcdserver: mvcc: required revision has been compacted", Some(Failure::Compacted)),
            (Code::OutOfRange, "etcdserver: out of range", Some(refused("out of range"))),
        ];
        for (code, text, expected) in cases {
            let expected = expected.unwrap_or_else(|| denied(text.trim_start_matches("etcdserver: ")));
            assert_eq!(of(code, text), expected, "{text}");
        }
        let unavailable = of(Code::Unavailable, "etcdserver: no leader");
        assert_eq!(unavailable, Failure::NoAnswer { cause: "etcdserver: no leader".to_owned(), sent: true });
    }

    #[test]
    fn causes_of_an_error_are_named_once_and_empty_ones_not_at_all() {
        assert_eq!(error_chain(&Status::new(Code::Unavailable, "no leader")), "no leader");
        let refused = std::io::Error::other("connection refused");
        assert_eq!(error_chain(&refused), "connection refused");
        let silent = std::io::Error::other("");
        assert_eq!(error_chain(&silent), silent.to_string());
    }
}

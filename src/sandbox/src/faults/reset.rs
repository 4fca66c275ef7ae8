//! The error of a broken connection.

use tower::BoxError;

/// Returns the error of a broken connection.
pub(super) fn connection_reset() -> BoxError {
    Box::new(std::io::Error::new(std::io::ErrorKind::ConnectionReset, "connection reset by the sandbox"))
}

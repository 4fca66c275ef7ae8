//! Known differences of the sandbox, with reasons: none. A difference fails the suite. One that has to stay for a while
//! is listed here. The report shows which of them agree again and can leave this list.

/// Case and reason.
pub const KNOWN: &[(&str, &str)] = &[];

//! Faults put into this program on purpose, to see whether the simulation finds them (`make sim MUTATION=all`).
//!
//! Only with the cargo feature `mutations`, which no shipped build has; without it every question here is answered `false` by
//! the compiler, and nothing is left.

/// What is broken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Mutation {
    /// Transactions of the engine compare no revision of what they were decided from.
    CompareNothing = 1,
    /// A Node is not let go of when its entry has ended.
    ForgottenCordon,
    /// Tries of a command are counted by the leader that ran them.
    RetriesInMemory,
    /// An entry is written whatever somebody else has written to it meanwhile.
    CancelOverwritten,
    /// All commands share one buffer for their address.
    SharedArguments,
    /// The wait after a backoff grows by a shift that overflows.
    BackoffOverflow,
    /// Nodes are let go of while the queue is disabled, those that reboot too.
    UncordonOnDisable,
    /// Transactions of the engine do not compare the leader key.
    UnfencedWrite,
    /// A command without an outcome is run again by the next leader.
    SecondRun,
    /// An entry that cannot be read occupies a slot.
    SlotEaten,
    /// A power cycle that was begun is let go of when Metal3's controller is switched off.
    HalfForgotten,
    /// A window that is shut keeps nothing back.
    WindowForgotten,
}

/// All of them.
pub static ALL: &[Mutation] = &[
    Mutation::CompareNothing,
    Mutation::ForgottenCordon,
    Mutation::RetriesInMemory,
    Mutation::CancelOverwritten,
    Mutation::SharedArguments,
    Mutation::BackoffOverflow,
    Mutation::UncordonOnDisable,
    Mutation::UnfencedWrite,
    Mutation::SecondRun,
    Mutation::SlotEaten,
    Mutation::HalfForgotten,
    Mutation::WindowForgotten,
];

#[cfg(feature = "mutations")]
static CURRENT: std::sync::atomic::AtomicU8 = std::sync::atomic::AtomicU8::new(0);

/// Breaks that, and nothing else, in this process from now on.
#[cfg(feature = "mutations")]
pub fn set(mutation: Option<Mutation>) {
    CURRENT.store(mutation.map_or(0, |m| m as u8), std::sync::atomic::Ordering::SeqCst);
}

/// Whether that is broken.
#[cfg(feature = "mutations")]
pub fn on(mutation: Mutation) -> bool {
    CURRENT.load(std::sync::atomic::Ordering::Relaxed) == mutation as u8
}

/// Whether that is broken: never in this build.
#[cfg(not(feature = "mutations"))]
pub const fn on(_: Mutation) -> bool {
    false
}

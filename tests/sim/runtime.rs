//! The runtime of a simulation: one thread, a paused clock, and dice of its own.

use tokio::runtime::{Builder, Runtime};

/// Returns the runtime of a simulation. tokio uses random numbers itself, for example for the order of wake-ups; unseeded, a
/// simulation would not repeat exactly.
pub fn seeded(seed: u64) -> Runtime {
    let mut builder = Builder::new_current_thread();
    #[cfg(tokio_unstable)]
    builder.rng_seed(tokio::runtime::RngSeed::from_bytes(&seed.to_le_bytes()));
    #[cfg(not(tokio_unstable))]
    let _ = seed;
    builder.enable_time().start_paused(true).build().unwrap()
}

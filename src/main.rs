//! Chooses one of the ways to run.

fn main() {}

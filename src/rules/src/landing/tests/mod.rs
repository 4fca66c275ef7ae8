//! Tests of the landing check: one table for each filter, answers of whole sets, comparison with a complete search.

mod answers;
mod filters;
mod gate;
mod scene;
mod search;
mod waits;

//! Mutation testing: small faults are put into a copy of the program, and the tests of `make test` have to find them.
//!
//! All mutants are in one build, because a build takes minutes: each is a branch that an environment variable switches
//! on. [`scan`] finds the candidates, [`draw`] chooses some by a commit's hash, [`switch`] writes them into the copy,
//! [`viable`] removes those that do not compile, [`checks`] learns which test reaches which mutant, [`run`] runs these
//! tests for each mutant, and [`report`] counts.

pub mod bodies;
pub mod build;
pub mod checks;
pub mod copy;
pub mod draw;
pub mod equivalent;
pub mod finder;
pub mod folder;
pub mod judge;
pub mod leftovers;
pub mod mutant;
pub mod operators;
pub mod process;
pub mod report;
pub mod results;
pub mod run;
pub mod scan;
pub mod simulations;
pub mod switch;
pub mod unit_tests;
pub mod viable;

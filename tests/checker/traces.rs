//! The shortest steps to each fault that small worlds can express. `TRACES=1 make checker MUTATION=all` prints them.

use cketerm_model::mutation::Mutation;

use crate::steps::Step;

/// The fault, the world and the steps.
pub static TRACES: &[(Mutation, &str, &[Step])] = &[];

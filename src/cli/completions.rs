//! `completions`.

use clap::CommandFactory;

use super::{Cli, Context};
use crate::actions::ActionError;

pub use clap_complete::Shell;

/// Prints the script of one shell.
pub fn run(shell: Shell, context: &Context) -> Result<(), ActionError> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "cketerm", &mut script);
    context.out.text(&String::from_utf8_lossy(&script))
}

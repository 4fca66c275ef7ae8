//! Questions on a terminal. Without a terminal, a missing answer is an error that names the option.

use std::io::{IsTerminal, Write};

use cketerm_actions::ActionError;

use crate::cli::Context;

/// Source of answers.
pub(super) struct Asked {
    terminal: bool,
}

impl Asked {
    /// Asks on standard error if both it and standard input are a terminal.
    pub(super) fn new(_: &Context) -> Self {
        Self { terminal: std::io::stdin().is_terminal() && std::io::stderr().is_terminal() }
    }

    /// Asks one question. An empty answer means `default`, if there is one. `option` gives the same answer.
    pub(super) fn question(&self, option: &str, question: &str, default: &str) -> Result<String, ActionError> {
        if !self.terminal {
            return Err(ActionError::misused(format!("init needs {option} (there is no terminal to ask on)")));
        }
        let failed = |e: std::io::Error| ActionError::failed(format!("init: the answer cannot be read: {e}"));
        let mut err = std::io::stderr().lock();
        write!(err, "{question}").and_then(|()| err.flush()).map_err(failed)?;
        drop(err);
        let mut answer = String::new();
        let read = std::io::stdin().read_line(&mut answer).map_err(failed)?;
        let answer = if answer.trim().is_empty() { default } else { answer.trim() };
        if read == 0 || answer.is_empty() {
            return Err(ActionError::misused(format!("init needs an answer: {option}; nothing was written")));
        }
        Ok(answer.to_owned())
    }
}

//! Questions on a terminal. Without a terminal, a missing answer is an error that names the option.

use cketerm_actions::ActionError;

use crate::cli::{Context, Out};

/// Source of answers.
pub(super) struct Asked {
    out: Out,
}

impl Asked {
    /// Asks on standard error if both it and standard input are a terminal.
    pub(super) fn new(context: &Context) -> Self {
        Self { out: context.out }
    }

    /// Asks one question. An empty answer means `default`, if there is one. `option` gives the same answer.
    pub(super) fn question(&self, option: &str, question: &str, default: &str) -> Result<String, ActionError> {
        if !self.out.can_ask() {
            return Err(ActionError::misused(format!("init needs {option} (there is no terminal to ask on)")));
        }
        let failed = |e: std::io::Error| ActionError::failed(format!("init: the answer cannot be read: {e}"));
        self.out.question(question).map_err(failed)?;
        let mut answer = String::new();
        let read = std::io::stdin().read_line(&mut answer).map_err(failed)?;
        let answer = if answer.trim().is_empty() { default } else { answer.trim() };
        if read == 0 || answer.is_empty() {
            return Err(ActionError::misused(format!("init needs an answer: {option}; nothing was written")));
        }
        Ok(answer.to_owned())
    }
}

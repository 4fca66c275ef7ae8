//! The terminal's modes: entered, left, and left again whatever happens.

use std::{
    io::{self, Write},
    panic,
    sync::Arc,
    thread,
};

use crossterm::{
    cursor::{Hide, Show},
    event::{DisableBracketedPaste, EnableBracketedPaste},
    execute,
    terminal::{Clear, ClearType, EnterAlternateScreen, LeaveAlternateScreen, disable_raw_mode, enable_raw_mode},
};

/// The terminal while the console has it; gives it back when dropped.
pub struct Held {
    hook: bool,
}

/// Raw mode, alternate screen, hidden cursor, pasted text marked as such.
pub fn enter() -> io::Result<()> {
    enable_raw_mode()?;
    execute!(io::stdout(), EnterAlternateScreen, Hide, EnableBracketedPaste, Clear(ClearType::All))
}

/// Everything back as it was. Errors are of no use to anybody here: the terminal may be gone.
pub fn leave() {
    let _ = execute!(io::stdout(), DisableBracketedPaste, Show, LeaveAlternateScreen);
    let _ = disable_raw_mode();
    let _ = io::stdout().flush();
}

impl Held {
    /// Takes the terminal. A panic of this thread gives it back first; a panic of another thread (a task) is only
    /// logged, since the program lives on and its screen must stay whole.
    pub fn take() -> io::Result<Self> {
        enter()?;
        let (here, before) = (thread::current().id(), Arc::new(panic::take_hook()));
        panic::set_hook(Box::new(move |info| {
            if thread::current().id() == here {
                leave();
                before(info);
            } else {
                tracing::error!(panic = %info, "a task panicked");
            }
        }));
        Ok(Self { hook: true })
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        leave();
        if std::mem::take(&mut self.hook) && !thread::panicking() {
            drop(panic::take_hook());
        }
    }
}

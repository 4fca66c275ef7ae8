//! Modes of the terminal: set at the start, and restored however the console ends.

use std::{
    io::{self, Write},
    panic,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::Duration,
};

use crossterm::{
    cursor::{Hide, Show},
    event::{DisableBracketedPaste, EnableBracketedPaste},
    execute,
    style::Print,
    terminal::{Clear, ClearType, EnterAlternateScreen, LeaveAlternateScreen, disable_raw_mode, enable_raw_mode},
};

use super::attention;

/// The terminal while the console uses it. Dropping it restores the terminal.
pub struct TerminalGuard {
    hook: bool,
    modes: Modes,
}

/// Optional modes of the terminal.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Modes {
    /// Whether its title is written.
    pub title: bool,
    /// Whether it reports clicks and the wheel.
    pub mouse: bool,
}

/// Reports of clicks and the wheel, in the form without a largest column. Motion is never reported, because it floods a
/// slow link.
const MOUSE_ON: &str = "\u{1b}[?1000h\u{1b}[?1006h";
const MOUSE_OFF: &str = "\u{1b}[?1006l\u{1b}[?1000l";

/// Whether the console has the terminal: a panic restores it before `TerminalGuard` does.
static ACTIVE: AtomicBool = AtomicBool::new(false);

/// Whether the terminal reports clicks and the wheel now.
static MOUSE: AtomicBool = AtomicBool::new(false);

/// Returns the sequence that turns reports of clicks and the wheel on or off, and remembers it for the restoring.
pub fn mouse_sequence(on: bool) -> &'static str {
    MOUSE.store(on, Ordering::SeqCst);
    if on { MOUSE_ON } else { MOUSE_OFF }
}

/// Sets raw mode, alternate screen, hidden cursor and bracketed paste.
pub fn enter(modes: Modes) -> io::Result<()> {
    ACTIVE.store(true, Ordering::SeqCst);
    enable_raw_mode()?;
    let title = if modes.title { attention::SAVE_TITLE } else { "" };
    let mouse = if modes.mouse { mouse_sequence(true) } else { "" };
    let more = Print(format!("{title}{mouse}"));
    execute!(io::stdout(), EnterAlternateScreen, Hide, EnableBracketedPaste, more, Clear(ClearType::All))
}

/// Restores everything, once: a terminal keeps titles on a stack, and the next one belongs to another program. Errors
/// are ignored, because the terminal may be gone.
pub fn leave(modes: Modes) {
    if !ACTIVE.swap(false, Ordering::SeqCst) {
        return;
    }
    let title = if modes.title { attention::RESTORE_TITLE } else { "" };
    let mouse = if MOUSE.swap(false, Ordering::SeqCst) { MOUSE_OFF } else { "" };
    let more = Print(format!("{mouse}{title}"));
    let _ = execute!(io::stdout(), more, DisableBracketedPaste, Show, LeaveAlternateScreen);
    let _ = disable_raw_mode();
    let _ = io::stdout().flush();
}

/// Aborts after a second if a panic ends the program. A terminal that accepts no output must not keep the process
/// alive, because its engine would hold the lock and do nothing.
fn abort_after_delay() {
    if cfg!(panic = "abort") {
        let _ = thread::Builder::new().spawn(|| {
            thread::sleep(Duration::from_secs(1));
            std::process::abort();
        });
    }
}

impl TerminalGuard {
    /// Takes the terminal. A panic that ends the program restores it first. In the shipped program (profile `dist`)
    /// every panic ends it; in others only a panic of this thread does. There a panic of another thread (a task) is
    /// only logged, because the program continues and its screen must stay whole.
    pub fn take(modes: Modes) -> io::Result<Self> {
        enter(modes)?;
        let (here, before) = (thread::current().id(), Arc::new(panic::take_hook()));
        panic::set_hook(Box::new(move |info| {
            if cfg!(panic = "abort") || thread::current().id() == here {
                abort_after_delay();
                leave(modes);
                tracing::error!(panic = %info, "ends");
                before(info);
            } else {
                tracing::error!(panic = %info, "a task panicked");
            }
        }));
        Ok(Self { hook: true, modes })
    }
}

impl Drop for TerminalGuard {
    fn drop(&mut self) {
        leave(self.modes);
        if std::mem::take(&mut self.hook) && !thread::panicking() {
            drop(panic::take_hook());
        }
    }
}

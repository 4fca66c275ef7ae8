//! A real terminal around the built program: keys in, screen out.

use std::{
    io::{Read, Write},
    num::NonZero,
    path::Path,
    sync::{Arc, Mutex},
    time::Duration,
};

use portable_pty::{Child, CommandBuilder, MasterPty, PtySize, native_pty_system};

use crate::stalls::Stopwatch;

/// Minimum timeout for a screen: tests must pass on a busy machine and are no benchmark.
const TIMEOUT: Duration = Duration::from_secs(30);

/// A running console.
pub struct Console {
    screen: Arc<Mutex<(vt100::Parser, Vec<u8>)>>,
    keys: Box<dyn Write + Send>,
    child: Box<dyn Child + Send + Sync>,
    master: Box<dyn MasterPty + Send>,
}

impl Console {
    /// Starts `cketerm --config CONFIG ARGS` on a terminal of that size.
    pub fn start(config: &Path, args: &[&str], columns: u16, rows: u16) -> Self {
        let config = config.display().to_string();
        Self::of(&[&["--config", &config], args].concat(), columns, rows)
    }

    /// Starts `cketerm ARGS` on a terminal of that size.
    pub fn of(args: &[&str], columns: u16, rows: u16) -> Self {
        Self::on(&[], args, columns, rows)
    }

    /// Same as [`Self::of`], for a user with this home.
    pub fn at(home: &Path, args: &[&str], columns: u16, rows: u16) -> Self {
        let home = home.display().to_string();
        Self::on(&[("HOME", &home)], args, columns, rows)
    }

    /// Same as [`Self::of`], with additional or replaced environment variables.
    pub fn on(environment: &[(&str, &str)], args: &[&str], columns: u16, rows: u16) -> Self {
        let size = PtySize { rows, cols: columns, pixel_width: 0, pixel_height: 0 };
        let pair = native_pty_system().openpty(size).expect("a terminal");
        let mut command = CommandBuilder::new(crate::binary::cketerm());
        command.env_clear();
        for (name, value) in [("TERM", "xterm-256color"), ("PATH", "/usr/local/bin:/usr/bin:/bin"), ("USER", "alice")] {
            command.env(name, value);
        }
        let home = std::env::temp_dir().join(format!("cketerm-console-{}", std::process::id()));
        command.env("HOME", home);
        for (name, value) in environment {
            command.env(name, value);
        }
        command.cwd("/");
        command.args(args);
        let child = pair.slave.spawn_command(command).expect("the console starts");
        drop(pair.slave);
        let screen = Arc::new(Mutex::new((vt100::Parser::new(cells(rows), cells(columns), 0), Vec::new())));
        let mut output = pair.master.try_clone_reader().expect("a reader");
        let shown = Arc::clone(&screen);
        std::thread::spawn(move || {
            let mut bytes = vec![0; 65536];
            while let Ok(n @ 1..) = output.read(&mut bytes) {
                let mut screen = shown.lock().expect("the screen lock");
                screen.0.process(&bytes[..n]);
                screen.1.extend_from_slice(&bytes[..n]);
            }
        });
        let keys = pair.master.take_writer().expect("a writer");
        Self { screen, keys, child, master: pair.master }
    }

    /// Text on the screen.
    pub fn text(&self) -> String {
        self.screen.lock().expect("the screen lock").0.screen().contents()
    }

    /// Number of bytes written so far.
    pub fn bytes(&self) -> u64 {
        self.screen.lock().expect("the screen lock").1.len() as u64
    }

    /// All bytes written so far, as text.
    pub fn raw(&self) -> String {
        String::from_utf8_lossy(&self.screen.lock().expect("the screen lock").1).into_owned()
    }

    /// Waits until this was written.
    pub fn wait_for_output(&self, what: &str) {
        crate::world::wait_for(&format!("{what:?} is written"), TIMEOUT.as_secs(), || {
            self.raw().contains(what).then_some(())
        });
    }

    /// Sends bytes in one piece, as a terminal's answer.
    pub fn send(&mut self, bytes: &[u8]) {
        self.keys.write_all(bytes).expect("the console reads its input");
        self.keys.flush().expect("the console reads its input");
        std::thread::sleep(Duration::from_millis(30));
    }

    /// Waits for a colour: that of the first character of this text, in the last line that has the text.
    pub fn wait_for_colour(&self, what: &str, colour: vt100::Color) {
        let at = || {
            let screen = self.screen.lock().expect("the screen lock");
            let screen = screen.0.screen();
            let (rows, columns) = screen.size();
            let lines: Vec<String> = screen.rows(0, columns.get()).collect();
            let (y, line) = (0..rows.get()).zip(&lines).rfind(|(_, line)| line.contains(what))?;
            let x = line.split(what).next()?.chars().count();
            Some(screen.cell(y, u16::try_from(x).ok()?)?.fgcolor())
        };
        crate::world::wait_for(&format!("{what:?} is {colour:?}"), TIMEOUT.as_secs(), || {
            (at() == Some(colour)).then_some(())
        });
    }

    /// Waits until the program has taken the terminal (the alternate screen, no cursor), or until it has restored it.
    /// Its output may still be on its way when its process has ended or stopped.
    pub fn wait_for_terminal_mode(&self, held: bool) {
        let began = Stopwatch::start();
        loop {
            let modes = {
                let screen = self.screen.lock().expect("the screen lock");
                (screen.0.screen().alternate_screen(), screen.0.screen().hide_cursor())
            };
            if modes == (held, held) {
                return;
            }
            assert!(
                began.elapsed() < TIMEOUT,
                "wrong terminal mode (alternate screen, hidden cursor) = {modes:?}:\n{}",
                self.text()
            );
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Presses keys, one after the other.
    pub fn press(&mut self, keys: &str) {
        for key in keys.chars() {
            self.keys.write_all(key.to_string().as_bytes()).expect("the console reads keys");
            std::thread::sleep(Duration::from_millis(30));
        }
    }

    /// Waits until the screen contains this text, for this many seconds and at least 30. Returns the screen.
    pub fn wait_for_text(&self, what: &str, seconds: u64) -> String {
        let timeout = TIMEOUT.max(Duration::from_secs(seconds));
        let began = Stopwatch::start();
        loop {
            let text = self.text();
            if text.contains(what) {
                return text;
            }
            assert!(began.elapsed() < timeout, "timed out after {timeout:?}, the screen lacks {what:?}:\n{text}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Quits, and confirms it if the console asks. Returns the exit status.
    pub fn quit(&mut self, seconds: u64) -> u32 {
        self.press("q");
        let began = Stopwatch::start();
        while began.elapsed() < Duration::from_secs(seconds) && self.child.try_wait().expect("a status").is_none() {
            if self.text().contains("Quit?") {
                self.press("y");
                break;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        self.wait_for_end(seconds)
    }

    /// Gives the terminal another size.
    pub fn resize(&self, columns: u16, rows: u16) {
        let size = PtySize { rows, cols: columns, pixel_width: 0, pixel_height: 0 };
        self.screen.lock().expect("the screen lock").0.screen_mut().set_size(cells(rows), cells(columns));
        self.master.resize(size).expect("a size");
    }

    /// Sends a signal, by the name that `kill` uses.
    pub fn signal(&self, name: &str) {
        let pid = self.child.process_id().expect("a process").to_string();
        let sent = std::process::Command::new("kill").args(["-s", name, &pid]).status().expect("kill starts");
        assert!(sent.success());
    }

    /// State letter of the process, `T` = stopped.
    pub fn state(&self) -> char {
        let pid = self.child.process_id().expect("a process");
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        stat.rsplit(") ").next().and_then(|rest| rest.chars().next()).unwrap_or('?')
    }

    /// Waits for the end; returns the exit status.
    pub fn wait_for_end(&mut self, seconds: u64) -> u32 {
        let began = Stopwatch::start();
        loop {
            if let Some(status) = self.child.try_wait().expect("a status") {
                // wait for the last output
                std::thread::sleep(Duration::from_millis(100));
                return status.exit_code();
            }
            assert!(began.elapsed() < Duration::from_secs(seconds), "the console does not exit:\n{}", self.text());
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

fn cells(n: u16) -> NonZero<u16> {
    NonZero::new(n).expect("a size")
}

impl Drop for Console {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

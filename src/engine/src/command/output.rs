//! Output of one command in its helper: the tail of each stream, and its reports while the command runs.

use std::{
    io::Read,
    sync::{
        Arc, Mutex,
        mpsc::{self, Receiver, SyncSender, sync_channel},
    },
    thread,
    time::Duration,
};

use cketerm_model::{
    output::{OutputTails, PUBLISH_INTERVAL},
    secret::{self, WINDOW},
    text,
};

/// Bytes kept of each output.
pub const TAIL: usize = 4096;
/// Time in which output is still read after the command has ended, for children that keep its pipes open.
const OUTPUT_GRACE: Duration = Duration::from_millis(300);
/// Time from new output to its report. Most commands end sooner, and their output is in the result then.
const SETTLE_TIME: Duration = Duration::from_millis(500);

/// Tail of one output. A thread reads the output to its end, so that a command that prints megabytes never blocks.
pub(super) struct Tail {
    kept: Arc<Mutex<Kept>>,
    done: Receiver<()>,
}

/// Kept output, longer than the tail. Text that marks a secret may stand before the tail, so the output is masked first
/// and cut then.
#[derive(Default)]
struct Kept {
    bytes: Vec<u8>,
    /// Whether earlier output was dropped.
    cut: bool,
}

impl Kept {
    fn push(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
        let surplus = self.bytes.len().saturating_sub(TAIL + WINDOW);
        self.bytes.drain(..surplus);
        self.cut |= surplus > 0;
    }

    /// Returns the tail of an output that goes on. The line that is not complete yet is left out.
    fn so_far(&self) -> String {
        let masked = secret::end_so_far(&String::from_utf8_lossy(&self.bytes), TAIL, !self.cut);
        text::tail(masked.as_bytes(), TAIL)
    }

    fn whole(&self) -> String {
        let masked = secret::end(&String::from_utf8_lossy(&self.bytes), TAIL, !self.cut);
        text::tail(masked.as_bytes(), TAIL)
    }
}

/// Notes that an output has grown. It never blocks, and several notes count as one.
#[derive(Clone)]
pub(super) struct Grown(SyncSender<()>);

impl Tail {
    /// Reads an output to its end. `grown`: whom to tell about new output.
    pub(super) fn keep(from: Option<impl Read + Send + 'static>, grown: Option<Grown>) -> Self {
        let kept = Arc::new(Mutex::new(Kept::default()));
        let (tx, done) = mpsc::channel();
        let shared = Arc::clone(&kept);
        thread::spawn(move || {
            let mut buffer = [0; 8192];
            if let Some(mut from) = from {
                while let Ok(n @ 1..) = from.read(&mut buffer) {
                    if let Ok(mut kept) = shared.lock() {
                        kept.push(&buffer[..n]);
                    }
                    if let Some(Grown(grown)) = &grown {
                        let _ = grown.try_send(());
                    }
                }
            }
            let _ = tx.send(());
        });
        Self { kept, done }
    }

    /// Returns the tail at the end of the command.
    pub(super) fn finish(&self) -> String {
        let _ = self.done.recv_timeout(OUTPUT_GRACE);
        self.kept.lock().map(|kept| kept.whole()).unwrap_or_default()
    }
}

/// Reporter of the output of one running command.
pub(super) struct OutputReporter {
    grown: Receiver<()>,
    print: Box<dyn FnMut(OutputTails) -> bool + Send>,
}

impl OutputReporter {
    /// Creates a reporter that passes the output to `print`, until that returns false.
    pub(super) fn new(print: impl FnMut(OutputTails) -> bool + Send + 'static) -> (Self, Grown) {
        let (note, grown) = sync_channel(1);
        (Self { grown, print: Box::new(print) }, Grown(note))
    }

    /// Reports new output of both streams, at most once in [`PUBLISH_INTERVAL`]. A thread of its own does it: the
    /// engine may not read, and the command must not wait for that.
    pub(super) fn follow(mut self, stdout: &Tail, stderr: &Tail) {
        let (stdout, stderr) = (Arc::clone(&stdout.kept), Arc::clone(&stderr.kept));
        let so_far = |kept: &Mutex<Kept>| kept.lock().map(|kept| kept.so_far()).unwrap_or_default();
        thread::spawn(move || {
            let mut reported = OutputTails::default();
            while self.grown.recv().is_ok() {
                thread::sleep(SETTLE_TIME);
                while self.grown.try_recv().is_ok() {}
                let tails = OutputTails::bounded(&so_far(&stdout), &so_far(&stderr));
                if tails == reported {
                    continue;
                }
                reported = tails.clone();
                if !(self.print)(tails) {
                    return;
                }
                thread::sleep(PUBLISH_INTERVAL.saturating_sub(SETTLE_TIME));
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_shown_when_it_is_complete_and_masked_whatever_the_chunks() {
        let text = "GET https://root:hunter2hunter2@bmc/redfish\npassword: hunter2hunter2\nlast";
        for (size, times) in [(1, 2), (7, 5), (997, 400), (4096, 400), (5000, 400)] {
            let text = text.repeat(times);
            let mut kept = Kept::default();
            for chunk in text.as_bytes().chunks(size) {
                kept.push(chunk);
                let shown = kept.so_far();
                assert!(!shown.contains("hunter") && shown.len() <= TAIL, "{shown}");
                assert!(shown.is_empty() || shown.ends_with('\n'));
            }
            assert!(kept.whole().ends_with("\nlast"));
        }
    }
}

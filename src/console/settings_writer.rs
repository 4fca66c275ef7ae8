//! Writes what is kept for the next time, beside the console: a home may lie on a server that does not answer, and keys are
//! answered all the same.

use std::{path::PathBuf, time::Duration};

use tokio::{
    sync::mpsc,
    task::{JoinHandle, spawn_blocking},
    time::timeout,
};

use super::{
    event::Event,
    settings::{self, Change},
};

/// How long the end of the console waits for what is not written yet.
const END: Duration = Duration::from_secs(1);

/// Writes one change after the other, in the order in which they were asked for.
#[derive(Debug)]
pub struct SettingsWriter {
    changes: mpsc::UnboundedSender<Change>,
    work: JoinHandle<()>,
}

impl SettingsWriter {
    /// Writes to this file from now on, and tells what came of it.
    pub fn new(path: PathBuf, tell: mpsc::UnboundedSender<Event>) -> Self {
        let (changes, mut asked) = mpsc::unbounded_channel::<Change>();
        let work = tokio::spawn(async move {
            while let Some(change) = asked.recv().await {
                let to = path.clone();
                let written = spawn_blocking(move || settings::write(&to, &change)).await;
                let said = written.unwrap_or_else(|e| Err(format!("the settings were not written: {e}")));
                let said = said
                    .map(|aside| aside.map(|aside| format!("what could not be read is kept as {}", aside.display())));
                // the console may have been left
                let _ = tell.send(Event::Kept(said));
            }
        });
        Self { changes, work }
    }

    /// Something to be written.
    pub fn keep(&self, change: Change) {
        // bounded by what a person presses
        let _ = self.changes.send(change);
    }

    /// Waits a moment for what is not written yet.
    pub async fn end(self) {
        drop(self.changes);
        let _ = timeout(END, self.work).await;
    }
}

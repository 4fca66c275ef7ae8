//! Background writer of the settings. A home may be on a file server that does not answer, and the console must answer
//! keys all the same.

use std::{path::PathBuf, time::Duration};

use tokio::{
    sync::mpsc,
    task::{JoinHandle, spawn_blocking},
    time::timeout,
};

use crate::state::{
    event::Event,
    settings::{self, Change},
};

/// Longest time that quitting waits for unwritten changes.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(1);

/// Writes the changes one after another, in the order of the requests.
#[derive(Debug)]
pub struct SettingsWriter {
    changes: mpsc::UnboundedSender<Change>,
    task: JoinHandle<()>,
}

impl SettingsWriter {
    /// Starts to write to this file, and sends the outcome of each write.
    pub fn new(path: PathBuf, event_sender: mpsc::UnboundedSender<Event>) -> Self {
        let (changes, mut receiver) = mpsc::unbounded_channel::<Change>();
        let task = tokio::spawn(async move {
            while let Some(change) = receiver.recv().await {
                let to = path.clone();
                let written = spawn_blocking(move || settings::write(&to, &change)).await;
                let saved = written.unwrap_or_else(|e| Err(format!("cannot write the settings: {e}")));
                let saved = saved.map(|backup_path| {
                    backup_path.map(|backup_path| format!("the unreadable file is kept as {}", backup_path.display()))
                });
                // The send fails if the console has quit.
                let _ = event_sender.send(Event::SettingsSaved(saved));
            }
        });
        Self { changes, task }
    }

    /// Queues a change.
    pub fn keep(&self, change: Change) {
        // The channel is unbounded, but key presses bound its load.
        let _ = self.changes.send(change);
    }

    /// Waits a moment for unwritten changes.
    pub async fn end(self) {
        drop(self.changes);
        let _ = timeout(SHUTDOWN_TIMEOUT, self.task).await;
    }
}

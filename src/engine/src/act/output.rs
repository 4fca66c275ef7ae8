//! Publication of a running command's output, so that consoles show it before the command ends (SAF-44).

use std::future::Future;

use cketerm_model::{
    attempt::Attempt,
    output::{CommandOutput, OutputTails, PUBLISH_INTERVAL},
    stored::transaction::{Change, Put},
};
use tokio::sync::watch;

use super::Actor;

impl Actor {
    /// Publishes what the command of an attempt prints. It never ends: the caller drops it when the command has ended.
    /// A write that fails is tried again with the newest output. `revision`: that of the attempt, which every write
    /// compares, so that none comes after the outcome.
    pub(super) async fn publish_output(
        &self,
        attempt: &Attempt,
        revision: i64,
        output: watch::Receiver<OutputTails>,
    ) -> ! {
        let keys = self.store.keys();
        let attempt_key = keys.attempt(attempt.entry, attempt.number);
        let write = async |tails| {
            let now = self.steady.now();
            // Without a permit the lease is about to expire, and the key with it.
            let Ok(permit) = self.fence.permit(now.boot) else { return false };
            let value = CommandOutput { at: now.wall, tails };
            let put = Put { leased: true, ..Put::json(keys.output(&attempt.id), &value) };
            let compares = vec![(attempt_key.clone(), revision)];
            let change = Change { compares, puts: vec![put], deletes: Vec::new() };
            let written = self.store.commit(&permit, change).await;
            if let Err(e) = &written {
                tracing::debug!(attempt = attempt.id, error = %e, "output of a running command not published");
            }
            written.is_ok()
        };
        publish(output, write).await;
        std::future::pending().await
    }

    /// Deletes the published output, if there is any. The transaction that records the outcome does so too. This one
    /// is for an attempt that another writer has settled.
    pub(super) async fn forget_output(&self, attempt: &Attempt, printed: &OutputTails) {
        let Ok(permit) = self.fence.permit_record() else { return };
        let change = Change { deletes: self.output_keys(attempt, printed), ..Change::default() };
        if change.deletes.is_empty() {
            return;
        }
        if let Err(e) = self.store.commit(&permit, change).await {
            tracing::debug!(attempt = attempt.id, error = %e, "published output not deleted");
        }
    }

    /// Returns the key of the published output, if anything was printed.
    pub(super) fn output_keys(&self, attempt: &Attempt, printed: &OutputTails) -> Vec<String> {
        if printed.is_empty() { Vec::new() } else { vec![self.store.keys().output(&attempt.id)] }
    }
}

/// Passes each new output to `write`, at most once in [`PUBLISH_INTERVAL`], until the sender is gone. Of several
/// outputs in that time, only the last one is passed. If `write` returns false, the newest output is passed again after
/// that time: a command that hangs prints nothing that would cause a further write.
async fn publish<F: Future<Output = bool>>(
    mut output: watch::Receiver<OutputTails>,
    mut write: impl FnMut(OutputTails) -> F,
) {
    let mut written = true;
    while !written || output.changed().await.is_ok() {
        if !written && output.has_changed().is_err() {
            return;
        }
        let tails = output.borrow_and_update().clone();
        let next = tokio::time::Instant::now() + PUBLISH_INTERVAL;
        written = write(tails).await;
        tokio::time::sleep_until(next).await;
    }
}

#[cfg(test)]
mod tests {
    use std::{cell::RefCell, time::Duration};

    use tokio::time::Instant;

    use super::*;

    fn tails(text: &str) -> OutputTails {
        OutputTails { stdout: text.to_owned(), stderr: String::new() }
    }

    /// A command that prints every 100 ms for 10 s, then nothing for a minute, then a last line.
    async fn prints(sender: watch::Sender<OutputTails>) {
        for i in 0..100 {
            sender.send_replace(tails(&format!("line {i}\n")));
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        tokio::time::sleep(Duration::from_mins(1)).await;
        sender.send_replace(tails("the last line\n"));
        tokio::time::sleep(Duration::from_secs(1)).await;
    }

    #[tokio::test(start_paused = true)]
    async fn output_is_written_at_most_every_two_seconds_and_not_at_all_while_nothing_is_printed() {
        let (sender, receiver) = watch::channel(OutputTails::default());
        let writes = RefCell::new(Vec::new());
        let began = Instant::now();
        let write = async |tails: OutputTails| {
            writes.borrow_mut().push((began.elapsed(), tails.stdout));
            true
        };
        tokio::join!(prints(sender), publish(receiver, write));
        let writes = writes.into_inner();
        assert_eq!(writes.len(), 7, "{writes:?}");
        assert!(writes.windows(2).all(|two| two[1].0.checked_sub(two[0].0).unwrap() >= PUBLISH_INTERVAL), "{writes:?}");
        assert_eq!(writes[5].1, "line 99\n", "the newest output is written, whatever was skipped");
        assert_eq!(writes[6].1, "the last line\n");
    }

    /// A command prints once, then hangs. The first two writes fail.
    #[tokio::test(start_paused = true)]
    async fn the_last_output_before_a_hang_is_written_again_until_a_write_succeeds() {
        let (sender, receiver) = watch::channel(OutputTails::default());
        let writes = RefCell::new(Vec::new());
        let write = async |tails: OutputTails| {
            writes.borrow_mut().push(tails.stdout);
            writes.borrow().len() > 2
        };
        let hangs = async move {
            sender.send_replace(tails("waiting for the BMC\n"));
            tokio::time::sleep(Duration::from_mins(10)).await;
        };
        tokio::join!(hangs, publish(receiver, write));
        assert_eq!(writes.into_inner(), ["waiting for the BMC\n"; 3]);
    }

    /// The sender is gone while writes fail: the loop ends.
    #[tokio::test(start_paused = true)]
    async fn failing_writes_end_with_the_command() {
        let (sender, receiver) = watch::channel(OutputTails::default());
        tokio::join!(prints(sender), publish(receiver, async |_: OutputTails| false));
    }

    #[tokio::test(start_paused = true)]
    async fn a_write_that_never_ends_does_not_delay_the_command() {
        let (sender, receiver) = watch::channel(OutputTails::default());
        let began = Instant::now();
        let write = async |_: OutputTails| std::future::pending().await;
        tokio::select! {
            () = prints(sender) => {}
            () = publish(receiver, write) => panic!("the write ends"),
        }
        assert_eq!(began.elapsed(), Duration::from_secs(71));
    }
}

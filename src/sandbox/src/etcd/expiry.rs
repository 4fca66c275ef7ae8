//! Expires leases. One task sleeps until the next deadline; without leases there is no task.

use std::sync::{MutexGuard, Weak};

use tokio::time::sleep_until;

use super::{Etcd, Shared, state::State};

/// Makes sure that a task waits for the next deadline, or that the waiting task checks the deadlines again.
pub(super) fn schedule_expiry(etcd: &Etcd, mut state: MutexGuard<'_, State>) {
    if std::mem::replace(&mut state.expiring, true) {
        etcd.0.leases_changed.notify_one();
    } else {
        drop(state);
        tokio::spawn(wait(ExpiryTask(std::sync::Arc::downgrade(&etcd.0))));
    }
}

/// Held by the waiting task. If the runtime of a test drops that task, the next grant starts another one.
struct ExpiryTask(Weak<Shared>);

impl Drop for ExpiryTask {
    fn drop(&mut self) {
        if let Some(shared) = self.0.upgrade() {
            Etcd(shared).state().expiring = false;
        }
    }
}

async fn wait(expiry_task: ExpiryTask) {
    let Some(changed) = expiry_task.0.upgrade().map(|shared| std::sync::Arc::clone(&shared.leases_changed)) else {
        return;
    };
    loop {
        let next = {
            let Some(shared) = expiry_task.0.upgrade() else { return };
            let etcd = Etcd(shared);
            let mut state = etcd.state();
            state.expire();
            let Some(next) = state.leases.next_deadline() else {
                state.expiring = false;
                return;
            };
            next
        };
        tokio::select! {
            biased;
            () = changed.notified() => {}
            () = sleep_until(next) => {}
        }
    }
}

//! Reads that all drains of a leadership share for a while.

use std::sync::Arc;

use cketerm_model::boot_time::{BootTime, Seconds};
use tokio::sync::Mutex;

/// Time for which one read is shared.
const SHARED_FOR: Seconds = Seconds::new(30.0);

/// Last successful read of something that many drains need, and its time.
#[derive(Clone, Debug)]
pub struct SharedRead<T>(Arc<Mutex<Option<(BootTime, T)>>>);

impl<T> Default for SharedRead<T> {
    fn default() -> Self {
        Self(Arc::default())
    }
}

impl<T: Clone> SharedRead<T> {
    /// Returns the last read, or reads again after a while. Drains that ask meanwhile wait for the same read.
    pub async fn get<E>(&self, boot: impl Fn() -> BootTime, read: impl Future<Output = Result<T, E>>) -> Result<T, E> {
        let mut last = self.0.lock().await;
        if let Some((_, known)) = last.as_ref().filter(|(at, _)| boot() - *at < SHARED_FOR) {
            return Ok(known.clone());
        }
        let read = read.await?;
        *last = Some((boot(), read.clone()));
        Ok(read)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn drains_share_one_read_for_thirty_seconds_and_no_failed_one() {
        let shared = SharedRead::default();
        let at = |seconds| move || BootTime::new(seconds);
        assert_eq!(shared.get(at(100.0), async { Err("no answer") }).await, Err("no answer"));
        assert_eq!(shared.get(at(100.0), async { Ok::<_, &str>(1) }).await, Ok(1));
        assert_eq!(shared.get(at(129.9), async { Ok::<_, &str>(2) }).await, Ok(1), "the read is shared");
        assert_eq!(shared.clone().get(at(130.0), async { Ok::<_, &str>(3) }).await, Ok(3), "it is read again");
        assert_eq!(shared.get(at(140.0), async { Ok::<_, &str>(4) }).await, Ok(3), "all drains share the new read");
    }
}

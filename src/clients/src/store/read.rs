//! Reads of ranges in pages at one revision, and of the whole view (STO-49, STO-50).

use cketerm_model::stored::{
    row::Row,
    view::{Candidate, StoreView},
};
use etcd_client::{GetOptions, KeyValue};

use super::{connect::Store, error::StoreError, failure::Failure};

/// Number of keys in the first page of a range, and in any page of large values.
const PAGE: i64 = 500;
/// Number of keys in a page of small values, and the bytes that it is meant to have. For each page etcd counts all keys
/// that follow, so a few large pages cost less.
const MAX_PAGE: i64 = 4_000;
const PAGE_BYTES: usize = 1 << 20;
/// Number of restarts of a read whose revision was compacted meanwhile.
const COMPACTIONS: u32 = 3;

/// Returns the size of the next page after `read` keys with together so many bytes.
pub(super) fn page(read: usize, bytes: usize) -> i64 {
    let fits = PAGE_BYTES.saturating_mul(read).checked_div(bytes).unwrap_or(0);
    i64::try_from(fits).unwrap_or(MAX_PAGE).clamp(PAGE, MAX_PAGE)
}

/// Returns a key and its value as the live copy takes them.
pub(super) fn row(kv: &KeyValue) -> Row {
    Row {
        key: kv.key().to_vec(),
        value: kv.value().to_vec(),
        mod_revision: kv.mod_revision(),
        create_revision: kv.create_revision(),
    }
}

/// Contents of the live copy at one revision.
#[derive(Debug)]
pub(crate) struct Reading {
    pub(crate) revision: i64,
    /// Cluster id of the etcd that answered. Revisions of another etcd cannot be compared.
    pub(crate) cluster: u64,
    pub(crate) rows: Vec<Row>,
}

impl Store {
    /// Returns version, size and revision of the answering etcd, as text.
    pub async fn server(&self) -> Result<String, StoreError> {
        match self.client().maintenance_client().status().await {
            Ok(status) => Ok(format!(
                "etcd {}, {} bytes, revision {}",
                status.version(),
                status.db_size(),
                status.header().map_or(0, etcd_client::ResponseHeader::revision)
            )),
            Err(e) => Err(self.store_error("read the version", e.into()).await),
        }
    }

    /// Reads all keys of `[from, to)` at `revision`, or at the present one if that is 0; returns them with the
    /// revision.
    pub(crate) async fn read_range(
        &self,
        from: &[u8],
        to: &[u8],
        revision: i64,
    ) -> Result<(i64, Vec<KeyValue>), Failure> {
        let (head, kvs) = self.read_range_with_cluster(from, to, revision).await?;
        Ok((head.0, kvs))
    }

    async fn read_range_with_cluster(
        &self,
        from: &[u8],
        to: &[u8],
        revision: i64,
    ) -> Result<((i64, u64), Vec<KeyValue>), Failure> {
        // Every page is read at the revision of the first one.
        let mut first: Option<(i64, u64)> = None;
        let mut kvs: Vec<KeyValue> = Vec::new();
        let (mut next, mut bytes) = (from.to_vec(), 0);
        loop {
            let at = first.map_or(revision, |(at, _)| at);
            let options = GetOptions::new().with_range(to).with_limit(page(kvs.len(), bytes)).with_revision(at);
            let mut answer = self.get(next.as_slice(), options).await?;
            let head = *first.get_or_insert_with(|| {
                let (now, cluster) = answer.header().map_or((0, 0), |h| (h.revision(), h.cluster_id()));
                (if revision == 0 { now } else { revision }, cluster)
            });
            let more = answer.more();
            bytes += answer.kvs().iter().map(|kv| kv.key().len() + kv.value().len()).sum::<usize>();
            kvs.extend(answer.take_kvs());
            match kvs.last() {
                Some(last) if more => {
                    next = last.key().to_vec();
                    next.push(0);
                }
                _ => return Ok((head, kvs)),
            }
        }
    }

    /// Reads the live ranges with one linearizable read, at one revision.
    pub(crate) async fn reading(&self) -> Result<Reading, Failure> {
        let mut compactions = 0;
        loop {
            match self.reading_once().await {
                Err(Failure::Compacted) if compactions < COMPACTIONS => compactions += 1,
                other => return other,
            }
        }
    }

    async fn reading_once(&self) -> Result<Reading, Failure> {
        let mut reading = Reading { revision: 0, cluster: 0, rows: Vec::new() };
        for (from, to) in self.keys().live_ranges() {
            let (head, kvs) = self.read_range_with_cluster(&from, &to, reading.revision).await?;
            (reading.revision, reading.cluster) = head;
            reading.rows.extend(kvs.iter().map(row));
        }
        Ok(reading)
    }

    /// Reads everything that the live copy holds with one linearizable read, at one revision, in pages.
    pub async fn read_view(&self) -> Result<StoreView, StoreError> {
        self.read_view_from(0).await
    }

    /// Reads the view at a revision that is not before `revision`, for a leader's first read. A linearizable read
    /// cannot be older than an earlier answer, unless etcd was restored from a backup meanwhile, which is an error.
    pub async fn read_view_from(&self, revision: i64) -> Result<StoreView, StoreError> {
        let what = format!("read {}", self.keys().prefix());
        let last_seen = self.clock().boot();
        let reading = match self.reading().await {
            Ok(reading) => reading,
            Err(failure) => return Err(self.store_error(&what, failure).await),
        };
        if reading.revision < revision {
            let cause =
                format!("it is at revision {}, but {revision} was seen before: was it restored?", reading.revision);
            return Err(StoreError::Refused { what, endpoints: self.endpoints().to_owned(), cause });
        }
        let mut view = StoreView::default();
        for row in &reading.rows {
            view.put(self.keys(), row);
        }
        (view.revision, view.last_seen, view.synced) = (reading.revision, last_seen, true);
        Ok(view)
    }

    /// Reads the leader, even if the value of its key is empty.
    pub async fn leader(&self) -> Result<Option<Candidate>, StoreError> {
        let from = self.keys().leader_prefix().into_bytes();
        match self.read_range(&from, &cketerm_model::stored::keys::prefix_end(&from), 0).await {
            Ok((_, kvs)) => {
                let mut view = StoreView::default();
                for kv in &kvs {
                    view.put(self.keys(), &row(kv));
                }
                Ok(view.leader().cloned())
            }
            Err(failure) => Err(self.store_error("read the leader", failure).await),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_grow_while_values_are_small() {
        assert_eq!(page(0, 0), PAGE);
        assert_eq!(page(500, 500 * 200), MAX_PAGE);
        assert_eq!(page(500, 500 * 1024), 1024);
        assert_eq!(page(4500, 4500 * 20_000), PAGE, "attempts with outputs");
    }
}

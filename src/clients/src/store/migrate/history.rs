//! Migration of 0.1's history: that version recorded how an entry ended as text alone.

use cketerm_model::{
    cketerm_records::EndKind,
    fence::Permit,
    stored::{
        keys::prefix_end,
        transaction::{Change, Put},
    },
};
use etcd_client::GetOptions;
use serde_json::{Map, Value};

use super::Failed;
use crate::store::connect::Store;

/// Number of records that are read together.
const PAGE: i64 = 100;
/// Most records, and about the most bytes, of one transaction. A record may hold outputs of 64 KiB.
const BATCH: (usize, usize) = (30, 500_000);

impl Store {
    /// Adds the field `end` to the records that lack it. Other fields, known or not, stay as they are; what cannot be
    /// read is left alone.
    pub(super) async fn name_ends(&self, permit: &Permit) -> Result<(), Failed> {
        let folder = self.keys().history_prefix();
        let (mut from, to) = (folder.clone().into_bytes(), prefix_end(folder.as_bytes()));
        loop {
            let options = GetOptions::new().with_range(to.clone()).with_limit(PAGE);
            let mut page = match self.get(from, options).await {
                Ok(page) => page,
                Err(failure) => return Err(Failed::Read(self.store_error(&format!("read {folder}"), failure).await)),
            };
            let (more, kvs) = (page.more(), page.take_kvs());
            let mut change = Change::default();
            for kv in &kvs {
                let Some(value) = with_end(kv.value()) else { continue };
                let key = String::from_utf8_lossy(kv.key()).into_owned();
                let bytes: usize = change.puts.iter().map(|put| put.value.len()).sum();
                if change.puts.len() >= BATCH.0 || bytes + value.len() > BATCH.1 && !change.puts.is_empty() {
                    self.commit(permit, std::mem::take(&mut change)).await.map_err(Failed::Write)?;
                }
                change.compares.push((key.clone(), kv.mod_revision()));
                change.puts.push(Put { key, value, leased: false });
            }
            if !change.puts.is_empty() {
                self.commit(permit, change).await.map_err(Failed::Write)?;
            }
            match kvs.last() {
                Some(last) if more => from = [last.key(), &[0]].concat(),
                Some(_) | None => return Ok(()),
            }
        }
    }
}

/// Returns a record of 0.1 with the field `end`; none if it has one, or none can be derived.
fn with_end(record: &[u8]) -> Option<String> {
    let mut fields: Map<String, Value> = serde_json::from_slice(record).ok()?;
    if fields.contains_key("end") {
        return None;
    }
    let end = end_of_0_1(fields.get("outcome")?.as_str()?)?;
    fields.insert("end".to_owned(), serde_json::to_value(end).ok()?);
    serde_json::to_string(&fields).ok()
}

/// Derives the kind of an end from the text of 0.1. No other version's text is read.
fn end_of_0_1(outcome: &str) -> Option<EndKind> {
    let (first, rest) = outcome.split_once([' ', ':']).unwrap_or((outcome, ""));
    match (first, rest.is_empty()) {
        ("booted", _) => Some(EndKind::Booted),
        ("done", _) => Some(EndKind::Done),
        ("succeeded", true) => Some(EndKind::Succeeded),
        ("failed", false) => Some(EndKind::Failed),
        ("cancelled", true) => Some(EndKind::Cancelled),
        ("deleted", true) => Some(EndKind::Deleted),
        ("dequeued", false) => Some(EndKind::Dequeued),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_outcome_of_0_1_has_its_end() {
        for (outcome, end) in [
            ("booted", Some(EndKind::Booted)),
            ("booted: the Node was registered anew", Some(EndKind::Booted)),
            ("done by anna@ops-1", Some(EndKind::Done)),
            ("succeeded", Some(EndKind::Succeeded)),
            ("failed: not healthy after the last of 2 steps", Some(EndKind::Failed)),
            ("cancelled", Some(EndKind::Cancelled)),
            ("deleted", Some(EndKind::Deleted)),
            ("dequeued: no longer in the cluster definition", Some(EndKind::Dequeued)),
            ("bootedly", None),
            ("", None),
        ] {
            assert_eq!(end_of_0_1(outcome), end, "{outcome}");
        }
    }

    #[test]
    fn only_records_without_an_end_change_and_keep_their_other_fields() {
        let old = br#"{"entry":"reboots/3","outcome":"booted","later":{"x":1},"at":"2026-06-01T00:00:30Z"}"#;
        let new: Value = serde_json::from_str(&with_end(old).unwrap()).unwrap();
        assert_eq!((&new["end"], &new["later"]["x"]), (&Value::from("booted"), &Value::from(1)));
        assert_eq!(with_end(new.to_string().as_bytes()), None, "a repetition changes nothing");
        for unreadable in [&b"{"[..], b"[]", b"{}", br#"{"outcome":7}"#, br#"{"outcome":"eaten"}"#] {
            assert_eq!(with_end(unreadable), None);
        }
    }
}

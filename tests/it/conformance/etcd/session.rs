//! A conversation with an etcd, recorded as it goes.

use std::time::Duration;

use etcd_client::{
    Client, Compare, CompareOp, DeleteOptions, DeleteResponse, Error, Event, EventType, GetOptions, GetResponse,
    KeyValue, PutOptions, PutResponse, Txn, TxnOp, TxnOpResponse, TxnResponse, WatchOptions, WatchResponse,
    WatchStream,
};
use serde_json::{Value, json};

use super::super::target::Target;

/// One conversation. It keeps every answer, with keys without the case's prefix and revisions relative to its
/// beginning.
pub struct Session {
    /// Client for requests without a method below.
    pub client: Client,
    /// Prefix of every key of the case.
    pub prefix: String,
    /// Revision at the beginning.
    pub base: i64,
    log: Vec<Value>,
}

impl Session {
    /// Begins a conversation.
    pub async fn new(target: &Target, case: &str) -> Self {
        let mut client = Client::connect([&target.etcd], None).await.expect("etcd is reachable");
        let base = client.get("\0", None).await.expect("a read").header().expect("a header").revision();
        Self { client, prefix: format!("/{case}/"), base, log: Vec::new() }
    }

    /// Returns all answers.
    pub fn end(self) -> Value {
        Value::Array(self.log)
    }

    /// Returns a key of this case.
    pub fn k(&self, key: &str) -> String {
        format!("{}{key}", self.prefix)
    }

    /// Keeps an answer.
    pub fn note(&mut self, what: &str, answer: impl Into<Value>) {
        let answer: Value = answer.into();
        self.log.push(json!({ what: answer }));
    }

    /// `put`.
    pub async fn put(&mut self, key: &str, value: &str, options: Option<PutOptions>) {
        let answer = self.client.put(self.k(key), value, options).await;
        let answer = self.result(answer, Self::put_answer);
        self.note(&format!("put {key}"), answer);
    }

    /// `put` of keys one after the other, without keeping the answers.
    pub async fn fill(&mut self, keys: &[(&str, &str)]) {
        for (key, value) in keys {
            self.client.put(self.k(key), *value, None).await.expect("a put");
        }
    }

    /// `get` of one key, or with options of a range that begins there.
    pub async fn get(&mut self, what: &str, key: &str, options: Option<GetOptions>) {
        let answer = self.client.get(self.k(key), options).await;
        let answer = self.result(answer, Self::get_answer);
        self.note(&format!("get {what}"), answer);
    }

    /// `delete`.
    pub async fn delete(&mut self, key: &str, options: Option<DeleteOptions>) {
        let answer = self.client.delete(self.k(key), options).await;
        let answer = self.result(answer, Self::delete_answer);
        self.note(&format!("delete {key}"), answer);
    }

    /// Sends a transaction.
    pub async fn txn(&mut self, what: &str, txn: Txn) {
        let answer = self.client.txn(txn).await;
        let answer = self.result(answer, Self::txn_answer);
        self.note(&format!("txn {what}"), answer);
    }

    /// Notes whether one comparison holds.
    pub async fn note_comparison(&mut self, what: &str, compare: Compare) {
        let answer = self.client.txn(Txn::new().when([compare])).await;
        let answer = self.result(answer, |_, a| json!(a.succeeded()));
        self.note(what, answer);
    }

    /// Starts a watch on a stream of its own and notes its creation.
    pub async fn watch(&mut self, key: &str, options: Option<WatchOptions>) -> WatchStream {
        let stream = self.client.watch(self.k(key), options).await.expect("a watch");
        self.note(&format!("watch {key}"), json!(null));
        stream
    }

    /// Notes the next message of a stream.
    pub async fn note_message(&mut self, stream: &mut WatchStream) -> Value {
        let message = tokio::time::timeout(Duration::from_secs(10), stream.message()).await;
        let answer = match message {
            Ok(Ok(Some(message))) => self.watch_answer(&message),
            Ok(Ok(None)) => json!("the stream ended"),
            Ok(Err(error)) => self.error(&error),
            Err(_) => json!("nothing for 10 s"),
        };
        self.note("heard", answer.clone());
        answer
    }

    /// Notes the next `count` events, however they are split into messages; `ids` also notes the watch of each.
    pub async fn events(&mut self, stream: &mut WatchStream, count: usize, ids: bool) {
        let mut events = Vec::new();
        while events.len() < count {
            let message = tokio::time::timeout(Duration::from_secs(10), stream.message()).await;
            let Ok(Ok(Some(message))) = message else {
                events.push(json!("no more"));
                break;
            };
            for event in message.events() {
                let mut event = self.event(event);
                if ids {
                    event["watch"] = json!(message.watch_id());
                }
                events.push(event);
            }
        }
        self.note("events", Value::Array(events));
    }

    /// Revision relative to the beginning; 0 stays 0.
    pub fn rel(&self, revision: i64) -> Value {
        if revision == 0 { json!(0) } else { json!(format!("{:+}", revision - self.base)) }
    }

    /// An answer or an error.
    pub fn result<T>(&self, answer: Result<T, Error>, describe: impl Fn(&Self, &T) -> Value) -> Value {
        answer.map_or_else(|e| self.error(&e), |a| describe(self, &a))
    }

    /// A refusal: code and message.
    pub fn error(&self, error: &Error) -> Value {
        match error {
            Error::GRpcStatus(status) => {
                json!({"code": format!("{:?}", status.code()), "message": self.plain(status.message())})
            }
            other => json!({"error": self.plain(&other.to_string())}),
        }
    }

    /// Text without the case's prefix.
    pub fn plain(&self, text: &str) -> String {
        text.replace(&self.prefix, "")
    }

    fn bytes(&self, bytes: &[u8]) -> Value {
        if bytes.len() > 200 {
            return json!(format!("{} bytes", bytes.len()));
        }
        json!(self.plain(&String::from_utf8_lossy(bytes)))
    }

    /// Form of one key and its value.
    pub fn kv(&self, kv: &KeyValue) -> Value {
        json!({"key": self.bytes(kv.key()), "value": self.bytes(kv.value()), "version": kv.version(),
            "create": self.rel(kv.create_revision()), "mod": self.rel(kv.mod_revision()), "lease": kv.lease()})
    }

    fn put_answer(&self, a: &PutResponse) -> Value {
        json!({"revision": a.header().map(|h| self.rel(h.revision())), "prev": a.prev_key().map(|kv| self.kv(kv))})
    }

    /// Form of a range.
    pub fn get_answer(&self, a: &GetResponse) -> Value {
        let kvs: Vec<Value> = a.kvs().iter().map(|kv| self.kv(kv)).collect();
        json!({"revision": a.header().map(|h| self.rel(h.revision())), "kvs": kvs, "more": a.more(), "count": a.count()})
    }

    fn delete_answer(&self, a: &DeleteResponse) -> Value {
        let prev: Vec<Value> = a.prev_kvs().iter().map(|kv| self.kv(kv)).collect();
        json!({"revision": a.header().map(|h| self.rel(h.revision())), "deleted": a.deleted(), "prev": prev})
    }

    /// Form of a transaction with all its answers.
    pub fn txn_answer(&self, a: &TxnResponse) -> Value {
        let one = |op: &TxnOpResponse| match op {
            TxnOpResponse::Put(a) => json!({ "put": self.put_answer(a) }),
            TxnOpResponse::Get(a) => json!({ "get": self.get_answer(a) }),
            TxnOpResponse::Delete(a) => json!({ "delete": self.delete_answer(a) }),
            TxnOpResponse::Txn(a) => json!({ "txn": self.txn_answer(a) }),
        };
        let answers: Vec<Value> = a.op_responses().iter().map(one).collect();
        json!({"revision": a.header().map(|h| self.rel(h.revision())), "succeeded": a.succeeded(), "answers": answers})
    }

    fn event(&self, event: &Event) -> Value {
        let kind = if event.event_type() == EventType::Put { "put" } else { "delete" };
        json!({ kind: event.kv().map(|kv| self.kv(kv)), "prev": event.prev_kv().map(|kv| self.kv(kv)) })
    }

    fn watch_answer(&self, m: &WatchResponse) -> Value {
        let events: Vec<Value> = m.events().iter().map(|e| self.event(e)).collect();
        json!({"revision": m.header().map(|h| self.rel(h.revision())), "watch": m.watch_id(), "created": m.created(),
            "canceled": m.canceled(), "reason": m.cancel_reason(), "compacted": self.rel(m.compact_revision()), "events": events})
    }
}

/// The four comparisons.
pub const OPS: [(&str, CompareOp); 4] =
    [("=", CompareOp::Equal), (">", CompareOp::Greater), ("<", CompareOp::Less), ("!=", CompareOp::NotEqual)];

/// A put in a transaction.
pub fn put(key: String, value: &str) -> TxnOp {
    TxnOp::put(key, value, None)
}

/// A read in a transaction.
pub fn get(key: String) -> TxnOp {
    TxnOp::get(key, None)
}

/// A deletion in a transaction.
pub fn delete(key: String) -> TxnOp {
    TxnOp::delete(key, None)
}

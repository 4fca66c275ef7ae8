//! A watch: the events of a selection of objects, one JSON line each.

use std::{collections::VecDeque, sync::Arc, time::Duration};

use bytes::{BufMut, Bytes, BytesMut};
use futures::Stream;
use serde::Serialize;
use serde_json::{Value, json};
use tokio::{sync::watch::Receiver, time::Instant};

use super::{Api, State, path::RequestInfo, selector::Selection, status_error::StatusError, table::Columns};
use crate::kubernetes::{Change, Objects, Resource, Verb};

/// Maximum size in bytes of the data sent at once.
const CHUNK: usize = 64 * 1024;

/// A watch that lasts no longer than this gets no final bookmark.
const SHORT_WATCH: Duration = Duration::from_secs(2);

/// Form of the events.
pub(super) enum Form {
    /// Whole objects.
    Whole,
    /// Rows of a table; the first row comes with the columns.
    Table(Columns, bool),
    /// Metadata only.
    Metadata,
}

/// One watch, from its first event to its end.
pub(super) struct Watch {
    kind: &'static Resource,
    namespace: String,
    selection: Selection,
    pub(super) form: Form,
    /// Initial objects that are still to be sent.
    first: VecDeque<Arc<Value>>,
    /// Whether the end of the initial objects is marked by a bookmark.
    mark: bool,
    bookmarks: Option<Duration>,
    /// Whether the watch lasts long enough for a final bookmark.
    final_bookmark: bool,
    /// Last revision that was read.
    seen: u64,
    live: Option<Live>,
    /// Final data, after which the watch ends.
    last: Option<Vec<u8>>,
}

/// State that a running watch waits on.
struct Live {
    objects: Objects,
    changed: Receiver<u64>,
    state: Receiver<State>,
    /// Keeps the sender of `state` alive.
    _api: Api,
    /// Number of cuts when this watch began.
    cuts: u64,
    deadline: Instant,
    bookmark: Option<Instant>,
}

/// Next action of a watch.
enum Next {
    Deliver,
    Bookmark,
    End,
    Cut,
}

#[derive(Serialize)]
struct Event<'a> {
    #[serde(rename = "type")]
    verb: &'a str,
    object: &'a Value,
}

fn event_line(verb: &str, object: &Value) -> Vec<u8> {
    let mut event_line = serde_json::to_vec(&Event { verb, object }).unwrap_or_default();
    event_line.push(b'\n');
    event_line
}

impl Watch {
    pub(super) fn new(
        api: &Api,
        info: &RequestInfo,
        selection: Selection,
        seconds: Option<i64>,
        bookmarks: bool,
    ) -> Self {
        let options = &api.shared.options;
        let requested = seconds.and_then(|s| u64::try_from(s).ok()).filter(|s| *s > 0).map(Duration::from_secs);
        let state = api.shared.state.subscribe();
        let cuts = state.borrow().cuts;
        let now = Instant::now();
        let every = bookmarks.then_some(options.bookmark_every);
        let live = Live {
            objects: api.objects.clone(),
            changed: api.objects.subscribe(),
            state,
            _api: api.clone(),
            cuts,
            deadline: now + requested.unwrap_or(options.watch_timeout),
            bookmark: every.map(|every| now + every),
        };
        Self {
            kind: info.kind,
            namespace: info.namespace.clone(),
            selection,
            form: Form::Whole,
            first: VecDeque::new(),
            mark: false,
            bookmarks: every,
            final_bookmark: requested.is_none_or(|requested| requested > SHORT_WATCH),
            seen: 0,
            live: Some(live),
            last: None,
        }
    }

    /// Returns a watch that sends one error and ends.
    pub(super) fn refused(status_error: &StatusError) -> Self {
        Self {
            kind: &crate::kubernetes::resource::NODES,
            namespace: String::new(),
            selection: Selection::default(),
            form: Form::Whole,
            first: VecDeque::new(),
            mark: false,
            bookmarks: None,
            final_bookmark: false,
            seen: 0,
            live: None,
            last: Some(event_line("ERROR", &status_error.body)),
        }
    }

    /// Begins after this revision.
    pub(super) fn begin_at(&mut self, revision: u64) {
        self.seen = revision;
    }

    /// Begins with the current objects and continues with changes. `mark` requests a bookmark between the two.
    pub(super) fn begin_with_list(&mut self, objects: &Objects, mark: bool) {
        let page = objects.page(self.kind, &self.namespace, None, 0, None, |o| self.selection.matches(o));
        let page = page.unwrap_or_default();
        self.seen = page.revision;
        self.first = page.items.into();
        self.mark = mark;
    }

    pub(super) fn kind(&self) -> &'static Resource {
        self.kind
    }

    /// Returns the event lines as a stream. An error means that the connection was cut.
    pub(super) fn stream(self) -> impl Stream<Item = std::io::Result<Bytes>> {
        futures::stream::unfold(Some(self), |watch| async move {
            let mut watch = watch?;
            match watch.next().await {
                Ok(Some(bytes)) => Some((Ok(bytes), Some(watch))),
                Ok(None) => None,
                Err(error) => Some((Err(error), None)),
            }
        })
    }

    async fn next(&mut self) -> std::io::Result<Option<Bytes>> {
        loop {
            if let Some(last) = self.last.take() {
                self.live = None;
                return Ok(Some(last.into()));
            }
            let Some(live) = &mut self.live else { return Ok(None) };
            let initial_sent = self.first.is_empty() && !self.mark;
            match live.wait(initial_sent, self.seen).await {
                Next::Cut => {
                    self.live = None;
                    return Err(std::io::Error::new(std::io::ErrorKind::ConnectionReset, "connection reset by peer"));
                }
                Next::End => {
                    self.live = None;
                    // The final bookmark saves the next watch from beginning far back.
                    let mark = self.bookmarks.filter(|_| self.final_bookmark).map(|_| self.bookmark(false));
                    return Ok(mark.map(Bytes::from));
                }
                Next::Bookmark => return Ok(Some(self.bookmark(false).into())),
                Next::Deliver => {}
            }
            let bytes = if initial_sent { self.pending_events() } else { self.initial_events() };
            if !bytes.is_empty() {
                return Ok(Some(bytes.freeze()));
            }
        }
    }

    /// Returns the next chunk of the initial objects.
    fn initial_events(&mut self) -> BytesMut {
        let mut out = BytesMut::new();
        while let Some(object) = self.first.pop_front() {
            let event_line = self.event("ADDED", &object);
            out.put_slice(&event_line);
            if out.len() >= CHUNK {
                return out;
            }
        }
        if std::mem::take(&mut self.mark) {
            let mark = self.bookmark(true);
            out.put_slice(&mark);
        }
        out
    }

    /// Returns the events since the last call.
    fn pending_events(&mut self) -> BytesMut {
        let mut out = BytesMut::new();
        let Some(live) = &mut self.live else { return out };
        live.changed.mark_unchanged();
        let Some((changes, newest)) = live.objects.changes(self.kind, self.seen) else {
            let oldest = live.objects.oldest();
            let why = format!("too old resource version: {} ({oldest})", self.seen);
            self.last = Some(event_line("ERROR", &StatusError::expired(why).body));
            return out;
        };
        for change in &changes {
            if let Some(event_line) = self.event_of(change) {
                out.put_slice(&event_line);
            }
        }
        self.seen = self.seen.max(newest);
        out
    }

    /// Converts a change into the event that this selection sees.
    fn event_of(&mut self, change: &Change) -> Option<Vec<u8>> {
        let within = |object: &Value| {
            (self.namespace.is_empty() || object["metadata"]["namespace"] == self.namespace.as_str())
                && self.selection.matches(object)
        };
        let before = change.before.as_ref().filter(|object| within(object));
        let now = change.verb != Verb::Deleted && within(&change.object);
        match (before, now) {
            (Some(_), true) => Some(self.event("MODIFIED", &change.object)),
            (None, true) => Some(self.event("ADDED", &change.object)),
            (Some(_), false) if change.verb == Verb::Deleted => Some(self.event("DELETED", &change.object)),
            (Some(before), false) => {
                // The object left the selection. The event has its last state in the selection, and the resourceVersion
                // of the change.
                let mut last_state = Value::clone(before);
                last_state["metadata"]["resourceVersion"] = json!(change.revision.to_string());
                Some(self.event("DELETED", &last_state))
            }
            (None, false) => None,
        }
    }

    fn event(&mut self, verb: &str, object: &Value) -> Vec<u8> {
        let now = self.live.as_ref().map(|live| live.objects.clock().wall());
        match &mut self.form {
            Form::Whole => match super::events::converted_to(self.kind, object) {
                Some(other) => event_line(verb, &other),
                None => event_line(verb, object),
            },
            Form::Metadata => event_line(verb, &super::table::metadata(object)),
            Form::Table(columns, first) => {
                let headers = std::mem::take(first);
                event_line(verb, &columns.table(&[object], now.unwrap_or_default(), headers))
            }
        }
    }

    fn bookmark(&mut self, end: bool) -> Vec<u8> {
        if let (Some(live), Some(every)) = (&mut self.live, self.bookmarks) {
            live.bookmark = Some(Instant::now() + every);
        }
        let mut object = json!({"kind": self.kind.kind, "apiVersion": self.kind.api_version(),
            "metadata": {"resourceVersion": self.seen.to_string(), "creationTimestamp": null}});
        if end {
            object["metadata"]["annotations"] = json!({"k8s.io/initial-events-end": "true"});
        }
        match &mut self.form {
            Form::Whole => event_line("BOOKMARK", &object),
            Form::Metadata => event_line("BOOKMARK", &super::table::metadata(&object)),
            Form::Table(columns, first) => {
                let headers = std::mem::take(first);
                event_line("BOOKMARK", &columns.table(&[&object], jiff::Timestamp::UNIX_EPOCH, headers))
            }
        }
    }
}

impl Live {
    /// Waits until there is something to do. `initial_sent` means that all initial objects were sent.
    async fn wait(&mut self, initial_sent: bool, seen: u64) -> Next {
        loop {
            let state = *self.state.borrow_and_update();
            if state.cuts != self.cuts {
                return Next::Cut;
            }
            if state.stalled {
                // Nothing passes while the watch is stalled, not even its end.
                if self.state.changed().await.is_err() {
                    return Next::End;
                }
                continue;
            }
            if !initial_sent || *self.changed.borrow_and_update() > seen {
                return Next::Deliver;
            }
            let now = Instant::now();
            if now >= self.deadline {
                return Next::End;
            }
            if self.bookmark.is_some_and(|at| now >= at) {
                return Next::Bookmark;
            }
            let until = self.bookmark.map_or(self.deadline, |at| at.min(self.deadline));
            tokio::select! {
                biased;
                _ = self.state.changed() => {}
                _ = self.changed.changed() => {}
                () = tokio::time::sleep_until(until) => {}
            }
        }
    }
}

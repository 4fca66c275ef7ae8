//! A stream over a link. It ends when the link is cut, and holds back its data while the link is silent.

use std::{
    pin::Pin,
    task::{Context, Poll, ready},
};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use tokio::sync::watch;
use tokio_stream::wrappers::WatchStream;
use tower::BoxError;

use super::{
    reset::connection_reset,
    status::{Status, Stream},
};

/// Body of a request or a response that goes over a link.
pub(super) struct LinkBody<B> {
    inner: Pin<Box<B>>,
    status: watch::Receiver<Status>,
    changes: Pin<Box<WatchStream<Status>>>,
    epoch: u64,
    stream: Option<Stream>,
}

impl<B> LinkBody<B> {
    pub(super) fn new(inner: B, status: watch::Receiver<Status>, stream: Option<Stream>) -> Self {
        let epoch = status.borrow().epoch;
        let changes = Box::pin(WatchStream::from_changes(status.clone()));
        Self { inner: Box::pin(inner), status, changes, epoch, stream }
    }
}

impl<B> Body for LinkBody<B>
where
    B: Body<Data = Bytes>,
    B::Error: Into<BoxError>,
{
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        use tokio_stream::Stream;
        // Registers for every change of the link and takes in the changes that have already happened.
        while let Poll::Ready(Some(_)) = self.changes.as_mut().poll_next(cx) {}
        let now = *self.status.borrow();
        if now.epoch != self.epoch {
            return Poll::Ready(Some(Err(connection_reset())));
        }
        if now.is_silent(self.stream.as_ref()) {
            return Poll::Pending;
        }
        let frame = ready!(self.inner.as_mut().poll_frame(cx));
        Poll::Ready(frame.map(|frame| frame.map_err(Into::into)))
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }
}

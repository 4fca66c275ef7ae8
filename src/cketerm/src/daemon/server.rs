//! HTTP server of the daemon's pages. It limits the number of connections, so that idle ones cannot use up the file
//! descriptors.

use std::{
    collections::HashMap,
    io,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use axum::{
    Router,
    extract::Request,
    middleware::{Next, from_fn},
};
use hyper_util::{
    rt::{TokioExecutor, TokioIo},
    server::conn::auto::Builder,
    service::TowerToHyperService,
};
use tokio::{
    net::{TcpListener, TcpStream},
    task::{AbortHandle, Id, JoinSet},
    time::{Instant, sleep, sleep_until},
};

/// Limit of concurrent connections. For a further one, the connection that has been idle for longest is closed.
pub const MAX_CONNECTIONS: usize = 64;
/// Time in which a new connection must send a whole request head.
const HEAD_TIMEOUT: Duration = Duration::from_secs(10);
/// Time that a connection may stay without a request. Scrapers come once a minute or more often.
const IDLE_TIMEOUT: Duration = Duration::from_secs(90);
/// Wait after an `accept` that failed.
const ACCEPT_RETRY_DELAY: Duration = Duration::from_millis(100);

/// Accepts connections for ever.
pub async fn serve(listener: TcpListener, app: Router) {
    let mut connections = Connections::default();
    loop {
        tokio::select! {
            biased;
            () = connections.connection_ended() => {}
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => {
                    connections.close_idle_at_limit().await;
                    connections.add(stream, &app);
                }
                Err(e) => {
                    if no_descriptors(&e) {
                        tracing::warn!(error = %e, "no file descriptor for another HTTP connection");
                        connections.close_idlest().await;
                    }
                    sleep(ACCEPT_RETRY_DELAY).await;
                }
            },
        }
    }
}

fn no_descriptors(error: &io::Error) -> bool {
    use rustix::io::Errno;
    error.raw_os_error().is_some_and(|code| [Errno::MFILE, Errno::NFILE].map(Errno::raw_os_error).contains(&code))
}

/// The open connections.
#[derive(Default)]
struct Connections {
    tasks: JoinSet<()>,
    handles: HashMap<Id, (AbortHandle, Arc<Activity>)>,
}

impl Connections {
    fn add(&mut self, stream: TcpStream, app: &Router) {
        let activity = Arc::new(Activity::new());
        let task = self.tasks.spawn(one(stream, app.clone(), Arc::clone(&activity)));
        self.handles.insert(task.id(), (task, activity));
    }

    /// Resolves when a connection has ended. Never resolves if none is open.
    async fn connection_ended(&mut self) {
        let id = match self.tasks.join_next_with_id().await {
            Some(Ok((id, ()))) => id,
            Some(Err(e)) => e.id(),
            None => std::future::pending().await,
        };
        self.handles.remove(&id);
    }

    async fn close_idle_at_limit(&mut self) {
        while self.tasks.len() >= MAX_CONNECTIONS {
            self.close_idlest().await;
        }
    }

    /// Closes one connection. Those that wait for an answer come last.
    async fn close_idlest(&mut self) {
        let order = |activity: &Activity| (activity.answering.load(Ordering::SeqCst) > 0, activity.last());
        if let Some((task, _)) = self.handles.values().min_by_key(|(_, activity)| order(activity)) {
            task.abort();
            self.connection_ended().await;
        }
    }
}

/// Activity of a connection.
struct Activity {
    /// Time at which it was opened, or at which a request last began or ended; and the allowed idle time.
    last: Mutex<(Instant, Duration)>,
    /// Number of requests being answered.
    answering: AtomicUsize,
}

/// Guard of a request being answered.
struct Answering(Arc<Activity>);

impl Drop for Answering {
    fn drop(&mut self) {
        self.0.touch();
        self.0.answering.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Activity {
    fn new() -> Self {
        Self { last: Mutex::new((Instant::now(), HEAD_TIMEOUT)), answering: AtomicUsize::new(0) }
    }

    fn last(&self) -> Instant {
        self.last.lock().unwrap_or_else(PoisonError::into_inner).0
    }

    fn touch(&self) {
        *self.last.lock().unwrap_or_else(PoisonError::into_inner) = (Instant::now(), IDLE_TIMEOUT);
    }

    fn begin_request(self: &Arc<Self>) -> Answering {
        self.touch();
        self.answering.fetch_add(1, Ordering::SeqCst);
        Answering(Arc::clone(self))
    }

    /// Resolves when the connection has been idle for too long.
    async fn idle_timeout(&self) {
        loop {
            let (last, idle_limit) = *self.last.lock().unwrap_or_else(PoisonError::into_inner);
            let answering = self.answering.load(Ordering::SeqCst) > 0;
            if !answering && last.elapsed() >= idle_limit {
                return;
            }
            // a connection with a request in progress is not idle: check again when the answer may have been sent
            sleep_until(if answering { Instant::now() + HEAD_TIMEOUT } else { last + idle_limit }).await;
        }
    }
}

/// Serves one connection until it ends or is idle for too long.
async fn one(stream: TcpStream, app: Router, activity: Arc<Activity>) {
    let counted = Arc::clone(&activity);
    let app = app.layer(from_fn(move |request: Request, next: Next| {
        let answering = counted.begin_request();
        async move {
            let answer = next.run(request).await;
            drop(answering);
            answer
        }
    }));
    let server = Builder::new(TokioExecutor::new()).http1_only();
    let connection = server.serve_connection(TokioIo::new(stream), TowerToHyperService::new(app));
    tokio::select! {
        biased;
        // a client that disconnects during an answer is no error
        _ = connection => {}
        () = activity.idle_timeout() => {}
    }
}

#[cfg(test)]
mod tests {
    use axum::routing::get;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;

    const GET: &[u8] = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n";

    async fn served() -> std::net::SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let app = Router::new().route("/", get(|| async { "here" }));
        tokio::spawn(serve(listener, app));
        address
    }

    async fn ask(stream: &mut TcpStream) -> String {
        stream.write_all(GET).await.unwrap();
        let mut bytes = [0; 1024];
        let n = stream.read(&mut bytes).await.unwrap();
        String::from_utf8_lossy(&bytes[..n]).into_owned()
    }

    async fn ended(mut stream: TcpStream) -> bool {
        matches!(stream.read(&mut [0; 64]).await, Ok(0) | Err(_))
    }

    #[tokio::test]
    async fn at_the_limit_the_idlest_connection_is_closed_and_active_ones_stay() {
        let address = served().await;
        let mut active = TcpStream::connect(address).await.unwrap();
        let mut held = Vec::new();
        for i in 0..5 * MAX_CONNECTIONS {
            let mut one = TcpStream::connect(address).await.unwrap();
            if i % 2 == 0 {
                one.write_all(b"GET / HTTP/1.1\r\nHost:").await.unwrap();
            }
            held.push(one);
            if i % 20 == 0 {
                assert!(ask(&mut active).await.ends_with("here"), "{i}");
            }
        }
        let mut fresh = TcpStream::connect(address).await.unwrap();
        assert!(ask(&mut fresh).await.ends_with("here"));
        assert!(ended(held.swap_remove(0)).await, "the oldest connection was closed");
    }

    #[tokio::test(start_paused = true)]
    async fn an_incomplete_request_or_a_long_idle_time_closes_a_connection() {
        let activity = Arc::new(Activity::new());
        let began = Instant::now();
        activity.idle_timeout().await;
        assert_eq!(began.elapsed().as_secs(), HEAD_TIMEOUT.as_secs(), "a connection without a request");
        let answering = activity.begin_request();
        let long = tokio::time::timeout(Duration::from_hours(1), activity.idle_timeout()).await;
        assert!(long.is_err(), "a response may take an hour");
        drop(answering);
        let began = Instant::now();
        activity.idle_timeout().await;
        assert!(
            (IDLE_TIMEOUT.as_secs()..=(IDLE_TIMEOUT + HEAD_TIMEOUT).as_secs()).contains(&began.elapsed().as_secs())
        );
    }
}

//! One suite of questions, asked over the wire of the real servers and of the sandbox, which must agree.
//!
//! The real answer is the truth: a case holds no expectation of its own, it asks as a client would and returns what
//! it heard with times, uids and absolute revisions replaced. `conformance.md` in cargo's folder for tests holds the
//! whole comparison; `CONFORMANCE=text` asks only the cases whose name contains the text.

mod etcd;
mod place;
mod report;

use std::{panic::AssertUnwindSafe, sync::Arc, time::Duration};

use futures::{FutureExt as _, StreamExt as _, future::BoxFuture};
use serde_json::{Value, json};

use place::Place;
use report::Report;

/// One question.
#[derive(Clone, Copy)]
pub struct Case {
    /// Its name, `part: what`.
    pub name: &'static str,
    /// Asks it.
    pub ask: fn(Arc<Place>) -> BoxFuture<'static, Value>,
}

/// The cases of one file: their functions' names are their names.
macro_rules! cases {
    ($part:literal: $($case:ident),+ $(,)?) => {
        pub fn cases() -> Vec<$crate::conformance::Case> {
            vec![$($crate::conformance::Case {
                name: concat!($part, ": ", stringify!($case)),
                ask: |place| Box::pin($case(place)),
            }),+]
        }
    };
}
pub(crate) use cases;

/// Asks every case of one world, `width` at a time; a case that panics or hangs answers that.
async fn ask(place: Arc<Place>, cases: Vec<Case>, width: usize) -> Vec<(&'static str, Value)> {
    let one = |case: Case| {
        let place = place.clone();
        async move {
            let answer =
                tokio::time::timeout(Duration::from_secs(40), AssertUnwindSafe((case.ask)(place)).catch_unwind());
            let answer = match answer.await {
                Ok(Ok(answer)) => answer,
                Ok(Err(panic)) => {
                    let text = panic.downcast_ref::<String>().cloned();
                    let text = text.or_else(|| panic.downcast_ref::<&str>().map(|t| (*t).to_owned()));
                    json!({ report::BROKEN: text.unwrap_or_else(|| "a panic".to_owned()) })
                }
                Err(_) => json!({ report::BROKEN: "no answer in 40 s" }),
            };
            (case.name, answer)
        }
    };
    futures::stream::iter(cases).map(one).buffered(width).collect().await
}

/// The same in a thread of its own.
fn asked(place: Place, cases: &[Case], width: usize) -> std::thread::JoinHandle<report::Answers> {
    let cases = cases.to_vec();
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        let began = std::time::Instant::now();
        let name = place.name;
        let answers = runtime.block_on(ask(Arc::new(place), cases, width));
        report::Answers { world: name, answers, seconds: began.elapsed().as_secs_f64() }
    })
}

/// The cases that `CONFORMANCE` names, or all.
fn wanted(cases: Vec<Case>) -> Vec<Case> {
    let only = std::env::var("CONFORMANCE").unwrap_or_default();
    cases.into_iter().filter(|case| case.name.contains(&only)).collect()
}

fn compare(part: &str, real: Vec<Place>, sandbox: Option<Place>, cases: Vec<Case>, width: usize) {
    let cases = wanted(cases);
    let threads: Vec<_> = real.into_iter().chain(sandbox).map(|place| asked(place, &cases, width)).collect();
    let worlds = threads.into_iter().map(|thread| thread.join().expect("a world")).collect();
    Report::new(part, worlds).show();
}

#[test]
fn etcd_answers_alike() {
    let real: Vec<Place> = place::etcds();
    compare("etcd", real, place::sandbox_etcd(), etcd::cases(), 1);
}

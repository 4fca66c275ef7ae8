//! One suite of requests, sent over the wire to real servers and to the sandbox, which must agree.
//!
//! The real answer is the truth: a case holds no expectation of its own. It sends requests as a client would and
//! returns the answers, with times, uids and absolute revisions replaced. `conformance.md` in cargo's folder for tests
//! holds the whole comparison. `CONFORMANCE=text` runs only the cases whose name contains the text.

mod etcd;
mod known;
mod kubernetes;
mod place;
mod report;
mod sandbox;

use std::{panic::AssertUnwindSafe, sync::Arc, time::Duration};

use futures::{FutureExt as _, StreamExt as _, future::LocalBoxFuture};
use serde_json::{Value, json};

use place::Place;
use report::Report;

/// One case.
#[derive(Clone, Copy)]
pub struct Case {
    /// Its name, `part: what`.
    pub name: &'static str,
    /// Runs it.
    pub ask: fn(Arc<Place>) -> LocalBoxFuture<'static, Value>,
}

/// Cases of one file, named after their functions.
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

/// Runs one case. If it panics or hangs, that is its answer.
async fn ask(place: Arc<Place>, case: Case) -> (&'static str, Value) {
    let answer = tokio::time::timeout(Duration::from_secs(40), AssertUnwindSafe((case.ask)(place)).catch_unwind());
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

/// Cases for one world.
#[derive(Clone, Default)]
struct Questions {
    /// Cases that run concurrently, as many as `width`.
    cases: Vec<Case>,
    width: usize,
    /// Cases that run afterwards, one at a time.
    alone: Vec<Case>,
}

/// Runs all cases on one world, in a thread of its own.
fn asked(place: Place, questions: Questions) -> std::thread::JoinHandle<report::Answers> {
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        let began = std::time::Instant::now();
        let world = place.name;
        let place = Arc::new(place);
        let one = |case| ask(place.clone(), case);
        let answers = runtime.block_on(async {
            place.begin().await;
            let many = futures::stream::iter(questions.cases).map(one).buffered(questions.width);
            let mut answers: Vec<_> = many.collect().await;
            for case in questions.alone {
                answers.push(one(case).await);
            }
            answers
        });
        report::Answers { world, heard: answers, seconds: began.elapsed().as_secs_f64() }
    })
}

/// Cases that `CONFORMANCE` selects, or all.
fn wanted(cases: Vec<Case>) -> Vec<Case> {
    let only = std::env::var("CONFORMANCE").unwrap_or_default();
    cases.into_iter().filter(|case| case.name.contains(&only)).collect()
}

fn compare(part: &str, places: Vec<Place>, questions: Questions) {
    let Questions { cases, width, alone } = questions;
    let questions = Questions { cases: wanted(cases), width, alone: wanted(alone) };
    let threads: Vec<_> = places.into_iter().map(|place| asked(place, questions.clone())).collect();
    let worlds = threads.into_iter().map(|thread| thread.join().expect("a world")).collect();
    Report::new(part, worlds).show();
}

#[test]
fn etcd_answers_alike() {
    let mut places = place::etcds();
    places.push(place::sandbox());
    compare("etcd", places, Questions { cases: etcd::cases(), width: 1, alone: Vec::new() });
}

#[test]
fn kubernetes_answers_alike() {
    let mut places: Vec<Place> = place::kubernetes("kube-apiserver 1.35", false).into_iter().collect();
    places.push(place::sandbox());
    let mut cases = kubernetes::cases();
    let places: Vec<Place> = places.into_iter().map(Place::with_kubectl).collect();
    if places.iter().any(|place| place.kubectl.as_os_str().is_empty()) {
        cases.retain(|case| !case.name.starts_with("kubectl"));
    }
    compare("kubernetes", places, Questions { cases, width: 6, alone: kubernetes::cases_alone() });
}

#[test]
fn controllers_act_alike() {
    let mut places: Vec<Place> = place::kubernetes("kube-controller-manager 1.35", true).into_iter().collect();
    places.push(place::sandbox_with_controllers());
    compare(
        "controllers",
        places,
        Questions { cases: kubernetes::cases_with_controllers(), width: 6, alone: Vec::new() },
    );
}

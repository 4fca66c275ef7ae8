//! One suite of requests, sent over the wire to real servers and to the sandbox, which must agree.
//!
//! The real answer is the truth: a case holds no expectation of its own. It sends requests as a client would and
//! returns the answers, with times, uids and absolute revisions replaced. `conformance.md` in cargo's folder for tests
//! holds the whole comparison. `CONFORMANCE=text` runs only the cases whose name contains the text.

mod etcd;
mod known;
mod kubernetes;
mod report;
mod sandbox;
mod target;

use std::{panic::AssertUnwindSafe, sync::Arc, time::Duration};

use futures::{FutureExt as _, StreamExt as _, future::LocalBoxFuture};
use serde_json::{Value, json};

use report::Report;
use target::Target;

use crate::stalls::undisturbed;

/// One case.
#[derive(Clone, Copy)]
pub struct Case {
    /// Its name, `part: what`.
    pub name: &'static str,
    /// Runs it.
    pub run: fn(Arc<Target>) -> LocalBoxFuture<'static, Value>,
}

/// Cases of one file, named after their functions.
macro_rules! cases {
    ($part:literal: $($case:ident),+ $(,)?) => {
        pub fn cases() -> Vec<$crate::conformance::Case> {
            vec![$($crate::conformance::Case {
                name: concat!($part, ": ", stringify!($case)),
                run: |target| Box::pin($case(target)),
            }),+]
        }
    };
}
pub(crate) use cases;

/// Runs one case. If it panics or hangs, that is its answer.
async fn run(target: Arc<Target>, case: Case) -> (&'static str, Value) {
    let answer = tokio::time::timeout(Duration::from_secs(40), AssertUnwindSafe((case.run)(target)).catch_unwind());
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
struct CaseSet {
    /// Cases that run concurrently, as many as `width`.
    cases: Vec<Case>,
    width: usize,
    /// Cases that run afterwards, one at a time.
    alone: Vec<Case>,
}

/// Runs all cases on one world, in a thread of its own.
fn run_all(target: Target, case_set: CaseSet) -> std::thread::JoinHandle<report::Answers> {
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        let began = std::time::Instant::now();
        let world = target.name;
        let target = Arc::new(target);
        let one = |case| run(target.clone(), case);
        let answers = runtime.block_on(async {
            target.begin().await;
            let many = futures::stream::iter(case_set.cases).map(one).buffered(case_set.width);
            let mut answers: Vec<_> = many.collect().await;
            for case in case_set.alone {
                answers.push(one(case).await);
            }
            answers
        });
        report::Answers { world, results: answers, seconds: began.elapsed().as_secs_f64() }
    })
}

/// Cases that `CONFORMANCE` selects, or all.
fn selected(cases: Vec<Case>) -> Vec<Case> {
    let only = std::env::var("CONFORMANCE").unwrap_or_default();
    cases.into_iter().filter(|case| case.name.contains(&only)).collect()
}

fn compare(part: &str, targets: Vec<Target>, case_set: CaseSet) {
    let CaseSet { cases, width, alone } = case_set;
    let case_set = CaseSet { cases: selected(cases), width, alone: selected(alone) };
    let threads: Vec<_> = targets.into_iter().map(|target| run_all(target, case_set.clone())).collect();
    let worlds = threads.into_iter().map(|thread| thread.join().expect("a world")).collect();
    Report::new(part, worlds).show();
}

/// Leases expire by the clock.
#[tokio::test]
async fn etcd_conformance() {
    undisturbed(async || {
        let mut targets = target::etcds();
        targets.push(target::sandbox());
        compare("etcd", targets, CaseSet { cases: etcd::cases(), width: 1, alone: Vec::new() });
    })
    .await;
}

#[test]
fn kubernetes_conformance() {
    let mut targets: Vec<Target> = target::kubernetes("kube-apiserver 1.35", false).into_iter().collect();
    targets.push(target::sandbox());
    let mut cases = kubernetes::cases();
    let targets: Vec<Target> = targets.into_iter().map(Target::with_kubectl).collect();
    if targets.iter().any(|target| target.kubectl.as_os_str().is_empty()) {
        cases.retain(|case| !case.name.starts_with("kubectl"));
    }
    compare("kubernetes", targets, CaseSet { cases, width: 6, alone: kubernetes::cases_alone() });
}

#[test]
fn controllers_conformance() {
    let mut targets: Vec<Target> = target::kubernetes("kube-controller-manager 1.35", true).into_iter().collect();
    targets.push(target::sandbox_with_controllers());
    compare(
        "controllers",
        targets,
        CaseSet { cases: kubernetes::cases_with_controllers(), width: 6, alone: Vec::new() },
    );
}

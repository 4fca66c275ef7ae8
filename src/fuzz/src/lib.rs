//! Fuzz tests of every parser that reads untrusted bytes. Inputs are noise and mutated good inputs.
//! `tests/corpus/NAME/` keeps the inputs of earlier failures, which every run tries first. A run adds new failures
//! there.
//!
//! `make fuzz` tries more inputs (`CKETERM_FUZZ` is a factor). Each parser prints one line with the number of its
//! inputs.
// only tests use this crate, and a failure of theirs is a panic
#![allow(clippy::unwrap_used, clippy::panic, clippy::missing_panics_doc)]

mod change;

use std::{
    cell::Cell,
    io::Write as _,
    path::PathBuf,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use proptest::{
    prelude::{Strategy, any, prop, prop_oneof},
    test_runner::{Config, RngAlgorithm, TestCaseError, TestError, TestRng, TestRunner},
};

use self::change::{Change, changed};

/// Result of a parser for an input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Took {
    /// The input was accepted.
    Accepted,
    /// The input was refused with a message.
    Refused,
}

impl Took {
    /// Converts a result: accepted if it is `Ok`.
    pub fn of<T, E>(result: &Result<T, E>) -> Self {
        if result.is_ok() { Self::Accepted } else { Self::Refused }
    }
}

/// Result of one try: the parser's result, or the promise that was broken.
pub type Tried = Result<Took, String>;

/// A parser under test.
pub struct Fuzz {
    name: &'static str,
    cases: u32,
    seeds: Vec<String>,
}

/// The bytes of one try. They are shown as text, so that a failure can be read.
#[derive(Clone)]
pub struct Input {
    bytes: Vec<u8>,
    changed: bool,
}

impl std::fmt::Debug for Input {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let text = String::from_utf8_lossy(&self.bytes);
        let begin: String = text.chars().take(2000).collect();
        write!(f, "{} bytes: {begin:?}", self.bytes.len())
    }
}

/// Time after which an input counts as hanging.
const HANG_TIMEOUT: Duration = Duration::from_mins(2);

fn corpus(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../tests/corpus").join(name)
}

/// Returns the factor for the number of inputs, relative to `cargo test`.
fn factor() -> u32 {
    std::env::var("CKETERM_FUZZ").ok().and_then(|n| n.parse().ok()).unwrap_or(1)
}

impl Fuzz {
    /// Creates a fuzz test with the name of its corpus and the number of cases in `cargo test`.
    pub fn new(name: &'static str, cases: u32) -> Self {
        Self { name, cases: cases * factor(), seeds: Vec::new() }
    }

    /// Adds good inputs, to be mutated.
    #[must_use]
    pub fn seeds<T: Into<String>>(mut self, seeds: impl IntoIterator<Item = T>) -> Self {
        self.seeds.extend(seeds.into_iter().map(Into::into));
        self
    }

    /// Tries the seeds, the corpus, noise and mutated seeds. Fails if an input causes a panic or a hang, or breaks a
    /// promise.
    pub fn run(self, parser: impl Fn(&[u8]) -> Tried) {
        let mut kept = Vec::new();
        if let Ok(dir) = std::fs::read_dir(corpus(self.name)) {
            let mut files: Vec<PathBuf> = dir.filter_map(|file| Some(file.ok()?.path())).collect();
            files.sort();
            kept.extend(files.iter().map(|file| std::fs::read(file).unwrap()));
        }
        let watch = HangGuard::over(self.name);
        let (accepted, refused, noise, changed) = (Cell::new(0_u64), Cell::new(0_u64), Cell::new(0), Cell::new(0));
        let one = |bytes: &[u8]| -> Result<(), String> {
            watch.begins(bytes);
            match parser(bytes)? {
                Took::Accepted => accepted.set(accepted.get() + 1),
                Took::Refused => refused.set(refused.get() + 1),
            }
            Ok(())
        };
        for (i, seed) in self.seeds.iter().enumerate() {
            one(seed.as_bytes()).unwrap_or_else(|why| panic!("{}: seed {i}: {why}", self.name));
        }
        for bytes in &kept {
            one(bytes).unwrap_or_else(|why| panic!("{}: {why}: {:?}", self.name, String::from_utf8_lossy(bytes)));
        }
        let known = self.seeds.len() + kept.len();
        let texts = kept.into_iter().filter_map(|bytes| String::from_utf8(bytes).ok());
        let seeds: Vec<String> = self.seeds.iter().cloned().chain(texts).collect();
        let config =
            Config { cases: self.cases, failure_persistence: None, max_shrink_iters: 600, ..Config::default() };
        // `cargo test` tries the same inputs each time, on every machine. `make fuzz` tries different inputs each time.
        let mut runner = if factor() > 1 {
            TestRunner::new(config)
        } else {
            let seed: Vec<u8> = self.name.bytes().cycle().take(32).collect();
            TestRunner::new_with_rng(config, TestRng::from_seed(RngAlgorithm::ChaCha, &seed))
        };
        let outcome = runner.run(&inputs(seeds), |input| {
            let count = if input.changed { &changed } else { &noise };
            count.set(count.get() + 1);
            one(&input.bytes).map_err(TestCaseError::fail)
        });
        drop(watch);
        if let Err(TestError::Fail(why, input)) = outcome {
            let file = self.keep(&input.bytes);
            panic!("{}: {why}\n{input:?}\nkept as {}", self.name, file.display());
        }
        print_uncaptured(&format!(
            "fuzz {:<20} tried {:>6} inputs ({known} kept, {} noise, {} changed): {} accepted, {} refused",
            self.name,
            accepted.get() + refused.get(),
            noise.get(),
            changed.get(),
            accepted.get(),
            refused.get()
        ));
    }

    fn keep(&self, bytes: &[u8]) -> PathBuf {
        use std::hash::{DefaultHasher, Hash as _, Hasher as _};
        let dir = corpus(self.name);
        let _ = std::fs::create_dir_all(&dir);
        let mut hasher = DefaultHasher::new();
        bytes.hash(&mut hasher);
        let file = dir.join(format!("found-{:08x}", hasher.finish() >> 32));
        let _ = std::fs::write(&file, bytes);
        file
    }
}

/// Prints past the output capture of the test harness, so that the counts are visible.
fn print_uncaptured(text: &str) {
    let _ = std::fs::OpenOptions::new().append(true).open("/dev/stderr").and_then(|mut err| writeln!(err, "{text}"));
}

fn inputs(seeds: Vec<String>) -> impl Strategy<Value = Input> {
    let noise = prop_oneof![
        prop::collection::vec(any::<u8>(), 0..200),
        prop::collection::vec(any::<char>(), 0..100).prop_map(|text| text.into_iter().collect::<String>().into_bytes()),
        // Snippets that are significant to parsers.
        prop::collection::vec(prop::sample::select(change::SNIPPETS.to_vec()), 0..30)
            .prop_map(|parts| parts.concat().into_bytes()),
    ];
    let noise = noise.prop_map(|bytes| Input { bytes, changed: false });
    if seeds.is_empty() {
        return noise.boxed();
    }
    // Most inputs have one change, so that about half of them pass the parser and reach the code behind it.
    let change = || any::<(u8, usize, usize, usize)>().prop_map(Change::from);
    let changes = prop_oneof![3 => prop::collection::vec(change(), 1), 1 => prop::collection::vec(change(), 2..5)];
    let made = (prop::sample::select(seeds), changes)
        .prop_map(|(seed, changes)| Input { bytes: changed(&seed, &changes), changed: true });
    prop_oneof![1 => noise, 4 => made].boxed()
}

/// Aborts the process if one input hangs. The input is then left in a file, also if the input itself ends the process.
struct HangGuard {
    begun: Arc<Mutex<Instant>>,
    over: Arc<AtomicBool>,
    file: PathBuf,
}

impl HangGuard {
    fn over(name: &'static str) -> Self {
        let file = std::env::temp_dir().join(format!("cketerm-fuzz-{name}-{}", std::process::id()));
        let (begun, over) = (Arc::new(Mutex::new(Instant::now())), Arc::new(AtomicBool::new(false)));
        let (seen, ended, input_file) = (Arc::clone(&begun), Arc::clone(&over), file.clone());
        std::thread::spawn(move || {
            while !ended.load(Ordering::SeqCst) {
                if seen.lock().unwrap().elapsed() > HANG_TIMEOUT {
                    print_uncaptured(&format!("fuzz {name} hangs on {}", input_file.display()));
                    std::process::abort();
                }
                std::thread::sleep(Duration::from_millis(200));
            }
        });
        Self { begun, over, file }
    }

    fn begins(&self, bytes: &[u8]) {
        *self.begun.lock().unwrap() = Instant::now();
        let _ = std::fs::write(&self.file, bytes);
    }
}

impl Drop for HangGuard {
    fn drop(&mut self) {
        self.over.store(true, Ordering::SeqCst);
        let _ = std::fs::remove_file(&self.file);
    }
}

/// Checks that a message fits on one line of a screen or a log: it has no control characters.
pub fn one_line(text: &str) -> Result<(), String> {
    match text.chars().find(|c| c.is_control()) {
        Some(c) => Err(format!("a message contains {c:?}: {:?}", text.chars().take(400).collect::<String>())),
        None => Ok(()),
    }
}

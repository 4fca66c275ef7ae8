//! Event loop of the console. Its inputs are keys, published states, time and signals; its outputs are frames and
//! effects.
//!
//! A key is answered at once. Published states are collected and drawn at most ten times a second; all frames together
//! at most thirty times a second. An idle console writes nothing.

use std::{
    future::pending,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use anyhow::Context as _;
use ratatui::{Terminal, layout::Size};
use tokio::{
    signal::unix::{Signal, SignalKind, signal},
    sync::{mpsc, oneshot, watch},
    time::{Instant, sleep_until},
};

use super::{
    app::{App, Looks},
    attention::Attention,
    backend::Quiet,
    clipboard,
    event::{Effect, Event},
    frame_limiter::FrameLimiter,
    input_reader::{InputReader, Themes},
    options::ConsoleOptions,
    past::{Answer, Question},
    perform::perform,
    reader,
    settings::{self, Settings},
    settings_writer::SettingsWriter,
    terminal::{self, Held},
    theme::background::{self, Background},
    update::update,
    views,
};
use crate::{
    actions::Operator,
    clock::Steady,
    engine::{run::LONGEST_END, snapshot::Seen},
    kubernetes::Kube,
    store::Store,
    telemetry::Ring,
};

/// Shortest time between two frames that no key caused.
const NEWS: Duration = Duration::from_millis(100);
/// The same during the first `START` seconds: what the operator waits for is shown as soon as it arrives.
const SOON: Duration = Duration::from_millis(10);
const START: Duration = Duration::from_secs(3);
/// Longest time without a published state before the ages on the screen advance anyway. It is a little longer than the
/// engine's interval of one second, so an idle console wakes once a second, not twice.
const TICK: Duration = Duration::from_millis(1100);
/// Longest wait for the engine to resign before the process stops: two seconds more than the longest shutdown. A
/// stopped process would keep the lock, and a machine between power-off and power-on, until somebody notices.
const RESIGN: Duration = Duration::from_secs(LONGEST_END.as_secs() + 2);

/// Clients through which the console reads and acts, once the servers are connected.
#[derive(Clone)]
pub struct Clients {
    /// Reads what the live copy does not hold.
    pub store: Store,
    /// Lists the pods that a drain would evict.
    pub kube: Option<Kube>,
    /// Acts for the operator. A console started read-only uses it only while `:write` is in force.
    pub operator: Option<Operator>,
}

/// Receives the [`Clients`] once they exist.
pub type ClientsReceiver = watch::Receiver<Option<Clients>>;

/// Runs the console until the operator quits (`q`) or SIGTERM, SIGINT or SIGHUP arrives. The terminal is restored
/// however it ends. The caller must await it on the main thread: only a panic of that thread restores the screen.
pub async fn run(
    seen: watch::Receiver<Arc<Seen>>,
    clients: ClientsReceiver,
    options: ConsoleOptions,
) -> anyhow::Result<()> {
    let ready = Ready::read(&options).map_err(anyhow::Error::msg)?;
    let (columns, rows) = crossterm::terminal::size().context("the terminal does not tell its size")?;
    let held = Held::take(options.modes).context("the terminal could not be taken")?;
    let mut console = Console::new(ready, &options, Size::new(columns, rows), clients)?;
    let ended = console.until_left(seen, &options).await;
    console.input_reader.hear_out().await;
    if let Some(keeper) = console.keeper.take() {
        keeper.end().await;
    }
    drop(held);
    ended
}

/// Data from the user's home. It is read before the terminal is taken, because a home may be on a file server that does
/// not answer.
struct Ready {
    looks: Looks,
    /// Themes of `auto`, by the background that the terminal reports. A theme that cannot be read leaves the terminal's
    /// own colours.
    themes: Themes,
    /// The saved columns and sort orders, and their path.
    kept: Option<(PathBuf, Result<Settings, String>)>,
}

impl Ready {
    fn read(options: &ConsoleOptions) -> Result<Self, String> {
        let looks = options.looks()?;
        let of = |background| options.background_theme(background);
        let themes = Themes { light: of(Background::Light), dark: of(Background::Dark) };
        let kept = options.settings.clone().map(|path| {
            let read = settings::read(&path);
            (path, read)
        });
        Ok(Self { looks, themes, kept })
    }
}

/// Applies the saved columns and sort orders. Reports errors in the file and leaves the file unchanged.
fn recall(app: &mut App, path: &Path, kept: Result<Settings, String>) {
    let said = match kept {
        Ok(kept) => settings::apply(app, &kept),
        Err(why) => vec![format!("it is ignored: {}", why.lines().next().unwrap_or_default())],
    };
    if !said.is_empty() {
        app.refuse(format!("{}: {}", path.display(), said.join("; ")));
    }
}

/// SIGHUP, SIGTERM, SIGINT, SIGTSTP.
struct Signals {
    hangup: Signal,
    terminate: Signal,
    interrupt: Signal,
    stop: Signal,
}

impl Signals {
    fn new() -> std::io::Result<Self> {
        let stop = SignalKind::from_raw(rustix::process::Signal::TSTP.as_raw());
        Ok(Self {
            hangup: signal(SignalKind::hangup())?,
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
            stop: signal(stop)?,
        })
    }
}

struct Console {
    app: App,
    steady: Steady,
    terminal: Terminal<Quiet<std::io::Stdout>>,
    input_reader: InputReader,
    clients: ClientsReceiver,
    logs: Option<Ring>,
    /// Sends outcomes of actions and answers to questions. The channel is unbounded, but the load is bounded: by what
    /// an operator confirms, and by one question per folder.
    tell: mpsc::UnboundedSender<Event>,
    done: mpsc::UnboundedReceiver<Event>,
    pace: FrameLimiter,
    /// Whether the operator's permissions were requested.
    asked_rights: bool,
    keeper: Option<SettingsWriter>,
    attention: Attention,
}

impl Console {
    fn new(ready: Ready, options: &ConsoleOptions, size: Size, clients: ClientsReceiver) -> anyhow::Result<Self> {
        let Ready { looks, themes, kept } = ready;
        let steady = Steady::new(&options.clock);
        let mut app = App::new(looks, options.view, steady.now());
        app.size = size;
        if options.sandbox {
            app.say("a simulated data centre: :tour shows the first steps");
        }
        if let Some((path, kept)) = kept {
            recall(&mut app, &path, kept);
        }
        let terminal = Terminal::new(Quiet::new(std::io::stdout(), size))?;
        let (tell, done) = mpsc::unbounded_channel();
        let keeper = options.settings.clone().map(|path| SettingsWriter::new(path, tell.clone()));
        Ok(Self {
            app,
            steady,
            terminal,
            input_reader: InputReader::new(themes),
            clients,
            logs: options.logs.clone(),
            tell,
            done,
            pace: FrameLimiter::new(),
            asked_rights: false,
            keeper,
            attention: Attention::new(options.modes.title, options.bell),
        })
    }

    async fn until_left(
        &mut self,
        mut seen: watch::Receiver<Arc<Seen>>,
        options: &ConsoleOptions,
    ) -> anyhow::Result<()> {
        let mut signals = Signals::new()?;
        if options.ask_background {
            self.input_reader.expect_answer();
            self.terminal.backend_mut().say(background::QUESTION)?;
        }
        self.draw()?;
        let mut tick = tokio::time::interval_at(Instant::now() + TICK, TICK);
        tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Skip);
        // Time of the next frame, if one is due.
        let mut due: Option<Instant> = None;
        let began = Instant::now();
        let mut news_at = began;
        let mut fresh = true;
        let mut publisher = true;
        loop {
            let event = tokio::select! {
                biased;
                _ = signals.hangup.recv() => return Ok(()),
                _ = signals.terminate.recv() => return Ok(()),
                _ = signals.interrupt.recv() => return Ok(()),
                _ = signals.stop.recv() => {
                    self.suspend(options).await?;
                    continue;
                }
                heard = self.input_reader.next() => match heard {
                    Some(event) => event,
                    // the terminal is gone
                    None => return Ok(()),
                },
                () = until(due) => {
                    due = None;
                    self.draw()?;
                    continue;
                }
                Some(event) = self.done.recv() => event,
                () = sleep_until(news_at), if fresh => {
                    fresh = false;
                    news_at = Instant::now() + if began.elapsed() < START { SOON } else { NEWS };
                    // A published state carries the time too, so no tick is needed.
                    tick.reset();
                    if began.elapsed() > TICK {
                        self.ask_rights();
                        self.input_reader.let_go();
                    }
                    Event::Seen(Arc::clone(&seen.borrow_and_update()))
                }
                changed = seen.changed(), if !fresh && publisher => {
                    // The last state of a publisher that ended stays and ages on the screen.
                    publisher = changed.is_ok();
                    fresh = publisher;
                    continue;
                }
                _ = tick.tick() => {
                    self.ask_rights();
                    self.input_reader.let_go();
                    Event::Tick(self.steady.now())
                }
            };
            if let Event::Resize(columns, rows) = &event {
                self.terminal.backend_mut().resize(Size::new(*columns, *rows));
            }
            self.app.now = self.steady.now();
            let news = matches!(event, Event::Seen(_) | Event::Tick(_));
            for effect in update(&mut self.app, event) {
                match effect {
                    Effect::Quit => return Ok(()),
                    Effect::Suspend => self.suspend(options).await?,
                    Effect::Repaint => self.repaint()?,
                    Effect::Act(action) => self.act(action),
                    Effect::Keep(change) => {
                        if let Some(keeper) = &self.keeper {
                            keeper.keep(change);
                        }
                    }
                    Effect::Ask(question) => self.ask(question),
                    Effect::Copy(text) => self.terminal.backend_mut().say(&clipboard::sequence(&text))?,
                }
            }
            if news {
                let said = self.attention.heed(&self.app);
                if !said.is_empty() {
                    self.terminal.backend_mut().say(&said)?;
                }
            }
            let next = self.pace.next();
            if Instant::now() >= next {
                due = None;
                self.draw()?;
            } else {
                due = Some(due.map_or(next, |d| d.min(next)));
            }
        }
    }

    fn act(&mut self, action: super::event::Action) {
        let (clients, done) = (self.clients.borrow().clone(), self.tell.clone());
        if self.app.read_only() {
            // `update` requests no action while read-only. This guards against future code that does.
            let _ = done.send(Event::Done(Err("read-only: nothing was done".to_owned())));
            return;
        }
        let Some(operator) = clients.and_then(|clients| clients.operator) else {
            let why = "not connected to etcd yet: try again in a moment".to_owned();
            let _ = done.send(Event::Done(Err(why)));
            return;
        };
        // The operator's identity tells own changes from others when they return through the watch.
        self.app.me.get_or_insert_with(|| operator.who.clone());
        tokio::spawn(async move {
            let result = perform(&operator, action).await;
            // The send fails if the console has quit.
            let _ = done.send(Event::Done(result));
        });
    }

    /// Requests the operator's permissions once, as soon as the console can change something.
    fn ask_rights(&mut self) {
        if self.app.me.is_none() {
            self.app.me =
                self.clients.borrow().as_ref().and_then(|clients| clients.operator.as_ref()).map(|o| o.who.clone());
        }
        if !self.asked_rights && !self.app.read_only() && self.clients.borrow().is_some() {
            self.asked_rights = true;
            self.ask(Question::Rights);
        }
    }

    fn ask(&mut self, question: Question) {
        if let Question::Logs(after) = question {
            let lines = self.logs.as_ref().map(|ring| ring.after(after)).unwrap_or_default();
            let _ = self.tell.send(Event::Answered(Box::new(Answer::Logs(lines))));
            return;
        }
        let (clients, tell) = (self.clients.borrow().clone(), self.tell.clone());
        let Some(clients) = clients else {
            let _ = tell.send(Event::Answered(Box::new(question.refused("not connected to etcd yet".to_owned()))));
            return;
        };
        let seen = Arc::clone(&self.app.seen);
        tokio::spawn(async move {
            let answer = reader::read(&clients.store, clients.kube.as_ref(), &seen, question).await;
            let _ = tell.send(Event::Answered(Box::new(answer)));
        });
    }

    fn draw(&mut self) -> anyhow::Result<()> {
        self.pace.spend();
        let app = &self.app;
        self.terminal.draw(|frame| views::draw(app, frame))?;
        Ok(())
    }

    /// Redraws every cell, without a query to the terminal.
    fn repaint(&mut self) -> anyhow::Result<()> {
        let size = self.app.size;
        self.terminal.resize(ratatui::layout::Rect::new(0, 0, size.width, size.height))?;
        self.draw()
    }

    /// Restores the terminal and stops the process. Takes the terminal again when the process continues.
    async fn suspend(&mut self, options: &ConsoleOptions) -> anyhow::Result<()> {
        if let Some(resign) = &options.resign {
            let (ask, answer) = oneshot::channel();
            let most = LONGEST_END.as_secs();
            self.app.say(format!(
                "stops once the engine has released the lock: commands and power cycles that are under way end first \
                 (at most {most} s)"
            ));
            self.draw()?;
            if resign.send(ask).await.is_ok() {
                let _ = tokio::time::timeout(RESIGN, answer).await;
            }
            self.app.message = None;
        }
        // The reader owns stdin. It must end before the shell gets stdin back, and before a new reader starts.
        self.input_reader.hear_out().await;
        self.input_reader.end();
        terminal::leave(options.modes);
        rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::STOP)?;
        // The process stops here and continues after SIGCONT.
        terminal::enter(options.modes)?;
        self.attention.forget();
        self.input_reader.begin();
        let (columns, rows) = crossterm::terminal::size()?;
        self.app.now = self.steady.now();
        self.terminal.backend_mut().resize(Size::new(columns, rows));
        // The loop must process the resize, because `update` may request effects for it. A question that never starts
        // would be awaited for ever.
        self.input_reader.push(Event::Resize(columns, rows));
        self.repaint()
    }
}

async fn until(due: Option<Instant>) {
    match due {
        Some(due) => sleep_until(due).await,
        None => pending().await,
    }
}

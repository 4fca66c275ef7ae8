//! The loop: input, what was seen, time and signals in; frames and effects out.
//!
//! A key is answered at once; news of the cluster are gathered and drawn at most ten times a second, everything
//! together at most thirty times. An idle console writes nothing.

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

/// Between two frames that nobody asked for by a key.
const NEWS: Duration = Duration::from_millis(100);
/// The same for so long after the start: what is waited for is shown as soon as it is there.
const SOON: Duration = Duration::from_millis(10);
const START: Duration = Duration::from_secs(3);
/// Without news for so long the ages on the screen go on by themselves: a little longer than the engine, which tells what
/// it sees once a second, so that an idle console wakes once and not twice.
const TICK: Duration = Duration::from_millis(1100);
/// How long an engine may take to resign before the process is stopped: a moment more than it takes at most. A stopped
/// process would keep the lock, and a machine between off and on, for as long as nobody looks.
const RESIGN: Duration = Duration::from_secs(LONGEST_END.as_secs() + 2);

/// What the console reads and acts through, once the servers are connected.
#[derive(Clone)]
pub struct Clients {
    /// Reads what the live copy does not hold.
    pub store: Store,
    /// Reads the pods that a drain would meet.
    pub kube: Option<Kube>,
    /// Who acts for the operator; a console that was started read-only asks it only while `:write` allows it.
    pub operator: Option<Operator>,
}

/// The same, when it comes.
pub type ClientsReceiver = watch::Receiver<Option<Clients>>;

/// Runs the console until it is left (`q`, SIGTERM, SIGHUP). The terminal is restored however it ends. To be awaited on
/// the main thread: only its panics tear the screen down.
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

/// What is read of the user's home: before the terminal is taken, since a home may lie on a server that does not answer.
struct Ready {
    looks: Looks,
    /// Those of `auto`, by what the terminal may say of its background; one that cannot be read leaves the terminal's own
    /// colours.
    themes: Themes,
    /// Columns and orders of the last time, and where they lie.
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

/// Puts columns and orders of the last time into force; what is wrong with the file is said, and the file left alone.
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
    /// What became of actions and questions; bounded by what a person confirms, and by one question a folder.
    tell: mpsc::UnboundedSender<Event>,
    done: mpsc::UnboundedReceiver<Event>,
    pace: FrameLimiter,
    /// The servers were asked what this person may change.
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
            app.say("a data centre of its own, where nothing is real: :tour shows the first steps");
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
        // when the next frame is due, if one is
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
                    // news come with the time of day: no tick is needed beside them
                    tick.reset();
                    if began.elapsed() > TICK {
                        self.ask_rights();
                        self.input_reader.let_go();
                    }
                    Event::Seen(Arc::clone(&seen.borrow_and_update()))
                }
                changed = seen.changed(), if !fresh && publisher => {
                    // a publisher that ended leaves its last word: it ages on the screen
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
            // `update` asks for nothing then; whoever adds a way to it meets this
            let _ = done.send(Event::Done(Err("read-only: nothing was done".to_owned())));
            return;
        }
        let Some(operator) = clients.and_then(|clients| clients.operator) else {
            let why = "etcd is not connected yet: try again in a moment".to_owned();
            let _ = done.send(Event::Done(Err(why)));
            return;
        };
        // what comes back through the watch is known for one's own
        self.app.me.get_or_insert_with(|| operator.who.clone());
        tokio::spawn(async move {
            let result = perform(&operator, action).await;
            // the console may have been left
            let _ = done.send(Event::Done(result));
        });
    }

    /// Once, as soon as somebody could change something.
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
            let _ = tell.send(Event::Answered(Box::new(question.refused("etcd is not connected yet".to_owned()))));
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

    /// Draws every cell again, without asking the terminal anything.
    fn repaint(&mut self) -> anyhow::Result<()> {
        let size = self.app.size;
        self.terminal.resize(ratatui::layout::Rect::new(0, 0, size.width, size.height))?;
        self.draw()
    }

    /// Gives the terminal back and stops the process; takes it again when the process goes on.
    async fn suspend(&mut self, options: &ConsoleOptions) -> anyhow::Result<()> {
        if let Some(resign) = &options.resign {
            let (ask, answer) = oneshot::channel();
            let most = LONGEST_END.as_secs();
            self.app.say(format!(
                "stops when the engine has given the lock back: commands and power cycles that are under way end first \
                 (at most {most} s)"
            ));
            self.draw()?;
            if resign.send(ask).await.is_ok() {
                let _ = tokio::time::timeout(RESIGN, answer).await;
            }
            self.app.message = None;
        }
        // the reader owns stdin: it ends before the shell gets it back, and before another can be made
        self.input_reader.hear_out().await;
        self.input_reader.end();
        terminal::leave(options.modes);
        rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::STOP)?;
        // the process was stopped here; it goes on after SIGCONT
        terminal::enter(options.modes)?;
        self.attention.forget();
        self.input_reader.begin();
        let (columns, rows) = crossterm::terminal::size()?;
        self.app.now = self.steady.now();
        self.terminal.backend_mut().resize(Size::new(columns, rows));
        // taken in by the loop, since what it asks for has to be carried out: a question nobody asked would be waited for
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

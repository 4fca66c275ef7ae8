//! The loop: input, what was seen, time and signals in; frames and effects out.
//!
//! A key is answered at once; news of the cluster are gathered and drawn at most ten times a second, everything
//! together at most thirty times. An idle console writes nothing.

use std::{
    collections::{BTreeMap, VecDeque},
    future::{pending, ready},
    path::PathBuf,
    sync::Arc,
    time::Duration,
};

use anyhow::Context as _;
use crossterm::event::{Event as TerminalEvent, EventStream};
use futures::StreamExt;
use ratatui::{Terminal, layout::Size};
use tokio::{
    signal::unix::{Signal, SignalKind, signal},
    sync::{mpsc, oneshot, watch},
    time::{Instant, sleep_until},
};

use super::{
    app::{App, Looks, View},
    attention::Attention,
    backend::Quiet,
    clipboard,
    event::{Effect, Event},
    keeper::Keeper,
    keys::Keymap,
    letters::Letters,
    past::{Answer, Question},
    perform::perform,
    reader, settings,
    terminal::{self, Held, Modes},
    theme::{
        self, Shelf, Theme,
        background::{self, Background, Ear},
    },
    update::update,
    views,
};
use crate::{
    actions::Operator,
    clock::{Clock, Steady},
    config::Bell,
    engine::{run::LONGEST_END, snapshot::Seen},
    kubernetes::Kube,
    store::Store,
    telemetry::Ring,
};

/// Between two frames on average: thirty a second.
const FRAME: Duration = Duration::from_millis(34);
/// How many frames may come sooner than that, so that a key is answered at once although news were just drawn.
const BURST: u32 = 3;
/// Between two frames that nobody asked for by a key.
const NEWS: Duration = Duration::from_millis(100);
/// The same for so long after the start: what is waited for is shown as soon as it is there.
const SOON: Duration = Duration::from_millis(10);
const START: Duration = Duration::from_secs(3);
/// Without news for so long the ages on the screen go on by themselves: a little longer than the engine, which tells what
/// it sees once a second, so that an idle console wakes once and not twice.
const TICK: Duration = Duration::from_millis(1100);
/// For so long after the question an answer may still be under way.
const HEAR_OUT: Duration = Duration::from_secs(2);
/// How long an engine may take to resign before the process is stopped: a moment more than it takes at most. A stopped
/// process would keep the lock, and a machine between off and on, for as long as nobody looks.
const RESIGN: Duration = Duration::from_secs(LONGEST_END.as_secs() + 2);

/// How the console looks and begins.
#[allow(clippy::struct_excessive_bools)] // each is a switch of its own
#[derive(Debug)]
pub struct ConsoleOptions {
    /// The first view.
    pub view: View,
    /// The badge's word; none = the cluster's name.
    pub cluster_badge: Option<String>,
    /// The badge's colour: one of the 16 by name.
    pub badge_colour: Option<String>,
    /// A theme's name; `auto` = light or dark as the terminal is.
    pub theme: String,
    /// Where themes lie.
    pub shelf: Shelf,
    /// The terminal may be asked whether it is light or dark, and has a say in the theme.
    pub ask_background: bool,
    /// What the terminal can show.
    pub letters: Letters,
    /// Title and mouse.
    pub modes: Modes,
    /// When the bell rings.
    pub bell: Bell,
    /// Whether colours are used: false for `NO_COLOR` and `--color never`.
    pub colour: bool,
    /// Keys that differ from the table, by command name; an empty list unbinds.
    pub keys: BTreeMap<String, Vec<String>>,
    /// No actions.
    pub read_only: bool,
    /// Lines in place of a screen.
    pub plain: bool,
    /// It is a sandbox that ends with the console.
    pub sandbox: bool,
    /// The file in which columns and orders are kept; none = they are not.
    pub settings: Option<PathBuf>,
    /// The terminal's characters are UTF-8, and its font has blocks.
    pub blocks: bool,
    /// etcd's endpoints, for the first screen.
    pub endpoints: Vec<String>,
    /// Where ages come from.
    pub clock: Clock,
    /// The last lines of this process's log.
    pub logs: Option<Ring>,
    /// Asked before the process stops (Ctrl-Z, SIGTSTP), so that the engine beside us resigns first; it answers when
    /// it has.
    pub resign: Option<mpsc::Sender<oneshot::Sender<()>>>,
}

impl Default for ConsoleOptions {
    fn default() -> Self {
        Self {
            view: View::Overview,
            cluster_badge: None,
            badge_colour: None,
            theme: theme::DEFAULT.to_owned(),
            shelf: Shelf::here(),
            ask_background: false,
            letters: Letters::default(),
            modes: Modes::default(),
            bell: Bell::default(),
            colour: true,
            keys: BTreeMap::new(),
            read_only: false,
            plain: false,
            sandbox: false,
            settings: None,
            blocks: false,
            endpoints: Vec::new(),
            clock: Clock::Host,
            logs: None,
            resign: None,
        }
    }
}

impl ConsoleOptions {
    /// Theme and keys, or what is wrong with them: to be called before the terminal is taken.
    pub fn looks(&self) -> Result<Looks, String> {
        // until it is known whether the terminal is light or dark, its own colours do for both
        let name = if self.theme == theme::AUTO { theme::DEFAULT } else { &self.theme };
        Ok(Looks {
            theme: self.theme_named(name)?,
            keymap: Keymap::new(&self.keys)?,
            badge: self.cluster_badge.clone(),
            endpoints: self.endpoints.clone(),
            read_only: self.read_only,
            blocks: self.blocks,
            sandbox: self.sandbox,
            kept: self.settings.is_some(),
            letters: self.letters,
        })
    }

    fn theme_named(&self, name: &str) -> Result<Theme, String> {
        let mut theme = self.shelf.theme(name, self.colour)?;
        if let Some(name) = &self.badge_colour {
            let colour = theme::colour(name)?;
            if self.colour {
                theme.badge = theme.badge.fg(colour);
            }
        }
        Ok(theme)
    }
}

/// What the console reads and acts through, once the servers are connected.
#[derive(Clone)]
pub struct Hand {
    /// Reads what the live copy does not hold.
    pub store: Store,
    /// Reads the pods that a drain would meet.
    pub kube: Option<Kube>,
    /// Who acts for the operator; a console that was started read-only asks it only while `:write` allows it.
    pub operator: Option<Operator>,
}

/// The same, when it comes.
pub type Hands = watch::Receiver<Option<Hand>>;

/// Runs the console until it is left (`q`, SIGTERM, SIGHUP). The terminal is restored however it ends. To be awaited on
/// the main thread: only its panics tear the screen down.
pub async fn run(seen: watch::Receiver<Arc<Seen>>, hands: Hands, options: ConsoleOptions) -> anyhow::Result<()> {
    let looks = options.looks().map_err(anyhow::Error::msg)?;
    let (columns, rows) = crossterm::terminal::size().context("the terminal does not tell its size")?;
    let held = Held::take(options.modes).context("the terminal could not be taken")?;
    let mut console = Console::new(looks, &options, Size::new(columns, rows), hands)?;
    let ended = console.until_left(seen, &options).await;
    console.hear_out().await;
    if let Some(keeper) = console.keeper.take() {
        keeper.end().await;
    }
    drop(held);
    ended
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
    /// None only while the process is about to stop.
    input: Option<EventStream>,
    hands: Hands,
    logs: Option<Ring>,
    /// What became of actions and questions; bounded by what a person confirms, and by one question a folder.
    tell: mpsc::UnboundedSender<Event>,
    done: mpsc::UnboundedReceiver<Event>,
    pace: Pace,
    /// The servers were asked what this person may change.
    asked_rights: bool,
    keeper: Option<Keeper>,
    /// Hears what the terminal says of its background, among the keys.
    ear: Ear,
    /// When the terminal was asked, and when a key came last.
    asked: Instant,
    pressed: Instant,
    /// What was made of the keys and has not been taken in yet.
    heard: VecDeque<Event>,
    attention: Attention,
}

impl Console {
    fn new(looks: Looks, options: &ConsoleOptions, size: Size, hands: Hands) -> anyhow::Result<Self> {
        let steady = Steady::new(&options.clock);
        let mut app = App::new(looks, options.view, steady.now());
        app.size = size;
        if options.sandbox {
            app.say("a data centre of its own, where nothing is real: :tour shows the first steps");
        }
        recall(&mut app, options);
        let terminal = Terminal::new(Quiet::new(std::io::stdout(), size))?;
        let (tell, done) = mpsc::unbounded_channel();
        let keeper = options.settings.clone().map(|path| Keeper::new(path, tell.clone()));
        Ok(Self {
            app,
            steady,
            terminal,
            input: Some(EventStream::new()),
            hands,
            logs: options.logs.clone(),
            tell,
            done,
            pace: Pace { paid: Instant::now() },
            asked_rights: false,
            keeper,
            ear: Ear::default(),
            asked: Instant::now(),
            pressed: Instant::now(),
            heard: VecDeque::new(),
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
            self.ear = Ear::open();
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
                Some(event) = ready(self.heard.pop_front()) => event,
                _ = signals.hangup.recv() => return Ok(()),
                _ = signals.terminate.recv() => return Ok(()),
                _ = signals.interrupt.recv() => return Ok(()),
                _ = signals.stop.recv() => {
                    self.suspend(options).await?;
                    continue;
                }
                key = next(&mut self.input) => match key {
                    Some(Ok(event)) => {
                        self.hear(event, options);
                        continue;
                    }
                    // the terminal is gone
                    Some(Err(_)) | None => return Ok(()),
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
                        self.let_go();
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
                    self.let_go();
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

    /// What the terminal sent: keys, among which its answer may be.
    fn hear(&mut self, event: TerminalEvent, options: &ConsoleOptions) {
        match event {
            TerminalEvent::Key(key) => {
                self.pressed = Instant::now();
                let heard = self.ear.hear(key);
                self.heard.extend(heard.keys.into_iter().map(Event::Key));
                // a theme of the user's that cannot be read: the terminal's own colours stay
                let theme = |background: Background| options.theme_named(background.theme()).ok();
                self.heard.extend(heard.answer.and_then(theme).map(|theme| Event::Themed(Box::new(theme))));
            }
            TerminalEvent::Paste(text) => self.heard.push_back(Event::Paste(text)),
            TerminalEvent::Mouse(event) => self.heard.push_back(Event::Mouse(event)),
            TerminalEvent::Resize(columns, rows) => self.heard.push_back(Event::Resize(columns, rows)),
            TerminalEvent::FocusGained | TerminalEvent::FocusLost => {}
        }
    }

    /// Once a second: what was held back for an answer that did not go on is a person's.
    fn let_go(&mut self) {
        let keys = if self.asked.elapsed() > background::PATIENCE {
            self.ear.close()
        } else if self.pressed.elapsed() >= background::BUDGET {
            self.ear.let_go()
        } else {
            return;
        };
        self.heard.extend(keys.into_iter().map(Event::Key));
    }

    /// Waits a moment for an answer that is under way: the shell would take it for typing.
    async fn hear_out(&mut self) {
        let answered = async {
            while self.ear.expects() {
                match next(&mut self.input).await {
                    Some(Ok(TerminalEvent::Key(key))) => drop(self.ear.hear(key)),
                    Some(Ok(_)) => {}
                    Some(Err(_)) | None => return,
                }
            }
        };
        // who has not answered by now does not answer such questions
        if self.asked.elapsed() < HEAR_OUT {
            let _ = tokio::time::timeout(background::BUDGET, answered).await;
        }
    }

    fn act(&mut self, action: super::event::Action) {
        let (hand, done) = (self.hands.borrow().clone(), self.tell.clone());
        if self.app.read_only() {
            // `update` asks for nothing then; whoever adds a way to it meets this
            let _ = done.send(Event::Done(Err("read-only: nothing was done".to_owned())));
            return;
        }
        let Some(operator) = hand.and_then(|hand| hand.operator) else {
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
            self.app.me = self.hands.borrow().as_ref().and_then(|hand| hand.operator.as_ref()).map(|o| o.who.clone());
        }
        if !self.asked_rights && !self.app.read_only() && self.hands.borrow().is_some() {
            self.asked_rights = true;
            self.ask(Question::Rights);
        }
    }

    fn ask(&mut self, question: Question) {
        if let Question::Logs(after) = question {
            let lines = self.logs.as_ref().map(|ring| ring.after(after)).unwrap_or_default();
            let _ = self.tell.send(Event::Told(Box::new(Answer::Logs(lines))));
            return;
        }
        let (hand, tell) = (self.hands.borrow().clone(), self.tell.clone());
        let Some(hand) = hand else {
            let _ = tell.send(Event::Told(Box::new(question.refused("etcd is not connected yet".to_owned()))));
            return;
        };
        let seen = Arc::clone(&self.app.seen);
        tokio::spawn(async move {
            let answer = reader::read(&hand.store, hand.kube.as_ref(), &seen, question).await;
            let _ = tell.send(Event::Told(Box::new(answer)));
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
        self.hear_out().await;
        self.input = None;
        // the end of the reader wakes whoever polls next; left there for the next reader, it would hide the first key that
        // comes with it (crossterm reads on edges, and forgets the rest of a batch after a wake)
        let _ = crossterm::event::poll(Duration::ZERO);
        terminal::leave(options.modes);
        rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::STOP)?;
        // the process was stopped here; it goes on after SIGCONT
        terminal::enter(options.modes)?;
        self.attention.forget();
        self.input = Some(EventStream::new());
        let (columns, rows) = crossterm::terminal::size()?;
        self.app.now = self.steady.now();
        self.terminal.backend_mut().resize(Size::new(columns, rows));
        // taken in by the loop, since what it asks for has to be carried out: a question nobody asked would be waited for
        self.heard.push_back(Event::Resize(columns, rows));
        self.repaint()
    }
}

/// Puts columns and orders of the last time into force; what is wrong with the file is said, and the file left alone.
fn recall(app: &mut App, options: &ConsoleOptions) {
    let Some(path) = &options.settings else { return };
    let said = match settings::read(path) {
        Ok(kept) => settings::apply(app, &kept),
        Err(why) => vec![format!("it is ignored: {}", why.lines().next().unwrap_or_default())],
    };
    if !said.is_empty() {
        app.refuse(format!("{}: {}", path.display(), said.join("; ")));
    }
}

/// Lets frames through: thirty a second on average, a few at once.
struct Pace {
    /// Until when the frames so far have used up the time.
    paid: Instant,
}

impl Pace {
    /// When the next frame may be drawn.
    fn next(&self) -> Instant {
        self.paid.checked_sub(FRAME * BURST).unwrap_or(self.paid)
    }

    /// A frame is drawn now.
    fn spend(&mut self) {
        self.paid = self.paid.max(Instant::now()) + FRAME;
    }
}

async fn next(input: &mut Option<EventStream>) -> Option<std::io::Result<TerminalEvent>> {
    match input {
        Some(input) => input.next().await,
        None => pending().await,
    }
}

async fn until(due: Option<Instant>) {
    match due {
        Some(due) => sleep_until(due).await,
        None => pending().await,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_key_after_news_is_answered_at_once_and_thirty_frames_a_second_are_never_exceeded_for_long() {
        let mut pace = Pace { paid: Instant::now() };
        pace.spend();
        assert!(pace.next() <= Instant::now(), "right after a frame");
        let (began, mut frames) = (Instant::now(), 0);
        while began.elapsed() < Duration::from_secs(1) {
            if Instant::now() >= pace.next() {
                pace.spend();
                frames += 1;
            }
            tokio::time::advance(Duration::from_millis(1)).await;
        }
        assert!((25..=33).contains(&frames), "{frames}");
    }
}

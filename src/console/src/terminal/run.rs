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
use cketerm_actions::Operator;
use cketerm_clients::{kubernetes::Kube, store::Store};
use cketerm_model::clock::Steady;
use cketerm_rules::seen::Seen;
use cketerm_runtime::telemetry::Ring;
use ratatui::{Terminal, layout::Size};
use tokio::{
    signal::unix::{Signal, SignalKind, signal},
    sync::{mpsc, oneshot, watch},
    time::{Instant, sleep_until, timeout},
};

use super::{
    attention::Attention,
    backend::BufferedBackend,
    clipboard,
    frame_limiter::FrameLimiter,
    guard as terminal,
    guard::{Modes, TerminalGuard},
    input_reader::{InputReader, Themes},
    options::ConsoleOptions,
    width_probe,
};
use crate::{
    effects::{perform::perform, reader, settings_writer::SettingsWriter},
    input::{is_text_key, update},
    state::{
        App, AppConfig,
        dialog::Dialog,
        event::{Effect, Event},
        past::{ReadRequest, ReadResponse},
        settings::{self, Settings},
    },
    theme::background::{self, Background},
    views,
};

/// Shortest time between two frames that no key caused.
const SNAPSHOT_INTERVAL: Duration = Duration::from_millis(100);
/// The same during the first `START_PERIOD` seconds: what the operator waits for is shown as soon as it arrives.
const START_INTERVAL: Duration = Duration::from_millis(10);
const START_PERIOD: Duration = Duration::from_secs(3);
/// Time that the cursor has to rest on a row before its detail is shown beside the table.
const REST: Duration = Duration::from_millis(100);
/// Longest time without a published state before the ages on the screen advance anyway. It is a little longer than the
/// engine's interval of one second, so an idle console wakes once a second, not twice.
const TICK_INTERVAL: Duration = Duration::from_millis(1100);
/// Time that is added to the engine's longest end before the process stops. A stopped process would keep the lock, and
/// a machine between power-off and power-on, until somebody notices.
const RESIGN_MARGIN: Duration = Duration::from_secs(2);

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
    mut options: ConsoleOptions,
) -> anyhow::Result<()> {
    let ready = Prepared::read(&options).map_err(anyhow::Error::msg)?;
    options.modes.mouse = ready.config.mouse;
    let (columns, rows) = crossterm::terminal::size().context("the terminal does not tell its size")?;
    let terminal_guard = TerminalGuard::take(options.modes).context("the terminal could not be taken")?;
    let mut console = Console::new(ready, &options, Size::new(columns, rows), clients)?;
    let ended = console.event_loop(seen, &options).await;
    console.input_reader.drain_answer().await;
    if let Some(settings_writer) = console.settings_writer.take() {
        settings_writer.end().await;
    }
    drop(terminal_guard);
    ended
}

/// Data from the user's home. It is read before the terminal is taken, because a home may be on a file server that does
/// not answer.
struct Prepared {
    config: AppConfig,
    /// Themes of `auto`, by the background that the terminal reports. A theme that cannot be read leaves the terminal's
    /// own colours.
    themes: Themes,
    /// The saved settings, and their path.
    saved: Option<(PathBuf, Result<Settings, String>)>,
    /// Reason why the saved theme is not used.
    fault: Option<String>,
}

impl Prepared {
    fn read(options: &ConsoleOptions) -> Result<Self, String> {
        let mut config = options.config()?;
        let of = |background| options.background_theme(background);
        let themes = Themes { light: of(Background::Light), dark: of(Background::Dark) };
        let saved = options.settings.clone().map(|path| {
            let read = settings::read(&path);
            (path, read)
        });
        let mut fault = None;
        if let Some((_, Ok(settings))) = &saved {
            config.mouse = settings.mouse.unwrap_or(config.mouse);
            match options.saved_theme(settings.theme.as_deref()) {
                Ok(Some(theme)) => (config.theme, config.chosen_theme) = (theme, settings.theme.clone()),
                Ok(None) => {}
                Err(why) => fault = Some(why),
            }
        }
        Ok(Self { config, themes, saved, fault })
    }
}

/// Applies the saved columns and sort orders. Reports errors in the file and leaves the file unchanged.
fn apply_saved_settings(app: &mut App, path: &Path, saved: Result<Settings, String>) {
    let output = match saved {
        Ok(saved) => settings::apply(app, &saved),
        Err(why) => vec![format!("it is ignored: {}", why.lines().next().unwrap_or_default())],
    };
    if !output.is_empty() {
        app.print_error(format!("{}: {}", path.display(), output.join("; ")));
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
    terminal: Terminal<BufferedBackend<std::io::Stdout>>,
    input_reader: InputReader,
    clients: ClientsReceiver,
    logs: Option<Ring>,
    /// Sends outcomes of actions and answers to questions. The channel is unbounded, but the load is bounded: by what
    /// an operator confirms, and by one question per folder.
    event_sender: mpsc::UnboundedSender<Event>,
    done: mpsc::UnboundedReceiver<Event>,
    limiter: FrameLimiter,
    /// Whether the operator's permissions were requested.
    rights_requested: bool,
    settings_writer: Option<SettingsWriter>,
    attention: Attention,
}

impl Console {
    fn new(ready: Prepared, options: &ConsoleOptions, size: Size, clients: ClientsReceiver) -> anyhow::Result<Self> {
        let Prepared { config, themes, saved, fault } = ready;
        let steady = Steady::new(&options.clock);
        let mut app = App::new(config, options.view, steady.now());
        app.size = size;
        if options.sandbox {
            app.session.tour_offered = true;
        }
        if let Some((path, saved)) = saved {
            apply_saved_settings(&mut app, &path, saved);
        }
        if let Some(why) = fault {
            app.print_error(format!("the saved theme is not used: {why}"));
        }
        let terminal = Terminal::new(BufferedBackend::new(std::io::stdout(), size))?;
        let (event_sender, done) = mpsc::unbounded_channel();
        let settings_writer = options.settings.clone().map(|path| SettingsWriter::new(path, event_sender.clone()));
        Ok(Self {
            app,
            steady,
            terminal,
            input_reader: InputReader::new(themes),
            clients,
            logs: options.logs.clone(),
            event_sender,
            done,
            limiter: FrameLimiter::new(),
            rights_requested: false,
            settings_writer,
            attention: Attention::new(options.modes.title, options.bell),
        })
    }

    async fn event_loop(
        &mut self,
        mut seen: watch::Receiver<Arc<Seen>>,
        options: &ConsoleOptions,
    ) -> anyhow::Result<()> {
        let mut signals = Signals::new()?;
        if options.ask_background {
            self.input_reader.expect_answer();
            self.terminal.backend_mut().print(background::BACKGROUND_QUERY)?;
        }
        let mut probe = None;
        if options.probe_width {
            self.terminal.backend_mut().print(width_probe::QUERY)?;
            probe = self.input_reader.detach().map(|input| Box::pin(width_probe::is_wide(input)));
        }
        self.draw()?;
        let mut tick = tokio::time::interval_at(Instant::now() + TICK_INTERVAL, TICK_INTERVAL);
        tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Skip);
        // Time of the next frame, if one is due.
        let mut next_draw: Option<Instant> = None;
        // Time at which the cursor has rested, while the preview is due.
        let mut rested_at: Option<Instant> = None;
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
                input = self.input_reader.next() => match input {
                    Some(event) => event,
                    // the terminal is gone
                    None => return Ok(()),
                },
                () = until(next_draw) => {
                    next_draw = None;
                    self.draw()?;
                    continue;
                }
                (input, is_wide) = finished(&mut probe) => {
                    probe = None;
                    self.input_reader.attach(input);
                    if !is_wide {
                        continue;
                    }
                    Event::WideSymbols
                }
                () = until(rested_at) => Event::Rested,
                Some(event) = self.done.recv() => event,
                () = sleep_until(news_at), if fresh => {
                    fresh = false;
                    news_at = Instant::now() + if began.elapsed() < START_PERIOD { START_INTERVAL } else { SNAPSHOT_INTERVAL };
                    // A published state carries the time too, so no tick is needed.
                    tick.reset();
                    if began.elapsed() > TICK_INTERVAL {
                        self.ask_rights();
                        self.input_reader.flush();
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
                    self.input_reader.flush();
                    Event::Tick(self.steady.now())
                }
            };
            if let Event::Resize(columns, rows) = &event {
                self.terminal.backend_mut().resize(Size::new(*columns, *rows));
            }
            self.app.now = self.steady.now();
            let news = matches!(event, Event::Seen(_) | Event::Tick(_));
            let moved = matches!(event, Event::Key(_) | Event::Mouse(_));
            let had_dialog = self.app.dialog.is_some();
            for effect in update(&mut self.app, event) {
                match effect {
                    Effect::Quit => return Ok(()),
                    Effect::Suspend => self.suspend(options).await?,
                    Effect::Repaint => self.repaint()?,
                    Effect::AnswerLead(answer) => {
                        if let Some(lead_answer) = &options.lead_answer {
                            // The send fails if the engine has ended.
                            let _ = lead_answer.send(answer);
                        }
                    }
                    Effect::Act(action) => self.act(action),
                    Effect::SaveSettings(change) => {
                        if let Some(settings_writer) = &self.settings_writer {
                            settings_writer.keep(change);
                        }
                    }
                    Effect::Ask(read_request) => self.ask(read_request),
                    Effect::ReadThemes(name) => self.read_themes(name, options),
                    Effect::Mouse(on) => self.terminal.backend_mut().print(terminal::mouse_sequence(on))?,
                    Effect::Copy(text) => self.terminal.backend_mut().print(&clipboard::osc52_sequence(&text))?,
                }
            }
            if news {
                let output = self.attention.escape_sequences(&self.app);
                if !output.is_empty() {
                    self.terminal.backend_mut().print(&output)?;
                }
            }
            rested_at = match rested_at.filter(|_| !moved) {
                _ if !views::is_preview_due(&self.app) => None,
                Some(at) => Some(at),
                None => Some(Instant::now() + REST),
            };
            if !had_dialog && self.app.dialog.is_some() {
                // what was typed before anybody saw the dialog was not meant for it; an answer that comes while its last
                // bytes are written was
                self.discard_typed().await;
                self.draw()?;
                continue;
            }
            let next = self.limiter.next();
            if Instant::now() >= next {
                next_draw = None;
                self.draw()?;
            } else {
                next_draw = Some(next_draw.map_or(next, |d| d.min(next)));
            }
        }
    }

    /// Discards the keys and texts that have arrived and that nobody has taken yet. Letters stay if the dialog begins in
    /// a text field: there they cannot act, and a reason without its first letters would be misleading.
    async fn discard_typed(&mut self) {
        let keeps_letters = self.app.dialog.as_ref().is_some_and(Dialog::typing);
        let mut others = Vec::new();
        while let Ok(Some(event)) = timeout(Duration::ZERO, self.input_reader.next()).await {
            let is_kept = match &event {
                Event::Key(key) => keeps_letters && is_text_key(*key),
                Event::Paste(_) => false,
                _ => true,
            };
            if is_kept {
                others.push(event);
            }
        }
        for event in others {
            self.input_reader.push(event);
        }
    }

    fn act(&mut self, action: crate::state::event::Action) {
        let (clients, done) = (self.clients.borrow().clone(), self.event_sender.clone());
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
        self.app.session.operator_identity.get_or_insert_with(|| operator.who().clone());
        tokio::spawn(async move {
            let result = perform(&operator, action).await;
            // The send fails if the console has quit.
            let _ = done.send(Event::Done(result));
        });
    }

    /// Requests the operator's permissions once, as soon as the console can change something.
    fn ask_rights(&mut self) {
        if self.app.session.operator_identity.is_none() {
            self.app.session.operator_identity =
                self.clients.borrow().as_ref().and_then(|clients| clients.operator.as_ref()).map(|o| o.who().clone());
        }
        if !self.rights_requested && !self.app.read_only() && self.clients.borrow().is_some() {
            self.rights_requested = true;
            self.ask(ReadRequest::Rights);
        }
    }

    fn ask(&mut self, read_request: ReadRequest) {
        if let ReadRequest::Logs(after) = read_request {
            let lines = self.logs.as_ref().map(|ring| ring.after(after)).unwrap_or_default();
            let _ = self.event_sender.send(Event::ReadFinished(Box::new(ReadResponse::Logs(lines))));
            return;
        }
        let (clients, event_sender) = (self.clients.borrow().clone(), self.event_sender.clone());
        let Some(clients) = clients else {
            let _ = event_sender
                .send(Event::ReadFinished(Box::new(read_request.refused("not connected to etcd yet".to_owned()))));
            return;
        };
        let seen = Arc::clone(&self.app.seen);
        tokio::spawn(async move {
            let answer = reader::read(&clients.store, clients.kube.as_ref(), &seen, read_request).await;
            let _ = event_sender.send(Event::ReadFinished(Box::new(answer)));
        });
    }

    fn read_themes(&self, name: Option<String>, options: &ConsoleOptions) {
        let (themes, event_sender) = (options.themes(), self.event_sender.clone());
        tokio::task::spawn_blocking(move || {
            // The send fails if the console has quit.
            let _ = event_sender.send(Event::ThemesRead(name, themes()));
        });
    }

    fn draw(&mut self) -> anyhow::Result<()> {
        self.limiter.record_frame();
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
            let most = resign.longest.as_secs();
            self.app.print(format!(
                "stops once the engine has released the lock: commands and power cycles that are under way end first \
                 (at most {most} s)"
            ));
            self.draw()?;
            if resign.requests.send(ask).await.is_ok() {
                let _ = tokio::time::timeout(resign.longest + RESIGN_MARGIN, answer).await;
            }
            self.app.session.message = None;
        }
        // The reader owns stdin. It must end before the shell gets stdin back, and before a new reader starts.
        self.input_reader.drain_answer().await;
        self.input_reader.end();
        terminal::leave(options.modes);
        rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::STOP)?;
        // The process stops here and continues after SIGCONT.
        terminal::enter(Modes { mouse: self.app.config.mouse, ..options.modes })?;
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

/// Waits for the end of a task, if there is one.
async fn finished<T: Future + Unpin>(task: &mut Option<T>) -> T::Output {
    match task {
        Some(task) => task.await,
        None => pending().await,
    }
}

async fn until(next_draw: Option<Instant>) {
    match next_draw {
        Some(next_draw) => sleep_until(next_draw).await,
        None => pending().await,
    }
}

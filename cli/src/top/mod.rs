//! `caldera top`: the fleet, its queues, members and jobs on a terminal, as they change.
//!
//! Rule: objects arrive by watch ([`crate::watch`]) and are taken in at once; the screen is drawn at most ten times in
//! a second, and for a key at once; expected starts are worked out beside that ([`crate::latest_forecast`]). What is
//! shown is a function of objects, keys and time ([`state`], `draw`). However it ends, the terminal is as before.

mod draw;
mod state;
#[cfg(test)]
mod tests;

use std::{io::IsTerminal as _, process::ExitCode, sync::Arc, time::Duration};

use anyhow::Context;
use caldera_core::text::count_noun;
use caldera_runtime::shutdown;
use futures::{FutureExt as _, StreamExt as _, future::LocalBoxFuture, stream::FuturesUnordered};
use jiff::Timestamp;
use kube::Client;
use ratatui::{
    DefaultTerminal,
    buffer::Buffer,
    crossterm::event::{self, Event, KeyEventKind},
    layout::Rect,
};
use tokio::{sync::mpsc, time::Instant};
use tokio_util::sync::CancellationToken;

use self::{
    draw::{Notes, count_rows, draw_screen},
    state::{Act, Shown, TopState},
};
use crate::{
    args::{JobName, TopArgs},
    components,
    job::change::{JobChange, change_job},
    latest_forecast::{ForecastFollower, TimedForecast},
    output,
    style::Style,
    view::{Change, JobKey, Seen},
    watch::{self, Watches},
    why,
};

/// Between two drawings of what changed by itself.
const FRAME_INTERVAL: Duration = Duration::from_millis(100);
/// Ages go on.
const AGE_INTERVAL: Duration = Duration::from_secs(1);
/// Changes taken in between two looks at the keys.
const CHANGES_PER_PASS: usize = 4096;
/// For `--once`: how long lists may take.
const ONCE_TIMEOUT: Duration = Duration::from_secs(60);
/// For what is under way when the user quits.
const QUIT_TIMEOUT: Duration = Duration::from_secs(5);
/// Columns where there is no terminal.
const DEFAULT_WIDTH: u16 = 160;

/// Runs until it is ended, or prints once.
///
/// # Errors
/// If there is no terminal, or the server does not answer.
pub async fn run_top(args: TopArgs) -> anyhow::Result<ExitCode> {
    anyhow::ensure!(
        args.once || (std::io::stdout().is_terminal() && std::io::stdin().is_terminal()),
        "this is no terminal: `caldera top --once` prints what there is, `caldera job list --watch` a list"
    );
    let client = components::connect_for_command(args.kubeconfig.as_deref(), "top").await?;
    let stop = shutdown::cancel_on_signal();
    let (sender, changes) = mpsc::channel(watch::BACKLOG);
    let own = args.namespace.clone().unwrap_or_else(|| client.default_namespace().to_owned());
    let watches = watch::follow_objects(&client, &own, args.namespace.is_some(), sender, &stop).await?;
    let mut top = Top { seen: Seen::default(), state: TopState::default(), watches, own, starts: None };
    if args.once {
        return top.print_once(&client, args.lease_namespace.as_deref(), changes).await;
    }
    let (own, controllers) = (Some(top.own.clone()), args.lease_namespace.clone());
    top.starts = Some(ForecastFollower::start(client.clone(), own, controllers, stop.clone()));
    let asks = JobAsker { client, controllers: args.lease_namespace };
    let mut screen = Screen(ratatui::try_init().context("failed to take the terminal")?);
    let mut changing = Changing::new();
    let ended = top.run_screen(&mut screen.0, changes, &asks, &mut changing, stop).await;
    let said = await_answers(changing).await;
    drop(screen);
    for text in said {
        output::try_write(&output::escape_controls(&format!("{text}\n")));
    }
    ended?;
    Ok(ExitCode::SUCCESS)
}

/// Changes that are under way; each says what became of it.
type Changing<'a> = FuturesUnordered<LocalBoxFuture<'a, (JobKey, String)>>;

/// What became of changes that were confirmed: who quits at once has not taken them back.
async fn await_answers(mut changing: Changing<'_>) -> Vec<String> {
    let mut said = Vec::new();
    let all = async {
        while let Some((_, text)) = changing.next().await {
            said.push(text);
        }
    };
    if tokio::time::timeout(QUIT_TIMEOUT, all).await.is_err() {
        said.push(format!("no answer to {} yet", count_noun(changing.len(), "change")));
    }
    said
}

/// Gives the terminal back when it is dropped.
struct Screen(DefaultTerminal);

impl Drop for Screen {
    fn drop(&mut self) {
        ratatui::restore();
    }
}

/// How `why` is asked, and jobs are held and released.
struct JobAsker {
    client: Client,
    controllers: Option<String>,
}

struct Top {
    seen: Seen,
    state: TopState,
    watches: Watches,
    own: String,
    starts: Option<ForecastFollower>,
}

impl Top {
    /// Starts are asked for as long as somebody waits.
    fn notes(&self, shown: &Shown<'_>) -> Notes {
        let mut lacks: Vec<String> =
            self.watches.gaps.iter().map(|gap| format!("{} ({})", gap.what, gap.why)).collect();
        if self.watches.is_partial {
            lacks.push(format!("jobs of other namespaces than {}", self.own));
        }
        lacks.extend(self.watches.list_failing().into_iter().map(|kind| format!("{kind} for the moment")));
        Notes {
            now: Timestamp::now(),
            is_coloured: Style::of_stdout().is_coloured(),
            has_keys: true,
            lists_to_come: self.watches.lists.saturating_sub(self.seen.count_lists()),
            lacks,
            starts: self.starts.as_ref().filter(|_| shown.counts.waiting > 0).and_then(ForecastFollower::read_latest),
        }
    }

    async fn print_once(
        &mut self,
        client: &Client,
        controllers: Option<&str>,
        mut changes: mpsc::Receiver<Change>,
    ) -> anyhow::Result<ExitCode> {
        let until = Instant::now() + ONCE_TIMEOUT;
        while self.seen.count_lists() < self.watches.lists {
            let change = tokio::time::timeout_at(until, changes.recv()).await.context("lists took too long")?;
            self.seen.observe(change.context("the watches ended")?);
        }
        let shown = self.state.build_shown(&self.seen);
        let starts = async {
            let starts = TimedForecast::of_host(client, Some(&self.own), controllers);
            tokio::time::timeout_at(until, starts).await.ok().map(Arc::new)
        };
        let starts = if shown.counts.waiting > 0 { starts.await } else { None };
        let width = terminal_size::terminal_size().map_or(DEFAULT_WIDTH, |(width, _)| width.0.max(40));
        let area = Rect::new(0, 0, width, count_rows(&shown));
        let mut buffer = Buffer::empty(area);
        draw_screen(
            area,
            &mut buffer,
            &self.state,
            &shown,
            &Notes { is_coloured: false, has_keys: false, starts, ..self.notes(&shown) },
        );
        output::try_write(&format_buffer(&buffer));
        Ok(ExitCode::SUCCESS)
    }

    async fn run_screen<'a>(
        &mut self,
        terminal: &mut DefaultTerminal,
        mut changes: mpsc::Receiver<Change>,
        asks: &'a JobAsker,
        changing: &mut Changing<'a>,
        stop: CancellationToken,
    ) -> anyhow::Result<()> {
        let mut events = read_terminal_events();
        let (answer, mut answers) = mpsc::channel::<(JobKey, String)>(4);
        let mut batch = Vec::new();
        let mut next = Instant::now();
        let mut pause = FRAME_INTERVAL;
        loop {
            let began = Instant::now();
            if began >= next {
                let shown = self.state.build_shown(&self.seen);
                let notes = self.notes(&shown);
                terminal
                    .draw(|frame| draw_screen(frame.area(), frame.buffer_mut(), &self.state, &shown, &notes))
                    .context("failed to draw")?;
                next = Instant::now() + AGE_INTERVAL;
                // Where there is much to draw, it takes a quarter of the time at most.
                pause = FRAME_INTERVAL.max(began.elapsed() * 3);
            }
            let soon = next.min(Instant::now() + pause);
            tokio::select! {
                biased;
                () = stop.cancelled() => return Ok(()),
                event = events.recv() => {
                    let Some(event) = event else { return Ok(()) };
                    next = Instant::now();
                    let Event::Key(key) = event else { continue };
                    if key.kind == KeyEventKind::Release {
                        continue;
                    }
                    let shown = self.state.build_shown(&self.seen);
                    match self.state.handle_key(key, &shown) {
                        Act::Quit => return Ok(()),
                        Act::Ask(job) => asks.ask(job, answer.clone()),
                        Act::Change(job, change) => changing.push(asks.change(job, change).boxed_local()),
                        Act::Stay => {}
                    }
                }
                Some((job, text)) = answers.recv() => {
                    self.state.show_answer(&job, &text);
                    next = Instant::now();
                }
                Some((job, text)) = changing.next() => {
                    self.state.show_answer(&job, &text);
                    next = Instant::now();
                }
                count = changes.recv_many(&mut batch, CHANGES_PER_PASS) => {
                    anyhow::ensure!(count > 0, "the watches ended");
                    batch.drain(..).for_each(|change| self.seen.observe(change));
                    next = soon;
                }
                () = tokio::time::sleep_until(next) => {}
            }
        }
    }
}

impl JobAsker {
    fn ask(&self, job: JobKey, answer: mpsc::Sender<(JobKey, String)>) {
        let (client, controllers) = (self.client.clone(), self.controllers.clone());
        tokio::spawn(async move {
            let name = JobName { kind: job.kind, name: job.name.clone() };
            let asked = why::explain_in_words(&client, &name, &job.namespace, controllers.as_deref()).await;
            let text = asked.unwrap_or_else(|error| format!("{error:#}"));
            let _ = answer.send((job, text)).await;
        });
    }

    /// What became of it.
    async fn change(&self, job: JobKey, change: JobChange) -> (JobKey, String) {
        let name = JobName { kind: job.kind, name: job.name.clone() };
        let said = match change_job(&self.client, &job.namespace, &name, change).await {
            Ok(done) => format!("{name} {done}"),
            Err(error) => output::describe_failure(&error),
        };
        (job, said)
    }
}

/// Keys and new sizes, read on a thread of their own: it ends with the process.
fn read_terminal_events() -> mpsc::Receiver<Event> {
    let (sender, events) = mpsc::channel(64);
    std::thread::spawn(move || {
        while let Ok(event) = event::read() {
            if sender.blocking_send(event).is_err() {
                return;
            }
        }
    });
    events
}

/// Lines without what is empty at their ends, and no empty lines at the end.
fn format_buffer(buffer: &Buffer) -> String {
    let width = usize::from(buffer.area.width).max(1);
    let mut text = String::new();
    for row in buffer.content.chunks(width) {
        let line: String = row.iter().map(ratatui::buffer::Cell::symbol).collect();
        text += line.trim_end();
        text.push('\n');
    }
    format!("{}\n", text.trim_end())
}

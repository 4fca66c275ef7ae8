//! `notices`: the receivers of this host's configuration, their pending notifications, and a test (docs/notices.md).

#![allow(clippy::doc_markdown)] // these comments are the help texts: no backticks there

use std::collections::BTreeMap;

use cketerm_actions::ActionError;
use cketerm_clients::{
    net::Http,
    notices::{Receiver, sample},
};
use cketerm_engine::{
    backends::{ANSWER, WEBHOOK},
    command::Spawner,
    notices::{Delivery, DeliveryResult},
};
use cketerm_model::{
    clock::Clock,
    entry::Stored,
    notice::{Kind, Notice, NotifierState},
    text::nearest,
    time::whole_seconds,
};
use cketerm_runtime::host::host_name;
use clap::Subcommand;
use serde::Serialize;

use super::{Context, options::Output, output::columns};

/// The subcommands.
#[derive(Debug, Subcommand)]
pub enum NoticesCommand {
    /// List the receivers: their kinds, pending notices, and delivery errors
    List,
    /// Send a sample notice from this host and print the answer; writes nothing
    Test {
        /// Names of receivers
        #[arg(required_unless_present = "all", conflicts_with = "all")]
        names: Vec<String>,
        /// All receivers
        #[arg(long)]
        all: bool,
        /// Kind of the sample, instead of a plain test
        #[arg(long, value_name = "KIND")]
        kind: Option<String>,
    },
}

/// Runs one of the subcommands.
pub async fn run(word: NoticesCommand, context: &Context) -> Result<(), ActionError> {
    match word {
        NoticesCommand::List => list(context).await,
        NoticesCommand::Test { names, all, kind } => {
            let receivers = select_receivers(&context.settings.notices, &names, all)?;
            test(&receivers, kind.as_deref(), context).await
        }
    }
}

/// Row of the list.
#[derive(Serialize)]
struct Row {
    /// Name of the receiver.
    name: String,
    /// Program or webhook; none if this host does not configure it.
    #[serde(rename = "way")]
    channel: Option<String>,
    /// Kinds of notices that it gets.
    kinds: Vec<Kind>,
    /// Number of notices that it has not received.
    pending: u64,
    /// Time of the last delivery.
    delivered: Option<jiff::Timestamp>,
    /// Time since which deliveries fail.
    down_since: Option<jiff::Timestamp>,
    /// Reason of the failures, or why its record cannot be read.
    why: Option<String>,
}

fn row(name: &str, configured: Option<&Receiver>, stored_state: Option<&Stored<NotifierState>>) -> Row {
    let record = stored_state.and_then(Stored::get);
    let broken = stored_state.and_then(|t| t.value.as_ref().err().cloned());
    let trouble = record.and_then(|t| t.trouble.as_ref());
    Row {
        name: name.to_owned(),
        channel: configured.map(|r| r.channel.to_string()),
        kinds: configured.map(|r| r.kinds.iter().copied().collect()).unwrap_or_default(),
        pending: record.map_or(0, |t| t.pending.iter().map(|p| p.notice.count).sum()),
        delivered: record.and_then(|t| t.delivered),
        down_since: trouble.map(|t| t.since),
        why: trouble.map(|t| t.why.clone()).or(broken),
    }
}

async fn list(context: &Context) -> Result<(), ActionError> {
    let stored_states = context.store().await?.all_notifier_states().await?;
    let configured: BTreeMap<&str, &Receiver> = context.settings.notices.iter().map(|r| (r.name.as_str(), r)).collect();
    let mut rows: Vec<Row> =
        context.settings.notices.iter().map(|r| row(&r.name, Some(r), stored_states.get(&r.name))).collect();
    let unconfigured = stored_states.iter().filter(|(name, _)| !configured.contains_key(name.as_str()));
    rows.extend(unconfigured.map(|(name, record)| row(name, None, Some(record))));
    if context.output(Output::Table) != Output::Table {
        return context.out.value(&rows, context.output(Output::Table));
    }
    let time = |at: Option<jiff::Timestamp>| at.map(|t| whole_seconds(t).to_string());
    let cells = rows.iter().map(|r| {
        let kinds = r.kinds.iter().map(|k| k.as_str()).collect::<Vec<_>>().join(",");
        let all = r.kinds.len() == Kind::CHOICE.len();
        let state = match (&r.why, time(r.down_since)) {
            (Some(why), Some(since)) => format!("down since {since}: {why}"),
            (Some(why), None) => why.clone(),
            (None, _) => "ok".to_owned(),
        };
        vec![
            r.name.clone(),
            r.channel.clone().unwrap_or_else(|| "not in this host's configuration".to_owned()),
            if all { "all".to_owned() } else { kinds },
            r.pending.to_string(),
            time(r.delivered).unwrap_or_else(|| "never".to_owned()),
            state,
        ]
    });
    context.out.text(columns(&["Name", "Way", "Kinds", "Pending", "Last", "State"], &cells.collect::<Vec<_>>()))
}

fn select_receivers(all: &[Receiver], names: &[String], every: bool) -> Result<Vec<Receiver>, ActionError> {
    if all.is_empty() {
        return Err(ActionError::failed("no receiver is configured: add one below `notices:`, see docs/notices.md"));
    }
    if every {
        return Ok(all.to_vec());
    }
    let one = |name: &String| {
        let unknown = || {
            let known = || all.iter().map(|r| r.name.as_str());
            let hint = nearest(name, known()).map(|n| format!("; did you mean {n}?"));
            let hint = hint.unwrap_or_else(|| format!("; known: {}", known().collect::<Vec<_>>().join(", ")));
            ActionError::misused(format!("unknown receiver {name:?}{hint}"))
        };
        all.iter().find(|r| r.name == *name).cloned().ok_or_else(unknown)
    };
    names.iter().map(one).collect()
}

async fn test(receivers: &[Receiver], kind: Option<&str>, context: &Context) -> Result<(), ActionError> {
    let notice = test_notice(kind)?;
    let http = Http::for_webhooks(WEBHOOK, ANSWER);
    let settings = &context.settings;
    let config = settings.files.last().map(|p| p.display().to_string());
    let spawner = Spawner::new("/proc/self/exe".into(), config.as_deref(), &settings.command_env);
    let delivery = Delivery { http, spawner };
    let mut failed = 0;
    for receiver in receivers {
        let line = match delivery.deliver(receiver, &notice).await {
            DeliveryResult::Delivered(answer) if answer.is_empty() => "received".to_owned(),
            DeliveryResult::Delivered(answer) => format!("received: {answer}"),
            DeliveryResult::Rejected(why) | DeliveryResult::Failed { why, .. } => {
                failed += 1;
                format!("NOT received: {why}")
            }
        };
        context.out.line(&format!("{}: {line}", receiver.name))?;
    }
    match failed {
        0 => Ok(()),
        n => Err(ActionError::failed(format!("{n} of {} receivers did not receive it", receivers.len()))),
    }
}

/// Returns the sample that is sent. It identifies itself as a test.
fn test_notice(kind: Option<&str>) -> Result<Notice, ActionError> {
    let kind = match kind {
        None => Kind::Test,
        Some(word) => Kind::ALL.into_iter().find(|k| k.as_str() == word).ok_or_else(|| {
            let all = Kind::ALL.map(Kind::as_str).join(", ");
            ActionError::misused(format!("--kind {word}: give one of {all}"))
        })?,
    };
    let mut notice = sample(kind);
    let now = Clock::host().wall();
    if kind != Kind::Test {
        notice.title = format!("TEST: {}", notice.title);
    }
    (notice.id, notice.at) = (format!("test-{}", now.as_millisecond()), whole_seconds(now));
    (notice.leader, notice.cluster, notice.cluster_uid) = (host_name(), None, None);
    Ok(notice)
}

//! `history`: CKE's records as `ckecli` prints them, or the entries that ended with their timelines, from
//! `cketerm/history/`.

use cketerm_actions::ActionError;
use cketerm_clients::store::Store;
use cketerm_model::{
    cketerm_records::{Audit, Ending},
    cluster::{MemberNames, NamingError},
    entry::Stored,
    names::Address,
    record::Record,
    time::{GO_ZERO, write},
    timeline::TimelineEntry,
};
use clap::Args;
use jiff::Timestamp;
use serde::Serialize;
use serde_json::Value;

use super::{
    Context,
    endings::shown,
    listing::{self, Form, ListingArgs},
    moment,
    options::Output,
    output::Lines,
};

/// Selection of the records to print.
#[derive(Args, Debug)]
pub struct HistoryArgs {
    #[command(flatten)]
    #[allow(missing_docs)]
    pub listing_args: ListingArgs,
    /// Print ended entries with their timelines instead of CKE's records
    #[arg(long)]
    pub ended: bool,
    /// Entries that ended since TIME: 2026-11-21T10:00:00Z, 2026-11-21 (UTC), or 90m, 7d ago
    #[arg(long, value_name = "TIME", value_parser = moment::parse_past)]
    pub since: Option<Timestamp>,
    /// Ended entries that were not booted, healthy or marked done
    #[arg(long)]
    pub failed: bool,
    /// Ended entries of this machine: its address or its Node's name
    #[arg(long, value_name = "NODE")]
    pub node: Option<String>,
}

impl HistoryArgs {
    fn is_entry_query(&self) -> bool {
        self.ended || self.failed || self.since.is_some() || self.node.is_some()
    }
}

/// Prints the selected records.
pub async fn run(args: &HistoryArgs, context: &Context) -> Result<(), ActionError> {
    if args.is_entry_query() {
        if args.listing_args.follow {
            return Err(ActionError::misused(
                "-f follows CKE's records, not --ended, --since, --failed or --node: see `rq wait`, `audit -f`",
            ));
        }
        return ended(args, context).await;
    }
    let store = context.store().await?;
    let folder = store.keys().records_prefix();
    let (revision, mut records) =
        store.newest_with_revision::<Record>(&folder, args.listing_args.count(usize::MAX)).await?;
    let form = Form {
        output: context.output(Output::Json),
        header: &["Id", "Status", "Operation", "Targets", "Start", "End", "Error"],
        cells: &cells,
    };
    if !args.listing_args.follow {
        return listing::print(&records, &form, context);
    }
    records.reverse();
    listing::print(&records, &form, context).unwrap_or_else(|e| context.print_message(&e.text));
    listing::follow(&store, &folder, revision, &form, |_| true, context).await
}

fn cells(record: &Record) -> Vec<String> {
    let time = |at| Some(write(at)).filter(|text| text != GO_ZERO).unwrap_or_default();
    let targets = record.targets.clone().unwrap_or_default().join(",");
    let what = [record.status.clone(), record.operation.clone(), targets];
    let times = [time(record.start_at), time(record.end_at), record.error.clone()];
    [vec![record.id.to_string()], what.to_vec(), times.to_vec()].concat()
}

/// An ended entry in the form that is printed.
#[derive(Serialize)]
struct EndingTimeline<'a> {
    #[serde(flatten)]
    ending: &'a Ending,
    /// Events of its life, the oldest first.
    timeline: Vec<TimelineEntry>,
}

/// Prints the entries that ended, newest first.
async fn ended(args: &HistoryArgs, context: &Context) -> Result<(), ActionError> {
    let store = context.store().await?;
    let address = match &args.node {
        Some(name) => Some(address_of(&store, name).await?),
        None => None,
    };
    let (_, all) = store.newest_with_revision::<Ending>(&store.keys().history_prefix(), usize::MAX).await?;
    if let (Some(name), Some(None)) = (&args.node, &address) {
        let known = |e: &Ending| e.address == **name || e.attempts.iter().any(|a| a.node.as_deref() == Some(name));
        if !all.iter().filter_map(Stored::get).any(known) {
            return Err(ActionError::failed(format!(
                "--node {name}: no machine of the definition and no ended entry has this name or address"
            )));
        }
    }
    let address = address.flatten();
    let selected = |e: &&Ending| {
        let of_node = |name: &String| {
            let named = e.attempts.iter().any(|a| a.node.as_deref() == Some(name));
            named || e.address == **name || Some(&e.address) == address.as_ref()
        };
        args.since.is_none_or(|since| e.at >= since) && !(args.failed && e.good()) && args.node.iter().all(of_node)
    };
    let mut endings: Vec<&Ending> = all.iter().filter_map(Stored::get).filter(selected).collect();
    // the keys sort by queue and index, not by time
    endings.sort_by_key(|e| std::cmp::Reverse((e.at, e.entry)));
    endings.truncate(args.listing_args.count(usize::MAX));
    let audit = audit_of(&store, &endings).await?;
    let audit: Vec<&Audit> = audit.iter().filter_map(Stored::get).collect();
    let report: Vec<EndingTimeline<'_>> =
        endings.iter().map(|ending| EndingTimeline { ending, timeline: ending.timeline(&audit) }).collect();
    match context.output(Output::Table) {
        Output::Table => context.out.text(report.iter().map(text).collect::<String>())?,
        output => {
            let form = Form { output, header: &[], cells: &|_: &Value| Vec::new() };
            let shown = report.iter().map(shown).collect::<Result<Vec<Value>, _>>();
            let shown = shown.map_err(|e| ActionError::failed(format!("cannot be written: {e}")))?;
            form.print(&shown.iter().collect::<Vec<_>>(), context)?;
        }
    }
    let broken: Vec<&str> = all.iter().filter_map(|s| s.value.as_ref().err()).map(String::as_str).collect();
    if broken.is_empty() {
        return Ok(());
    }
    Err(ActionError::unreadable(format!("unreadable records, left unchanged: {}", broken.join("; "))))
}

/// Returns the audit records from the lifetime of these entries.
async fn audit_of(store: &Store, endings: &[&Ending]) -> Result<Vec<Stored<Audit>>, ActionError> {
    if endings.is_empty() {
        return Ok(Vec::new());
    }
    let folder = store.keys().audit_prefix();
    // an entry that no cketerm command added may be of any age
    let begin = endings.iter().map(|e| e.begins().unwrap_or_default()).min().unwrap_or_default();
    let from = format!("{folder}{:020}", begin.as_nanosecond().max(0));
    Ok(store.newest_first_from(&folder, &from).await?.1)
}

/// Returns the address of the machine with this name or address in the definition.
async fn address_of(store: &Store, name: &str) -> Result<Option<Address>, ActionError> {
    let view = store.read_view().await?;
    let Some(definition) = view.definition() else { return Ok(None) };
    match MemberNames::of(&definition.cluster, &definition.members).resolve(name) {
        Ok(member) => Ok(Some(member.address().clone())),
        Err(NamingError::Unknown { .. }) => Ok(None),
        Err(why @ NamingError::Ambiguous { .. }) => {
            Err(ActionError::failed(format!("--node: {why}; give the address")))
        }
    }
}

/// Renders an entry's timeline for people: a headline and one line per event.
fn text(report: &EndingTimeline<'_>) -> String {
    let ending = report.ending;
    let mut out = Lines::default();
    out.line(format_args!("{} {}: {}", ending.entry, ending.address, ending.described()));
    for moment in &report.timeline {
        let who = moment.who.as_ref().map(|who| format!(", {who}")).unwrap_or_default();
        let why = moment.reason.as_ref().map(|why| format!(" ({why})")).unwrap_or_default();
        let at = moment.at.strftime("%FT%TZ");
        out.line(format_args!("  {at}  {}{who}{why}", moment.what));
    }
    out.done()
}

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
    listing::{self, Form, ListingArgs},
    masked::masked,
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

/// Filter of ended entries.
struct Filter<'a> {
    since: Option<Timestamp>,
    failed: bool,
    /// Name or address as given, and the address if the definition has it.
    node: Option<(&'a str, Option<Address>)>,
}

impl Filter<'_> {
    fn is_of_node(&self, ending: &Ending) -> bool {
        self.node.as_ref().is_none_or(|(name, address)| {
            let named = ending.attempts.iter().any(|attempt| attempt.node.as_deref() == Some(*name));
            named || ending.address == **name || Some(&ending.address) == address.as_ref()
        })
    }

    fn holds(&self, ending: &Ending) -> bool {
        self.since.is_none_or(|since| ending.at >= since) && !(self.failed && ending.good()) && self.is_of_node(ending)
    }

    /// Reports whether all these entries, and so those before them, ended before the given time.
    fn is_past(&self, endings: &[&Ending]) -> bool {
        !endings.is_empty() && self.since.is_some_and(|since| endings.iter().all(|ending| ending.ended_before(since)))
    }
}

/// Prints the entries that ended, newest first, some at a time.
async fn ended(args: &HistoryArgs, context: &Context) -> Result<(), ActionError> {
    let store = context.store().await?;
    let node = match &args.node {
        Some(name) => Some((name.as_str(), address_of(&store, name).await?)),
        None => None,
    };
    let mut is_known = node.as_ref().is_none_or(|(_, address)| address.is_some());
    let filter = Filter { since: args.since, failed: args.failed, node };
    let (mut rest, mut broken) = (args.listing_args.count(usize::MAX), Vec::new());
    let mut entries = store.ended_entries().await?;
    while rest > 0 {
        let Some(read) = store.next_ended(&mut entries).await? else { break };
        broken.extend(read.iter().filter_map(|stored| stored.value.as_ref().err().cloned()));
        let mut endings: Vec<&Ending> = read.iter().filter_map(Stored::get).collect();
        // etcd's order is that of its writes, whatever the clocks of engines show
        endings.sort_by_key(|ending| std::cmp::Reverse((ending.at, ending.entry)));
        is_known |= endings.iter().any(|ending| filter.is_of_node(ending));
        let is_past = is_known && filter.is_past(&endings);
        endings.retain(|ending| filter.holds(ending));
        endings.truncate(rest);
        rest -= endings.len();
        print_ended(&store, &endings, context).await?;
        if is_past {
            break;
        }
    }
    if let Some((name, _)) = filter.node.filter(|_| !is_known) {
        return Err(ActionError::failed(format!(
            "--node {name}: no machine of the definition and no ended entry has this name or address"
        )));
    }
    if broken.is_empty() {
        return Ok(());
    }
    Err(ActionError::unreadable(format!(
        "unreadable records, left unchanged: {}; fix or delete them with etcdctl",
        broken.join("; ")
    )))
}

/// Prints entries with their timelines.
async fn print_ended(store: &Store, endings: &[&Ending], context: &Context) -> Result<(), ActionError> {
    if endings.is_empty() {
        return Ok(());
    }
    let audit = store.audit_of(endings).await?;
    let audit: Vec<&Audit> = audit.iter().collect();
    let report: Vec<EndingTimeline<'_>> =
        endings.iter().map(|ending| EndingTimeline { ending, timeline: ending.timeline(&audit) }).collect();
    match context.output(Output::Table) {
        Output::Table => context.out.text(report.iter().map(text).collect::<String>()),
        output => {
            let form = Form { output, header: &[], cells: &|_: &Value| Vec::new() };
            let documents = report.iter().map(masked).collect::<Result<Vec<Value>, _>>();
            let documents = documents.map_err(|e| ActionError::failed(format!("cannot be written: {e}")))?;
            form.print(&documents.iter().collect::<Vec<_>>(), context)
        }
    }
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

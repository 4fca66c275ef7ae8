//! Append-only folders of etcd, printed newest first, or followed with `-f`.

use cketerm_actions::ActionError;
use cketerm_clients::store::{Store, tail::Tailed};
use cketerm_model::entry::Stored;
use clap::Args;
use serde::{Serialize, de::DeserializeOwned};

use super::{
    Context,
    options::Output,
    output::{columns, rows},
};

/// Number of values that `-f` prints before it follows, without `-n`.
const DEFAULT_BEFORE_FOLLOWING: usize = 20;

/// Number of records to print, and whether to follow new ones.
#[derive(Args, Clone, Copy, Debug)]
pub struct ListingArgs {
    /// Number of newest records; 0 = all
    #[arg(short, value_name = "N")]
    pub n: Option<usize>,
    /// Print the newest records (20 without -n), oldest first, then follow new ones
    #[arg(short, long)]
    pub follow: bool,
}

impl ListingArgs {
    /// Returns the number of values; `all` is the number without `-n`.
    pub fn count(self, all: usize) -> usize {
        match self.n {
            Some(0) => usize::MAX,
            Some(n) => n,
            None if self.follow => DEFAULT_BEFORE_FOLLOWING,
            None => all,
        }
    }
}

/// Output format of the values.
pub struct Form<'a, T> {
    /// JSON objects one after another, YAML documents, or a table.
    pub output: Output,
    /// Header of the table.
    pub header: &'a [&'a str],
    /// Function that returns the table's cells.
    pub cells: &'a dyn Fn(&T) -> Vec<String>,
}

impl<T: Serialize> Form<'_, T> {
    /// Prints all values.
    pub fn print(&self, values: &[&T], context: &Context) -> Result<(), ActionError> {
        if self.output == Output::Table {
            let cells: Vec<Vec<String>> = values.iter().map(|v| (self.cells)(v)).collect();
            return context.out.text(columns(self.header, &cells));
        }
        values.iter().try_for_each(|value| self.one(value, context))
    }

    /// Prints one more value below the earlier ones.
    fn one(&self, value: &T, context: &Context) -> Result<(), ActionError> {
        match self.output {
            Output::Table => context.out.text(rows(&[(self.cells)(value)])),
            Output::Json => context.out.value(value, Output::Json),
            Output::Yaml => {
                context.out.line("---")?;
                context.out.value(value, Output::Yaml)
            }
        }
    }
}

/// Prints stored values. Unreadable ones are named at the end and cause exit status 5.
pub fn print<T: Serialize>(stored: &[Stored<T>], form: &Form<'_, T>, context: &Context) -> Result<(), ActionError> {
    form.print(&stored.iter().filter_map(Stored::get).collect::<Vec<_>>(), context)?;
    let broken: Vec<String> = stored.iter().filter_map(|s| s.value.as_ref().err()).map(|e| unreadable(e)).collect();
    if broken.is_empty() { Ok(()) } else { Err(ActionError::unreadable(broken.join("\n"))) }
}

/// Prints every value below `folder` that is written after `revision`, if `filter`. It ends only when the reader closes
/// the pipe.
pub async fn follow<T: Serialize + DeserializeOwned>(
    store: &Store,
    folder: &str,
    revision: i64,
    form: &Form<'_, T>,
    filter: impl Fn(&T) -> bool,
    context: &Context,
) -> Result<(), ActionError> {
    store
        .tail(folder, revision, |item: Tailed<T>| {
            match item {
                Tailed::Trouble(text) => context.print_message(&text),
                Tailed::Value(stored) => match &stored.value {
                    Ok(value) if filter(value) => form.one(value, context)?,
                    Ok(_) => {}
                    Err(e) => context.print_message(&unreadable(e)),
                },
            }
            Ok(())
        })
        .await
}

/// Returns the message about an unreadable value; `error` names the key.
fn unreadable(error: &str) -> String {
    format!("{error}: cannot be read; left unchanged, fix or delete it with etcdctl")
}

//! `explain`: prints a reason's section of the runbook, on the host where it is needed.

use cketerm_actions::ActionError;
use cketerm_model::text::nearest;
use serde_json::json;

use super::{
    Context,
    options::Output,
    output::columns,
    runbook::{self, Section},
};

/// Prints the section of one reason, or the list of reasons.
pub fn run(reason: Option<&str>, context: &Context) -> Result<(), ActionError> {
    let value = |s: Section| json!({"reason": s.name, "means": s.part("Means"), "check": s.part("Check"), "helps": s.part("Helps")});
    let form = context.output(Output::Table);
    let Some(name) = reason else {
        return match form {
            Output::Table => {
                let rows: Vec<Vec<String>> =
                    runbook::sections().map(|s| vec![s.name.to_owned(), first_sentence(&s.part("Means"))]).collect();
                context.out.text(columns(&["Reason", "Means"], &rows))
            }
            form => context.out.value(&runbook::sections().map(value).collect::<Vec<_>>(), form),
        };
    };
    let section = runbook::section(name).ok_or_else(|| {
        let near = nearest(name, runbook::sections().map(|s| s.name));
        let hint =
            near.map_or_else(|| "`cketerm explain` lists them".to_owned(), |near| format!("did you mean {near}?"));
        ActionError::misused(format!("unknown reason {name}: {hint}"))
    })?;
    match form {
        Output::Table => context.out.text(format!("{}\n\n{}\n", section.name, section.plain())),
        form => context.out.value(&value(section), form),
    }
}

fn first_sentence(text: &str) -> String {
    text.split_once(". ").map_or(text, |(first, _)| first).trim_end_matches('.').to_owned()
}

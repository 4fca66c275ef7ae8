//! `init`: from an existing Kubernetes and an etcd to the plan of a first reboot. It asks what the options do not say,
//! shows what it would write, and writes the configuration of this host and the definition.

#![allow(clippy::doc_markdown)] // these comments are the help texts: no backticks there

mod ask;
mod file;
mod site;

use std::path::PathBuf;

use cketerm_actions::{ActionError, Operator};
use cketerm_clients::{
    kubernetes::Kube,
    store::{Store, exposure::Exposure},
};
use cketerm_model::{clock::Clock, policy::NodeSelector};
use clap::{Args, ValueEnum};

use self::{ask::Asked, file::Draft, site::Site};
use super::{
    Context,
    doctor::{OWN_ETCD, report_problems},
    queue_plan,
};

/// Answers to the questions of `init`. A question whose option is missing is asked on a terminal.
#[derive(Args, Clone, Debug)]
pub struct InitArgs {
    /// Confirm that etcd and Kubernetes belong together: the UID of the namespace kube-system
    #[arg(long, value_name = "UID")]
    confirm_identity: Option<String>,
    /// Source of the members
    #[arg(long, value_name = "SOURCE", default_value = "nodes")]
    membership: Members,
    /// Only Nodes with these labels, as kubectl writes them
    #[arg(long, value_name = "LABELS", default_value = "", value_parser = selector)]
    node_selector: NodeSelector,
    /// Command that reboots a machine, words separated by blanks; the address follows [example: cketerm power cycle]
    #[arg(long, value_name = "COMMAND", value_parser = words)]
    reboot_command: Option<Words>,
    /// Command that prints true once a machine has booted; address and Unix time follow [example: cketerm power booted]
    #[arg(long, value_name = "COMMAND", value_parser = words)]
    boot_check_command: Option<Words>,
    /// Name of the definition
    #[arg(long, default_value = "kubernetes")]
    name: String,
    /// Configuration file to write, if none exists
    #[arg(long, value_name = "FILE", default_value = "/etc/cketerm/config.yaml")]
    write_config: PathBuf,
    #[command(flatten)]
    #[allow(missing_docs)]
    tls: file::TlsArgs,
    /// Print what would be written, and write nothing
    #[arg(long)]
    dry_run: bool,
}

/// Sources of the members that `init` offers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Members {
    /// The definition follows the Nodes of Kubernetes
    Nodes,
    /// Operators edit the definition
    Manual,
}

/// Words of a command.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Words(Vec<String>);

fn words(text: &str) -> Result<Words, String> {
    if text.contains(['"', '\'', '\\']) {
        return Err(
            "quotes are not understood: write words without blanks, or set the command in the definition".into()
        );
    }
    let words: Vec<String> = text.split_whitespace().map(str::to_owned).collect();
    if words.is_empty() { Err("is empty".to_owned()) } else { Ok(Words(words)) }
}

fn selector(text: &str) -> Result<NodeSelector, String> {
    NodeSelector::try_from(text.to_owned())
}

/// Runs `init`.
pub async fn run(args: &InitArgs, context: &Context) -> Result<(), ActionError> {
    let asked = Asked::new(context);
    let draft = Draft::of(args, &asked, context)?;
    let settings = draft.settings()?;
    let store = Box::pin(Store::connect(&settings.etcd, Clock::host())).await?;
    refuse_unfit_etcd(&store).await?;
    let kube = Kube::connect(&settings.kube, Clock::host()).await;
    let kube = kube.map_err(|e| ActionError::failed(format!("init: {e}")))?;
    let operator = Operator::new(store, Some(kube));
    let site = Box::pin(Site::read(args, &operator)).await?;
    context.print_message(&site.described(&settings));
    let plan = site.plan(args, &asked)?;
    if args.dry_run {
        return print_plan(&draft, &plan, context);
    }
    confirm(args, &site, &asked)?;
    if let Some(path) = draft.write()? {
        context.print_message(&format!("wrote {}", path.display()));
    }
    for line in Box::pin(site.write(&plan, &operator)).await? {
        context.print_message(&line);
    }
    let context = &context.with_settings(settings);
    Box::pin(finish(&site, context)).await
}

/// Refuses an etcd in which cketerm must not work, or where CKE does.
async fn refuse_unfit_etcd(store: &Store) -> Result<(), ActionError> {
    match store.exposure().await? {
        Exposure::NoObjects | Exposure::Denied => {}
        Exposure::Readable => {
            return Err(ActionError::refused(format!(
                "this is the etcd of Kubernetes, and this user can read every Secret in it: {OWN_ETCD}"
            )));
        }
    }
    if let Some(trace) = store.find_cke_trace().await? {
        return Err(ActionError::refused(format!(
            "CKE works or has worked on this etcd ({trace}), so it has a definition: see docs/how-to/with-cke.md"
        )));
    }
    Ok(())
}

/// Refuses unless a person has confirmed that etcd and Kubernetes belong together.
fn confirm(args: &InitArgs, site: &Site, asked: &Asked) -> Result<(), ActionError> {
    let uid = site.uid();
    let given = match &args.confirm_identity {
        Some(given) => given.clone(),
        None if site.is_confirmed() => return Ok(()),
        None => asked.question(
            "--confirm-identity UID",
            &format!("This etcd will belong to the cluster {uid}. Type the first 8 characters to confirm: "),
            "",
        )?,
    };
    let enough = given.len() >= 8 || given == uid;
    if enough && uid.starts_with(&given) {
        return Ok(());
    }
    Err(ActionError::refused(format!("the cluster is {uid}, not {given:?}: nothing was written")))
}

fn print_plan(draft: &Draft, plan: &site::Plan, context: &Context) -> Result<(), ActionError> {
    if let Some((path, text)) = draft.new_file() {
        context.print_message(&format!("would write {}:", path.display()));
        context.out.text(text)?;
    }
    for line in plan.described() {
        context.print_message(&format!("would {line}"));
    }
    if let Some(definition) = plan.definition() {
        context.out.text(definition)?;
    }
    context.print_message("dry run: nothing was written");
    Ok(())
}

/// Prints what is still wrong, the plan of a first reboot, and the next commands.
async fn finish(site: &Site, context: &Context) -> Result<(), ActionError> {
    Box::pin(report_problems(context)).await?;
    let Some(first) = site.first_worker() else {
        context.print_message("no worker is Ready, so there is no plan of a first reboot: see `cketerm doctor`");
        return Ok(());
    };
    context.print_message(&format!("plan of a first reboot, of {first}; nothing is queued:"));
    Box::pin(queue_plan::reboots(&[first.as_str()], context)).await?;
    context.print_message(&format!(
        "next: start an engine on two or three hosts (`systemctl enable --now cketerm`), then `cketerm rq add {first}`"
    ));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_is_split_at_blanks_and_quotes_are_refused() {
        assert_eq!(words(" cketerm  power cycle ").unwrap().0, ["cketerm", "power", "cycle"]);
        for text in ["sh -c 'reboot now'", "sh -c \"x\"", "a\\ b", "  "] {
            assert!(words(text).is_err(), "{text}");
        }
    }
}

//! `leader` and `status`.

use cketerm_actions::ActionError;
use serde_json::{Value, json};

use super::{Context, options::Output};

/// Prints the leader's host name.
pub async fn leader(context: &Context) -> Result<(), ActionError> {
    let store = context.store().await?;
    let leader = store.leader().await?;
    let Some(leader) = leader else {
        let candidate = store.read_view().await.ok().and_then(|view| view.standing_back().map(str::to_owned));
        let what =
            candidate.unwrap_or_else(|| "start `cketerm --daemon` (if policy `engine` allows it) or CKE".to_owned());
        return Err(ActionError::failed(format!("nobody leads: {what}")));
    };
    match context.output(Output::Table) {
        Output::Table => {
            let view = store.leaders().await?;
            let same_host = view.candidates.values().filter(|other| other.host == leader.host).count();
            if same_host > 1 {
                let program = if view.is_cke(&leader) { "CKE" } else { "cketerm" };
                context.print_message(&format!(
                    "note: {same_host} candidates run on {}; {program} with lease {:x} leads",
                    leader.host, leader.lease
                ));
            }
            context.out.line(&leader.host)
        }
        form => {
            let lease = format!("{:x}", leader.lease);
            let view = store.leaders().await?;
            let program = if view.is_cke(&leader) { "cke" } else { "cketerm" };
            let phase = store.raw(&store.keys().status()).await?.and_then(|raw| phase_of(&raw.text));
            let value = json!({
                "program": program, "host": leader.host, "lease": lease, "key": leader.key, "phase": phase,
            });
            context.out.value(&value, form)
        }
    }
}

/// Returns the phase in a value of `status`; `None` if it cannot be read.
fn phase_of(status: &str) -> Option<Value> {
    serde_json::from_str::<Value>(status).ok()?.get("phase").cloned()
}

/// Prints the leader's current phase.
pub async fn status(context: &Context) -> Result<(), ActionError> {
    let store = context.store().await?;
    let key = store.keys().status();
    let raw = store.raw(&key).await?;
    let Some(raw) = raw else {
        let view = store.leaders().await?;
        let why = view
            .leader()
            .and_then(|leader| view.migrates(leader))
            .unwrap_or_else(|| "nobody leads, or the leader has not finished a pass (see `cketerm leader`)".to_owned());
        return Err(ActionError::failed(format!("no status: {why}")));
    };
    let value: Value = serde_json::from_str(&raw.text)
        .map_err(|e| ActionError::failed(format!("{key} cannot be read: {e}; the leader's next pass rewrites it")))?;
    context.out.value(&value, if context.output(Output::Json) == Output::Yaml { Output::Yaml } else { Output::Json })
}

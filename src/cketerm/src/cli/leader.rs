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
        Output::Table => context.out.line(&leader.host),
        form => {
            let lease = format!("{:x}", leader.lease);
            let view = store.leaders().await?;
            let program = if view.is_cke(&leader) { "cke" } else { "cketerm" };
            let value = json!({"program": program, "host": leader.host, "lease": lease, "key": leader.key});
            context.out.value(&value, form)
        }
    }
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

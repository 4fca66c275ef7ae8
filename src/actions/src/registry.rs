//! Actions on the input of the generated cluster definition: sabakan's URL, the template, the query variables.

use cketerm_clients::store::operator::AuditNote;
use cketerm_model::{
    acceptance::OperatorCommand,
    cketerm_records::Approval,
    cluster::{parse, written},
    stored::keys::SwitchName,
};
use cketerm_sabakan::{Template, variables};

use super::{accept::checked_again, error::ActionError, operator::Operator};

impl Operator {
    /// Stores sabakan's URL, an absolute http(s) URL. `/graphql` is appended if its path does not end so, as `ckecli`
    /// does. Returns the stored URL.
    pub async fn set_sabakan_url(&self, url: &str, reason: Option<&str>) -> Result<String, ActionError> {
        let stored = graphql_url(url).map_err(ActionError::failed)?;
        let note = AuditNote::new(&self.person, "sabakan set-url", &stored, reason);
        self.store.put_raw(&self.store.keys().sabakan("url"), &stored, None, note).await?;
        Ok(stored)
    }

    /// Checks a template (YAML or JSON) and stores it in CKE's form. Returns notes for the operator.
    pub async fn set_sabakan_template(&self, text: &str, reason: Option<&str>) -> Result<Vec<String>, ActionError> {
        let template = parse(text).map_err(|e| ActionError::failed(format!("the template {e}")))?;
        let judged = Template::parse_value(&template)
            .map_err(|e| ActionError::failed(format!("the template was not set:\n{}", e.0.join("\n"))))?;
        let note = AuditNote::new(&self.person, "sabakan set-template", "sabakan/template", reason);
        let key = self.store.keys().sabakan("template");
        self.store.put_raw(&key, &written(&template).to_string(), None, note).await?;
        Ok(judged.warnings)
    }

    /// Approves the change with this digest at the gate, for one hour. Refused while applying is on hold.
    pub async fn approve(&self, digest: &str, reason: Option<&str>) -> Result<Approval, ActionError> {
        self.refuse_mismatch().await?;
        checked_again(|| async {
            let leadership = self.accepted(OperatorCommand::Approve).await?;
            Ok(self.store.approve(digest, &self.person, reason, Some(&leadership.under)).await)
        })
        .await
    }

    /// Stops all applying of generated definitions, or (`hold` false) resumes it. If `seen` is given, the write
    /// succeeds only while the hold has this `ModRevision` (0 = none).
    pub async fn hold_registry(&self, hold: bool, seen: Option<i64>, reason: Option<&str>) -> Result<(), ActionError> {
        checked_again(|| async {
            let under = if hold {
                Some(self.accepted(OperatorCommand::HoldApplying).await?.under)
            } else {
                self.refuse_mismatch().await?;
                None
            };
            Ok(self.store.set_hold(hold, seen, &self.person, reason, under.as_ref()).await)
        })
        .await
    }

    /// Checks and stores the variables of a query to sabakan, byte for byte: those of the integration or of automatic
    /// repair.
    pub async fn set_query_variables(
        &self,
        of: SwitchName,
        text: &str,
        reason: Option<&str>,
    ) -> Result<(), ActionError> {
        variables::parse(text).map_err(ActionError::failed)?;
        let (keys, what) = (self.store.keys(), format!("{} set-variables", of.folder()));
        let key =
            if of == SwitchName::AutoRepair { keys.auto_repair_variables() } else { keys.sabakan("query-variables") };
        let note = AuditNote::new(&self.person, &what, "query-variables", reason);
        self.store.put_raw(&key, text, None, note).await?;
        Ok(())
    }
}

/// Returns the URL to store for the one that an operator gave.
fn graphql_url(text: &str) -> Result<String, String> {
    let remedy = "write it as http://HOST:PORT";
    let uri: http::Uri = text.parse().map_err(|e| format!("{text:?} is not a URL: {e}; {remedy}"))?;
    if !matches!(uri.scheme_str(), Some("http" | "https")) || uri.host().is_none_or(str::is_empty) {
        return Err(format!("{text:?} is not an absolute http(s) URL; {remedy}"));
    }
    if uri.query().is_some() {
        return Err(format!("{text:?} has a query, which sabakan does not support; {remedy}"));
    }
    let (path, base) = (uri.path(), text.trim_end_matches('/'));
    // as ckecli does, including the doubled path for `…/graphql/`; `set-url` prints the stored URL
    Ok(if path.ends_with("/graphql") { text.to_owned() } else { format!("{base}/graphql") })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn graphql_is_appended_to_a_url_whose_path_lacks_it() {
        for (given, stored) in [
            ("http://10.0.0.1:10080", "http://10.0.0.1:10080/graphql"),
            ("http://10.0.0.1:10080/", "http://10.0.0.1:10080/graphql"),
            ("https://sabakan.example/x/graphql", "https://sabakan.example/x/graphql"),
            ("http://h/graphql/", "http://h/graphql/graphql"),
            ("http://[::1]:1", "http://[::1]:1/graphql"),
        ] {
            assert_eq!(graphql_url(given).unwrap(), stored);
        }
    }

    #[test]
    fn a_url_that_is_not_absolute_is_refused_with_a_remedy() {
        for bad in ["sabakan", "10.0.0.1:10080", "/graphql", "ftp://h/", "http://", "http://h/?a=b", ""] {
            assert!(graphql_url(bad).unwrap_err().contains("http://HOST:PORT"), "{bad}");
        }
    }
}

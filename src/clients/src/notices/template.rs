//! Template of a receiver: a Jinja template that renders a notice as JSON. Each `{{ … }}` becomes a JSON value with its
//! quotes, so that no text of a pod or a user can break out of it.

use cketerm_model::notice::{Kind, Notice};
use minijinja::{Environment, UndefinedBehavior, value::Serde};

use super::samples::sample;

/// Template name. Its extension makes minijinja write values as JSON.
const NAME: &str = "notice.json";

/// Limit of one expression in bytes, because minijinja's stack grows with each operator.
const MAX_EXPRESSION_BYTES: usize = 2000;

/// Returns the text between `{{` or `{%` and its end.
fn expressions(source: &str) -> impl Iterator<Item = &str> {
    let starts = source.match_indices("{{").map(|at| (at, "}}")).chain(source.match_indices("{%").map(|at| (at, "%}")));
    starts.map(|((at, _), end)| {
        let inside = &source[at + 2..];
        &inside[..inside.find(end).unwrap_or(inside.len())]
    })
}

/// Format of a notice for one receiver. Without a source it is the notice's own fields.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Template(Option<String>);

impl Template {
    /// Creates a template that renders JSON for a sample of every kind. The error names the line, the kind and the
    /// problem.
    pub fn new(source: &str) -> Result<Self, String> {
        if let Some(long) = expressions(source).find(|inside| inside.len() > MAX_EXPRESSION_BYTES) {
            let begins: String = long.chars().take(40).collect();
            return Err(format!("an expression has more than {MAX_EXPRESSION_BYTES} bytes: {begins:?}"));
        }
        let template = Self(Some(source.to_owned()));
        for kind in Kind::ALL {
            template.render(&sample(kind))?;
        }
        Ok(template)
    }

    /// Renders a notice. Fails if the template does, or if the result is no JSON.
    pub fn render(&self, notice: &Notice) -> Result<String, String> {
        let Some(source) = &self.0 else { return serde_json::to_string(notice).map_err(|e| e.to_string()) };
        let mut jinja = Environment::new();
        jinja.set_undefined_behavior(UndefinedBehavior::Strict);
        jinja.set_debug(true);
        let kind = notice.kind;
        let text = jinja.render_named_str(NAME, source, Serde(notice)).map_err(|e| error_text(&e, kind))?;
        match serde_json::from_str::<serde::de::IgnoredAny>(&text) {
            Ok(_) => Ok(text),
            Err(e) => {
                let line = text.lines().nth(e.line().saturating_sub(1)).unwrap_or_default().trim();
                Err(format!("a notice of kind `{kind}` renders invalid JSON: {e}, in {line:?}"))
            }
        }
    }
}

fn error_text(error: &minijinja::Error, kind: Kind) -> String {
    let line = error.line().map(|l| format!("line {l}: ")).unwrap_or_default();
    let detail = error.detail().map(|d| format!(": {d}")).unwrap_or_default();
    format!("{line}{}{detail} (for a notice of kind `{kind}`)", error.kind())
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    #[test]
    fn template_values_are_escaped_as_json() {
        let template =
            Template::new(r#"{"text": {{ kind ~ ": " ~ text }}, "n": {{ index }}, "who": {{ requested_by }}}"#)
                .unwrap();
        let mut notice = sample(Kind::Stuck);
        notice.text = "pod \"a\"\n}, {\"evil\": 1".to_owned();
        notice.index = None;
        let value: Value = serde_json::from_str(&template.render(&notice).unwrap()).unwrap();
        assert_eq!(value["text"], "stuck: pod \"a\"\n}, {\"evil\": 1");
        assert_eq!(value["n"], Value::Null);
    }

    #[test]
    fn templates_may_branch_and_are_rendered_for_every_kind_at_load() {
        let template = Template::new(
            "{% if kind == 'cleared' %}{\"event\": \"resolve\"}{% else %}{\"event\": \"trigger\", \"key\": {{ key }}}{% endif %}",
        )
        .unwrap();
        assert!(template.render(&sample(Kind::Cleared)).unwrap().contains("resolve"));
        let only_some = Template::new("{% if kind == 'many' %}{oops}{% else %}{}{% endif %}").unwrap_err();
        assert!(only_some.contains("kind `many` renders invalid JSON") && only_some.contains("{oops}"), "{only_some}");
    }

    #[test]
    fn errors_name_the_line() {
        let slip = Template::new("{\n  \"text\": {{ txet }}\n}").unwrap_err();
        assert!(slip.starts_with("line 2: ") && slip.contains("txet"), "{slip}");
        let open = Template::new("{\n{{ text }\n").unwrap_err();
        assert!(open.starts_with("line 2: ") || open.starts_with("line 3: "), "{open}");
    }

    #[test]
    fn without_a_template_the_notice_itself_is_rendered() {
        let value: Value = serde_json::from_str(&Template::default().render(&sample(Kind::Many)).unwrap()).unwrap();
        assert_eq!((&value["kind"], &value["severity"]), (&"many".into(), &"error".into()));
        assert_eq!(value["requested_by"], Value::Null, "every field is there");
    }
}

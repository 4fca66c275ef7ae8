//! Section `notices` of cketerm's form: a list of receivers (docs/notices.md).

use std::path::Path;

use cketerm_clients::notices::{Channel, Limits, Receiver, SecretUrl, Template, UrlSource};
use cketerm_model::{notice::Kind, text::nearest};

use super::{
    ConfigError,
    section::{Section, duration, relative_to},
};

/// Longest timeout of one delivery.
const MAX_TIMEOUT: std::time::Duration = std::time::Duration::from_mins(1);
/// Upper limit of notifications per minute; more are of no use to a receiver.
const MAX_PER_MINUTE: u64 = 600;

/// Reads the receivers of a file; they replace those of an earlier one.
pub(super) fn take(sections: Vec<Section>, path: &Path) -> Result<Vec<Receiver>, ConfigError> {
    let mut receivers: Vec<Receiver> = Vec::with_capacity(sections.len());
    for mut section in sections {
        let receiver = read_receiver(&mut section, path)?;
        if receivers.iter().any(|other| other.name == receiver.name) {
            return Err(section.key_error("name", &format!("two receivers are named {:?}", receiver.name)));
        }
        section.finish()?;
        receivers.push(receiver);
    }
    Ok(receivers)
}

fn read_receiver(section: &mut Section, path: &Path) -> Result<Receiver, ConfigError> {
    let Some(name) = section.text("name")? else {
        return Err(section.key_error("name", "is missing; each receiver needs its own name"));
    };
    let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    if name.is_empty() || name.len() > 40 || !name.chars().all(plain) {
        return Err(section.key_error("name", &format!("{name:?}: give up to 40 lower-case letters, digits or -")));
    }
    section.set_label(&name);
    let kinds = match section.list("kinds")? {
        None => Kind::CHOICE.into(),
        Some(words) => words.iter().map(|word| kind(section, word)).collect::<Result<_, _>>()?,
    };
    let channel = channel(section, path)?;
    let source = section.text("template")?;
    let file = section.text("template_file")?.map(|f| relative_to(path, &f));
    let template = match (source, file) {
        (Some(_), Some(_)) => return Err(section.key_error("template", "given here and as a file; give only one")),
        (Some(source), None) => Template::new(&source).map_err(|why| section.key_error("template", &why))?,
        (None, Some(file)) => {
            let shown = file.display();
            let unreadable = |e| section.key_error("template_file", &format!("{shown} cannot be read: {e}"));
            let source = std::fs::read_to_string(&file).map_err(unreadable)?;
            Template::new(&source).map_err(|why| section.key_error("template_file", &format!("{shown}, {why}")))?
        }
        (None, None) => Template::default(),
    };
    let mut limits = Limits::default();
    if let Some(text) = section.text("timeout")? {
        let valid = duration(&text).filter(|t| !t.is_zero() && *t <= MAX_TIMEOUT);
        let key_error =
            || section.key_error("timeout", &format!("{text:?} is not a duration such as 10s, of at most a minute"));
        limits.timeout = valid.ok_or_else(key_error)?;
    }
    if let Some(number) = section.number("per_minute")? {
        let key_error = || section.key_error("per_minute", &format!("{number}: give 1 to {MAX_PER_MINUTE}"));
        limits.per_minute =
            u32::try_from(number).ok().filter(|_| (1..=MAX_PER_MINUTE).contains(&number)).ok_or_else(key_error)?;
    }
    Ok(Receiver { name, kinds, channel, template, limits })
}

fn kind(section: &Section, word: &str) -> Result<Kind, ConfigError> {
    let known = || Kind::CHOICE.iter().map(|k| k.as_str());
    let key_error = || {
        let hint = nearest(word, known()).map(|n| format!("; did you mean {n}?")).unwrap_or_default();
        let all = known().collect::<Vec<_>>().join(", ");
        section.key_error("kinds", &format!("{word:?} is not one of {all}{hint}"))
    };
    Kind::CHOICE.into_iter().find(|k| k.as_str() == word).ok_or_else(key_error)
}

fn channel(section: &mut Section, path: &Path) -> Result<Channel, ConfigError> {
    let program = section.list("program")?;
    let url = section.text("url")?;
    let file = section.text("url_file")?.map(|f| relative_to(path, &f));
    let headers = section.text("header_file")?.map(|f| relative_to(path, &f));
    match (program, url, file) {
        (Some(argv), None, None) if headers.is_none() => {
            if argv.first().is_none_or(String::is_empty) {
                return Err(section.key_error("program", "is empty; give the program and its arguments"));
            }
            Ok(Channel::Program(argv))
        }
        (Some(_), None, None) => Err(section.key_error("header_file", "is for webhooks; a program has no headers")),
        (None, Some(url), None) => {
            // the URL itself may be a secret, so the error does not repeat it
            let url = SecretUrl::parse(&url).map_err(|why| section.key_error("url", &why))?;
            Ok(Channel::Webhook { url: UrlSource::Inline(url), headers })
        }
        (None, None, Some(file)) => Ok(Channel::Webhook { url: UrlSource::File(file), headers }),
        _ => Err(section.key_error("url", "give one of url, url_file and program")),
    }
}

#[cfg(test)]
mod tests {
    use super::super::Settings;

    fn load(notices: &str) -> Result<Settings, String> {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("config.yaml");
        std::fs::write(&path, format!("etcd: {{endpoints: [\"http://e:2379\"]}}\nnotices:\n{notices}")).unwrap();
        Settings::load_file(&path).map_err(|e| e.to_string().replace(&dir.path().display().to_string(), "DIR"))
    }

    #[test]
    fn receivers_are_read_with_their_defaults() {
        let text = "- {name: chat, url: \"https://hooks.example.com/x\", kinds: [stuck, failed], timeout: 3s}\n\
                    - {name: mail, program: [/usr/local/bin/mail-notice, ops], per_minute: 1}\n";
        let all = load(text).unwrap().notices;
        assert_eq!((all.len(), all[0].kinds.len(), all[1].kinds.len()), (2, 2, 8));
        assert_eq!((all[0].limits.timeout.as_secs(), all[0].limits.per_minute, all[1].limits.per_minute), (3, 6, 1));
        assert_eq!(all[1].channel.to_string(), "program /usr/local/bin/mail-notice");
    }

    #[test]
    fn receiver_mistakes_are_reported_with_receiver_key_and_line() {
        let cases = [
            ("- {url: \"http://x/\"}", "DIR/config.yaml: notices[0].name: is missing"),
            ("- {name: a, url: \"http://x/\", kinds: [stuk]}", "notices[0] (a).kinds: \"stuk\" is not one of"),
            ("- {name: a, url: \"http://x/\", kinds: [stuk]}", "did you mean stuck?"),
            ("- {name: a}", "notices[0] (a).url: give one of url, url_file and program"),
            ("- {name: a, url: \"http://x/\", ulr: b}", "unknown key notices[0] (a).ulr"),
            ("- {name: a, url: \"http://anna:secret@x/\"}", "holds a user or password"),
            ("- {name: a, program: [\"\"]}", "notices[0] (a).program: is empty"),
            ("- {name: a, url: \"http://x/\", timeout: 2m}", "of at most a minute"),
            ("- {name: a, url: \"http://x/\", per_minute: 0}", "give 1 to 600"),
            ("- {name: A, url: \"http://x/\"}", "lower-case letters, digits or -"),
            ("- {name: a, program: [x]}\n- {name: a, program: [y]}", "two receivers are named \"a\""),
            ("- {name: a, program: [x], header_file: h}", "a program has no headers"),
            (
                "- name: a\n  program: [x]\n  template: |\n    {\n      \"text\": {{ txet }}\n    }\n",
                "notices[0] (a).template: line 2: ",
            ),
            ("- chat", "notices[0]: expected keys and values"),
            ("  name: chat", "notices: expected a list"),
        ];
        for (text, expected) in cases {
            let why = load(text).unwrap_err();
            assert!(why.contains(expected), "{text}\n{why}\n{expected}");
            assert!(!why.contains("secret"), "{why}");
        }
    }
}

//! The document of all keys, confirmations and commands, `docs/keys.md`.

use std::fmt::Write as _;

use crate::{
    dialogs::tier::TIERS,
    keys::{
        Context::{Detail, Dialog, Everywhere, Field, Table},
        TABLE, is_typable,
    },
    state::command_line::{ARGUMENT_COMMANDS, ROWS_HELP, verb_usages},
};

/// Returns the whole of `docs/keys.md`.
pub fn markdown() -> String {
    let mut out = String::from(
        "# Keys\n\nGenerated from the key table in `src/console/src/keys.rs`; a test compares them \
         (`make docs` writes this file).\nA key that changes the cluster acts on the view's rows and \
         never navigates. Every command can be bound to other keys, or to none, by its name.\n",
    );
    for (title, context, changes) in [
        ("Changing the cluster", Everywhere, true),
        ("Tables", Table, false),
        ("Everywhere", Everywhere, false),
        ("Detail panes and help", Detail, false),
        ("Dialogs", Dialog, false),
        ("Text fields", Field, false),
    ] {
        let _ = write!(out, "\n## {title}\n\n| key | name | what it does |\n| --- | --- | --- |\n");
        for b in TABLE.iter().filter(|b| b.context == context && b.changes == changes) {
            let mut keys: Vec<_> = b.keys.iter().map(|k| format!("`{k}`")).collect();
            keys.extend((keys.is_empty() && is_typable(context)).then(|| format!("`:{}`", b.name)));
            let _ = writeln!(out, "| {} | `{}` | {} |", keys.join(" "), b.name, b.help);
        }
    }
    out.push_str(
        "\n## Confirmations\n\nA confirmation expires when its question becomes another one, and Enter asks again; one that stops something shows the new state \
         instead. The focus\nbegins in the first field; Enter moves on, from the last field to the button that acts. A dialog without \
         fields begins on Back.\n\n| name | confirmation |\n| --- | --- |\n",
    );
    for (name, tier) in TIERS {
        let _ = writeln!(out, "| `{name}` | {} |", tier.description());
    }
    let _ = write!(
        out,
        "\n## Command line\n\nEvery name above that works in tables or everywhere can be typed after `:`; tab completes. \
         There are also the commands below, and verbs\ntake rows and a reason.\n{ROWS_HELP}\n\n| command | what it does |\n| --- | --- |\n"
    );
    let words = ARGUMENT_COMMANDS.iter().map(|w| (format!("{} {}", w.name, w.argument), w.help));
    for (form, help) in words.chain(verb_usages()) {
        let _ = writeln!(out, "| `:{}` | {help} |", form.trim_end().replace('|', "\\|"));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn docs_keys_md_matches_the_key_table() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/keys.md");
        if std::env::var_os("UPDATE_DOCS").is_some() {
            std::fs::write(path, markdown()).unwrap();
        }
        assert_eq!(std::fs::read_to_string(path).unwrap(), markdown(), "docs/keys.md is outdated: run `make docs`");
    }
}

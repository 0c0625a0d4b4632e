//! `troupemq config`: which settings there are, what they are now, and whether a file is right.
//!
//! Invariants:
//! - `show` prints a whole `troupemq.toml`: read back, it means the same;
//! - everything told of a key comes from the field that declares it.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use serde::Serialize;
use serde_json::Value;

use super::settings::{Key, Part, Settings, keys};
use super::table::{Form, Row};
use super::{Failure, settings};

/// Longest line of a comment in the file, in characters.
const COMMENT_MAX: usize = 100;

/// What stands at the head of the file that is shown.
const FILE_HEADING: &str = "\
Settings of TroupeMQ. A key that is commented out has its default. A change of a key marked (reloadable) counts after a
SIGHUP, any other after a restart. Variables of the environment come over the file, flags over both.";

/// Show, check and explain settings
#[derive(Debug, Subcommand)]
pub(super) enum Config {
    /// Print all settings as a troupemq.toml, each with its documentation and value
    Show(Show),
    /// Say whether a file of settings is right
    Check(Check),
    /// Say what a key means, and what it is now
    Explain(Explain),
}

/// Which settings.
#[derive(Debug, Args)]
pub(super) struct Show {
    /// A file of settings [default: troupemq.toml of the current folder, if it is there]
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    #[command(flatten)]
    form: Form,
}

/// Which file.
#[derive(Debug, Args)]
pub(super) struct Check {
    /// The file: troupemq.toml, or key=value lines as in RocketMQ's broker.conf
    file: PathBuf,
    #[command(flatten)]
    form: Form,
}

/// What is said of a file that is right.
#[derive(Debug, Serialize)]
struct Right {
    file: String,
    settings: usize,
}

/// Which key.
#[derive(Debug, Args)]
pub(super) struct Explain {
    /// Name of the key
    key: String,
    #[command(flatten)]
    show: Show,
}

/// A setting as it counts.
#[derive(Debug, Serialize)]
struct Setting {
    table: &'static str,
    key: String,
    value: Value,
    default: Value,
    origin: Option<String>,
    reloadable: bool,
    about: String,
}

impl Row for Setting {
    const COLUMNS: &'static [&'static str] = &["table", "key", "value", "from"];

    fn cells(&self) -> Vec<String> {
        let origin = self.origin.clone().unwrap_or_else(|| "default".to_owned());
        vec![self.table.to_owned(), self.key.clone(), toml_text(&self.value), origin]
    }
}

impl Config {
    pub(super) fn run(self) -> Result<(), Failure> {
        match self {
            Config::Show(show) => {
                let settings = Settings::load(show.config.as_deref())?;
                let all: Vec<_> = keys().iter().map(|key| setting(&settings, key)).collect();
                show.form.print_all(&all, file)
            }
            Config::Check(check) => {
                let settings = Settings::load(Some(&check.file))?;
                settings.check()?;
                // Without it the store is where a flag says.
                if settings.origin("storePathRootDir").is_some() {
                    settings.check_log_place(&settings.store.dir)?;
                }
                let right = Right { file: check.file.display().to_string(), settings: settings.given.len() };
                let said = format!("{}: {} settings, all good", right.file, right.settings);
                check.form.print_all(&[right], |_| said)
            }
            Config::Explain(explain) => explain.run(),
        }
    }
}

impl Explain {
    fn run(self) -> Result<(), Failure> {
        let settings = Settings::load(self.show.config.as_deref())?;
        let (all, name) = (keys(), settings::name(&self.key));
        let found: Vec<_> =
            all.iter().filter(|key| key.name == name).map(|key| setting(&settings, key)).collect();
        if found.is_empty() {
            if let Some(what) = settings::of_rocketmq(name) {
                return Err(Failure::NotFound(what));
            }
            let nearest = settings::nearest(&self.key, all.iter().map(|key| &key.name));
            return Err(Failure::NotFound(format!(
                "there is no key {:?}, the nearest is {nearest:?}",
                self.key
            )));
        }
        self.show.form.print_all(&found, |found| found.iter().map(explained).collect::<Vec<_>>().join("\n"))
    }
}

fn setting(settings: &Settings, key: &Key) -> Setting {
    Setting {
        table: key.part.table(),
        key: key.name.clone(),
        value: settings.value(key),
        default: key.default.clone(),
        origin: settings.origin(&key.name).map(ToString::to_string),
        reloadable: key.is_reloadable,
        about: key.about.clone(),
    }
}

fn explained(setting: &Setting) -> String {
    let origin = setting.origin.as_deref().unwrap_or("the default");
    let change =
        if setting.reloadable { "it may change while the daemon runs" } else { "a change needs a restart" };
    let (table, key, value) = (setting.table, &setting.key, toml_text(&setting.value));
    format!("[{table}] {key} = {value}   # from {origin}; {change}\n{}", wrapped("", &setting.about))
}

/// All settings as a file: those that have their defaults are commented out.
fn file(all: &[Setting]) -> String {
    let mut lines = vec![wrapped("# ", FILE_HEADING)];
    for part in Part::ALL {
        lines.push(String::new());
        lines.push(format!("[{}]", part.table()));
        for setting in all.iter().filter(|setting| setting.table == part.table()) {
            let mark = if setting.reloadable { " (reloadable)" } else { "" };
            lines.push(String::new());
            lines.push(wrapped("# ", &format!("{}{mark}", setting.about)));
            let off = if setting.value == setting.default { "# " } else { "" };
            lines.push(format!("{off}{} = {}", setting.key, toml_text(&setting.value)));
        }
    }
    lines.join("\n")
}

fn wrapped(prefix: &str, text: &str) -> String {
    let mut lines = vec![prefix.to_owned()];
    for word in text.split_whitespace() {
        let last = lines.last_mut().expect("there is a line");
        if last.len() > prefix.len() && last.len() + word.len() >= COMMENT_MAX {
            lines.push(format!("{prefix}{word}"));
            continue;
        }
        if last.len() > prefix.len() {
            last.push(' ');
        }
        last.push_str(word);
    }
    lines.join("\n")
}

/// A value as TOML writes it; texts of JSON are texts of TOML.
fn toml_text(value: &Value) -> String {
    value.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_are_wrapped_between_words() {
        let long = "word ".repeat(30);
        let lines: Vec<_> = wrapped("# ", &long).lines().map(str::to_owned).collect();
        assert_eq!(lines.len(), 2);
        assert!(lines.iter().all(|line| line.starts_with("# word") && line.len() <= COMMENT_MAX));
    }

    #[test]
    fn every_key_is_explained_with_table_value_unit_and_default() {
        let settings = Settings::default();
        const UNITS: [&str; 32] = [
            "ytes",
            "in ms",
            " ms.",
            "in s.",
            " s.",
            " h.",
            "Hours",
            "per cent",
            "%",
            "microseconds",
            "epoch ms",
            "Slots",
            "slots",
            "Queues",
            "queues",
            "Messages",
            "messages",
            "Members",
            "Times",
            "Pulls",
            "Groups",
            "Transactions",
            "segments",
            "Entries",
            "Light queues",
            "Threads",
            "Requests",
            "6 is both",
            "0 is the master",
            "1,000 ms",
            "Units",
            "units",
        ];
        for key in keys() {
            let said = explained(&setting(&settings, &key));
            let (first, about) = said.split_once('\n').expect("a line for the value, then its documentation");
            assert!(first.starts_with(&format!("[{}] {} = ", key.part.table(), key.name)), "{first}");
            assert!(first.contains("# from the default; "), "{first}");
            let about = about.split_whitespace().collect::<Vec<_>>().join(" ");
            assert!(about.contains("Default: ") && about.ends_with('.'), "{}: {about}", key.name);
            let has_unit = UNITS.iter().any(|unit| about.contains(unit));
            assert!(!key.default.is_number() || has_unit, "{} has no unit: {about}", key.name);
            assert!(!about.contains("..=") && !about.contains(" then."), "{}: {about}", key.name);
        }
    }

    #[test]
    fn the_file_documents_every_key_in_its_table() {
        let settings = Settings::default();
        let all: Vec<_> = keys().iter().map(|key| setting(&settings, key)).collect();
        let text = file(&all);
        assert!(text.contains("\n[store]\n"), "{text}");
        assert!(text.contains("(reloadable)\n# maxMessageSize = 4194304\n"), "{text}");
        assert!(text.contains("\n# flushDiskType = \"ASYNC_FLUSH\""), "{text}");
        assert!(keys().iter().all(|key| text.contains(&format!("\n# {} = ", key.name))));
    }
}

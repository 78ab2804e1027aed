//! Man pages and shell completions contain every option.

mod common;

use std::fs;
use std::process::Command;

use clap::CommandFactory;
use common::example;
use gdrcopy_tools::cli::{Cli, LINKS};

/// The examples in the help of a command.
fn examples(command: &clap::Command) -> Vec<String> {
    let help = command.get_after_long_help().or(command.get_after_help()).map(ToString::to_string).unwrap_or_default();
    let lines = help.lines().filter_map(|line| line.strip_prefix("  "));
    lines.map(str::to_owned).collect()
}

#[test]
fn pages_and_completions_have_every_option() {
    let directory = tempfile::tempdir().unwrap();
    let made = Command::new(example("generate")).arg(directory.path()).arg("2026-11-22").status();
    assert!(made.unwrap().success());
    let read = |file: &str| fs::read_to_string(directory.path().join(file)).expect(file);
    let overview = read("man/man1/gdrcopy.1");

    let mut program = Cli::command();
    program.build();
    for tool in program.get_subcommands() {
        let name = tool.get_name();
        assert!(overview.contains(&format!("gdrcopy\\-{name}(1)")), "{name}: {overview}");
        let page = read(&format!("man/man1/gdrcopy-{name}.1"));
        let mut files = vec!["bash-completion/completions/gdrcopy".to_owned()];
        if LINKS.contains(&name) {
            files.push(format!("bash-completion/completions/gdrcopy_{name}"));
            files.push(format!("zsh/site-functions/_gdrcopy_{name}"));
            assert_eq!(read(&format!("man/man1/gdrcopy_{name}.1")), format!(".so man1/gdrcopy-{name}.1\n"));
        }
        let shown = tool.get_arguments().filter(|argument| !argument.is_hide_set());
        for option in shown.filter_map(|argument| argument.get_long()) {
            let escaped = format!("\\-\\-{}", option.replace('-', "\\-"));
            assert!(page.contains(&escaped), "{name} {option}: {page}");
            for file in &files {
                assert!(read(file).contains(&format!("--{option}")), "{file} {option}");
            }
        }
        let sections = ["OPTIONS", "EXAMPLES", "EXIT STATUS", "ENVIRONMENT", "SEE ALSO"];
        for section in sections {
            assert_eq!(page.matches(&format!(".SH {section}\n")).count(), 1, "{name}: {page}");
        }
        assert!(page.contains(" 2026-11-22 \"gdrcopy 2.6.0\" "), "{name}: {page}");
        let words =
            |text: &str| text.split(|char: char| !char.is_alphanumeric()).map(str::to_lowercase).collect::<Vec<_>>();
        let of_page = words(&page.replace("\\*(Aq", "'").replace("\\fI", " "));
        for word in words(&tool.clone().render_long_help().to_string()) {
            // Titles of the help's lists.
            let is_title = ["usage", "arguments"].contains(&&*word);
            assert!(is_title || of_page.contains(&word), "{name}: {word} in {page}");
        }
    }
}

#[test]
fn examples_are_valid_command_lines() {
    let program = Cli::command();
    for command in std::iter::once(&program).chain(program.get_subcommands()) {
        let examples = examples(command);
        assert!(!examples.is_empty(), "{}", command.get_name());
        for example in examples {
            let words = example.split(' ').skip_while(|word| *word != "gdrcopy");
            let words = words.take_while(|word| !word.starts_with(['>', '&']));
            if let Err(error) = Cli::command().try_get_matches_from(words) {
                panic!("{example}: {error}");
            }
        }
    }
}

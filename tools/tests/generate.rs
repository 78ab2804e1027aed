//! Man pages and shell completions contain every option.

mod common;

use std::fs;
use std::process::Command;

use clap::CommandFactory;
use common::example;
use gdrcopy_tools::cli::Cli;

#[test]
fn pages_and_completions_have_every_option() {
    let directory = tempfile::tempdir().unwrap();
    let made = Command::new(example("generate")).arg(directory.path()).status();
    assert!(made.unwrap().success());
    let read = |file: &str| fs::read_to_string(directory.path().join(file)).expect(file);
    let overview = read("man/man1/gdrcopy.1");

    for tool in Cli::command().get_subcommands() {
        let name = tool.get_name();
        assert!(overview.contains(&format!("gdrcopy\\-{name}(1)")), "{name}: {overview}");
        let page = read(&format!("man/man1/gdrcopy-{name}.1"));
        let completions = [
            "bash-completion/completions/gdrcopy".to_owned(),
            format!("bash-completion/completions/gdrcopy_{name}"),
            format!("zsh/site-functions/_gdrcopy_{name}"),
        ]
        .map(|file| read(&file));
        for option in tool.get_arguments().filter_map(|argument| argument.get_long()) {
            let escaped = format!("\\-\\-{}", option.replace('-', "\\-"));
            assert!(page.contains(&escaped), "{name} {option}: {page}");
            for completion in &completions {
                assert!(completion.contains(&format!("--{option}")), "{name} {option}");
            }
        }
        let link = read(&format!("man/man1/gdrcopy_{name}.1"));
        assert_eq!(link, format!(".so man1/gdrcopy-{name}.1\n"));
    }
}

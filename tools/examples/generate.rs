//! `generate DIRECTORY`: writes man pages and shell completions from the definitions of the command
//! line, in the layout of /usr/share. `make tools` calls it.
#![forbid(unsafe_code)]

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use clap::{Command, CommandFactory};
use clap_complete::{Shell, generate_to};
use gdrcopy_tools::cli::{Cli, LINK_PREFIX};

fn main() -> Result<()> {
    let directory = std::env::args_os().nth(1).context("usage: generate DIRECTORY")?;
    let directory = Path::new(&directory);
    let mut program = Cli::command();
    program.build();
    pages(directory, &program)?;
    completions(directory, &program)?;
    for tool in program.get_subcommands() {
        let link = link_name(tool);
        completions(directory, &tool.clone().name(link.clone()).bin_name(link))?;
    }
    Ok(())
}

/// The name of the link to a tool.
fn link_name(tool: &Command) -> String {
    format!("{LINK_PREFIX}{}", tool.get_name())
}

/// One page for the program, and one per tool, also under the name of its link.
fn pages(directory: &Path, program: &Command) -> Result<()> {
    let directory = directory.join("man/man1");
    fs::create_dir_all(&directory)?;
    write_page(&directory, program)?;
    for tool in program.get_subcommands() {
        let page = write_page(&directory, tool)?;
        let link = directory.join(link_name(tool)).with_extension("1");
        fs::write(link, format!(".so man1/{page}\n"))?;
    }
    Ok(())
}

/// Writes the page of a command, and returns the name of its file.
fn write_page(directory: &Path, command: &Command) -> Result<String> {
    let page = clap_mangen::Man::new(command.clone());
    let mut text = Vec::new();
    page.render(&mut text)?;
    let name = page.get_filename();
    fs::write(directory.join(&name), text)?;
    Ok(name)
}

/// For each shell, in the directory that it searches.
fn completions(directory: &Path, command: &Command) -> Result<()> {
    let name = command.get_name();
    let places = [
        (Shell::Bash, "bash-completion/completions"),
        (Shell::Zsh, "zsh/site-functions"),
        (Shell::Fish, "fish/vendor_completions.d"),
    ];
    for (shell, place) in places {
        let directory = directory.join(place);
        fs::create_dir_all(&directory)?;
        let file = generate_to(shell, &mut command.clone(), name, &directory)?;
        if shell == Shell::Bash {
            // Bash looks for the plain name of the command.
            fs::rename(file, directory.join(name))?;
        }
    }
    Ok(())
}

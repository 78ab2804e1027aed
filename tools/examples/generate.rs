//! `generate FOLDER`: man pages and shell completions, out of the definitions of the command line. FOLDER
//! is then as a part of /usr/share. `make tools` calls it.
#![forbid(unsafe_code)]

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use clap::{Command, CommandFactory};
use clap_complete::{Shell, generate_to};
use gdrcopy_tools::cli::{Cli, LINK_PREFIX};

fn main() -> Result<()> {
    let folder = std::env::args_os()
        .nth(1)
        .context("usage: generate FOLDER")?;
    let folder = Path::new(&folder);
    let mut program = Cli::command();
    program.build();
    pages(folder, &program)?;
    completions(folder, &program)?;
    for tool in program.get_subcommands() {
        let link = link_name(tool);
        completions(folder, &tool.clone().name(link.clone()).bin_name(link))?;
    }
    Ok(())
}

/// The name by which a tool can be called alone.
fn link_name(tool: &Command) -> String {
    format!("{LINK_PREFIX}{}", tool.get_name())
}

/// One page for the program, and one for each tool, which also goes by the name of its link.
fn pages(folder: &Path, program: &Command) -> Result<()> {
    let folder = folder.join("man/man1");
    fs::create_dir_all(&folder)?;
    write_page(&folder, program)?;
    for tool in program.get_subcommands() {
        let page = write_page(&folder, tool)?;
        let link = folder.join(link_name(tool)).with_extension("1");
        fs::write(link, format!(".so man1/{page}\n"))?;
    }
    Ok(())
}

/// Writes the page of a command. The name of its file.
fn write_page(folder: &Path, command: &Command) -> Result<String> {
    let page = clap_mangen::Man::new(command.clone());
    let mut text = Vec::new();
    page.render(&mut text)?;
    let name = page.get_filename();
    fs::write(folder.join(&name), text)?;
    Ok(name)
}

/// For each shell, in the folder where it looks for them.
fn completions(folder: &Path, command: &Command) -> Result<()> {
    let name = command.get_name();
    let places = [
        (Shell::Bash, "bash-completion/completions"),
        (Shell::Zsh, "zsh/site-functions"),
        (Shell::Fish, "fish/vendor_completions.d"),
    ];
    for (shell, place) in places {
        let folder = folder.join(place);
        fs::create_dir_all(&folder)?;
        let file = generate_to(shell, &mut command.clone(), name, &folder)?;
        if shell == Shell::Bash {
            // It is looked for by the command's name alone.
            fs::rename(file, folder.join(name))?;
        }
    }
    Ok(())
}

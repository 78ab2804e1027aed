//! `generate DIRECTORY DATE`: writes man pages, with that date, and shell completions from the definitions of the
//! command line, in the layout of /usr/share. `make tools` calls it.
#![forbid(unsafe_code)]

use std::fs::{self, File};
use std::path::Path;

use anyhow::{Result, bail};
use clap::{Command, CommandFactory};
use clap_complete::{Shell, generate};
use gdrcopy_tools::cli::{Cli, EXIT_STATUS, LINKS};
use manpage::Page;

/// The last sections of each man page.
const LAST: &str = r".SH ENVIRONMENT
.TP
.B LD_LIBRARY_PATH
where the loader looks for libgdrapi.so.2
.TP
.B CUDA_VISIBLE_DEVICES
the GPUs that CUDA numbers
.TP
.B GDRCOPY_*
read by the library, see
.BR gdrapi (3)
.SH SEE ALSO
.BR gdrcopy (1),
.BR gdrcopy_sanity (1),
.BR gdremu (1),
.BR gdrapi (3),
.BR gdrdrv-load (8)
";

fn main() -> Result<()> {
    let arguments: Vec<_> = std::env::args().skip(1).collect();
    let [directory, date] = &arguments[..] else { bail!("usage: generate DIRECTORY DATE") };
    let directory = Path::new(directory);
    let mut program = Cli::command();
    program.build();
    pages(directory, &program, date)?;
    completions(directory, &program)?;
    for tool in program.get_subcommands().filter(|tool| LINKS.contains(&tool.get_name())) {
        let link = format!("gdrcopy_{}", tool.get_name());
        completions(directory, &tool.clone().name(link.clone()).bin_name(link))?;
    }
    Ok(())
}

/// Writes a man page for the program and one for each tool. If NVIDIA's GDRCopy has the same tool as a program
/// `gdrcopy_TOOL`, the tool's page can also be found by that name.
fn pages(directory: &Path, program: &Command, date: &str) -> Result<()> {
    let directory = directory.join("man/man1");
    fs::create_dir_all(&directory)?;
    let page = Page { source: concat!("gdrcopy ", env!("CARGO_PKG_VERSION")), date, last: LAST };
    page.write(&directory, program)?;
    for tool in program.get_subcommands() {
        let mut help =
            tool.get_after_long_help().or(tool.get_after_help()).map(ToString::to_string).unwrap_or_default();
        if !help.contains("Exit status: ") {
            help = format!("{help}\n\n{EXIT_STATUS}");
        }
        let name = page.write(&directory, &tool.clone().after_long_help(help))?;
        if LINKS.contains(&tool.get_name()) {
            let link = directory.join(format!("gdrcopy_{}.1", tool.get_name()));
            fs::write(link, format!(".so man1/{name}\n"))?;
        }
    }
    Ok(())
}

/// Writes the completions for each shell to the directory where that shell looks for them.
fn completions(directory: &Path, command: &Command) -> Result<()> {
    let name = command.get_name();
    for (shell, file) in [
        (Shell::Bash, format!("bash-completion/completions/{name}")),
        (Shell::Zsh, format!("zsh/site-functions/_{name}")),
        (Shell::Fish, format!("fish/vendor_completions.d/{name}.fish")),
    ] {
        let file = directory.join(file);
        fs::create_dir_all(file.parent().unwrap_or(directory))?;
        generate(shell, &mut command.clone(), name, &mut File::create(file)?);
    }
    Ok(())
}

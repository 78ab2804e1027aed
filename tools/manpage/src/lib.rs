//! Man pages of programs, from the definitions of their command lines.
#![forbid(unsafe_code)]

use std::fs;
use std::io::{self, Write};
use std::path::Path;

use clap::Command;
use clap_mangen::Man;

/// The headings of sections at the end of a command's help.
const HEADINGS: [&str; 2] = ["Examples", "Exit status"];

/// The parts of pages beside the definition of the command line.
#[derive(Clone, Copy, Debug)]
pub struct Page<'a> {
    /// The program and its version, for the footer.
    pub source: &'a str,
    /// The date of the release for the footer, as `2026-11-22`.
    pub date: &'a str,
    /// Sections in the form of a command's help, for commands without them.
    pub common: &'a str,
    /// The last sections, as roff.
    pub last: &'a str,
}

impl Page<'_> {
    /// Writes the page of a command to a directory, and returns the name of its file.
    ///
    /// At the end of the command's help, paragraphs `Heading: text` and `Heading:` above indented lines become sections, if the
    /// heading is in `HEADINGS`. The others become a part of the description.
    ///
    /// # Errors
    /// The file system's error.
    pub fn write(&self, directory: &Path, command: &Command) -> io::Result<String> {
        let name = command.get_display_name().unwrap_or(command.get_name()).to_owned();
        let file = format!("{name}.1");
        let mut page = Vec::new();
        let man = Man::new(command.clone())
            .title(name.to_uppercase())
            .date(self.date)
            .source(self.source)
            .manual("User Commands");
        man.render_title(&mut page)?;
        // Long lists of values cannot be spread over a line.
        writeln!(page, ".ad l")?;
        man.render_name_section(&mut page)?;
        let usage = command.clone().render_usage().to_string();
        let usage = usage.trim_start_matches("Usage: ");
        writeln!(page, ".SH SYNOPSIS\n.nf\n{}\n.fi", escaped(usage))?;
        let long = command.get_long_about().map(ToString::to_string).unwrap_or_default();
        let help = command.get_after_long_help().or(command.get_after_help());
        let help = help.map(ToString::to_string).unwrap_or_default();
        let mut description = Vec::new();
        let mut sections = String::new();
        // The first paragraph of the long text is the name line again.
        let paragraphs = long.split("\n\n").skip(1).chain(help.split("\n\n")).chain(self.common.split("\n\n"));
        for paragraph in paragraphs.filter(|paragraph| !paragraph.is_empty()) {
            let (heading, text) = paragraph.split_once(':').unwrap_or_default();
            if !HEADINGS.contains(&heading) {
                description.push(escaped(paragraph));
                continue;
            }
            let title = format!(".SH {}\n", heading.to_uppercase());
            if sections.contains(&title) {
                continue; // The command has one of its own.
            }
            sections += &title;
            match text.strip_prefix('\n') {
                Some(lines) => sections += &format!(".nf\n{}\n.fi\n", escaped(&lines.replace("  ", ""))),
                None => sections += &format!("{}\n", escaped(text.trim())),
            }
        }
        if !description.is_empty() {
            writeln!(page, ".SH DESCRIPTION\n{}", description.join("\n.PP\n"))?;
        }
        man.render_options_section(&mut page)?;
        if command.has_subcommands() {
            man.render_subcommands_section(&mut page)?;
        }
        page.write_all(sections.as_bytes())?;
        page.write_all(self.last.as_bytes())?;
        fs::write(directory.join(&file), tidied(&String::from_utf8_lossy(&page)))?;
        Ok(file)
    }
}

/// A page without text that linters of man pages refuse, such as breaks beside a space, and lists that cannot be
/// broken.
fn tidied(page: &str) -> String {
    let lines = page.replace(".br\n.sp\n.br\n", ".sp\n").replace(".br\n\n.br\n", ".sp\n");
    let lines = lines.lines().map(|line| match line.contains("[default: ") {
        true => line.replace(',', ",\\:") + "\n",
        false => line.to_owned() + "\n",
    });
    lines.collect()
}

/// Text that roff takes literally.
fn escaped(text: &str) -> String {
    let text = text.replace('\\', "\\e").replace('-', "\\-");
    let lines = text.lines().map(|line| match line.starts_with(['.', '\'']) {
        true => format!("\\&{line}"),
        false => line.to_owned(),
    });
    lines.collect::<Vec<_>>().join("\n")
}

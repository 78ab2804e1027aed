//! Writes the man pages of programs from clap's definitions of their command lines.
#![forbid(unsafe_code)]

use std::fs;
use std::io;
use std::path::Path;

use clap::Command;
use clap_mangen::Man;

/// The parts of man pages that are not in the definition of the command line.
#[derive(Clone, Copy, Debug)]
pub struct Page<'a> {
    /// The program and its version, for the footer.
    pub source: &'a str,
    /// The date of the release for the footer, in the form `2026-11-22`.
    pub date: &'a str,
    /// The page's last sections, such as ENVIRONMENT, as roff.
    pub last: &'a str,
}

impl Page<'_> {
    /// Writes the page of a command to a directory, and returns the name of its file.
    ///
    /// The end of the command's help becomes the notes of the page. In this text, `Examples:` and `Exit status:` begin
    /// sections of their own.
    ///
    /// # Errors
    /// The file system's error.
    pub fn write(&self, directory: &Path, command: &Command) -> io::Result<String> {
        let name = command.get_display_name().unwrap_or(command.get_name()).to_owned();
        let mut page = Vec::new();
        let man = Man::new(command.clone()).title(name.to_uppercase()).date(self.date).source(self.source);
        man.manual("User Commands").render(&mut page)?;
        let mut page = String::from_utf8_lossy(&page).into_owned() + self.last;
        for (text, replacement) in [
            (".br\n\n.br\n", ".sp\n"), // mandoc complains about an empty line between breaks.
            (".SH EXTRA\nExamples:\n", ".SH EXAMPLES\n"),
            (".SH EXTRA\n", ".SH NOTES\n"),
            ("\nExamples:\n", "\n.SH EXAMPLES\n"),
            ("\nExit status: ", "\n.SH EXIT STATUS\n"),
        ] {
            page = page.replace(text, replacement);
        }
        let file = format!("{name}.1");
        fs::write(directory.join(&file), page)?;
        Ok(file)
    }
}

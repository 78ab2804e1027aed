//! `man DIRECTORY DATE` writes gdremu's man page, dated DATE, into DIRECTORY.

use std::io;
use std::path::Path;

use clap::CommandFactory;
use gdremu::options::Options;
use manpage::Page;

const LAST: &str = r".SH ENVIRONMENT
.TP
.B LD_PRELOAD, LD_LIBRARY_PATH
gdremu's libraries come before what these name
.SH FILES
.TP
.I ../lib/gdremu/libgdremu_cuda.so
the emulator, relative to the directory of gdremu, or beside it
.SH SEE ALSO
.BR gdrcopy (1),
.BR gdrapi (3)
";

fn main() -> io::Result<()> {
    let arguments: Vec<_> = std::env::args().skip(1).collect();
    let [directory, date] = &arguments[..] else {
        return Err(io::Error::other("usage: man DIRECTORY DATE"));
    };
    let source = concat!("gdremu ", env!("CARGO_PKG_VERSION"));
    let page = Page { source, date, last: LAST };
    page.write(Path::new(directory), &Options::command()).map(drop)
}

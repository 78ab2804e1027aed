//! The command line of gdremu, for the program and for its man page.

pub mod files;
pub mod options;
pub mod profiles;

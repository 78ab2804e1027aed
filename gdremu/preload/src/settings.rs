//! The configuration of this process, and the directory that it shares with all processes of one run of gdremu (the
//! session). Both come from an environment variable.
#![forbid(unsafe_code)]

use std::env;
use std::os::unix::ffi::OsStringExt;
use std::sync::OnceLock;

use gdremu_core::config::{self, Config};
use gdremu_core::session::Session;

pub(crate) fn config() -> &'static Config {
    read().as_ref().unwrap_or_else(|why| {
        eprintln!("gdremu: {}: {why}", config::VARIABLE);
        std::process::abort();
    })
}

/// Returns the directory that all processes of one gdremu share, or `None` if gdremu has not started this process.
pub(crate) fn session() -> Option<&'static Session> {
    Some(&read().as_ref().ok()?.session)
}

fn read() -> &'static Result<Config, String> {
    static CONFIG: OnceLock<Result<Config, String>> = OnceLock::new();
    CONFIG.get_or_init(read_config)
}

fn read_config() -> Result<Config, String> {
    let value = env::var_os(config::VARIABLE).ok_or("not set: start programs with gdremu")?;
    Config::from_variable(&String::from_utf8(value.into_vec()).map_err(|error| error.to_string())?)
}

//! gdremu: runs a program with an emulated gdrdrv and emulated CUDA GPUs.
//!
//! ```text
//! options (options.rs, profiles.rs) → Config → environment of the program → run it (child.rs) → leak report
//! ```

mod child;

use std::ffi::{OsStr, OsString};
use std::io::Write;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, ExitStatus};
use std::{env, fs};

use gdremu_core::config::{self, ProviderKind, Unsupported};
use gdremu_core::gpu::emugpu;
use gdremu_core::keeper::Keeper;
use gdremu_core::session::{LOADED, REFUSED_KERNEL, Session};

use gdremu::options::Options;
use gdremu::{files, profiles};

/// The exit statuses for failures of gdremu itself. They are the same as those of `env` and `timeout`.
const FAILURE: u8 = 125;
const CANNOT_RUN: u8 = 126;
const NOT_FOUND: u8 = 127;

const NVIDIA_DRIVER: &str = "/dev/nvidiactl";

/// Prints a line of text on stderr. A failure is ignored, because it must not change the exit status.
macro_rules! say {
    ($($line:tt)*) => {{
        let _ = writeln!(std::io::stderr(), $($line)*);
    }};
}

fn main() -> ExitCode {
    let options = Options::read(env::args_os()).unwrap_or_else(|error| error.exit());
    if options.list_profiles {
        print!("{}", profiles::list());
        return ExitCode::SUCCESS;
    }
    match run(&options) {
        Ok(End::Exit(code)) => ExitCode::from(code),
        Ok(End::Signal(signal)) => child::die_by(signal),
        Err(why) => {
            say!("gdremu: {why}");
            ExitCode::from(FAILURE)
        }
    }
}

enum End {
    Exit(u8),
    Signal(i32),
}

fn run(options: &Options) -> Result<End, String> {
    let needed = match options.config.gpu.provider {
        ProviderKind::Host => None,
        ProviderKind::Nvidia => Some(("nvidia", NVIDIA_DRIVER, "install NVIDIA's GPU driver")),
        ProviderKind::Emugpu => Some(("emugpu", emugpu::DEVICE, "run gdremu with gdrdrv-c/vm/run.sh")),
    };
    if let Some((provider, device, advice)) = needed
        && !Path::new(device).exists()
    {
        return Err(format!("--provider {provider}: {device} does not exist; {advice}"));
    }
    let runtime = find_runtime(options.config.gpu.provider)?;
    let session = Session::create().map_err(|error| format!("cannot create the session directory: {error}"))?;
    let code = run_in(&session, &runtime, options);
    fs::remove_dir_all(&session.directory).map_err(|error| format!("cannot remove the session directory: {error}"))?;
    code
}

fn run_in(session: &Session, runtime: &Path, options: &Options) -> Result<End, String> {
    let config = options.checked_config(session.clone())?;
    let mut command = Command::new(&options.program[0]);
    command.args(&options.program[1..]);
    command.env(config::VARIABLE, config.to_variable()?);
    let preloaded =
        session.preloadable(runtime).map_err(|error| format!("cannot link the library to preload: {error}"))?;
    command.env("LD_PRELOAD", prepended(preloaded.as_os_str(), "LD_PRELOAD"));
    files::install(&config, &options.files).map_err(|error| format!("cannot create the emulated files: {error}"))?;
    if options.config.gpu.provider.emulates_gpus() {
        session.install_stand_in(runtime).map_err(|error| format!("cannot link the stand-in libcuda: {error}"))?;
        let libraries = prepended(session.libraries().as_os_str(), "LD_LIBRARY_PATH");
        command.env("LD_LIBRARY_PATH", libraries);
    }
    // Without this option, AddressSanitizer refuses to start if another library is preloaded.
    command.env("ASAN_OPTIONS", prepended(OsStr::new("verify_asan_link_order=0"), "ASAN_OPTIONS"));

    let keeper = Keeper::new(session).map_err(|error| format!("cannot make the socket in TMPDIR: {error}"))?;
    child::in_background(|| keeper.serve()).map_err(|error| format!("cannot start a thread: {error}"))?;
    let status = match child::run(&mut command) {
        Ok(status) => status,
        Err(error) => {
            say!("gdremu: {}: {error}", options.program[0].display());
            let missing = error.kind() == std::io::ErrorKind::NotFound;
            return Ok(End::Exit(if missing { NOT_FOUND } else { CANNOT_RUN }));
        }
    };
    if !session.has(LOADED) {
        say!(
            "gdremu: {} did not load gdremu's library, so gdremu had no effect on it: \
             is it linked statically or with musl, for 32 bits, or set-user-ID?",
            options.program[0].display()
        );
    }
    let leaks = session.leaks();
    for leak in &leaks {
        say!("gdremu: leak: {leak}");
    }
    if let Some(code) = options.leak_exit
        && !leaks.is_empty()
    {
        return Ok(End::Exit(code));
    }
    if let Unsupported::Exit(code) = config.unsupported
        && status.success()
        && session.has(REFUSED_KERNEL)
    {
        say!("gdremu: a child launched a GPU kernel that is not run: the exit status is {code} (--unsupported)");
        return Ok(End::Exit(code));
    }
    Ok(end_like(status))
}

fn end_like(status: ExitStatus) -> End {
    match (status.code(), status.signal()) {
        (Some(code), _) => End::Exit(code as u8),
        (None, Some(signal)) => End::Signal(signal),
        (None, None) => End::Exit(FAILURE),
    }
}

/// Returns the path of the library to preload, which is beside this executable or in `../lib/gdremu`. The variable
/// GDREMU_RUNTIME can name another one.
fn find_runtime(provider: ProviderKind) -> Result<PathBuf, String> {
    if let Some(path) = env::var_os("GDREMU_RUNTIME") {
        return Ok(path.into());
    }
    let (name, hint) = match provider {
        ProviderKind::Host | ProviderKind::Emugpu => ("libgdremu_cuda.so", ""),
        ProviderKind::Nvidia => {
            ("libgdremu_nvidia.so", ": it is a laboratory tool that packages leave out; `make gpu-bundle` builds it")
        }
    };
    let executable = env::current_exe().map_err(|error| error.to_string())?;
    for place in ["", "../lib/gdremu"] {
        if let Ok(path) = executable.with_file_name(place).join(name).canonicalize() {
            return Ok(path);
        }
    }
    Err(format!("{name} is neither beside {} nor in ../lib/gdremu{hint}", executable.display()))
}

fn prepended(first: &OsStr, variable: &str) -> OsString {
    let mut value = first.to_owned();
    let rest = env::var_os(variable).unwrap_or_default();
    if !rest.is_empty() {
        value.push(":");
        value.push(rest);
    }
    value
}

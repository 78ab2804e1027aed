//! Runs each sequence of calls in its own process, so that a crash does not end the test, and objects that were leaked
//! by `mem::forget` end with the process.

use std::fmt;
use std::io::{self, PipeWriter, Read, Write};
use std::os::unix::process::ExitStatusExt;
use std::panic::{self, AssertUnwindSafe, catch_unwind};
use std::process::{self, ExitStatus};
use std::sync::OnceLock;

use gdrcopy::{Error, GdrError, Result};

/// The pipe to which a sequence lists its calls. Each call is listed before it is made. So after a crash, the last call
/// in the list is the one that crashed.
static LIST: OnceLock<PipeWriter> = OnceLock::new();

/// Runs a sequence in a forked child.
///
/// # Errors
/// If the sequence panics or crashes, the error is the list of its calls, with the exit status of the child.
pub(crate) fn run(sequence: impl FnOnce()) -> std::result::Result<(), String> {
    let (mut reader, writer) = io::pipe().expect("descriptors");
    // SAFETY: the other threads of the process wait for this thread, and hold no lock that the child needs.
    let child = unsafe { libc::fork() };
    if child == 0 {
        run_in_child(writer, sequence);
    }
    drop(writer);
    let mut list = Vec::new();
    reader.read_to_end(&mut list).expect("a pipe");
    let mut status = 0;
    // SAFETY: waits for the child that was forked above.
    assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
    let end = ExitStatus::from_raw(status);
    if end.success() {
        return Ok(());
    }
    Err(format!("\n{}\n{end}", String::from_utf8_lossy(&list)))
}

fn run_in_child(writer: PipeWriter, sequence: impl FnOnce()) -> ! {
    LIST.set(writer).expect("a new process");
    panic::set_hook(Box::new(|info| list(format_args!("\n{info}\n"))));
    let result = catch_unwind(AssertUnwindSafe(sequence));
    process::exit(i32::from(result.is_err()))
}

/// Adds a text to the list of calls.
pub(crate) fn list(text: fmt::Arguments<'_>) {
    let mut writer = LIST.get().expect("a sequence is running");
    // The text is formatted first and then written at once, because two threads may list calls at the same time.
    writer.write_all(text.to_string().as_bytes()).expect("the parent reads");
}

/// Begins a line of the list of calls, before the call is made. [`outcome`] adds the call's result, and ends the line.
macro_rules! calling {
    ($($text:tt)+) => { $crate::isolated::list(format_args!($($text)+)) };
}
pub(crate) use calling;

/// Checks that a call has succeeded if `predicted` is true, and has failed otherwise. Returns its value, or `None` if
/// it has failed.
#[track_caller]
pub(crate) fn outcome<T>(predicted: bool, result: Result<T>) -> Option<T> {
    let value = any_outcome(result);
    assert_eq!(value.is_some(), predicted, "the model predicts {predicted}");
    value
}

/// Checks a result as [`outcome`] does, but compares it with `predicted` only if `is_known` is true.
#[track_caller]
pub(crate) fn outcome_if_known<T>(is_known: bool, predicted: bool, result: Result<T>) -> Option<T> {
    if is_known { outcome(predicted, result) } else { any_outcome(result) }
}

/// Makes a call, and checks its result as [`outcome`] does. If `panics` is true, the call must panic, and `None` is
/// returned.
#[track_caller]
pub(crate) fn outcome_or_panic<T>(panics: bool, predicted: bool, call: impl FnOnce() -> Result<T>) -> Option<T> {
    let Ok(result) = catch_unwind(AssertUnwindSafe(call)) else {
        list(format_args!(" = panic\n"));
        assert!(panics, "the documentation has the panics");
        return None;
    };
    let value = outcome(predicted, result);
    assert!(!panics, "a panic is predicted");
    value
}

/// Adds the result of a call to the list of calls. Returns its value, or `None` if the call has failed.
#[track_caller]
pub(crate) fn any_outcome<T>(result: Result<T>) -> Option<T> {
    match result {
        Ok(value) => {
            list(format_args!(" = Ok\n"));
            Some(value)
        }
        Err(error) => {
            list(format_args!(" = {error:?}\n"));
            // Even errors that only extreme arguments cause must have a text.
            assert!(!error.to_string().is_empty());
            assert!(!matches!(error, Error::Gdr(GdrError::ForkedChild)), "no call of it forked");
            None
        }
    }
}

/// Makes a call that cannot return an error. Checks that it panics if `predicted` is true, and not otherwise.
#[track_caller]
pub(crate) fn panic_outcome(predicted: bool, call: impl FnOnce()) {
    let panicked = catch_unwind(AssertUnwindSafe(call)).is_err();
    list(format_args!(" = {}\n", if panicked { "panic" } else { "Ok" }));
    assert_eq!(panicked, predicted, "the documentation has the panics");
}

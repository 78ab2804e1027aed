//! Records the calls of this process to the emulated driver: keeps their names for tests, and writes each call with its
//! arguments and result to the file of gdremu's option `--trace`.
#![forbid(unsafe_code)]

use std::ffi::{CStr, CString};
use std::fs::OpenOptions;
use std::io::Write;
use std::time::Instant;

use gdremu_core::driver::Caller;
use gdremu_core::errno::Errno;

use crate::settings;

const MAX: usize = 1 << 20;

#[derive(Default)]
pub(crate) struct Calls {
    /// The names of the calls since the last [`Calls::take`].
    names: Vec<&'static str>,
    /// The names that [`Calls::take`] returned last.
    taken: CString,
}

impl Calls {
    pub(crate) fn record(
        &mut self,
        call: &'static str,
        arguments: &[(&str, u64)],
        result: Result<u64, Errno>,
        begin: Instant,
    ) {
        if self.names.len() < MAX {
            self.names.push(call);
        }
        let Some(path) = &settings::config().trace else {
            return;
        };
        let duration = begin.elapsed().as_nanos();
        let mut texts = Vec::new();
        for (name, value) in arguments {
            texts.push(format!("\"{}\":{value}", name.to_ascii_lowercase()));
        }
        let arguments = texts.join(",");
        let (result, errno) = match result {
            Ok(value) => (value.to_string(), "null".to_owned()),
            Err(errno) => ("-1".to_owned(), format!("\"{errno}\"")),
        };
        let Caller { pid, tid } = Caller::now();
        // No text needs JSON's escapes, because all texts are names of calls, fields and errors.
        let line = format!(
            "{{\"call\":\"{call}\",\"arguments\":{{{arguments}}},\"result\":{result},\"errno\":{errno},\
             \"duration_ns\":{duration},\"pid\":{pid},\"tid\":{tid}}}\n"
        );
        // The file is opened and closed for each line, so that the program never finds a descriptor of gdremu. If the
        // line cannot be written, the program must go on.
        if let Ok(mut file) = OpenOptions::new().append(true).create(true).open(path) {
            let _ = file.write_all(line.as_bytes());
        }
    }

    /// Returns the names of the driver calls since `take` was called last, separated by blanks.
    pub(crate) fn take(&mut self) -> &CStr {
        let names = std::mem::take(&mut self.names).join(" ");
        self.taken = CString::new(names).expect("names have no NUL byte");
        &self.taken
    }

    pub(crate) fn after_fork(&mut self) {
        self.names.clear();
    }
}

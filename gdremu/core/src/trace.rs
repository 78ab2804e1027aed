//! A driver call as a line of JSON.
#![forbid(unsafe_code)]

use std::fmt::Write;

use crate::driver::Caller;
use crate::errno::Errno;

/// One call, after it was made.
#[derive(Debug)]
pub struct Event<'a> {
    /// `open`, `mmap`, or the name of a command.
    pub call: &'a str,
    /// Arguments by name, after the call: what it wrote is in them.
    pub arguments: &'a [(&'a str, u64)],
    /// What it returned.
    pub result: Result<u64, Errno>,
    /// How long it took, in nanoseconds.
    pub duration: u128,
    /// Who made it.
    pub caller: Caller,
}

impl Event<'_> {
    /// The line, with its end. Nothing in it needs to be escaped: all texts are names.
    pub fn to_json(&self) -> String {
        let mut line = format!("{{\"call\":\"{}\",\"arguments\":{{", self.call);
        for (i, (name, value)) in self.arguments.iter().enumerate() {
            let comma = if i == 0 { "" } else { "," };
            let name = name.to_ascii_lowercase();
            write!(line, "{comma}\"{name}\":{value}").expect("a String takes everything");
        }
        let (result, errno) = match self.result {
            Ok(value) => (value.to_string(), "null".to_owned()),
            Err(errno) => ("-1".to_owned(), format!("\"{errno}\"")),
        };
        let Caller { pid, tid } = self.caller;
        let duration = self.duration;
        writeln!(
            line,
            "}},\"result\":{result},\"errno\":{errno},\"duration_ns\":{duration},\"pid\":{pid},\"tid\":{tid}}}"
        )
        .expect("a String takes everything");
        line
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn success_and_failure() {
        let caller = Caller { pid: 7, tid: 8 };
        let arguments = [("ADDR", 65536), ("HANDLE", 0)];
        let mut event = Event {
            call: "PIN_BUFFER_V2",
            arguments: &arguments,
            result: Ok(0),
            duration: 9,
            caller,
        };
        assert_eq!(
            event.to_json(),
            "{\"call\":\"PIN_BUFFER_V2\",\"arguments\":{\"addr\":65536,\"handle\":0},\
             \"result\":0,\"errno\":null,\"duration_ns\":9,\"pid\":7,\"tid\":8}\n"
        );
        event.result = Err(Errno::ENOMEM);
        assert!(event.to_json().contains("\"result\":-1,\"errno\":\"ENOMEM\""));
    }
}

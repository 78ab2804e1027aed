//! The table of profiles, `profiles.toml`.

use std::ffi::OsString;

use toml::{Table, Value};

const TABLE: &str = include_str!("../../profiles.toml");

fn table() -> Table {
    TABLE.parse().expect("profiles.toml is valid TOML")
}

/// The names of all profiles, in the order of the file.
pub fn names() -> Vec<String> {
    table().keys().cloned().collect()
}

/// Returns the name if it is a profile's.
///
/// # Errors
/// A text that lists the names.
pub fn known(name: &str) -> Result<String, String> {
    let names = names();
    match names.iter().any(|known| known == name) {
        true => Ok(name.to_owned()),
        false => Err(format!("choose one of: {}", names.join(", "))),
    }
}

/// The options of a profile, as the command line takes them.
pub fn options(name: &str) -> Vec<OsString> {
    let table = table();
    let options = table.get(name).and_then(Value::as_table);
    let options = options.into_iter().flatten();
    let words = options.flat_map(|(option, value)| {
        let value = match value {
            Value::Boolean(_) => None,
            Value::String(text) => Some(text.clone()),
            Value::Integer(number) => Some(number.to_string()),
            other => panic!("profiles.toml: {option} = {other:?}"),
        };
        std::iter::once(format!("--{option}")).chain(value)
    });
    words.map(OsString::from).collect()
}

/// A line for each profile, with its name and options.
pub fn list() -> String {
    let line = |name: &String| {
        let options = options(name).join(" ".as_ref());
        let line = format!("{name:<20} {}", options.display());
        format!("{}\n", line.trim_end())
    };
    names().iter().map(line).collect()
}

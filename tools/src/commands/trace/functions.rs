//! The functions of libgdrapi that `gdrcopy trace` traces. Also finds functions of a library that it does not trace.
#![forbid(unsafe_code)]

use std::fs::File;
use std::path::Path;

use object::read::ReadCache;
use object::{Object, ObjectSymbol, SymbolKind};

/// The list of traced functions, which tools/trace also uses. Each has a line `each(RESULT, NAME, (PARAMETERS))`.
const LIST: &str = include_str!("../../../../c_tests/functions.h");
const LINE: &str = "    each(";

/// The number of traced functions.
pub(crate) const COUNT: usize = 17;

fn lines() -> impl Iterator<Item = &'static str> {
    LIST.lines().filter_map(|line| line.strip_prefix(LINE))
}

/// Returns the name of a function, by its number in the files that tools/trace/trace.c writes.
pub(crate) fn name(number: u64) -> String {
    let line = lines().nth(number as usize).unwrap_or_default();
    format!("gdr_{}", line.split(", ").nth(1).unwrap_or("?"))
}

/// Returns whether NVIDIA's libgdrapi 2.6 exports this name, but does not declare it in gdrapi.h. No program uses such
/// names.
fn is_internal(name: &str) -> bool {
    name == "gdr_msg" || name.starts_with("gdr_cu")
}

/// Returns the functions of a libgdrapi that `gdrcopy trace` does not trace, or none if the file cannot be read.
pub(crate) fn others_of(library: &Path) -> Vec<String> {
    let Ok(file) = File::open(library) else { return Vec::new() };
    let cache = ReadCache::new(file);
    let Ok(object) = object::File::parse(&cache) else { return Vec::new() };
    let mut traced = Vec::new();
    for number in 0..COUNT {
        traced.push(name(number as u64));
    }
    let mut others = Vec::new();
    for symbol in object.dynamic_symbols() {
        let Ok(name) = symbol.name() else { continue };
        let is_function = symbol.is_definition() && symbol.kind() == SymbolKind::Text && name.starts_with("gdr_");
        if is_function && !is_internal(name) && !traced.iter().any(|other| other == name) {
            others.push(name.to_owned());
        }
    }
    others.sort();
    others
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_have_the_names_of_the_list() {
        assert_eq!(lines().count(), COUNT);
        assert_eq!(name(0), "gdr_open");
        assert_eq!(name(COUNT as u64 - 1), "gdr_get_mapping_type_string");
        assert_eq!(name(COUNT as u64), "gdr_?");
    }
}

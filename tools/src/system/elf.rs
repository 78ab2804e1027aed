//! Names of functions in ELF files.
#![forbid(unsafe_code)]

use std::fs::File;
use std::path::Path;

use object::read::ReadCache;
use object::{Object, ObjectSegment, ObjectSymbol, SymbolKind};

/// The function with this offset in a file, and how far inside.
pub(crate) fn function_at(file: &Path, offset: u64) -> Option<(String, u64)> {
    // The file may be much longer than what is read.
    let cache = ReadCache::new(File::open(file).ok()?);
    let object = object::File::parse(&cache).ok()?;
    for segment in object.segments() {
        let (start, len) = segment.file_range();
        if !(start..start + len).contains(&offset) {
            continue;
        }
        let address = offset - start + segment.address();
        for symbol in object.symbols().chain(object.dynamic_symbols()) {
            let range = symbol.address()..symbol.address() + symbol.size();
            if symbol.kind() == SymbolKind::Text && symbol.is_definition() && range.contains(&address) {
                return Some((symbol.name().ok()?.to_owned(), address - range.start));
            }
        }
    }
    None
}

//! Converts addresses of a traced process to places in its code.
#![forbid(unsafe_code)]

use std::fs::File;
use std::path::Path;

use object::read::ReadCache;
use object::{Object, ObjectSegment, ObjectSymbol, SymbolKind};

use crate::system::process;

/// Returns an address in the code as `FUNCTION+0x1 (FILE)`, or, if no function is known, as `FILE+0x1` with the offset
/// in the file. `maps` is a text of `/proc/PID/maps`. Returns `None` if the code is not in it.
pub(crate) fn name(maps: &str, caller: u64) -> Option<String> {
    // `caller` is the address to which the call returns. The call itself is before that address.
    let call = caller.saturating_sub(1);
    for object in process::mappings(maps) {
        let path = Path::new(object.path);
        if !object.is_code || !path.is_absolute() || !(object.start..object.end).contains(&call) {
            continue;
        }
        let offset = call - object.start + object.offset;
        let file = path.file_name()?.display();
        return Some(match function_at(path, offset) {
            Some((function, inside)) => format!("{function}+{:#x} ({file})", inside + 1),
            None => format!("{file}+{:#x}", offset + 1),
        });
    }
    None
}

/// Returns the function at this offset in a file, and the offset in the function.
fn function_at(file: &Path, offset: u64) -> Option<(String, u64)> {
    // Only parts of the file are read, because it may be long.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_named_by_file_and_offset() {
        let maps = "7f0000000000-7f0000001000 r--p 00000000 fe:00 7    /a b/c.so\n\
                    7f0000001000-7f0000003000 r-xp 00001000 fe:00 7    /a b/c.so\n\
                    7f0000004000-7f0000005000 rw-p 00000000 00:00 0 \n";
        assert_eq!(name(maps, 0x7f00_0000_1234).as_deref(), Some("c.so+0x1234"));
        assert_eq!(name(maps, 0x7f00_0000_3000).as_deref(), Some("c.so+0x3000"));
        assert_eq!(name(maps, 0x7f00_0000_4010), None);
        assert_eq!(name(maps, 0), None);
    }
}

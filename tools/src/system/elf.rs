//! Names of functions in ELF files.
#![forbid(unsafe_code)]

use std::fs::File;
use std::path::Path;

use object::read::ReadCache;
use object::{Object, ObjectSegment, ObjectSymbol, SymbolKind};

/// The functions of a file, and where its parts are loaded.
#[derive(Debug, Default)]
pub(crate) struct Functions {
    /// Offset in the file, bytes, address.
    segments: Vec<(u64, u64, u64)>,
    /// Address, bytes, name; ascending.
    functions: Vec<(u64, u64, String)>,
}

impl Functions {
    /// Those of a file; none of one that is no such file.
    pub(crate) fn read(file: &Path) -> Functions {
        let mut functions = Functions::default();
        let Ok(file) = File::open(file) else { return functions };
        // The file may be much longer than what is read.
        let cache = ReadCache::new(file);
        let Ok(object) = object::File::parse(&cache) else { return functions };
        for segment in object.segments() {
            let (offset, len) = segment.file_range();
            functions.segments.push((offset, len, segment.address()));
        }
        for symbol in object.symbols().chain(object.dynamic_symbols()) {
            if symbol.kind() == SymbolKind::Text
                && symbol.is_definition()
                && let Ok(name) = symbol.name_bytes()
            {
                let name = String::from_utf8_lossy(name).into_owned();
                functions.functions.push((symbol.address(), symbol.size(), name));
            }
        }
        functions.functions.sort();
        functions
    }

    /// The function with this offset in the file, and how far inside.
    pub(crate) fn at(&self, offset: u64) -> Option<(&str, u64)> {
        let (start, _, address) =
            self.segments.iter().find(|(start, len, _)| (*start..start + len).contains(&offset))?;
        let address = offset - start + address;
        let after = self.functions.partition_point(|function| function.0 <= address);
        let (start, len, name) = self.functions.get(after.checked_sub(1)?)?;
        (address < start + len).then_some((name, address - start))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_of_this_program_have_names() {
        let functions = Functions::read(&std::env::current_exe().unwrap());
        let (start, len, name) = functions.functions.iter().rev().find(|it| it.1 > 8).unwrap();
        let segment = functions.segments.iter().find(|it| (it.2..it.2 + it.1).contains(start));
        let offset = start - segment.unwrap().2 + segment.unwrap().0;
        let found = functions.at(offset + 1).unwrap();
        assert_eq!(found.1, 1, "{name} of {len} bytes: {found:?}");
        assert!(Functions::read(Path::new("/proc/self/maps")).at(0).is_none());
    }
}

//! Names of functions in ELF files of 64 bits.
#![forbid(unsafe_code)]

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

/// The functions of a file, and where its parts are loaded.
#[derive(Debug, Default)]
pub(crate) struct Functions {
    /// Offset in the file, bytes, address.
    segments: Vec<(u64, u64, u64)>,
    /// Address, bytes, name; ascending.
    functions: Vec<(u64, u64, String)>,
}

const PT_LOAD: u64 = 1;
const SHT_SYMTAB: u64 = 2;
const SHT_DYNSYM: u64 = 11;
const STT_FUNC: u64 = 2;

impl Functions {
    /// Those of a file; none of one that is no such file.
    pub(crate) fn read(file: &Path) -> Functions {
        let mut found = Functions::default();
        let _ = File::open(file).ok().and_then(|file| found.add(&file));
        found.functions.sort();
        found
    }

    fn add(&mut self, file: &File) -> Option<()> {
        let header = bytes(file, 0, 64)?;
        if !header.starts_with(b"\x7fELF\x02\x01") {
            return None;
        }
        let entries = |offset, size, count| {
            let size = number(&header, size, 2)?;
            let table = bytes(file, number(&header, offset, 8)?, size * number(&header, count, 2)?)?;
            Some(table.chunks(size.max(1) as usize).map(<[u8]>::to_vec).collect::<Vec<_>>())
        };
        for segment in entries(32, 54, 56)? {
            if number(&segment, 0, 4)? == PT_LOAD {
                let field = |at| number(&segment, at, 8);
                self.segments.push((field(8)?, field(32)?, field(16)?));
            }
        }
        let sections = entries(40, 58, 60)?;
        let content = |section: &[u8]| bytes(file, number(section, 24, 8)?, number(section, 32, 8)?);
        for section in &sections {
            if ![SHT_SYMTAB, SHT_DYNSYM].contains(&number(section, 4, 4)?) {
                continue;
            }
            let names = content(sections.get(number(section, 40, 4)? as usize)?)?;
            for symbol in content(section)?.chunks(24) {
                let (value, size) = (number(symbol, 8, 8)?, number(symbol, 16, 8)?);
                if number(symbol, 4, 1)? & 15 == STT_FUNC && value != 0 {
                    let name = names.get(number(symbol, 0, 4)? as usize..)?;
                    let name = name.split(|&byte| byte == 0).next()?;
                    self.functions.push((value, size, String::from_utf8_lossy(name).into_owned()));
                }
            }
        }
        Some(())
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

/// Some bytes of a file, if it has them. It may be much longer than what is read.
fn bytes(file: &File, at: u64, len: u64) -> Option<Vec<u8>> {
    (at.checked_add(len)? <= file.metadata().ok()?.len()).then_some(())?;
    let mut bytes = vec![0; len as usize];
    file.read_exact_at(&mut bytes, at).ok().map(|()| bytes)
}

/// A number of some bytes at this place.
fn number(bytes: &[u8], at: usize, len: usize) -> Option<u64> {
    let bytes = bytes.get(at..at + len)?;
    Some(bytes.iter().rev().fold(0, |number, &byte| number << 8 | u64::from(byte)))
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

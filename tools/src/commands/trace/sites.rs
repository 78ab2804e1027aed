//! Addresses of a traced process as places in its code.
#![forbid(unsafe_code)]

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use cpp_demangle::{DemangleOptions, Symbol};

use crate::system::elf::Functions;
use crate::system::process;

/// Its objects at several times, as texts of `/proc/PID/maps` that the tracer listed.
#[derive(Debug, Default)]
pub(crate) struct Sites(pub(crate) Vec<String>);

/// Functions of files that were needed before.
pub(crate) type Known = HashMap<PathBuf, Functions>;

impl Sites {
    /// `FUNCTION+0x1 (FILE)`, `FILE+0x1` by the offset in the file, or the address. It searches the list of this
    /// number, from 1 on, or else the last one.
    pub(crate) fn name(&self, caller: u64, list: u64, known: &mut Known) -> String {
        // The call is before the address to which it returns.
        let call = caller.saturating_sub(1);
        let maps = self.0.get((list as usize).wrapping_sub(1)).or(self.0.last()).map_or("", String::as_str);
        for object in process::mappings(maps) {
            let path = Path::new(object.path);
            if !object.is_code || !path.is_absolute() || !(object.start..object.end).contains(&call) {
                continue;
            }
            let offset = call - object.start + object.offset;
            let functions = known.entry(path.to_owned()).or_insert_with_key(|path| Functions::read(path));
            let file = path.file_name().unwrap_or(path.as_os_str()).display();
            return match functions.at(offset) {
                Some((function, inside)) => format!("{}+{:#x} ({file})", demangled(function), inside + 1),
                None => format!("{file}+{:#x}", offset + 1),
            };
        }
        format!("{caller:#x}")
    }
}

/// The name of a symbol in Rust or C++, without hash and parameters.
fn demangled(symbol: &str) -> String {
    if let Ok(name) = rustc_demangle::try_demangle(symbol) {
        return format!("{name:#}");
    }
    let options = DemangleOptions::new().no_params().no_return_type();
    let Ok(parsed) = Symbol::new(symbol) else { return symbol.to_owned() };
    parsed.demangle_with_options(&options).unwrap_or(symbol.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn symbols_are_named_as_in_their_source() {
        for (symbol, name) in [
            ("pin_here", "pin_here"),
            ("_Z19wrap_gdr_pin_bufferP3gdrmmmjP8gdr_mh_s", "wrap_gdr_pin_buffer"),
            ("_ZN4core3ptr13drop_in_place17h0123456789abcdefE", "core::ptr::drop_in_place"),
            ("_RNvCs1234_7mycrate3foo", "mycrate::foo"),
            ("_Zx", "_Zx"),
        ] {
            assert_eq!(demangled(symbol), name);
        }
    }

    #[test]
    fn addresses_are_named_by_file_and_offset() {
        let lists = [
            "7f0000001000-7f0000003000 r-xp 00000000 fe:00 6    /unloaded.so\n",
            "7f0000000000-7f0000001000 r--p 00000000 fe:00 7    /a b/c.so\n\
             7f0000001000-7f0000003000 r-xp 00001000 fe:00 7    /a b/c.so\n\
             7f0000004000-7f0000005000 rw-p 00000000 00:00 0 \n",
        ];
        let sites = Sites(lists.map(String::from).to_vec());
        let name = |address, list| sites.name(address, list, &mut Known::new());
        assert_eq!(name(0x7f00_0000_1234, 1), "unloaded.so+0x234");
        for list in [2, 0, 3] {
            assert_eq!(name(0x7f00_0000_1234, list), "c.so+0x1234");
            assert_eq!(name(0x7f00_0000_3000, list), "c.so+0x3000");
            assert_eq!(name(0x7f00_0000_4010, list), "0x7f0000004010");
            assert_eq!(name(0, list), "0x0");
        }
    }
}

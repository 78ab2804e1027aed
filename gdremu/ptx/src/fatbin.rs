//! Reads fat binaries, which nvcc embeds in programs. A header is followed by entries, each with its own header. An
//! entry is PTX text or machine code for one kind of GPU, compressed or not. All lengths are checked, because they come
//! from the program, which may pass wrong ones.
#![forbid(unsafe_code)]

use std::fmt;
use std::io::Read;

use ruzstd::decoding::StreamingDecoder;

/// The length of a fat binary's header, which has a magic number, a version, its length, and the length of all entries.
pub const HEADER: usize = 16;

const PTX: usize = 1;

const LZ4: usize = 0x2000;
const ZSTD: usize = 0x8000;

const MAX_TEXT: usize = 1 << 30;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Problem {
    Malformed,
    NoPtx,
}

type Result<T> = std::result::Result<T, Problem>;

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Problem::Malformed => "it is malformed",
            Problem::NoPtx => "it has no PTX for this GPU: compile with -gencode arch=compute_XX,code=compute_XX",
        })
    }
}

fn part(bytes: &[u8], start: usize, len: usize) -> Result<&[u8]> {
    bytes.get(start..start.saturating_add(len)).ok_or(Problem::Malformed)
}

fn number(bytes: &[u8], at: usize, len: usize) -> Result<usize> {
    let mut number = 0;
    for byte in part(bytes, at, len)?.iter().rev() {
        number = number << 8 | usize::from(*byte);
    }
    Ok(number)
}

pub fn len(header: &[u8]) -> Result<usize> {
    Ok(number(header, 6, 2)?.saturating_add(number(header, 8, 8)?))
}

struct Entry<'a> {
    kind: usize,
    /// The compute capability that the entry is for, times 10.
    capability: usize,
    flags: usize,
    /// The length of the text before it is decompressed.
    compressed: usize,
    /// The length of the text after it is decompressed.
    text: usize,
    payload: &'a [u8],
    /// The distance from this entry to the next.
    end: usize,
}

impl<'a> Entry<'a> {
    fn read(bytes: &'a [u8]) -> Result<Entry<'a>> {
        let header = number(bytes, 4, 4)?;
        if header < 64 {
            return Err(Problem::Malformed);
        }
        let payload = part(bytes, header, number(bytes, 8, 8)?)?;
        Ok(Entry {
            kind: number(bytes, 0, 2)?,
            compressed: number(bytes, 16, 4)?,
            capability: number(bytes, 28, 4)?,
            flags: number(bytes, 40, 8)?,
            text: number(bytes, 56, 8)?,
            payload,
            end: header + payload.len(),
        })
    }

    fn text(&self) -> Option<String> {
        let mut bytes = self.payload.to_vec();
        if self.flags & (LZ4 | ZSTD) != 0 {
            let compressed = self.payload.get(..self.compressed)?;
            // LZ4 makes fewer than 256 bytes of text from each byte. A header with a larger length is refused before
            // memory of this length is allocated.
            let is_possible = self.flags & LZ4 == 0 || self.text <= compressed.len().saturating_mul(256);
            if self.text > MAX_TEXT || !is_possible {
                return None;
            }
            if self.flags & LZ4 != 0 {
                bytes = vec![0; self.text];
                let written = lz4_flex::block::decompress_into(compressed, &mut bytes).ok()?;
                bytes.truncate(written);
            } else {
                bytes.clear();
                let decoder = StreamingDecoder::new(compressed).ok()?;
                decoder.take(self.text as u64 + 1).read_to_end(&mut bytes).ok()?;
            }
            if bytes.len() != self.text {
                return None;
            }
        }
        let text = bytes.split(|byte| *byte == 0).next()?;
        String::from_utf8(text.to_vec()).ok()
    }
}

/// Returns the PTX text for the highest compute capability that is at most the GPU's. `capability` is the GPU's compute
/// capability, times 10.
pub fn ptx(fatbin: &[u8], capability: u32) -> Result<String> {
    let mut newest: Option<Entry<'_>> = None;
    let mut at = number(fatbin, 6, 2)?;
    while at < fatbin.len() {
        let entry = Entry::read(&fatbin[at..])?;
        at += entry.end;
        let is_newer = newest.as_ref().is_none_or(|newest| newest.capability <= entry.capability);
        if entry.kind == PTX && entry.capability <= capability as usize && is_newer {
            newest = Some(entry);
        }
    }
    newest.ok_or(Problem::NoPtx)?.text().ok_or(Problem::Malformed)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// ".version 7.0" as a block of LZ4 and as a frame of zstd. Both contain the text uncompressed.
    const AS_LZ4: &[u8] = b"\xc0.version 7.0";
    const AS_ZSTD: &[u8] = b"\x28\xb5\x2f\xfd\x20\x0c\x61\0\0.version 7.0";

    fn entry(kind: usize, capability: usize, flags: usize, payload: &[u8], text: usize) -> Vec<u8> {
        let len = payload.len();
        let mut entry = [0; 64];
        // Each number is written as 8 bytes. If its field is shorter, the next numbers overwrite the other bytes.
        for (at, number) in [(0, kind), (4, 64), (8, len + 3), (16, len), (28, capability), (40, flags), (56, text)] {
            entry[at..at + 8].copy_from_slice(&number.to_le_bytes());
        }
        [&entry[..], payload, &[0; 3]].concat()
    }

    fn fatbin(entries: &[Vec<u8>]) -> Vec<u8> {
        let entries = entries.concat();
        [b"\x50\xed\x55\xba\x01\0\x10\0", &entries.len().to_le_bytes()[..], &entries].concat()
    }

    #[test]
    fn ptx_for_the_newest_gpu_that_fits_is_taken() {
        let machine_code = entry(2, 80, 0, b"", 0);
        let mut all = vec![machine_code.clone()];
        for (capability, text) in [(70, b"_70"), (100, b"100"), (80, b"_80"), (75, b"_75")] {
            all.push(entry(PTX, capability, 0, text, 0));
        }
        assert_eq!(ptx(&fatbin(&all), 90).unwrap(), "_80");
        assert_eq!(ptx(&fatbin(&all), 100).unwrap(), "100");
        assert_eq!(ptx(&fatbin(&all), 60), Err(Problem::NoPtx));
        assert_eq!(ptx(&fatbin(&[machine_code]), 90), Err(Problem::NoPtx));
    }

    #[test]
    fn compressed_text_is_decompressed() {
        for (flags, payload) in [(LZ4, AS_LZ4), (ZSTD, AS_ZSTD)] {
            for (len, text) in [(12, Ok(".version 7.0")), (11, Err(())), (13, Err(())), (usize::MAX, Err(()))] {
                let text = text.map(str::to_owned).map_err(|()| Problem::Malformed);
                assert_eq!(ptx(&fatbin(&[entry(PTX, 80, flags, payload, len)]), 90), text, "{flags:#x}, {len}");
            }
        }
    }

    #[test]
    fn lengths_beyond_the_end_are_malformed() {
        let whole = fatbin(&[entry(PTX, 80, ZSTD, AS_ZSTD, 12)]);
        assert_eq!(len(&whole), Ok(whole.len()));
        for end in HEADER + 1..whole.len() {
            assert_eq!(ptx(&whole[..end], 90), Err(Problem::Malformed), "{end}");
        }
        // At these offsets are three lengths: those of the entry's header, its payload, and the compressed part.
        for at in [HEADER + 4, HEADER + 8, HEADER + 16] {
            let mut changed = whole.clone();
            changed[at + 3] = 0xff;
            assert_eq!(ptx(&changed, 90), Err(Problem::Malformed), "{at}");
        }
    }
}

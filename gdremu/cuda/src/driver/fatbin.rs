//! Fat binaries, which nvcc embeds in programs. A header, then entries with a header each, as PTX text and
//! machine code for kinds of GPUs, compressed or not. All lengths are checked, since they are the program's.
#![forbid(unsafe_code)]

use std::fmt;
use std::io::Read;

use ruzstd::decoding::StreamingDecoder;

/// The length of the header, with number, version, its length, the length of the entries.
pub(crate) const HEADER: usize = 16;

const PTX: u16 = 1;

/// Flags of an entry.
const LZ4: u64 = 0x2000;
const ZSTD: u64 = 0x8000;

const MAX_TEXT: usize = 1 << 30;

/// Why there is no PTX to run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Problem {
    Malformed,
    NoPtx,
    /// All of it is for GPUs of this compute capability, times 10, and newer.
    TooNew(u32),
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let advice = "compile with -gencode arch=compute_XX,code=compute_XX";
        match self {
            Problem::Malformed => write!(f, "it is malformed"),
            Problem::NoPtx => write!(f, "there is no PTX in it, which gdremu needs: {advice}"),
            Problem::TooNew(wanted) => {
                write!(f, "its PTX is for compute capability {}.{} and newer: {advice}", wanted / 10, wanted % 10)
            }
        }
    }
}

fn number<const N: usize>(bytes: &[u8], at: usize) -> Option<u64> {
    let bytes: &[u8; N] = bytes.get(at..)?.first_chunk()?;
    Some(bytes.iter().rev().fold(0, |number, byte| number << 8 | u64::from(*byte)))
}

/// The length of a fat binary, by its header.
pub(crate) fn len(header: &[u8]) -> Option<usize> {
    let len = number::<2>(header, 6)?.checked_add(number::<8>(header, 8)?)?;
    usize::try_from(len).ok()
}

struct Entry<'a> {
    header: &'a [u8],
    payload: &'a [u8],
}

impl<'a> Entry<'a> {
    /// Splits the first entry from the others.
    fn split(bytes: &'a [u8]) -> Option<(Entry<'a>, &'a [u8])> {
        let header = number::<4>(bytes, 4)? as usize;
        let payload = usize::try_from(number::<8>(bytes, 8)?).ok()?;
        let (header, rest) = bytes.split_at_checked(header).filter(|_| header >= 64)?;
        let (payload, rest) = rest.split_at_checked(payload)?;
        Some((Entry { header, payload }, rest))
    }

    fn kind(&self) -> Option<u64> {
        number::<2>(self.header, 0)
    }

    /// The compute capability that it is for, times 10.
    fn capability(&self) -> Option<u32> {
        number::<4>(self.header, 28).map(|capability| capability as u32)
    }

    fn text(&self) -> Option<String> {
        let flags = number::<8>(self.header, 40)?;
        let mut bytes = self.payload.to_vec();
        if flags & (LZ4 | ZSTD) != 0 {
            let compressed = self.payload.get(..number::<4>(self.header, 16)? as usize)?;
            let len = usize::try_from(number::<8>(self.header, 56)?).ok();
            let len = len.filter(|len| *len <= MAX_TEXT)?;
            if flags & LZ4 != 0 {
                // A byte of it makes at most 255, so the length is not believed before that is checked.
                let possible = len <= compressed.len().saturating_mul(256);
                bytes = possible.then(|| vec![0; len])?;
                let written = lz4_flex::block::decompress_into(compressed, &mut bytes).ok()?;
                bytes.truncate(written);
            } else {
                bytes.clear();
                let decoder = StreamingDecoder::new(compressed).ok()?;
                decoder.take(len as u64 + 1).read_to_end(&mut bytes).ok()?;
            }
            if bytes.len() != len {
                return None;
            }
        }
        let text = bytes.split(|byte| *byte == 0).next()?;
        String::from_utf8(text.to_vec()).ok()
    }
}

/// The PTX text for the newest GPUs that a GPU of this compute capability, times 10, can run.
pub(crate) fn ptx(fatbin: &[u8], capability: u32) -> Result<String, Problem> {
    let header = number::<2>(fatbin, 6).ok_or(Problem::Malformed)?;
    let mut rest = fatbin.get(header as usize..).ok_or(Problem::Malformed)?;
    let mut best: Option<(u32, Entry<'_>)> = None;
    let mut oldest = None;
    while !rest.is_empty() {
        let (entry, others) = Entry::split(rest).ok_or(Problem::Malformed)?;
        rest = others;
        let Some(needs) = entry.capability() else { continue };
        if entry.kind() != Some(PTX.into()) {
            continue;
        }
        oldest = Some(needs.min(oldest.unwrap_or(needs)));
        let best_yet = best.as_ref().map_or(0, |(needs, _)| *needs);
        if needs <= capability && needs > best_yet {
            best = Some((needs, entry));
        }
    }
    match (best, oldest) {
        (Some((_, entry)), _) => entry.text().ok_or(Problem::Malformed),
        (None, Some(oldest)) => Err(Problem::TooNew(oldest)),
        (None, None) => Err(Problem::NoPtx),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &[u8] = b".version 7.0";
    /// TEXT as a block of LZ4 and as a frame of zstd. Neither makes it shorter.
    const AS_LZ4: &[u8] = b"\xc0.version 7.0";
    const AS_ZSTD: &[u8] = b"\x28\xb5\x2f\xfd\x20\x0c\x61\0\0.version 7.0";

    fn entry(kind: u16, capability: u32, flags: u64, payload: &[u8], text: u64) -> Vec<u8> {
        let mut entry = [kind.to_le_bytes(), 0x101_u16.to_le_bytes()].concat();
        entry.extend(64_u32.to_le_bytes());
        entry.extend((payload.len() as u64 + 3).to_le_bytes());
        entry.extend((payload.len() as u32).to_le_bytes());
        entry.extend([0; 8]);
        entry.extend(capability.to_le_bytes());
        entry.extend([0; 8]);
        entry.extend(flags.to_le_bytes());
        entry.extend([0; 8]);
        entry.extend(text.to_le_bytes());
        [&entry[..], payload, &[0; 3]].concat()
    }

    fn fatbin(entries: &[Vec<u8>]) -> Vec<u8> {
        let entries = entries.concat();
        let mut fatbin = 0xba55_ed50_u32.to_le_bytes().to_vec();
        fatbin.extend([1, 0, 16, 0]);
        fatbin.extend((entries.len() as u64).to_le_bytes());
        [fatbin, entries].concat()
    }

    #[test]
    fn ptx_for_the_newest_gpu_that_fits_is_taken() {
        let machine_code = entry(2, 80, 0, b"", 0);
        let of = |capability, text| entry(PTX, capability, 0, text, 0);
        let all = [of(70, b"70"), of(100, b"100"), machine_code.clone(), of(80, b"80"), of(75, b"75")];
        assert_eq!(ptx(&fatbin(&all), 90).unwrap(), "80");
        assert_eq!(ptx(&fatbin(&all), 100).unwrap(), "100");
        assert_eq!(ptx(&fatbin(&all), 60), Err(Problem::TooNew(70)));
        assert_eq!(ptx(&fatbin(&[machine_code]), 90), Err(Problem::NoPtx));
        assert_eq!(ptx(&fatbin(&[]), 90), Err(Problem::NoPtx));
    }

    #[test]
    fn compressed_text_is_decompressed() {
        let len = TEXT.len() as u64;
        for (flags, payload) in [(LZ4, AS_LZ4), (ZSTD, AS_ZSTD)] {
            let text = |len| ptx(&fatbin(&[entry(PTX, 80, flags, payload, len)]), 90);
            assert_eq!(text(len).unwrap().as_bytes(), TEXT);
            for wrong in [len - 1, len + 1, u64::MAX] {
                assert_eq!(text(wrong), Err(Problem::Malformed), "{flags:#x}, {wrong}");
            }
        }
    }

    #[test]
    fn lengths_beyond_the_end_are_malformed() {
        let whole = fatbin(&[entry(PTX, 80, ZSTD, AS_ZSTD, TEXT.len() as u64)]);
        assert_eq!(len(&whole), Some(whole.len()));
        for end in HEADER + 1..whole.len() {
            assert_eq!(ptx(&whole[..end], 90), Err(Problem::Malformed), "{end}");
        }
        // Lengths of the entry's header and payload, and of what is compressed.
        for at in [HEADER + 4, HEADER + 8, HEADER + 16] {
            let mut changed = whole.clone();
            changed[at + 3] = 0xff;
            assert_eq!(ptx(&changed, 90), Err(Problem::Malformed), "{at}");
        }
        assert_eq!(len(&[0xff; HEADER]), None);
    }
}

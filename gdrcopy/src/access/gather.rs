//! Many words, read at once.
#![forbid(unsafe_code)]

use bytemuck::Pod;
use gdrcopy_core::types::MappingType;

use crate::access::word::Word;

/// Words in different places, of any mappings, that are read together.
///
/// One fence comes before all loads, which overlap on write-combining memory: polling 64 flags takes a small multiple
/// of polling one. The loads are streaming loads there, because plain ones never overlap; they take the word's line
/// of 64 bytes, or a part of it that holds the word. On device memory, and by the routine `portable`, the loads are
/// plain, and each takes a round trip.
///
/// # Where to put flags
///
/// The measured core, an x86-64 server's, keeps 8 even and 8 odd lines in flight (bit 6 of the address). Put flags into
/// neighboring lines, or an odd number of lines apart: 16 take one round trip then. An even number of lines apart
/// (128 bytes, 4 KiB), 16 flags take two. Random lines are in between: the more are read at once, the closer they
/// come to 16 in a round trip.
///
/// ```
/// # mod gpu { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/doc_examples/gpu.rs")); }
/// # gpu::run(|gpu| {
/// # let mapping = gpu.mapping()?;
/// use gdrcopy::Mapped;
/// use gdrcopy::Words;
/// let flags: Words<'_, u32> = (0..64).map(|i| mapping.word(64 * i)).collect::<Result<_, _>>()?;
/// let mut values = [0; 64];
/// flags.load_all(&mut values);
/// # Ok(())
/// # });
/// ```
#[derive(Clone, Debug)]
pub struct Words<'m, T> {
    words: Box<[Word<'m, T>]>,
    /// What all their mappings can be read as.
    kind: MappingType,
}

impl<'m, T: Pod> FromIterator<Word<'m, T>> for Words<'m, T> {
    fn from_iter<I: IntoIterator<Item = Word<'m, T>>>(words: I) -> Self {
        let words: Box<[Word<'m, T>]> = words.into_iter().collect();
        let is_wc = |word: &Word<'m, T>| word.kind() == MappingType::WriteCombining;
        let kind = match words.iter().all(is_wc) {
            true => MappingType::WriteCombining,
            false => MappingType::Device,
        };
        Words { words, kind }
    }
}

impl<T: Pod> Words<'_, T> {
    /// The number of words.
    pub fn len(&self) -> usize {
        self.words.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.words.is_empty()
    }

    /// Reads all words. An acquire; no value is older than the call; in no order among each other.
    ///
    /// # Panics
    /// If `values` and the words differ in number; in a forked child of the process that made
    /// the mappings.
    pub fn load_all(&self, values: &mut [T]) {
        assert_eq!(values.len(), self.len(), "a value for each word");
        self.words.iter().for_each(|word| word.owner().assert());
        Word::gather(&self.words, self.kind, values);
    }
}

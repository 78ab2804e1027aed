//! Words of mapped GPU memory that are read together.

use std::fmt;

use bytemuck::Pod;
use gdrcopy_core::copy;
use gdrcopy_core::routines::{Item, Shape};
use gdrcopy_core::sys::fork::Owner;
use gdrcopy_core::types::MappingType;

use crate::access::word::Word;

/// Words in different places, of any mappings, that are read together.
///
/// One fence comes before all loads. The loads overlap on write-combining memory, so polling 64 flags takes a small
/// multiple of the time for one. The loads are streaming loads, because plain loads never overlap. A streaming load
/// reads the cache line of 64 bytes that holds the word, or the part of this line that holds it. On device memory, and
/// with the copy routine `portable`, the loads are plain, and each takes a round trip.
///
/// # Where to put flags
///
/// The measured core, of an x86-64 server, loads at most 16 cache lines at a time: 8 with bit 6 of the address set, and
/// 8 with bit 6 clear. Put flags into neighboring cache lines, or an odd number of lines apart: then 16 flags take
/// one round trip. If they are an even number of lines apart (128 bytes, 4 KiB), 16 flags take two round trips. Flags
/// in random lines take a time in between. The more flags are read at once, the closer they come to 16 per round trip.
///
/// ```
/// # let gpu = include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/doc_examples/gpu.rs"));
/// # let mapping = gpu.mapping()?;
/// use gdrcopy::Mapped;
/// use gdrcopy::Words;
/// let flags: Words<'_, u32> = (0..64).map(|i| mapping.word(64 * i)).collect::<Result<_, _>>()?;
/// let mut values = [0; 64];
/// flags.load_all(&mut values);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct Words<'m, T> {
    /// Invariant: unless `owner` is `None`, the process `owner` has mapped all words, and may access all of them like
    /// memory of the type `accessed_as`.
    words: Box<[Word<'m, T>]>,
    accessed_as: MappingType,
    /// The process that collected the words, or `None` if another process has mapped one of them.
    owner: Option<Owner>,
}

impl<'m, T: Pod> FromIterator<Word<'m, T>> for Words<'m, T> {
    fn from_iter<I: IntoIterator<Item = Word<'m, T>>>(words: I) -> Self {
        let words: Box<[Word<'m, T>]> = words.into_iter().collect();
        let mut accessed_as = MappingType::WriteCombining;
        let mut owner = Some(Owner::current());
        for word in &words {
            if owner != Some(word.owner()) {
                owner = None;
            }
            if word.accessed_as() != MappingType::WriteCombining {
                // Accesses that suit mappings of the type `Device` suit every type of mapping.
                accessed_as = MappingType::Device;
            }
        }
        Words { words, accessed_as, owner }
    }
}

impl<'m, T: Pod> Words<'m, T> {
    /// Returns the word with this index, for a store or a load of this word only, or `None` if there is no such word.
    #[inline]
    pub fn get(&self, index: usize) -> Option<Word<'m, T>> {
        self.words.get(index).copied()
    }

    /// The number of words.
    pub fn len(&self) -> usize {
        self.words.len()
    }

    /// Returns whether there are no words.
    pub fn is_empty(&self) -> bool {
        self.words.is_empty()
    }

    /// Reads all words, in no order among each other. The read is an acquire, and no value is older than the call.
    ///
    /// # Panics
    /// If `values` and the words differ in number; in a forked child of the process that made the mappings.
    pub fn load_all(&self, values: &mut [T]) {
        assert_eq!(values.len(), self.len(), "a value for each word");
        match self.owner {
            Some(owner) => owner.assert(),
            None => Owner::refuse(),
        }
        let values = values.as_mut_ptr();
        let words = self.words.as_ptr();
        let item = move |n: usize| {
            // SAFETY: `n` is the index of one of the words.
            let word = unsafe { *words.add(n) };
            Item { dst: values.wrapping_add(n).cast(), src: word.start(), len: size_of::<T>() }
        };
        // SAFETY: all words are mapped, and may be accessed like memory of the type `accessed_as` (invariant).
        unsafe { copy::gather(self.accessed_as, Shape::new(size_of::<T>(), 0), self.len(), item) };
    }
}

impl<T> fmt::Debug for Words<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(&self.words).finish()
    }
}

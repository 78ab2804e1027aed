//! Where `compare --batch` puts its items.
#![forbid(unsafe_code)]

use clap::ValueEnum;
use serde::Serialize;

/// Which lines of 64 bytes the items are at. The measured core keeps 8 even and 8 odd lines
/// in flight, so gathers depend on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Pattern {
    /// Uniformly random lines
    Random,
    /// Neighboring lines
    Contiguous,
    /// An even and an odd line in turn, at random places
    Alternating,
    /// Random even lines
    Even,
    /// Lines 4 KiB apart
    Page,
}

/// Lines in 4 KiB.
const PAGE: usize = 4096 / 64;

impl Pattern {
    /// Draws `count` of the lines below `lines`, which must be even and hold a run of that many pages.
    pub(super) fn draw(self, count: usize, lines: usize, random: &mut Random) -> Vec<usize> {
        let stride = if self == Pattern::Page { PAGE } else { 1 };
        let first = random.below(lines - stride * count);
        let line = |n: usize| match self {
            Pattern::Random => random.below(lines),
            Pattern::Contiguous | Pattern::Page => first + stride * n,
            Pattern::Alternating => 2 * random.below(lines / 2) + n % 2,
            Pattern::Even => 2 * random.below(lines / 2),
        };
        (0..count).map(line).collect()
    }
}

/// SplitMix64: all its bits are random, unlike the low ones of a congruential generator modulo a power of two.
pub(super) struct Random(u64);

impl Random {
    pub(super) fn new(seed: u64) -> Random {
        Random(seed)
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ mixed >> 31
    }

    /// Below `bound`; the bias of at most `bound / 2^64` does not matter here.
    fn below(&mut self, bound: usize) -> usize {
        ((u128::from(self.next()) * bound as u128) >> 64) as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINES: usize = 1 << 19;
    const COUNT: usize = 256;

    fn sets(pattern: Pattern) -> impl Iterator<Item = Vec<usize>> {
        (0..200).map(move |seed| pattern.draw(COUNT, LINES, &mut Random::new(seed)))
    }

    #[test]
    fn lines_are_inside_and_differ_from_draw_to_draw() {
        for &pattern in Pattern::value_variants() {
            let sets: Vec<_> = sets(pattern).collect();
            assert!(sets.iter().all(|set| set.len() == COUNT));
            assert!(sets.iter().flatten().all(|&line| line < LINES), "{pattern:?}");
            assert!(sets.windows(2).all(|pair| pair[0] != pair[1]), "{pattern:?}");
        }
        // The tightest fit.
        for &pattern in Pattern::value_variants() {
            let lines = PAGE * COUNT + 2;
            let set = pattern.draw(COUNT, lines, &mut Random::new(1));
            assert!(set.into_iter().all(|line| line < lines), "{pattern:?}");
        }
    }

    #[test]
    fn random_lines_have_no_pattern() {
        let sets: Vec<_> = sets(Pattern::Random).collect();
        let all = (sets.len() * COUNT) as f64;
        for bit in 0..LINES.ilog2() {
            let ones = sets.iter().flatten().filter(|&line| line >> bit & 1 == 1);
            let share = ones.count() as f64 / all;
            assert!((0.48..0.52).contains(&share), "bit {bit}: {share}");
        }
        // Neighbors agree in their lowest bit half of the time, and 16 lines are seldom half even.
        let agree = |set: &Vec<usize>| set.windows(2).filter(|w| (w[0] ^ w[1]) & 1 == 0).count();
        let share = sets.iter().map(agree).sum::<usize>() as f64 / all;
        assert!((0.48..0.52).contains(&share), "{share}");
        let groups = || sets.iter().flat_map(|set| set.chunks(16));
        let balanced = groups().filter(|g| g.iter().filter(|&&line| line % 2 == 0).count() == 8);
        let share = balanced.count() as f64 / groups().count() as f64;
        assert!((0.15..0.25).contains(&share), "{share}"); // 12,870 of 65,536.
    }

    #[test]
    fn patterns_are_what_their_names_say() {
        assert!(sets(Pattern::Even).flatten().all(|line| line % 2 == 0));
        let strides = |pattern, stride| sets(pattern).all(|set| set.windows(2).all(|pair| pair[1] - pair[0] == stride));
        assert!(strides(Pattern::Contiguous, 1));
        assert!(strides(Pattern::Page, 64));
        let alternates = |set: Vec<usize>| set.iter().enumerate().all(|(n, line)| line % 2 == n % 2);
        assert!(sets(Pattern::Alternating).all(alternates));
        let is_sorted = |set: Vec<usize>| set.is_sorted();
        assert!(!sets(Pattern::Alternating).any(is_sorted), "at random places");
    }
}

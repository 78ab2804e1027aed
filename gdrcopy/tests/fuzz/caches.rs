//! Pins that a cache keeps.

use gdrcopy::PinCache;

use crate::isolated::{calling, outcome};
use crate::ops::Args;
use crate::owners::{Mapped, Owner, any_of};
use crate::world::{ARENA, World};

impl World {
    pub(crate) fn new_cache(&mut self, args: &Args) {
        let (gdr, capacity) = (self.gdr(args), args.sizes[0].of(ARENA));
        calling!("caches[{}] = PinCache::new({capacity:#x})", self.caches.len());
        let cache = outcome(true, PinCache::new(&gdr, capacity));
        self.caches.extend(cache);
    }

    pub(crate) fn get(&mut self, args: &Args) -> Option<Mapped> {
        if self.caches.is_empty() {
            self.new_cache(args);
        }
        // Few places, so that ranges are asked for again, and have parts of each other.
        let offset = (args.data % 4) as usize * 32;
        let len = args.sizes[2].inside(ARENA - offset);
        let start = self.arena + offset as u64;
        let cache = any_of(&self.caches, args).expect("made");
        calling!("caches[{}].get({start:#x}, {len:#x})", args.which);
        // SAFETY: the memory is never freed, and no Rust code but this test's has access to it.
        let cached = outcome(len > 0, unsafe { cache.get(start, len) })?;
        Some(Mapped::new(Owner::Cached(cached), start, len))
    }

    pub(crate) fn invalidate(&mut self, args: &Args) {
        if let Some(cache) = any_of(&self.caches, args) {
            let start = match args.data % 3 {
                0 => self.arena + args.sizes[0].inside(ARENA) as u64,
                _ => args.sizes[0].of(ARENA) as u64,
            };
            let len = args.sizes[1].of(ARENA);
            calling!("caches[{}].invalidate({start:#x}, {len:#x})", args.which);
            outcome(true, cache.invalidate(start, len));
        }
    }

    pub(crate) fn clear(&mut self, args: &Args) {
        if let Some(cache) = any_of(&self.caches, args) {
            calling!("caches[{}].clear(), .report()", args.which);
            outcome(true, cache.clear());
            let report = cache.report().expect("this process");
            assert_eq!((report.entries, report.bytes), (0, 0), "{report:?}");
        }
    }
}

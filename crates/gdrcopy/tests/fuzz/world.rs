//! The pins, mappings, pools and views that a random sequence of calls has made, and the loop that makes these calls.

use std::mem;
use std::ops::Range;
use std::slice;
use std::sync::{Arc, Weak};
use std::thread;

use gdrcopy::Gdr;
use gdrcopy::memory::CudaAllocator;

use crate::access::{Borrowed, Context, Slice, access};
use crate::buffers::Host;
use crate::cuda::Cuda;
use crate::given::Watch;
use crate::isolated::{calling, list, outcome};
use crate::model::Memory;
use crate::ops::{Access, Args, Call, KINDS, Kind, Op, Sequence};
use crate::owned::OwnedView;
use crate::owners::{Mapped, discard};
use crate::pins::Pinned;
use crate::pools::PoolOf;

/// The size of the arena in bytes: 20 GPU pages and a part of one. The arena is GPU memory whose parts are pinned.
pub(crate) const ARENA: usize = (20 << 16) + 5000;

pub(crate) struct World {
    pub(crate) memory: Memory,
    pub(crate) arena: u64,
    host: Host,
    pub(crate) allocator: Option<CudaAllocator>,
    pub(crate) gdrs: Vec<Gdr>,
    pub(crate) pins: Vec<Pinned>,
    pub(crate) mapped: Vec<Arc<Mapped>>,
    pub(crate) pools: Vec<PoolOf>,
    pub(crate) views: Vec<OwnedView>,
    /// Each one records where memory that was passed to `Gdr::map_owned` is mapped, and how often it was dropped.
    pub(crate) watches: Vec<Arc<Watch>>,
    /// True if dma-bufs can be exported, false if not, and `None` until that is known.
    pub(crate) exports: Option<bool>,
    /// The buffers of all pools: the addresses, the number of the pool, and a weak reference that is valid while the
    /// buffer lives.
    pub(crate) buffers: Vec<(Range<u64>, usize, Weak<()>)>,
    pub(crate) pools_made: usize,
    has_forgotten: bool,
}

/// Runs a sequence of calls. Panics if a result, or a byte of memory, is not the expected one.
pub(crate) fn run(sequence: &Sequence) {
    let cuda = Arc::new(Cuda::new());
    let memory = Memory::new(&cuda);
    let arena = cuda.alloc(ARENA);
    // The memory is never freed, because some sequences leak mappings of it by `mem::forget`.
    mem::forget(memory.add(arena, ARENA, 0..0, 0));
    list(format_args!("arena = {arena:#x}+{ARENA:#x}\n"));
    let mut world = World {
        memory,
        arena,
        host: Host::new(ARENA + 4096),
        allocator: None,
        gdrs: Vec::new(),
        pins: Vec::new(),
        mapped: Vec::new(),
        pools: Vec::new(),
        views: Vec::new(),
        watches: Vec::new(),
        exports: None,
        buffers: Vec::new(),
        pools_made: 0,
        has_forgotten: false,
    };
    if sequence.allocator_first {
        world.allocator();
    }
    let mut ops = sequence.ops.iter();
    // `World::run` makes the calls before the next `Leave`. So the loop runs it until no calls are left.
    while ops.len() > 0 {
        world.run(&mut ops, &mut Borrowed::default());
    }
    world.end(&sequence.end);
}

impl World {
    /// Makes calls until `Leave`, or until none is left. `borrowed` contains the slices of mapped memory that the calls
    /// may access.
    fn run(&mut self, ops: &mut slice::Iter<'_, Op>, borrowed: &mut Borrowed<'_>) {
        while let Some(op) = ops.next() {
            match op {
                Op::Call(Call::Leave, _) => return,
                Op::Call(call, args) => {
                    let Some(mapped) = self.call(*call, args).map(Arc::new) else {
                        continue;
                    };
                    self.mapped.push(Arc::clone(&mapped));
                    // The next calls may drop the mapping from the list. `mapped` keeps it alive until the inner `run`
                    // returns.
                    let mut inner = Borrowed { slices: borrowed.slices.clone(), batches: Vec::new() };
                    inner.slices.insert(0, mapped.slice());
                    self.run(ops, &mut inner);
                }
                Op::Access(call, args) => access(borrowed, &mut self.context(), *call, args),
                Op::Threads(args, threads) => self.run_threads(borrowed, args, threads),
            }
        }
    }

    fn context(&mut self) -> Context<'_> {
        Context { memory: &self.memory, host: &mut self.host }
    }

    /// Makes calls in two threads. Each thread gets one part of a slice that is split anywhere, even inside a word.
    fn run_threads(&self, borrowed: &Borrowed<'_>, args: &Args, threads: &[Vec<(Access, Args)>; 2]) {
        let Some(&whole) = borrowed.slices.get(args.which % borrowed.slices.len().max(1)) else {
            return;
        };
        let middle = args.sizes[0].inside(whole.len);
        calling!("two threads: {whole}.split_at({middle:#x})");
        let halves = outcome(true, whole.mapped.split_at(middle)).expect("predicted");
        let halves = [
            Slice::new(halves.0, whole.start, middle),
            Slice::new(halves.1, whole.start + middle as u64, whole.len - middle),
        ];
        thread::scope(|scope| {
            for (half, calls) in halves.into_iter().zip(threads) {
                scope.spawn(move || {
                    let mut host = Host::new(100_000);
                    let mut context = Context { memory: &self.memory, host: &mut host };
                    let mut borrowed = Borrowed { slices: vec![half], batches: Vec::new() };
                    calls.iter().for_each(|(call, args)| access(&mut borrowed, &mut context, *call, args));
                });
            }
        });
    }

    /// Makes a call, and returns the memory that it has mapped.
    fn call(&mut self, call: Call, args: &Args) -> Option<Mapped> {
        match call {
            Call::Open => self.open(args),
            Call::CloneGdr => self.clone_gdr(args),
            Call::Pin => self.pin(args),
            Call::Map => return self.map(args),
            Call::Info => self.info(args),
            Call::Unpin => self.unpin(args),
            Call::Export => self.export(args),
            Call::MapOwned => return self.map_owned(args),
            Call::Unmap => return self.unmap(args),
            Call::CloneMapped => return self.clone_mapped(args),
            Call::Own => return self.own(args),
            Call::PoolView => self.pool_view(args),
            Call::UseView => self.use_view(args),
            Call::CloneView => self.clone_view(args),
            Call::NewPool => self.new_pool(args),
            Call::PoolOfMemory => self.pool_of_memory(args),
            Call::Alloc => return self.alloc(args),
            Call::AllocZeroed => return self.alloc_zeroed(args),
            Call::Trim => self.trim(args),
            Call::PoolReport => self.report(args),
            Call::Check => self.memory.check(),
            Call::Drop(kind) => self.remove(kind, args, false),
            Call::Forget(kind) => self.remove(kind, args, true),
            Call::Leave => (),
        }
        None
    }

    fn remove(&mut self, kind: Kind, args: &Args, forget: bool) {
        let is_some = match kind {
            Kind::Gdr => discard(&mut self.gdrs, args, forget),
            Kind::Pin => discard(&mut self.pins, args, forget),
            Kind::Mapped => discard(&mut self.mapped, args, forget),
            Kind::Pool => discard(&mut self.pools, args, forget),
            Kind::View => discard(&mut self.views, args, forget),
        };
        if is_some {
            list(format_args!("{} {kind:?} {}\n", if forget { "forget" } else { "drop" }, args.which));
            self.has_forgotten |= forget;
        }
    }

    /// Drops all owners that are left, and checks that nothing stays pinned.
    fn end(mut self, order: &[Kind]) {
        self.memory.check();
        list(format_args!("drop all: {order:?}\n"));
        assert_eq!(order.len(), KINDS.len());
        for kind in order {
            match kind {
                Kind::Gdr => self.gdrs.clear(),
                Kind::Pin => self.pins.clear(),
                Kind::Mapped => self.end_mapped(),
                Kind::Pool => self.pools.clear(),
                Kind::View => self.views.clear(),
            }
        }
        self.memory.check();
        if !self.has_forgotten {
            assert_eq!(pins(), 0, "pins are left");
            let mut drops = self.watches.iter().map(|watch| watch.drops());
            assert!(drops.all(|drops| drops == 1), "given memory is left");
        }
    }
}

/// Returns how many pins this process has, as gdremu counts them.
pub(crate) fn pins() -> i64 {
    // SAFETY: gdremu exports the function with this type.
    unsafe {
        let pins = libc::dlsym(libc::RTLD_DEFAULT, c"gdremu_pins".as_ptr());
        assert!(!pins.is_null(), "not under gdremu");
        mem::transmute::<*mut libc::c_void, extern "C" fn() -> libc::c_long>(pins)()
    }
}

// Hidden lines of the documentation's examples, included by each.

use std::error::Error;
use std::fs::OpenOptions;
use std::io::Write;

use gdrcopy::memory::{CudaAllocator, DeviceAllocator, DeviceMemory};
use gdrcopy::{Gdr, MapFlag, Mapping, PinFlags};

const LEN: usize = 4 << 20;

/// Memory of a GPU for one example.
pub struct Gpu {
    memory: Box<dyn DeviceMemory>,
}

impl Gpu {
    fn new() -> Result<Gpu, Box<dyn Error>> {
        let _gdr = Gdr::open()?;
        let memory = CudaAllocator::new(0)?.allocate(LEN)?;
        Ok(Gpu { memory })
    }

    /// Its address, as cuMemAlloc returns it.
    pub fn device_pointer(&self) -> u64 {
        self.memory.address()
    }

    /// A mapping of all of it. The example drops it before the memory.
    pub fn mapping(&self) -> gdrcopy::Result<Mapping> {
        // SAFETY: the memory is freed after the example, which uses it by one of its mappings at a time.
        let pin = unsafe { Gdr::open()?.pin(self.device_pointer(), LEN, PinFlags::DEFAULT)? };
        pin.map(LEN, MapFlag::Default)
    }
}

/// Runs an example. Where there is no GPU that it can use, prints so and returns.
///
/// ci/scripts/check-doc-examples.sh sets GDRCOPY_DOC_EXAMPLES. Each example must succeed then, and is listed in that
/// file.
pub fn run(example: impl FnOnce(&Gpu) -> Result<(), Box<dyn Error>>) {
    let result = Gpu::new().and_then(|gpu| example(&gpu));
    match (result, std::env::var_os("GDRCOPY_DOC_EXAMPLES")) {
        (Ok(()), None) => {}
        (Ok(()), Some(list)) => {
            let list = OpenOptions::new().create(true).append(true).open(list);
            list.and_then(|mut list| list.write_all(b"ended\n"))
                .expect("a list of examples that ended");
        }
        (Err(error), None) => println!("skipped, because there is no GPU that it can use: {error}"),
        (Err(error), Some(_)) => panic!("{error}"),
    }
}

// The documentation's examples include this block in a hidden line. Its value is memory of a GPU. If there is no GPU,
// the block prints that and ends the example. With GDRCOPY_DOC_EXAMPLES, which ci/scripts/check-doc-examples.sh sets,
// it panics instead.
{
    use gdrcopy::memory::{CudaAllocator, DeviceAllocator, DeviceMemory};
    use gdrcopy::{Gdr, MapFlag, Mapping, PinFlags};

    const LEN: usize = 4 << 20;

    struct Gpu {
        memory: Box<dyn DeviceMemory>,
    }

    impl Gpu {
        fn new() -> gdrcopy::Result<Gpu> {
            let _gdr = Gdr::open()?;
            let memory = CudaAllocator::new(0)?.allocate(LEN)?;
            Ok(Gpu { memory })
        }

        /// The address of the memory, as cuMemAlloc returns it.
        fn device_pointer(&self) -> u64 {
            self.memory.address()
        }

        /// Maps all of the memory. The example drops the mapping before the memory.
        fn mapping(&self) -> gdrcopy::Result<Mapping> {
            // SAFETY: the memory is freed after the example, and the example uses one mapping of it at a time.
            let pin = unsafe { Gdr::open()?.pin(self.device_pointer(), LEN, PinFlags::DEFAULT)? };
            pin.map(LEN, MapFlag::Default)
        }
    }

    match Gpu::new() {
        Ok(gpu) => gpu,
        Err(error) if std::env::var_os("GDRCOPY_DOC_EXAMPLES").is_some() => panic!("{error}"),
        Err(error) => {
            println!("skipped, because there is no GPU that it can use: {error}");
            return Ok(());
        }
    }
}

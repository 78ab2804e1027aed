//! Times copies of GPU memory through the mapping, by `Transfer`, and by CUDA's synchronous copies.
//!
//! `cargo bench -p gdrcopy --bench transfer -- [--cpu N] [--chunk BYTES] [SIZE …]`, sizes in bytes, 65536 and 1048576 by default. Needs a GPU,
//! libcuda, and a backend (`/dev/gdrdrv`, or `gdremu --provider nvidia`). Every path copies the same bytes, and each is
//! checked.

use std::env;
use std::error::Error;
use std::ffi::c_int;
use std::time::Instant;

use gdrcopy::memory::HostMemory;
use gdrcopy::transfer::{Route, TransferOptions};
use gdrcopy::{Gdr, MapFlag, Mapped, PinFlags, Transfer};
use libloading::Library;

#[path = "../../tests/emulated/cuda.rs"]
#[allow(dead_code, reason = "others call the rest")]
mod cuda;

const SIZES: [usize; 2] = [64 << 10, 1 << 20];

/// Runs of each path, in turn.
const ROUNDS: usize = 401;

type Copy<'a> = (&'static str, Box<dyn FnMut() + 'a>);

fn main() -> Result<(), Box<dyn Error>> {
    let (mut sizes, mut options) = (Vec::new(), Transfer::options());
    let mut arguments = env::args().skip(1);
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "--bench" => {} // From cargo.
            "--cpu" => run_on(arguments.next().ok_or("--cpu needs a number")?.parse()?)?,
            "--chunk" => {
                let bytes = arguments.next().ok_or("--chunk needs a number")?;
                options = options.chunk(bytes.parse()?);
            }
            size => sizes.push(size.parse()?),
        }
    }
    if sizes.is_empty() {
        sizes.extend(SIZES);
    }
    println!("medians of {ROUNDS}, us; in brackets: relative to cuMemcpy to or from the same host memory");
    for len in sizes {
        bench(len, options)?;
    }
    Ok(())
}

fn bench(len: usize, options: TransferOptions) -> Result<(), Box<dyn Error>> {
    let driver = cuda::Cuda::new();
    // SAFETY: loading a CUDA driver has no preconditions.
    let library = unsafe { Library::new("libcuda.so.1") }?;
    // SAFETY: the signatures are those of the CUDA driver API.
    let (to_host, to_device) = unsafe {
        (
            *library.get::<unsafe extern "C" fn(*mut u8, u64, usize) -> c_int>("cuMemcpyDtoH_v2")?,
            *library.get::<unsafe extern "C" fn(u64, *const u8, usize) -> c_int>("cuMemcpyHtoD_v2")?,
        )
    };
    let address = driver.alloc(len + (1 << 16)).next_multiple_of(1 << 16);
    // SAFETY: the memory stays allocated, and only this program uses it.
    let pin = unsafe { Gdr::open()?.pin(address, len, PinFlags::DEFAULT)? };
    let mapping = pin.map(len, MapFlag::Default)?;
    let gpu = mapping.as_slice();
    let transfer = options.read_crossover(1).write_crossover(1).build();
    let sent: Vec<u8> = (0..len).map(|i| (i * 7 + i / 256) as u8).collect();
    let (page_locked, mut pageable) = (HostMemory::alloc(len)?, vec![0_u8; len]);
    let hosts = [(pageable.as_mut_ptr(), "pageable"), (page_locked.as_mut_ptr(), "page-locked")];
    // SAFETY: the host memory lives until the end, and one copy at a time uses it.
    let bytes = |host: *mut u8| unsafe { std::slice::from_raw_parts_mut(host, len) };

    for (host, kind) in hosts {
        let route = match kind {
            "pageable" => Route::Buffered,
            _ => Route::Direct,
        };
        driver.write(address, &sent);
        bytes(host).fill(0);
        let reads: [Copy<'_>; 3] = [
            ("mapping", Box::new(|| gpu.read(0, bytes(host)).expect("inside"))),
            ("Transfer", Box::new(|| assert_eq!(transfer.read(gpu, bytes(host)), Ok(route)))),
            (
                "cuMemcpyDtoH",
                // SAFETY: both ranges have `len` bytes.
                Box::new(|| assert_eq!(unsafe { to_host(host, address, len) }, 0)),
            ),
        ];
        report(len, "read", kind, reads, || {
            let is_right = bytes(host) == sent;
            bytes(host).fill(0);
            is_right
        });
        bytes(host).copy_from_slice(&sent);
        driver.clear(address, len);
        let writes: [Copy<'_>; 3] = [
            (
                "mapping",
                Box::new(|| {
                    gpu.write(0, bytes(host)).expect("inside");
                    gpu.flush().expect("mapped");
                }),
            ),
            ("Transfer", Box::new(|| assert_eq!(transfer.write(gpu, bytes(host)), Ok(route)))),
            (
                "cuMemcpyHtoD",
                // SAFETY: both ranges have `len` bytes.
                Box::new(|| assert_eq!(unsafe { to_device(address, host, len) }, 0)),
            ),
        ];
        report(len, "write", kind, writes, || {
            let is_right = driver.read(address, len) == sent;
            driver.clear(address, len);
            is_right
        });
    }
    Ok(())
}

/// Checks each copy once, times all in turn, and prints their medians. Each timed copy follows one by the same method.
/// The copy engine takes longer where the CPU's caches hold the host memory, as after a copy through the mapping.
fn report(len: usize, direction: &str, kind: &str, mut copies: [Copy<'_>; 3], mut is_right: impl FnMut() -> bool) {
    for (name, copy) in &mut copies {
        copy();
        assert!(is_right(), "{name} has not copied all bytes");
    }
    let mut times = [const { Vec::new() }; 3];
    for _ in 0..ROUNDS {
        for ((_, copy), times) in copies.iter_mut().zip(&mut times) {
            copy();
            let start = Instant::now();
            copy();
            times.push(start.elapsed());
        }
    }
    let medians = times.map(|mut times| {
        times.sort_unstable();
        times[ROUNDS / 2].as_secs_f64() * 1e6
    });
    print!("{direction:5} {len:>9} B {kind:11}");
    for ((name, _), median) in copies.iter().zip(medians) {
        print!("  {name} {median:9.2} [{:5.2}]", median / medians[2]);
    }
    println!();
}

/// Binds the process to a CPU.
fn run_on(cpu: usize) -> std::io::Result<()> {
    // SAFETY: the set is a local variable of plain data.
    let result = unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(cpu, &mut set);
        libc::sched_setaffinity(0, size_of_val(&set), &set)
    };
    match result {
        0 => Ok(()),
        _ => Err(std::io::Error::last_os_error()),
    }
}

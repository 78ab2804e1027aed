//! What the contract of /dev/gdrdrv (tests/gdrdrv) cannot see: options, older releases, defects, and what reaches the
//! GPU. Over a GPU that only takes notes.

use std::collections::{BTreeMap, BTreeSet};

use crate::abi::{self, Argument, Command, Field, MappingType};
use crate::config::{DriverConfig, ForcePcie, Platform};
use crate::errno::Errno;
use crate::gpu::{PageTable, PageTableId, Provider};
use crate::version::Version;

use super::{Access, Caller, Driver, FileId, MapRequest};

const PAGE: u64 = 4096;
const GPU_PAGE: u64 = 65536;
/// Memory that the fake GPU has.
const MEMORY: std::ops::Range<u64> = 0x10_0000..0x1000_0000;
const TOKENS: (u64, u32) = (0x1234, 5);
const OWNER: Caller = Caller { pid: 10, tid: 10 };

#[derive(Default)]
struct FakeGpu {
    tables: BTreeMap<PageTableId, (u64, u64)>,
    /// Persistent, force_pcie of the last pin.
    last: (bool, bool),
    maps: usize,
    zapped: Vec<(usize, usize)>,
    map_fails: Option<Errno>,
    next: u64,
}

impl Provider for FakeGpu {
    fn get_pages(
        &mut self,
        va: u64,
        len: u64,
        tokens: (u64, u32),
        persistent: bool,
        force_pcie: bool,
    ) -> Result<PageTable, Errno> {
        assert!(va.is_multiple_of(GPU_PAGE) && len.is_multiple_of(GPU_PAGE) && len > 0);
        let end = va.checked_add(len).expect("the driver checks");
        if va < MEMORY.start || end > MEMORY.end || (tokens != (0, 0) && tokens != TOKENS) {
            return Err(Errno::EINVAL);
        }
        let id = PageTableId(self.next);
        self.next += 1;
        self.tables.insert(id, (va, len));
        self.last = (persistent, force_pcie);
        Ok(PageTable {
            id,
            va,
            len,
            runs: Vec::new(),
        })
    }

    fn put_pages(&mut self, table: PageTableId) {
        self.tables
            .remove(&table)
            .expect("only what was got, and once");
    }

    fn map(&mut self, table: PageTableId, offset: u64, len: usize) -> Result<usize, Errno> {
        assert_eq!(offset, 0);
        assert!(len as u64 <= self.tables[&table].1);
        if let Some(errno) = self.map_fails.take() {
            return Err(errno);
        }
        self.maps += 1;
        Ok(self.maps << 32)
    }

    fn zap(&mut self, addr: usize, len: usize) {
        self.zapped.push((addr, len));
    }
}

/// A driver, its GPU, and an open device.
struct Bench {
    driver: Driver,
    gpu: FakeGpu,
    file: FileId,
    caller: Caller,
}

const RDWR: Access = Access {
    read: true,
    write: true,
};

fn bench(config: DriverConfig) -> Bench {
    let mut driver = Driver::new(config, PAGE);
    let file = driver.open(OWNER, RDWR).unwrap();
    Bench {
        driver,
        gpu: FakeGpu::default(),
        file,
        caller: OWNER,
    }
}

fn default() -> Bench {
    bench(DriverConfig::default())
}

fn version(minor: u16) -> DriverConfig {
    DriverConfig {
        version: Version::new(2, minor),
        ..DriverConfig::default()
    }
}

fn defective() -> DriverConfig {
    DriverConfig {
        module_defects: true,
        ..DriverConfig::default()
    }
}

impl Bench {
    fn run(&mut self, command: Command, fields: &[(&Field, u64)]) -> Result<Argument, Errno> {
        let mut argument = Argument::default();
        for (field, value) in fields {
            argument.set(field, *value);
        }
        self.driver
            .ioctl(
                &mut self.gpu,
                self.file,
                self.caller,
                command.number(),
                &mut argument,
            )
            .map(|()| argument)
    }

    fn pin_v1(&mut self, addr: u64, size: u64, tokens: (u64, u32)) -> Result<u64, Errno> {
        use abi::pin_buffer::*;
        let fields = [
            (&ADDR, addr),
            (&SIZE, size),
            (&P2P_TOKEN, tokens.0),
            (&VA_SPACE, tokens.1.into()),
        ];
        self.run(Command::PinBuffer, &fields)
            .map(|out| out.get(&HANDLE))
    }

    fn pin_v2(&mut self, addr: u64, size: u64, flags: u64) -> Result<u64, Errno> {
        use abi::pin_buffer_v2::*;
        let fields = [(&ADDR, addr), (&SIZE, size), (&FLAGS, flags)];
        self.run(Command::PinBufferV2, &fields)
            .map(|out| out.get(&HANDLE))
    }

    /// One GPU page, the `n`th.
    fn pin(&mut self, n: u64) -> u64 {
        self.pin_v1(MEMORY.start + n * GPU_PAGE, GPU_PAGE, (0, 0))
            .unwrap()
    }

    fn unpin(&mut self, handle: u64) -> Result<(), Errno> {
        self.run(
            Command::UnpinBuffer,
            &[(&abi::unpin_buffer::HANDLE, handle)],
        )
        .map(|_| ())
    }

    fn flag(&mut self, handle: u64) -> Result<u64, Errno> {
        use abi::get_cb_flag::*;
        self.run(Command::GetCbFlag, &[(&HANDLE, handle)])
            .map(|out| out.get(&FLAG))
    }

    /// VA and mapped size.
    fn range(&mut self, handle: u64) -> Result<(u64, u64), Errno> {
        use abi::get_info::*;
        let out = self.run(Command::GetInfo, &[(&HANDLE, handle)])?;
        Ok((out.get(&VA), out.get(&MAPPED_SIZE)))
    }

    fn mapping_type(&mut self, handle: u64) -> MappingType {
        use abi::get_info_v2::*;
        let out = self.run(Command::GetInfoV2, &[(&HANDLE, handle)]).unwrap();
        MappingType::from_number(out.get(&MAPPING_TYPE)).unwrap()
    }

    fn request(&mut self, handle: u64, mapping_type: u64) -> Result<(), Errno> {
        use abi::req_mapping_type::*;
        self.run(
            Command::ReqMappingType,
            &[(&HANDLE, handle), (&MAPPING_TYPE, mapping_type)],
        )
        .map(|_| ())
    }

    fn attribute(&mut self, attribute: u64) -> Result<u64, Errno> {
        use abi::get_attr::*;
        self.run(Command::GetAttr, &[(&ATTR, attribute)])
            .map(|out| out.get(&VAL))
    }

    fn mmap(&mut self, handle: u64, len: u64) -> Result<usize, Errno> {
        self.mmap_with(&MapRequest {
            len: len as usize,
            offset: handle * PAGE,
            shared: true,
            write: true,
        })
    }

    fn mmap_with(&mut self, request: &MapRequest) -> Result<usize, Errno> {
        self.driver
            .mmap(&mut self.gpu, self.file, self.caller, request)
    }

    fn munmap(&mut self, addr: usize, len: u64) -> usize {
        self.driver.unmapped(addr, len as usize).len()
    }

    /// Frees the memory of the only table that starts at the `n`th page.
    fn free(&mut self, n: u64) {
        let va = MEMORY.start + n * GPU_PAGE;
        let (table, _) = self
            .gpu
            .tables
            .iter()
            .find(|(_, table)| table.0 == va)
            .unwrap();
        let table = *table;
        self.driver.revoked(&mut self.gpu, table);
    }
}

// Opening.

#[test]
fn every_pin_fails_when_the_module_is_bound_to_nv_p2p_dummy() {
    let mut bench = bench(DriverConfig {
        p2p_dummy: true,
        ..DriverConfig::default()
    });
    let pin = bench.pin_v1(MEMORY.start, GPU_PAGE, (0, 0));
    assert_eq!(pin, Err(Errno::EINVAL));
    assert_eq!(bench.pin_v2(MEMORY.start, GPU_PAGE, 0), Err(Errno::EINVAL));
    assert_eq!(bench.attribute(abi::ATTR_USE_PERSISTENT_MAPPING), Ok(1));
    assert_eq!(bench.driver.pins(), 0);
}

#[test]
fn without_the_module_there_is_no_device() {
    let mut driver = Driver::new(
        DriverConfig {
            loaded: false,
            ..DriverConfig::default()
        },
        PAGE,
    );
    assert_eq!(driver.open(OWNER, RDWR), Err(Errno::ENOENT));
}

#[test]
fn opening_fails_as_configured() {
    let config = DriverConfig {
        open_errno: Some(Errno::EMFILE),
        ..DriverConfig::default()
    };
    assert_eq!(
        Driver::new(config, PAGE).open(OWNER, RDWR),
        Err(Errno::EMFILE)
    );
}

#[test]
fn version_and_oldest_library_are_reported() {
    let mut bench = bench(DriverConfig {
        version: Version::new(2, 99),
        min_api_version: Version::new(3, 0),
        ..DriverConfig::default()
    });
    let out = bench.run(Command::GetVersion, &[]).unwrap();
    assert_eq!(out.get(&abi::get_version::GDRDRV_VERSION), 0x20063);
    assert_eq!(out.get(&abi::get_version::MINIMUM_GDR_API_VERSION), 0x30000);
}

// Pinning.

#[test]
fn provider_receives_the_mode() {
    let mut persistent = default();
    persistent.pin(0);
    assert_eq!(persistent.gpu.last, (true, false));
    let mut on_request = bench(DriverConfig {
        version: Version {
            patch: 1,
            ..Version::new(2, 4)
        },
        persistent_before_2_5: true,
        ..version(4)
    });
    on_request.pin(0);
    assert_eq!(on_request.gpu.last, (true, false));
    for config in [
        DriverConfig {
            traditional: true,
            ..DriverConfig::default()
        },
        version(4),
    ] {
        let mut bench = bench(config);
        bench.pin(0);
        assert_eq!(bench.gpu.last, (false, false));
    }
}

#[test]
fn force_pcie_needs_persistent_mode_and_support() {
    let traditional = DriverConfig {
        traditional: true,
        ..DriverConfig::default()
    };
    let not_built = DriverConfig {
        force_pcie: ForcePcie::NotBuilt,
        ..DriverConfig::default()
    };
    let no = DriverConfig {
        force_pcie: ForcePcie::No,
        ..DriverConfig::default()
    };
    for (config, result) in [
        (DriverConfig::default(), Ok(0)),
        (traditional, Err(Errno::EINVAL)),
        (not_built, Err(Errno::EINVAL)),
        (no, Err(Errno::ENOTSUPP)),
    ] {
        let mut bench = bench(config);
        assert_eq!(
            bench.pin_v2(MEMORY.start, 1, abi::PIN_FLAG_FORCE_PCIE),
            result
        );
        assert_eq!(bench.gpu.last.1, result.is_ok());
    }
}

#[test]
fn attributes_report_mode_and_support() {
    let traditional = DriverConfig {
        traditional: true,
        ..DriverConfig::default()
    };
    let not_built = DriverConfig {
        force_pcie: ForcePcie::NotBuilt,
        ..DriverConfig::default()
    };
    for (config, values) in [
        (DriverConfig::default(), (1, 1)),
        (traditional, (0, 0)),
        (not_built, (1, 0)),
    ] {
        let mut bench = bench(config);
        assert_eq!(bench.attribute(1), Ok(values.0));
        assert_eq!(bench.attribute(2), Ok(values.1));
        for unknown in [0, 3, 1000, 0xffff_ffff] {
            assert_eq!(bench.attribute(unknown), Err(Errno::EINVAL));
        }
    }
}

#[test]
fn before_2_4_2_the_end_of_a_pin_is_not_rounded() {
    for (minor, patch, rounded) in [(3, 9, false), (4, 1, false), (4, 2, true), (5, 0, true)] {
        let mut bench = bench(DriverConfig {
            version: Version {
                patch,
                ..Version::new(2, minor)
            },
            ..version(minor)
        });
        let size = |ragged: u64| {
            if rounded {
                ragged.next_multiple_of(GPU_PAGE)
            } else {
                ragged
            }
        };
        let handle = bench.pin_v1(MEMORY.start, PAGE, (0, 0)).unwrap();
        assert_eq!(bench.range(handle), Ok((MEMORY.start, size(PAGE))));
        let handle = bench.pin_v1(MEMORY.start + 16, GPU_PAGE, (0, 0)).unwrap();
        assert_eq!(bench.range(handle), Ok((MEMORY.start, size(GPU_PAGE + 16))));
        assert_eq!(bench.pin_v1(MEMORY.start, 0, (0, 0)), Err(Errno::EINVAL));
    }
}

#[test]
fn strict_gpu_drivers_refuse_ragged_sizes_of_old_modules() {
    for (minor, result) in [(3, Err(Errno::EINVAL)), (4, Err(Errno::EINVAL)), (5, Ok(0))] {
        let mut bench = bench(DriverConfig {
            strict_sizes: true,
            ..version(minor)
        });
        assert_eq!(bench.pin_v1(MEMORY.start, 1, (0, 0)), result, "2.{minor}");
        assert!(bench.pin_v1(MEMORY.start, GPU_PAGE, (0, 0)).is_ok());
        assert!(
            bench
                .pin_v1(MEMORY.start + 16, GPU_PAGE - 16, (0, 0))
                .is_ok()
        );
    }
}

// Handles.

#[test]
fn handles_run_out_where_offsets_do() {
    let last = u64::MAX / PAGE - 0x10;
    let mut bench = bench(DriverConfig {
        handle_base: last,
        ..DriverConfig::default()
    });
    assert_eq!(bench.pin(0), last);
    assert_eq!(bench.pin_v2(MEMORY.start, GPU_PAGE, 0), Err(Errno::ENOMEM));
    assert_eq!(bench.driver.pins(), 1);
    assert_eq!(bench.gpu.tables.len(), 1);
}

// Wrong handles.

#[test]
fn a_defective_module_takes_the_oldest_pin_for_a_wrong_handle() {
    let mut bench = bench(defective());
    let oldest = bench.pin(0);
    let second = bench.pin(1);
    let wrong = 0x1000;
    assert_eq!(bench.range(wrong), Ok((MEMORY.start, GPU_PAGE)));
    assert_eq!(bench.flag(wrong), Ok(0));
    assert_eq!(bench.request(wrong, 1), Ok(()));
    bench.mmap(wrong, GPU_PAGE).unwrap();
    assert_eq!(bench.mapping_type(oldest), MappingType::Wc);
    assert_eq!(bench.unpin(wrong), Ok(()));
    assert_eq!(
        bench.range(oldest),
        Ok((MEMORY.start + GPU_PAGE, GPU_PAGE)),
        "now the second"
    );
    assert_eq!(bench.unpin(oldest), Ok(()));
    assert_eq!(bench.unpin(second), Err(Errno::EINVAL), "none is left");
}

// Mapping.

#[test]
fn a_mapping_that_fails_leaves_the_pin_as_it_was() {
    let mut bench = default();
    let handle = bench.pin(0);
    bench.gpu.map_fails = Some(Errno::ENOMEM);
    assert_eq!(bench.mmap(handle, GPU_PAGE), Err(Errno::ENOMEM));
    assert_eq!(bench.mapping_type(handle), MappingType::None);
    assert!(bench.mmap(handle, GPU_PAGE).is_ok());
}

#[test]
fn pins_forced_over_pcie_are_not_cached() {
    let mut bench = bench(DriverConfig {
        platform: Platform::Cached,
        ..DriverConfig::default()
    });
    let handle = bench
        .pin_v2(MEMORY.start, GPU_PAGE, abi::PIN_FLAG_FORCE_PCIE)
        .unwrap();
    assert_eq!(bench.request(handle, 2), Err(Errno::EOPNOTSUPP));
    bench.mmap(handle, GPU_PAGE).unwrap();
    assert_eq!(bench.mapping_type(handle), MappingType::Wc);
}

#[test]
fn what_is_left_of_an_old_mapping_does_not_count_for_a_new_one() {
    let mut bench = default();
    let handle = bench.pin(0);
    let old = bench.mmap(handle, GPU_PAGE).unwrap();
    bench.munmap(old, PAGE);
    bench.mmap(handle, GPU_PAGE).unwrap();
    bench.munmap(old, GPU_PAGE);
    assert_eq!(bench.mapping_type(handle), MappingType::Wc);
}

#[test]
fn a_defective_module_forgets_a_mapping_on_a_second_mmap() {
    let mut bench = bench(defective());
    let handle = bench.pin(0);
    let first = bench.mmap(handle, GPU_PAGE).unwrap();
    assert_eq!(bench.mmap(handle, GPU_PAGE), Err(Errno::EINVAL));
    assert_eq!(bench.mapping_type(handle), MappingType::None);
    let third = bench.mmap(handle, GPU_PAGE).unwrap();
    bench.unpin(handle).unwrap();
    assert_eq!(bench.gpu.zapped, [(third, GPU_PAGE as usize)]);
    assert!(bench.driver.maps(first, 1));
}

// Unpinning.

#[test]
fn a_late_munmap_hits_the_oldest_pin_of_a_defective_module() {
    for (config, left) in [
        (DriverConfig::default(), MappingType::Wc),
        (defective(), MappingType::None),
        (
            DriverConfig {
                module_defects: true,
                ..version(4)
            },
            MappingType::None,
        ),
    ] {
        let mut bench = bench(config);
        let oldest = bench.pin(0);
        let late = bench.pin(1);
        let other = bench.mmap(oldest, GPU_PAGE).unwrap();
        let addr = bench.mmap(late, GPU_PAGE).unwrap();
        bench.unpin(late).unwrap();
        bench.gpu.zapped.clear();
        bench.munmap(addr, GPU_PAGE);
        assert_eq!(bench.mapping_type(oldest), left);
        bench.unpin(oldest).unwrap();
        let torn_down = left == MappingType::Wc;
        assert_eq!(bench.gpu.zapped == [(other, GPU_PAGE as usize)], torn_down);
    }
}

// Release.

#[test]
fn release_gives_every_pin_back() {
    let mut bench = bench(DriverConfig {
        traditional: true,
        ..DriverConfig::default()
    });
    for n in 0..3 {
        bench.pin(n);
    }
    let kept = bench.file;
    let gone = bench.driver.open(OWNER, RDWR).unwrap();
    bench.file = gone;
    bench.pin(3);
    bench.file = kept;
    bench.free(1);
    assert_eq!(
        (bench.driver.pins_of(kept), bench.driver.pins_of(gone)),
        (2, 1)
    );

    bench.driver.release(&mut bench.gpu, kept);
    assert_eq!(bench.driver.pins(), 1);
    let left: BTreeSet<u64> = bench.gpu.tables.values().map(|table| table.0).collect();
    assert_eq!(left, BTreeSet::from([MEMORY.start + 3 * GPU_PAGE]));
    assert_eq!(bench.range(0), Err(Errno::EBADF));
    bench.driver.release(&mut bench.gpu, kept);
    assert_eq!(bench.driver.pins(), 1);
}

#[test]
fn a_forked_child_forgets_without_giving_back() {
    let mut bench = default();
    let handle = bench.pin(0);
    let addr = bench.mmap(handle, GPU_PAGE).unwrap();
    bench.driver.forget();
    assert_eq!(bench.driver.pins(), 0);
    assert_eq!(bench.gpu.tables.len(), 1);
    assert!(!bench.driver.maps(addr, 1));
    assert_eq!(bench.driver.mapped_bounds(), None);
}

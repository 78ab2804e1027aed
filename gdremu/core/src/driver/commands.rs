//! Runs the commands of gdrdrv. Each has a function of its own.
#![forbid(unsafe_code)]

use std::time::Instant;

use crate::abi::{self, Argument, Command, MappingType};
use crate::config::{DriverConfig, Platform, YesNo};
use crate::errno::Errno;
use crate::gpu::physical::GPU_PAGE;
use crate::gpu::{PinRequest, Provider, page_size};
use crate::session::Identity;
use crate::version::Version;

use super::pin::{Pin, Pins};
use super::{CLOCK_KHZ, Driver};

/// The start of the last GPU page below 2^64.
const LAST_PAGE: u64 = u64::MAX - (GPU_PAGE - 1);

impl Driver {
    /// Runs a command on an open device. `argument` holds the command's input, and its result on success.
    pub fn ioctl(
        &mut self,
        gpu: &mut dyn Provider,
        file: Identity,
        command: u32,
        argument: &mut Argument,
    ) -> Result<(), Errno> {
        let config = self.config;
        let mut call = Call { config, pins: self.pins_of_caller(file)?, gpu };
        match config.command(command)? {
            Command::PinBuffer => call.pin_buffer(argument),
            Command::PinBufferV2 => call.pin_buffer_v2(argument),
            Command::UnpinBuffer => call.unpin_buffer(argument),
            Command::GetCbFlag => call.get_cb_flag(argument),
            Command::GetInfo => call.get_info(argument),
            Command::GetInfoV2 => call.get_info_v2(argument),
            Command::GetAttr => call.get_attr(argument),
            Command::ReqMappingType => call.req_mapping_type(argument),
            Command::GetVersion => {
                use abi::get_version::*;
                argument.set(&GDRDRV_VERSION, config.version.number().into());
                argument.set(&MINIMUM_GDR_API_VERSION, config.min_api_version.number().into());
                Ok(())
            }
        }
    }
}

struct Call<'a> {
    config: &'static DriverConfig,
    pins: &'a mut Pins,
    gpu: &'a mut dyn Provider,
}

impl Call<'_> {
    fn pin_buffer(&mut self, argument: &mut Argument) -> Result<(), Errno> {
        use abi::pin_buffer::*;
        let va_space = u32::try_from(argument.get(&VA_SPACE)).expect("a field of 4 bytes");
        let tokens = (argument.get(&P2P_TOKEN), va_space);
        if self.config.persistent() && tokens != (0, 0) {
            return Err(Errno::EINVAL);
        }
        if matches!(tokens, (1.., 0)) {
            return Err(Errno::EIO); // The GPU driver refuses a `p2p_token` without a `va_space`.
        }
        let handle = self.pin(argument.get(&ADDR), argument.get(&SIZE), tokens, false)?;
        argument.set(&HANDLE, handle);
        Ok(())
    }

    fn pin_buffer_v2(&mut self, argument: &mut Argument) -> Result<(), Errno> {
        use abi::pin_buffer_v2::*;
        let flags = argument.get(&FLAGS);
        let force_pcie = flags & abi::PIN_FLAG_FORCE_PCIE != 0;
        if flags & !abi::PIN_FLAG_FORCE_PCIE != 0 || (force_pcie && !self.config.persistent()) {
            return Err(Errno::EINVAL);
        }
        if force_pcie && self.config.force_pcie == YesNo::No {
            return Err(Errno::ENOTSUPP);
        }
        let handle = self.pin(argument.get(&ADDR), argument.get(&SIZE), (0, 0), force_pcie)?;
        argument.set(&HANDLE, handle);
        Ok(())
    }

    fn pin(&mut self, addr: u64, size: u64, tokens: (u64, u32), force_pcie: bool) -> Result<u64, Errno> {
        let config = self.config;
        let va = addr & !(GPU_PAGE - 1);
        let offset = addr - va;
        let end = addr.saturating_add(size);
        if addr == 0 || end == va || end > LAST_PAGE {
            return Err(Errno::EINVAL);
        }
        let ragged_size = end - va;
        let pinned_size = ragged_size.next_multiple_of(GPU_PAGE);
        // gdrdrv 2.4.2 and later round pins out to whole GPU pages. The patch number comes from
        // --driver-version. Programs never see it, because gdrdrv 2.4.2 reports version 2.4.
        let rounds_out = config.version >= Version { patch: 2, ..Version::new(2, 4) };
        let mapped_size = if rounds_out { pinned_size } else { ragged_size };
        if config.p2p_dummy {
            return Err(Errno::EINVAL);
        }

        let begin = Instant::now();
        let request = PinRequest { va, len: mapped_size, tokens, persistent: config.persistent(), force_pcie };
        let table = self.gpu.get_pages(&request)?;
        let cycles = u64::try_from(begin.elapsed().as_nanos()).unwrap_or(u64::MAX);

        let pages = mapped_size / page_size() as u64;
        // A handle is the pin's mmap offset in CPU pages, so a pin uses up one handle per page. Before gdrdrv 2.4, pins
        // of less than a page use up none, so the next pin has the same handle.
        let handle = self.pins.take_handle(if config.since(4) { pages.max(1) } else { pages });
        self.pins.list.push(Pin {
            handle,
            va,
            offset,
            mapped_size,
            pinned_size,
            table: Some(table),
            force_pcie,
            cycles,
            requested: MappingType::None,
            mapping: None,
        });
        Ok(handle)
    }

    fn unpin_buffer(&mut self, argument: &Argument) -> Result<(), Errno> {
        let pin = self.pins.remove(argument.get(&abi::unpin_buffer::HANDLE))?;
        if let Some(table) = pin.table {
            if let Some(mapping) = pin.mapping {
                self.gpu.zap(mapping.addr, mapping.len);
            }
            self.gpu.put_pages(table);
        }
        Ok(())
    }

    fn get_cb_flag(&mut self, argument: &mut Argument) -> Result<(), Errno> {
        use abi::get_cb_flag::*;
        let revoked = self.pins.find(argument.get(&HANDLE))?.table.is_none();
        argument.set(&FLAG, revoked.into());
        Ok(())
    }

    fn get_info(&mut self, argument: &mut Argument) -> Result<(), Errno> {
        use abi::get_info::*;
        let mapping_type = self.describe_pin(argument)?;
        argument.set(&MAPPED, (mapping_type != MappingType::None).into());
        argument.set(&WC_MAPPING, (mapping_type == MappingType::Wc).into());
        Ok(())
    }

    fn get_info_v2(&mut self, argument: &mut Argument) -> Result<(), Errno> {
        let mapping_type = self.describe_pin(argument)?;
        argument.set(&abi::get_info_v2::MAPPING_TYPE, mapping_type as u64);
        Ok(())
    }

    /// Sets the fields that GET_INFO and GET_INFO_V2 have at the same offsets. Returns the type of the pin's mapping.
    fn describe_pin(&mut self, argument: &mut Argument) -> Result<MappingType, Errno> {
        use abi::get_info::*;
        let pin = self.pins.find(argument.get(&HANDLE))?;
        argument.set(&VA, pin.va);
        argument.set(&MAPPED_SIZE, pin.mapped_size);
        argument.set(&PAGE_SIZE, GPU_PAGE);
        argument.set(&TSC_KHZ, CLOCK_KHZ);
        argument.set(&TM_CYCLES, pin.cycles);
        match pin.mapping {
            Some(mapping) => Ok(mapping.mapping_type),
            None => Ok(MappingType::None),
        }
    }

    fn get_attr(&self, argument: &mut Argument) -> Result<(), Errno> {
        use abi::get_attr::*;
        let value = match argument.get(&ATTR) {
            abi::ATTR_USE_PERSISTENT_MAPPING | abi::ATTR_SUPPORT_PIN_FLAG_FORCE_PCIE => self.config.persistent(),
            _ => return Err(Errno::EINVAL),
        };
        argument.set(&VAL, value.into());
        Ok(())
    }

    fn req_mapping_type(&mut self, argument: &Argument) -> Result<(), Errno> {
        use abi::req_mapping_type::*;
        let platform = self.config.platform;
        let pin = self.pins.find(argument.get(&HANDLE))?;
        let requested = MappingType::from_number(argument.get(&MAPPING_TYPE))?;
        if pin.mapping.is_some() {
            return Err(Errno::EBUSY);
        }
        let possible = match requested {
            MappingType::None => true,
            MappingType::Wc => platform != Platform::Device,
            MappingType::Caching => platform == Platform::Cached && !pin.force_pcie,
            MappingType::Device => platform == Platform::Device,
        };
        if !possible {
            return Err(Errno::EOPNOTSUPP);
        }
        pin.requested = requested;
        Ok(())
    }
}

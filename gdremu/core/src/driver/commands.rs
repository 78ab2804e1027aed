//! The commands, one function each.
#![forbid(unsafe_code)]

use std::time::Instant;

use crate::abi::{self, Argument, Command, MappingType};
use crate::config::{ForcePcie, Platform};
use crate::errno::Errno;
use crate::gpu::Provider;

use super::pin::Pin;
use super::{CLOCK_KHZ, Caller, Driver, FileId};

/// GPU memory is pinned in pages of 64 KiB.
const GPU_PAGE_SIZE: u64 = 1 << 16;

/// A program's request to pin memory.
struct PinRequest {
    addr: u64,
    size: u64,
    tokens: (u64, u32),
    force_pcie: bool,
}

impl Driver {
    /// Runs a command on an open device; `argument` is read and, on success, written.
    ///
    /// # Errors
    /// `EACCES` to all but the owner, `ENOTTY` for a command that this release lacks, else the
    /// command's error.
    pub fn ioctl(
        &mut self,
        gpu: &mut dyn Provider,
        file: FileId,
        caller: Caller,
        command: u32,
        argument: &mut Argument,
    ) -> Result<(), Errno> {
        self.file(file, caller)?;
        let command = Command::from_number(command)
            .filter(|command| self.config.knows(*command))
            .ok_or(Errno::ENOTTY)?;
        match command {
            Command::PinBuffer => self.pin_buffer(gpu, file, caller, argument),
            Command::PinBufferV2 => self.pin_buffer_v2(gpu, file, caller, argument),
            Command::UnpinBuffer => self.unpin_buffer(gpu, file, caller, argument),
            Command::GetCbFlag => self.get_cb_flag(file, caller, argument),
            Command::GetInfo => self.get_info(file, caller, argument),
            Command::GetInfoV2 => self.get_info_v2(file, caller, argument),
            Command::GetAttr => self.get_attr(argument),
            Command::ReqMappingType => self.req_mapping_type(file, caller, argument),
            Command::GetVersion => {
                argument
                    .set(&abi::get_version::GDRDRV_VERSION, self.config.version.number().into());
                let oldest = self.config.min_api_version.number();
                argument.set(&abi::get_version::MINIMUM_GDR_API_VERSION, oldest.into());
                Ok(())
            }
        }
    }

    fn pin_buffer(
        &mut self,
        gpu: &mut dyn Provider,
        file: FileId,
        caller: Caller,
        argument: &mut Argument,
    ) -> Result<(), Errno> {
        use abi::pin_buffer::*;
        let va_space = u32::try_from(argument.get(&VA_SPACE)).expect("a field of 4 bytes");
        let tokens = (argument.get(&P2P_TOKEN), va_space);
        if self.config.persistent() && tokens != (0, 0) {
            return Err(Errno::EINVAL);
        }
        let (addr, size) = (argument.get(&ADDR), argument.get(&SIZE));
        let request = PinRequest { addr, size, tokens, force_pcie: false };
        argument.set(&HANDLE, self.pin(gpu, file, caller, &request)?);
        Ok(())
    }

    fn pin_buffer_v2(
        &mut self,
        gpu: &mut dyn Provider,
        file: FileId,
        caller: Caller,
        argument: &mut Argument,
    ) -> Result<(), Errno> {
        use abi::pin_buffer_v2::*;
        let flags = argument.get(&FLAGS);
        let force_pcie = flags & abi::PIN_FLAG_FORCE_PCIE != 0;
        if flags & !abi::PIN_FLAG_FORCE_PCIE != 0 {
            return Err(Errno::EINVAL);
        }
        if force_pcie && !self.can_force_pcie() {
            return Err(Errno::EINVAL);
        }
        if force_pcie && self.config.force_pcie == ForcePcie::No {
            return Err(Errno::ENOTSUPP);
        }
        let (addr, size) = (argument.get(&ADDR), argument.get(&SIZE));
        let request = PinRequest { addr, size, tokens: (0, 0), force_pcie };
        argument.set(&HANDLE, self.pin(gpu, file, caller, &request)?);
        Ok(())
    }

    fn pin(
        &mut self,
        gpu: &mut dyn Provider,
        file: FileId,
        caller: Caller,
        request: &PinRequest,
    ) -> Result<u64, Errno> {
        if request.addr == 0 {
            return Err(Errno::EINVAL);
        }
        let va = request.addr & !(GPU_PAGE_SIZE - 1);
        let offset = request.addr - va;
        let ragged_size = offset.checked_add(request.size).ok_or(Errno::EINVAL)?;
        let pinned_size =
            ragged_size.checked_next_multiple_of(GPU_PAGE_SIZE).ok_or(Errno::EINVAL)?;
        if pinned_size == 0 || va.checked_add(pinned_size).is_none() {
            return Err(Errno::EINVAL);
        }
        let mapped_size = if self.config.pins_ragged_sizes() { ragged_size } else { pinned_size };
        if self.config.strict_sizes && mapped_size != pinned_size {
            return Err(Errno::EINVAL);
        }

        if self.config.p2p_dummy {
            return Err(Errno::EINVAL);
        }

        let persistent = self.config.persistent();
        let begin = Instant::now();
        let table =
            gpu.get_pages(va, pinned_size, request.tokens, persistent, request.force_pcie)?.id;
        let cycles = u64::try_from(begin.elapsed().as_nanos()).unwrap_or(u64::MAX);

        let pages = mapped_size / self.page_size;
        let step = if self.config.repeats_handles_of_small_pins() { pages } else { pages.max(1) };
        let page_size = self.page_size;
        let pins = &mut self.file(file, caller)?.pins;
        let Some(handle) = pins.take_handle(step, page_size) else {
            gpu.put_pages(table);
            return Err(Errno::ENOMEM);
        };
        pins.push(Pin {
            handle,
            va,
            offset,
            mapped_size,
            pinned_size,
            table: Some(table),
            force_pcie: request.force_pcie,
            cycles,
            requested: MappingType::None,
            mapping: None,
        });
        Ok(handle)
    }

    fn unpin_buffer(
        &mut self,
        gpu: &mut dyn Provider,
        file: FileId,
        caller: Caller,
        argument: &mut Argument,
    ) -> Result<(), Errno> {
        let handle = argument.get(&abi::unpin_buffer::HANDLE);
        let or_oldest = self.config.finds_the_oldest_pin();
        let pins = &mut self.file(file, caller)?.pins;
        let pin = pins.remove(handle, or_oldest).ok_or(Errno::EINVAL)?;
        let Some(table) = pin.table else {
            return Ok(());
        };
        if let Some(mapping) = pin.mapping {
            gpu.zap(mapping.addr, mapping.len);
        }
        gpu.put_pages(table);
        Ok(())
    }

    fn get_cb_flag(
        &mut self,
        file: FileId,
        caller: Caller,
        argument: &mut Argument,
    ) -> Result<(), Errno> {
        use abi::get_cb_flag::*;
        let pin = self.find(file, caller, argument.get(&HANDLE))?;
        let revoked = pin.table.is_none();
        argument.set(&FLAG, revoked.into());
        Ok(())
    }

    fn get_info(
        &mut self,
        file: FileId,
        caller: Caller,
        argument: &mut Argument,
    ) -> Result<(), Errno> {
        use abi::get_info::*;
        let pin = self.find(file, caller, argument.get(&HANDLE))?;
        let mapping_type = pin.mapping_type();
        argument.set(&VA, pin.va);
        argument.set(&MAPPED_SIZE, pin.mapped_size);
        argument.set(&PAGE_SIZE, GPU_PAGE_SIZE);
        argument.set(&TSC_KHZ, CLOCK_KHZ);
        argument.set(&TM_CYCLES, pin.cycles);
        argument.set(&MAPPED, (mapping_type != MappingType::None).into());
        argument.set(&WC_MAPPING, (mapping_type == MappingType::Wc).into());
        Ok(())
    }

    fn get_info_v2(
        &mut self,
        file: FileId,
        caller: Caller,
        argument: &mut Argument,
    ) -> Result<(), Errno> {
        use abi::get_info_v2::*;
        let pin = self.find(file, caller, argument.get(&HANDLE))?;
        argument.set(&VA, pin.va);
        argument.set(&MAPPED_SIZE, pin.mapped_size);
        argument.set(&PAGE_SIZE, GPU_PAGE_SIZE);
        argument.set(&TSC_KHZ, CLOCK_KHZ);
        argument.set(&TM_CYCLES, pin.cycles);
        argument.set(&MAPPING_TYPE, pin.mapping_type() as u64);
        Ok(())
    }

    fn get_attr(&self, argument: &mut Argument) -> Result<(), Errno> {
        use abi::get_attr::*;
        let value = match argument.get(&ATTR) {
            abi::ATTR_USE_PERSISTENT_MAPPING => self.config.persistent(),
            abi::ATTR_SUPPORT_PIN_FLAG_FORCE_PCIE => self.can_force_pcie(),
            _ => return Err(Errno::EINVAL),
        };
        argument.set(&VAL, value.into());
        Ok(())
    }

    fn req_mapping_type(
        &mut self,
        file: FileId,
        caller: Caller,
        argument: &mut Argument,
    ) -> Result<(), Errno> {
        use abi::req_mapping_type::*;
        let platform = self.config.platform;
        let pin = self.find(file, caller, argument.get(&HANDLE))?;
        let wanted = MappingType::from_number(argument.get(&MAPPING_TYPE)).ok_or(Errno::EINVAL)?;
        if pin.mapping.is_some() {
            return Err(Errno::EBUSY);
        }
        let possible = match wanted {
            MappingType::None => true,
            MappingType::Wc => platform != Platform::Device,
            MappingType::Caching => platform == Platform::Cached && !pin.force_pcie,
            MappingType::Device => platform == Platform::Device,
        };
        if !possible {
            return Err(Errno::EOPNOTSUPP);
        }
        pin.requested = wanted;
        Ok(())
    }

    /// The pin of a handle.
    pub(super) fn find(
        &mut self,
        file: FileId,
        caller: Caller,
        handle: u64,
    ) -> Result<&mut Pin, Errno> {
        let or_oldest = self.config.finds_the_oldest_pin();
        self.file(file, caller)?.pins.find(handle, or_oldest).ok_or(Errno::EINVAL)
    }

    fn can_force_pcie(&self) -> bool {
        self.config.persistent() && self.config.force_pcie != ForcePcie::NotBuilt
    }
}

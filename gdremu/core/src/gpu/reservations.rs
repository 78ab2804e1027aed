//! CUDA's virtual memory management: physical objects with handles, reserved addresses, mappings between the two.
//! A call that does not find its object or range returns [`Error::Invalid`].
#![forbid(unsafe_code)]

use std::collections::BTreeMap;

use super::address_space::{Access, Accesses, Error, Mapping, Memory, PageTableId, Step};
use super::physical::{BLOCK, Holder, Object, ObjectId, end_of};

impl Memory {
    /// Creates a physical object and returns its handle. `len` must be a multiple of 2 MiB.
    pub fn create(&mut self, gpu: usize, len: u64, rdma: bool) -> Result<ObjectId, Error> {
        if len == 0 || !len.is_multiple_of(BLOCK) {
            return Err(Error::Invalid);
        }
        let object = self.physical.create(gpu, len, rdma, Holder::Handle)?;
        self.steps.push(Step::Created { object, len, rdma });
        Ok(object)
    }

    pub fn object(&self, handle: ObjectId) -> Result<&Object, Error> {
        self.physical.by_handle(handle)
    }

    /// Takes another reference to the physical object that is mapped at `va`, and returns the object's id.
    pub fn retain_at(&mut self, va: u64) -> Result<ObjectId, Error> {
        self.access_at(va)?;
        let object = self.mapping_at(va)?.object;
        self.physical.hold(object, Holder::Handle);
        Ok(object)
    }

    /// Drops a reference that the program holds by the handle. The memory stays alive while it is mapped or pinned.
    pub fn release(&mut self, handle: ObjectId) -> Result<(), Error> {
        self.object(handle)?;
        self.drop_reference(handle, Holder::Handle);
        Ok(())
    }

    /// Reserves addresses, at `hint` if they are free there. `align` must be 0 or a power of two.
    pub fn reserve(&mut self, len: u64, align: u64, hint: u64) -> Result<u64, Error> {
        if len == 0 || !len.is_multiple_of(BLOCK) || (align != 0 && !align.is_power_of_two()) {
            return Err(Error::Invalid);
        }
        let align = align.max(BLOCK);
        let window = end_of(len, align - BLOCK)?;
        let mut va = hint;
        if hint == 0 || !hint.is_multiple_of(align) || !self.addresses.take_at(hint, len) {
            match self.addresses.take(len, align) {
                Some(start) => va = start,
                None => return Err(Error::NoAddresses(window)),
            }
        }
        self.reservations.insert(va, len);
        Ok(va)
    }

    /// Ends the reservation that is exactly `[va, va + len)`. Nothing may be mapped in it.
    pub fn unreserve(&mut self, va: u64, len: u64) -> Result<(), Error> {
        if self.reservations.get(&va) != Some(&len) || self.mappings.range(va..va + len).next().is_some() {
            return Err(Error::Invalid);
        }
        self.reservations.remove(&va);
        self.addresses.give(va, len);
        Ok(())
    }

    /// Maps a physical object at reserved, unmapped addresses. No GPU has access to it yet.
    pub fn map(&mut self, va: u64, handle: ObjectId) -> Result<(), Error> {
        let len = self.object(handle)?.len;
        let end = end_of(va, len)?;
        let reserved_end = match self.reservations.range(..=va).next_back() {
            Some((start, reserved)) => start + reserved,
            None => 0,
        };
        let mapped_end = match self.mappings.range(..end).next_back() {
            Some((start, mapping)) => start + mapping.len,
            None => 0,
        };
        if end > reserved_end || mapped_end > va || !va.is_multiple_of(BLOCK) {
            return Err(Error::Invalid);
        }
        self.physical.hold(handle, Holder::Use);
        self.add_mapping(va, len, handle, Some(BTreeMap::new()));
        Ok(())
    }

    /// Removes mappings that together are exactly `[va, va + len)`. Like [`Memory::free`], returns the page tables of
    /// the non-persistent pins that have lost memory.
    pub fn unmap(&mut self, va: u64, len: u64) -> Result<Vec<PageTableId>, Error> {
        let mut mappings = Vec::new();
        for at in self.whole_mappings(va, len)? {
            mappings.extend(self.mappings.remove(&at));
        }
        let revoked = self.revoked(va, len);
        self.steps.push(Step::Unmapped { va, len });
        for mapping in mappings {
            self.drop_reference(mapping.object, Holder::Use);
        }
        Ok(revoked)
    }

    /// Sets how a GPU may access the mappings that together are exactly `[va, va + len)`.
    pub fn set_access(&mut self, va: u64, len: u64, gpu: usize, access: Access) -> Result<(), Error> {
        for at in self.whole_mappings(va, len)? {
            if let Some(Mapping { vmm: Some(of_gpus), .. }) = self.mappings.get_mut(&at) {
                of_gpus.insert(gpu, access);
            }
        }
        Ok(())
    }

    pub fn access(&self, va: u64, gpu: usize) -> Result<Access, Error> {
        Ok(self.access_at(va)?.get(&gpu).copied().unwrap_or_default())
    }

    /// Returns the access that each GPU has to the mapping of cuMemMap at an address.
    fn access_at(&self, va: u64) -> Result<&Accesses, Error> {
        self.mapping_at(va)?.vmm.as_ref().ok_or(Error::Invalid)
    }

    /// Returns the starts of the mappings of cuMemMap that together are exactly `[va, va + len)`.
    fn whole_mappings(&self, va: u64, len: u64) -> Result<Vec<u64>, Error> {
        let end = end_of(va, len)?;
        let mut starts = Vec::new();
        let mut at = va;
        while at < end {
            let Some(Mapping { vmm: Some(_), len, .. }) = self.mappings.get(&at) else {
                return Err(Error::Invalid);
            };
            starts.push(at);
            at += len;
        }
        if at == end && len > 0 { Ok(starts) } else { Err(Error::Invalid) }
    }
}

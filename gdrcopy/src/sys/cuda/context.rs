//! Contexts: the one that is current in a thread, and those that objects live in.

use std::ptr;

use super::{Context, Device, Driver, PointerAttribute};
use crate::error::Result;
use crate::sys::fork::Owner;

impl Driver {
    /// Works with a context of the device current in the calling thread, and leaves the thread as it was.
    /// The context of the memory itself comes before the device's primary one, which might have to be
    /// created for the purpose: that takes GPU memory and hundreds of milliseconds.
    pub(super) fn in_context<T>(
        &self,
        device: Device,
        address: u64,
        work: impl FnOnce() -> Result<T>,
    ) -> Result<T> {
        if self.current_device()? == Some(device) {
            return work();
        }
        let context = self.context_of(address);
        if !context.is_null() {
            return self.with_current(context, work);
        }
        let result = self.with_current(self.retain(device)?, work);
        let released = self.release(device);
        result.and_then(|value| released.map(|()| value))
    }

    /// Works with this context current in the calling thread, and leaves the thread as it was.
    pub(super) fn with_current<T>(
        &self,
        context: Context,
        work: impl FnOnce() -> Result<T>,
    ) -> Result<T> {
        let before = self.current()?;
        if before == context {
            return work();
        }
        // SAFETY: CUDA checks contexts.
        let set = |context| self.check("cuCtxSetCurrent", unsafe { (self.set_context)(context) });
        let result = set(context).and_then(|()| work());
        let restored = set(before);
        result.and_then(|value| restored.map(|()| value))
    }

    /// The context that is current in the calling thread, or null.
    fn current(&self) -> Result<Context> {
        let mut context = ptr::null_mut();
        // SAFETY: the output is a local variable.
        self.check("cuCtxGetCurrent", unsafe { (self.context)(&mut context) })?;
        Ok(context)
    }

    /// The device of the context that is current in the calling thread.
    fn current_device(&self) -> Result<Option<Device>> {
        if self.current()?.is_null() {
            return Ok(None);
        }
        let mut device = -1;
        // SAFETY: the output is a local variable.
        let result = unsafe { (self.context_device)(&mut device) };
        self.check("cuCtxGetDevice", result)?;
        Ok(Some(Device(device)))
    }

    /// The device's primary context, which lives until `release`.
    fn retain(&self, device: Device) -> Result<Context> {
        let mut context = ptr::null_mut();
        // SAFETY: the output is a local variable.
        let result = unsafe { (self.retain_context)(&mut context, device.0) };
        self.check("cuDevicePrimaryCtxRetain", result)?;
        Ok(context)
    }

    fn release(&self, device: Device) -> Result<()> {
        // SAFETY: CUDA counts what is retained.
        let result = unsafe { (self.release_context)(device.0) };
        self.check("cuDevicePrimaryCtxRelease", result)
    }

    /// The context that the memory at this address was allocated in; null for memory that belongs to none
    /// (from cuMemCreate or a memory pool).
    fn context_of(&self, address: u64) -> Context {
        let context = self.pointer_attribute(PointerAttribute::Context, address);
        context.map_or(ptr::null_mut(), |context| {
            ptr::with_exposed_provenance_mut(context as usize)
        })
    }
}

/// The context that an object lives in. A primary one is retained for it.
#[derive(Debug)]
pub(crate) struct Home {
    driver: &'static Driver,
    context: Context,
    retained: Option<Device>,
    owner: Owner,
}

impl Home {
    /// The calling thread's context, or else the primary one of GPU 0.
    pub(super) fn of_thread(driver: &'static Driver) -> Result<Home> {
        let context = driver.current()?;
        match context.is_null() {
            false => Ok(Home::borrowed(driver, context)),
            true => Home::primary(driver, driver.device(0)?),
        }
    }

    /// The context of GPU memory. Memory that belongs to none can be used in all of its GPU: then the calling
    /// thread's, or else the primary one.
    pub(crate) fn of_memory(driver: &'static Driver, address: u64) -> Result<Home> {
        let context = driver.context_of(address);
        if !context.is_null() {
            return Ok(Home::borrowed(driver, context));
        }
        let device = driver.device_of(address)?;
        if driver.current_device()? == Some(device) {
            return Ok(Home::borrowed(driver, driver.current()?));
        }
        Home::primary(driver, device)
    }

    fn borrowed(driver: &'static Driver, context: Context) -> Home {
        Home {
            driver,
            context,
            retained: None,
            owner: Owner::current(),
        }
    }

    fn primary(driver: &'static Driver, device: Device) -> Result<Home> {
        let context = driver.retain(device)?;
        let retained = Some(device);
        Ok(Home {
            retained,
            ..Home::borrowed(driver, context)
        })
    }

    /// Works with it current in the calling thread, whatever is being captured.
    pub(super) fn enter<T>(&self, work: impl FnOnce() -> Result<T>) -> Result<T> {
        let driver = self.driver;
        driver.outside_captures(|| driver.with_current(self.context, work))
    }

    pub(super) fn driver(&self) -> &'static Driver {
        self.driver
    }

    pub(super) fn owner(&self) -> Owner {
        self.owner
    }
}

impl PartialEq for Home {
    fn eq(&self, other: &Home) -> bool {
        self.context == other.context
    }
}

impl Drop for Home {
    fn drop(&mut self) {
        if let Some(device) = self.retained.filter(|_| self.owner.is_current()) {
            // Fails only if the program has reset the device.
            let _ = self.driver.release(device);
        }
    }
}

//! The copy routines and the fences of each architecture.

// Miri, which interprets the tests, cannot execute inline assembly, so it gets the module `generic`.
#[cfg(all(target_arch = "aarch64", not(miri)))]
mod aarch64;
#[cfg(any(miri, not(any(target_arch = "aarch64", target_arch = "powerpc64", target_arch = "x86_64"))))]
mod generic;
#[cfg(all(target_arch = "powerpc64", not(miri)))]
mod powerpc64;
#[cfg(all(target_arch = "x86_64", not(miri)))]
mod x86_64;

#[cfg(all(target_arch = "aarch64", not(miri)))]
use aarch64 as this;
#[cfg(any(miri, not(any(target_arch = "aarch64", target_arch = "powerpc64", target_arch = "x86_64"))))]
use generic as this;
#[cfg(all(target_arch = "powerpc64", not(miri)))]
use powerpc64 as this;
#[cfg(all(target_arch = "x86_64", not(miri)))]
use x86_64 as this;

pub use this::supported;
pub(super) use this::{fence, run};

//! Primary contexts, one per GPU, shared by all code that retains it.

use std::sync::MutexGuard;

use super::context;
use super::state::{self, CTX_MAP_HOST, ContextHandle, State};
use crate::error::{Error, Result, ensure};
use crate::gpus;

pub(super) fn retain(state: &mut State, gpu: usize) -> Result<ContextHandle> {
    let mut primary = state.primaries.get(&gpu).copied().unwrap_or_default();
    let context = match primary.context {
        Some(context) => context,
        None => context::create(state, gpu, primary.flags | CTX_MAP_HOST, primary.handle)?,
    };
    primary.context = Some(context);
    primary.handle = Some(context);
    primary.retained += 1;
    state.primaries.insert(gpu, primary);
    Ok(context)
}

pub(super) fn cuDevicePrimaryCtxRelease_v2(device: i32) -> Result {
    let mut state = state::lock();
    let gpu = gpus::by_ordinal(device)?;
    let primary = state.primaries.get_mut(&gpu).filter(|primary| primary.retained > 0);
    let primary = primary.ok_or(Error::INVALID_CONTEXT)?;
    primary.retained -= 1;
    if primary.retained == 0 { destroy(state, gpu) } else { Ok(()) }
}

pub(super) fn cuDevicePrimaryCtxSetFlags_v2(state: &mut State, device: i32, flags: u32) -> Result {
    let gpu = gpus::by_ordinal(device)?;
    state::check_flags(flags)?;
    ensure(flags & CTX_MAP_HOST == 0, Error::INVALID_VALUE)?;
    let primary = state.primaries.entry(gpu).or_default();
    primary.flags = flags;
    if let Some(context) = primary.context {
        state.contexts.get_mut(context)?.flags = flags | CTX_MAP_HOST;
    }
    Ok(())
}

/// Ends a primary context with all that it owns; later uses of it return CONTEXT_IS_DESTROYED. It is as often retained as
/// before, so that each retain has a release.
pub(super) fn destroy(mut state: MutexGuard<'static, State>, gpu: usize) -> Result {
    let primary = state.primaries.get_mut(&gpu);
    let context = primary.and_then(|primary| primary.context.take());
    context.map_or(Ok(()), |context| context::destroy(state, context))
}

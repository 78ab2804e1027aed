//! The functions that the stand-in libcuda exports, as gdremu_core::cuda describes them.

use std::ffi::{c_char, c_void};

use gdremu_core::cuda::name_of;

use super::entry;
use super::state::{
    ContextHandle, EventHandle, FunctionHandle, ModuleHandle, PoolHandle, StreamHandle,
};
use super::*;
use crate::args::{In, Out, Untyped};
use gdremu_core::cuda::types::{
    AccessDesc, AllocationProp, IpcHandle, Location, PoolExport, PoolProps, Uuid,
};

/// Calls a function in the manner that the description names.
macro_rules! enter {
    (without_init $symbol:ident $body:path, $($argument:ident)*) => {
        entry::without_init(name_of(stringify!($symbol)), || $body($($argument),*))
    };
    (initialized $symbol:ident $body:path, $($argument:ident)*) => {
        entry::initialized(name_of(stringify!($symbol)), || $body($($argument),*))
    };
    (with_state $symbol:ident $body:path, $($argument:ident)*) => {
        entry::with_state(name_of(stringify!($symbol)), |state| $body(state, $($argument),*))
    };
    (in_context $symbol:ident $body:path, $($argument:ident)*) => {
        entry::in_context(name_of(stringify!($symbol)), |state, current| $body(state, current, $($argument),*))
    };
}

/// Exports a function under its symbols.
macro_rules! entry_point {
    ($entry:ident $module:ident $body:ident ($($argument:ident: $type:ty),*) $($symbol:ident)*) => {
        const _: () = {
            extern "C" fn function($($argument: $type),*) -> i32 {
                enter!($entry $body $module::$body, $($argument)*)
            }
            $(gdremu_preload::entry_point!($symbol = function);)*
        };
    };
}

macro_rules! declare {
    ($symbol:ident ($($argument:ident: $type:ty),*)) => {
        unsafe extern "C" {
            pub(crate) safe fn $symbol($($argument: $type),*) -> i32;
        }
    };
}

macro_rules! entry_points {
    ($($module:ident { $(
        fn $first:ident $arguments:tt $entry:ident $since:literal $(, $also:ident $also_since:literal)*;
    )* })*) => {
        $($(entry_point!($entry $module $first $arguments $first $($also)*);)*)*

        /// The exported functions, by their symbols: tools that hook these see who calls them.
        pub(crate) mod exported {
            use super::*;

            $($(
                declare!($first $arguments);
                $(declare!($also $arguments);)*
            )*)*
        }

        /// The address of an exported function.
        pub(crate) fn address(symbol: &str) -> Option<*const c_void> {
            match symbol {
                $($(
                    stringify!($first) => Some(exported::$first as *const c_void),
                    $(stringify!($also) => Some(exported::$also as *const c_void),)*
                )*)*
                _ => None,
            }
        }
    };
}

gdremu_core::cuda_driver!(entry_points);

//! Replacements (hooks) of the libc functions, such as open and open64, by which programs reach /dev/gdrdrv.
//!
//! A hook first checks, without a lock, whether the call may concern gdremu. If not, it only calls the next definition
//! of the function, such as libc's.

mod exists;
mod files;
mod io;
mod mappings;
mod paths;

use std::ffi::{c_char, c_int, c_uint, c_ulong};

use libc::{AT_FDCWD, DIR, FILE, mode_t, off_t, size_t, ssize_t};

use crate::next::{self, Pointer, Stat, Statx, Text};
use paths::at_stand_in;

macro_rules! hook {
    ($next:ident $name:ident ($($argument:ident: $type:ty),* $(; $more:ident: $more_type:ty)?) $result:ty, $body:expr) => {
        const _: () = {
            unsafe extern "C" fn function($($argument: $type,)* $($more: $more_type)?) -> $result {
                let $next = next::$name();
                // SAFETY: the caller's arguments are passed on unchanged.
                unsafe { $body }
            }
            crate::entry_point!($name = function);
        };
    };
}

macro_rules! all {
    ($next:ident; $($($name:ident),* ($($arguments:tt)*) -> $result:ty => $body:expr;)*) => {
        $(all! { @each $next ($($arguments)*) $result, $body; $($name)* })*
    };
    (@each $next:ident $arguments:tt $result:ty, $body:expr; $($name:ident)*) => {
        $(hook! { $next $name $arguments $result, $body })*
    };
}

next::hooks!(all);

//! Views that can be owned together with their memory.
#![forbid(unsafe_code)]

use bytemuck::Pod;

use crate::access::{Array, MappedSlice, Word};
use crate::channel::{Counter, Flag, Ring};

/// A view of GPU memory that an [`Owned`](crate::owned::Owned) can be of. Only types of this crate are views.
pub trait View: private::Sealed {
    /// The same view of memory that is there for `'m`.
    type Of<'m>;

    /// Gives up a part of the lifetime.
    fn shorten<'m>(view: Self::Of<'static>) -> Self::Of<'m>;
}

mod private {
    /// Not implemented elsewhere, because `Owned` is sound only if `View::shorten` keeps nothing for
    /// `'static`.
    pub trait Sealed {}
}

macro_rules! view {
    ($view:ident $(<$parameter:ident>)?) => {
        impl$(<$parameter: Pod>)? private::Sealed for $view<'static $(, $parameter)?> {}

        impl$(<$parameter: Pod>)? View for $view<'static $(, $parameter)?> {
            type Of<'m> = $view<'m $(, $parameter)?>;

            #[inline]
            fn shorten<'m>(view: $view<'static $(, $parameter)?>) -> $view<'m $(, $parameter)?> {
                view
            }
        }
    };
}

view!(MappedSlice);
view!(Word<T>);
view!(Array<T>);
view!(Flag);
view!(Counter);
view!(Ring<T>);

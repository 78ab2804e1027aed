//! Views of mapped memory that a type can own together with the memory.
#![forbid(unsafe_code)]

use bytemuck::Pod;

use crate::access::{Array, MappedSlice, Word, Words};

/// A view of GPU memory that an [`Owned`](crate::owned::Owned) can contain. Only types of this crate are views.
///
/// ```
/// use gdrcopy::owned::{Owned, View};
/// struct Shared<V: View> {
///     view: Owned<V>, // of a word, an array, words or a slice
/// }
/// ```
pub trait View: private::Shorten {}

pub(super) mod private {
    /// Views that `Owned` can contain. The trait is private, because `Owned` is sound only if no implementation of
    /// `shorten` stores its `'static` argument anywhere.
    pub trait Shorten {
        /// The same type of view, with the lifetime `'m`.
        type Of<'m>: Clone;

        /// Shortens the lifetime of a view.
        fn shorten<'m>(view: Self::Of<'static>) -> Self::Of<'m>;
    }
}

macro_rules! view {
    ($view:ident $(<$parameter:ident>)?) => {
        impl$(<$parameter: Pod>)? View for $view<'static $(, $parameter)?> {}

        impl$(<$parameter: Pod>)? private::Shorten for $view<'static $(, $parameter)?> {
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
view!(Words<T>);

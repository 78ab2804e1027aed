//! Mappings that the CPU caches.

use super::{Cuda, Route, mapped, options, read, write};

#[test]
#[ignore = "transfer_under_gdremu runs it"]
fn cached_memory_is_copied_by_the_cpu() {
    let cuda = Cuda::new();
    let (mapping, _) = mapped(&cuda);
    let transfer = options().build();
    assert_eq!(read(&cuda, &transfer, &mapping, 1), Route::Mapping);
    assert_eq!(write(&cuda, &transfer, &mapping, 2), Route::Mapping);
}

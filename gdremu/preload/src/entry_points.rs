//! The functions exported to programs, and the macro that exports them.

/// Exports a function under a name of its own.
///
/// The export is an entry point that jumps to the function. It begins with instructions that
/// tools which hook functions in place can move elsewhere: UCX, for one, replaces up to 13 bytes and
/// understands few instructions. A compiler's own prologue may begin with any.
#[macro_export]
macro_rules! entry_point {
    ($symbol:ident = $function:path) => {
        $crate::entry_point!(stringify!($symbol), $symbol = $function);
    };
    ($name:expr, $symbol:ident = $function:path) => {
        #[unsafe(naked)]
        #[unsafe(export_name = $name)]
        pub(crate) extern "C" fn $symbol() {
            #[cfg(target_arch = "x86_64")]
            ::std::arch::naked_asm!(
                "mov eax, 0", // Five bytes each; no function has its arguments counted in eax.
                "mov eax, 0",
                "mov eax, 0",
                "jmp {function}",
                function = sym $function,
            );
            #[cfg(not(target_arch = "x86_64"))]
            ::std::arch::naked_asm!("b {function}", function = sym $function);
        }
    };
}

/// Exports functions `module::function` under their own names.
#[macro_export]
macro_rules! export {
    ($($module:ident::$function:ident;)*) => {
        $($crate::entry_point!($function = super::$module::$function);)*
    };
}

crate::export! {
    exists::access;
    exists::eaccess;
    exists::euidaccess;
    exists::faccessat;
    exists::stat;
    exists::stat64;
    exists::lstat;
    exists::lstat64;
    exists::fstatat;
    exists::fstatat64;
    exists::__xstat;
    exists::__xstat64;
    exists::__lxstat;
    exists::__lxstat64;
    exists::__fxstatat;
    exists::__fxstatat64;
    exists::fstat;
    exists::fstat64;
    exists::__fxstat;
    exists::__fxstat64;
    exists::statx;
    exists::readlink;
    exists::__readlink_chk;
    exists::readlinkat;
    exists::__readlinkat_chk;
    files::open;
    files::open64;
    files::__open;
    files::__open64;
    files::__open_2;
    files::__open64_2;
    files::openat;
    files::openat64;
    files::__openat_2;
    files::__openat64_2;
    files::fopen;
    files::fopen64;
    files::opendir;
    files::close;
    files::__close;
    files::close_range;
    files::closefrom;
    files::dup;
    files::dup2;
    files::__dup2;
    files::dup3;
    files::fcntl;
    files::fcntl64;
    files::__fcntl;
    io::ioctl;
    memory::mmap;
    memory::mmap64;
    memory::munmap;
    memory::mremap;
    reads::read;
    reads::__read;
    reads::__read_chk;
    reads::pread;
    reads::pread64;
    reads::__pread64;
    reads::__pread_chk;
    reads::__pread64_chk;
    for_tests::gdremu_provider;
    for_tests::gdremu_calls_take;
    for_tests::gdremu_pins;
    for_tests::gdremu_faults_set;
}

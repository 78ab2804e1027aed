//! Macros that export functions to programs. Also exports the functions that only tests call.

/// Exports a function under a given name.
///
/// The exported symbol is a short routine that jumps to the function. Tools that hook a function overwrite its first
/// instructions, and run copies of these elsewhere. UCX overwrites up to 13 bytes, and can copy only a few kinds of
/// instructions. The routine begins with such instructions, but a compiler may begin a function with any.
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
                "mov eax, 0", // Each of these instructions has five bytes, and changes no argument of the function.
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
    for_tests::gdremu_provider;
    for_tests::gdremu_calls_take;
    for_tests::gdremu_pins;
    for_tests::gdremu_faults_set;
}

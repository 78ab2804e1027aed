//! Tests that run GPU kernels on a memory of 1024 words at address [`BASE`].

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use super::tokens::ParseError;
use super::{Change, Fault, GlobalMemory, Kernel, Launch, Stopped, Trap, parse};

const BASE: u64 = 0x7000_0000;

/// Global memory that records the size of each access.
struct Words {
    words: Vec<u32>,
    sizes: Vec<usize>,
}

impl Words {
    fn new() -> Self {
        Words { words: vec![0; 1024], sizes: Vec::new() }
    }
}

impl GlobalMemory for Words {
    fn load(&mut self, address: u64, size: usize) -> Result<u64, Fault> {
        self.update(address, size, &|old| old)
    }

    fn store(&mut self, address: u64, size: usize, value: u64) -> Result<(), Fault> {
        self.update(address, size, &|_| value)?;
        Ok(())
    }

    /// Changes an integer, which lies in one word or is two whole words.
    fn update(&mut self, address: u64, size: usize, change: &Change<'_>) -> Result<u64, Fault> {
        self.sizes.push(size);
        let offset = address.checked_sub(BASE).ok_or(Fault)? as usize;
        let words = self.words.get_mut(offset / 4..).ok_or(Fault)?;
        let words = words.get_mut(..size.div_ceil(4)).ok_or(Fault)?;
        let whole = words.iter().rev().fold(0, |whole, word| whole << 32 | u64::from(*word));
        let shift = offset % 4 * 8;
        let mask = u64::MAX >> (64 - size * 8);
        let old = whole >> shift & mask;
        let new = whole & !(mask << shift) | (change(old) & mask) << shift;
        for (index, word) in words.iter_mut().enumerate() {
            *word = (new >> (32 * index)) as u32;
        }
        Ok(old)
    }
}

/// Returns the text of a GPU kernel. Its parameter `memory` is in %d0 and `value` in %r0. `body` begins at line 9
/// of the text.
fn text(body: &str) -> String {
    format!(
        ".version 7.0\n.target sm_70\n.address_size 64\n\
         .visible .entry test(.param .u64 memory, .param .u32 value)\n{{\n\
         .reg .pred %p, %q; .reg .b16 %h<3>; .reg .b32 %r<9>; .reg .b64 %d<9>; .reg .f32 %f<2>;\n\
         ld.param.u64 %d0, [memory];\nld.param.u32 %r0, [value];\n{body}\n}}\n"
    )
}

fn kernel(text: &str, name: &str) -> Result<Arc<Kernel>, ParseError> {
    let module = parse(text).unwrap_or_else(|error| panic!("{error}"));
    module.kernels[name].clone()
}

fn launch(body: &str, grid: u32, block: u32, value: u32) -> Launch {
    let kernel = kernel(&text(body), "test").unwrap_or_else(|error| panic!("{error}"));
    Launch {
        kernel,
        grid: [grid, 1, 1],
        block: [block, 1, 1],
        resident: 1000,
        cooperative: true,
        parameters: [&BASE.to_le_bytes()[..], &value.to_le_bytes()].concat(),
        shared: 0,
        variables: BASE + 4000,
    }
}

fn run(launch: &Launch, memory: &mut Words) -> Result<(), Stopped> {
    super::run(launch, memory, &AtomicBool::new(false), || ())
}

/// Runs a launch and returns the memory that it leaves.
fn memory_of(launch: &Launch) -> Words {
    let mut memory = Words::new();
    run(launch, &mut memory).unwrap();
    memory
}

fn memory_after(body: &str, grid: u32, block: u32, value: u32) -> Words {
    memory_of(&launch(body, grid, block, value))
}

/// Runs instructions that compute %d1 in one thread, and returns %d1.
fn result(instructions: &str, value: u32) -> u64 {
    let memory = memory_after(&format!("{instructions} st.global.u64 [%d0], %d1;"), 1, 1, value);
    u64::from(memory.words[1]) << 32 | u64::from(memory.words[0])
}

#[test]
fn instructions_compute_what_ptx_says() {
    for (instruction, value, expected) in [
        ("mul.hi.s32 %r1, %r0, 4;", 0x8000_0001, 0xffff_fffe),
        ("mul.hi.u32 %r1, %r0, 4;", 0x8000_0001, 2),
        ("min.s32 %r1, %r0, 1;", u32::MAX, u32::MAX),
        ("max.s32 %r1, %r0, -5;", 0x8000_0000, 0xffff_fffb),
        ("abs.s32 %r1, %r0;", 0xffff_fffb, 5),
        ("div.u32 %r1, %r0, 0;", 1, u32::MAX),
        ("shl.b32 %r1, %r0, 32;", 3, 0),
        ("shr.s32 %r1, %r0, 40;", 0x8000_0000, u32::MAX),
        ("shf.l.wrap.b32 %r1, %r0, 0x12345678, 40;", 0xab00_0000, 0x3456_78ab),
        ("prmt.b32 %r1, %r0, 0x80706050, 0xf041;", 0x0403_0201, 0xff01_5002),
        ("popc.b32 %r1, %r0;", 0xf0f, 8),
        ("clz.b32 %r1, %r0;", 1, 31),
        ("setp.hi.u32 %p, %r0, 4; selp.b32 %r1, 7, 9, %p;", 4, 9),
        ("setp.ge.s32 %p, %r0, 0; not.pred %q, %p; xor.pred %p, %p, %q; selp.b32 %r1, 1, 0, %p;", 4, 1),
        ("mov.b32 {%h1, %h2}, %r0; mov.b32 %r1, {%h2, %h1};", 0x1234_5678, 0x5678_1234),
        ("mov.f32 %f1, 0f3F800000; mov.b32 %r1, %f1;", 0, 0x3f80_0000),
        ("mov.u32 %r1, %ntid.y; add.u32 %r1, %r1, 0b101; add.s32 %r1, %r1, 010U;", 0, 14),
        ("mov.u32 %r1, %r0; { bra L; mov.u32 %r1, 1; L: } bra M; L: mov.u32 %r1, 2; M:", 8, 8),
        ("{ .reg .b32 %r1; mov.u32 %r1, 5; bra L; L: } mov.u32 %r1, %r0; { bra L; L: }", 8, 8),
        ("bfi.b32 %r1, %r0, 0, 8, 8;", u32::MAX, 0xff00),
        ("bfi.b32 %r1, %r0, -1, 4, 8;", 0, 0xffff_f00f),
        ("bfi.b32 %r1, %r0, -1, 0, 32;", 5, 5),
        ("bfi.b32 %r1, %r0, 0x1234, 28, 8;", 0xff, 0xf000_1234),
        ("bfi.b32 %r1, %r0, 0x1234, 200, 8;", 0xff, 0x1234),
        ("bfi.b32 %r1, %r0, 0x1234, 8, 0;", 0xff, 0x1234),
        // An address in a register of 32 bits has 32 bits, so `%r2+8` wraps around.
        (".shared .b32 s; add.u32 %r2, s, -8; st.shared.u32 [%r2+8], 7; ld.shared.u32 %r1, [s];", 0, 7),
        ("mov.b64 %d1, memory; add.s64 %d1, %d1, 4; ld.param.u32 %r1, [%d1+4];", 9, 9),
    ] {
        let instructions = format!("{instruction} cvt.u64.u32 %d1, %r1;");
        assert_eq!(result(&instructions, value), u64::from(expected), "{instruction}");
    }
    for (instructions, expected) in [
        ("mov.b64 %d1, {%r0, 5};", 5 << 32 | 7),
        ("mov.u64 %d1, -1; mul.hi.u64 %d1, %d1, %d1;", u64::MAX - 1),
        ("mov.u64 %d1, -1; mul.hi.s64 %d1, %d1, %d1;", 0),
        ("mov.u64 %d1, 1; clz.b64 %r1, %d1; cvt.u64.u32 %d1, %r1;", 63),
        ("st.global.s8 [%d0], 0x80; ld.global.s8 %d1, [%d0];", 0u64.wrapping_sub(128)),
        ("st.global.s8 [%d0], 0x80; ld.global.u8 %d1, [%d0];", 128),
        ("mov.u64 %d1, 1; @!%p mov.u64 %d1, 2;", 2),
        ("mov.u64 %d1, -1; mov.u64 %d2, 6; bfi.b64 %d1, %d2, %d1, 32, 64;", 0x6_ffff_ffff),
    ] {
        assert_eq!(result(instructions, 7), expected, "{instructions}");
    }
}

#[test]
fn accesses_have_the_size_that_the_opcode_names() {
    let body = "ld.acquire.sys.b32 %r1, [%d0]; st.relaxed.sys.global.u64 [%d0], 1;\n\
                ld.relaxed.gpu.global.L1::no_allocate.u8 %r1, [%d0+3]; st.release.cta.u16 [%d0+-0], 1;\n\
                ld.volatile.global.v2.u32 {%r1, _}, [%d0]; red.release.gpu.global.add.u32 [%d0], 1;\n\
                atom.acq_rel.gpu.global.add.u64 %d1, [%d0], 1; atom.global.sys.cas.b32 %r1, [%d0], 0, 1;\n\
                st.global.v4.f32 [%d0+16], {%f0, %f1, %f0, %f1}; ld.global.nc.u64 %d1, [%d0];";
    assert_eq!(memory_after(body, 1, 1, 0).sizes, [4, 8, 1, 2, 4, 4, 4, 8, 4, 4, 4, 4, 4, 8]);
}

#[test]
fn atomic_accesses_change_memory_and_return_the_old_value() {
    for (operation, operands, old, new) in [
        ("min.s32", "-5", 10, 0xffff_fffb),
        ("exch.b32", "3", 10, 3),
        ("inc.u32", "10", 10, 0),
        ("inc.u32", "11", 10, 11),
        ("dec.u32", "9", 10, 9),
        ("cas.b32", "9, 7", 10, 10),
    ] {
        for (declared, space, at) in [("", ".global", "%d0+8"), ("", "", "%d0+8"), (".shared .u32 s;", ".shared", "s")]
        {
            let body = format!(
                "{declared} st{space}.u32 [{at}], %r0; atom{space}.{operation} %r1, [{at}], {operands};\n\
                 ld{space}.u32 %r2, [{at}]; st.global.v2.u32 [%d0], {{%r1, %r2}};"
            );
            assert_eq!(memory_after(&body, 1, 1, old).words[..2], [old, new], "{body}");
        }
    }
}

#[test]
fn shared_and_local_memory_have_generic_addresses() {
    let body = ".shared .align 8 .b8 block[16]; .local .align 4 .b8 own[8];\n\
                mov.u32 %r1, %tid.x; mov.u64 %d1, own; cvta.local.u64 %d2, %d1;\n\
                st.local.u32 [%d1+4], %r1; setp.ne.u32 %p, %r1, 2; @%p bra rest;\n\
                mov.u32 %r2, block; cvt.u64.u32 %d3, %r2; cvta.shared.u64 %d3, %d3;\n\
                st.u64 [%d3+8], 0x500000007; rest: bar.sync 0;\n\
                ld.u32 %r3, [%d2+4]; ld.shared.u32 %r4, [block+12]; mad.lo.u32 %r3, %r3, 10, %r4;\n\
                mad.wide.u32 %d4, %r1, 4, %d0; st.global.u32 [%d4], %r3;";
    assert_eq!(memory_after(body, 1, 4, 0).words[..4], [5, 15, 25, 35]);
}

#[test]
fn first_values_that_are_no_numbers_make_variables_unusable() {
    for (value, why) in [
        (" = generic(first)", "its first value is not a number"),
        ("[2] = {generic(first), 0}", "its first value is not a number"),
        ("[2] = {{1}, {2}}", "its first value has rows"),
    ] {
        let declared = format!(".global .u32 first = 7; .global .u64 pointer{value}; .visible .entry");
        let text = text("mov.u64 %d1, pointer;").replace(".visible .entry", &declared);
        assert_eq!(kernel(&text, "test").unwrap_err().reason, format!("mov.u64: pointer: {why}"));
    }
}

#[test]
fn memory_for_the_barrier_of_a_grid_is_for_cooperative_launches() {
    for cooperative in [true, false] {
        let launch = launch("mov.u32 %r1, %envreg1; st.global.u32 [%d0], %r1;", 1, 1, 0);
        let launch = Launch { cooperative, ..launch };
        assert_eq!(memory_of(&launch).words[0] != 0, cooperative);
    }
}

#[test]
fn blocks_beyond_the_resident_ones_run_when_others_have_ended() {
    // The three words hold the number of running threads, the maximum of that number, and the number of all threads.
    let body = "atom.global.add.u32 %r1, [%d0], 1; add.u32 %r1, %r1, 1;\n\
                red.global.max.u32 [%d0+4], %r1; red.global.add.u32 [%d0+8], 1; mov.u32 %r2, 99;\n\
                delay: sub.u32 %r2, %r2, 1; setp.ne.u32 %q, %r2, 0; @%q bra delay;\n\
                red.global.add.u32 [%d0], -1;";
    let launch = Launch { resident: 2, ..launch(body, 10, 3, 0) };
    assert_eq!(memory_of(&launch).words[..3], [0, 6, 30]);
}

#[test]
fn a_barrier_does_not_wait_for_threads_that_have_ended() {
    let body = "mov.u32 %r1, %tid.x; setp.ge.u32 %p, %r1, 5; @%p ret;\n\
                bar.sync 0; red.global.add.u32 [%d0], 1;";
    assert_eq!(memory_after(body, 1, 8, 0).words[0], 5);
}

/// Returns the value that the last thread of the last block finds in a special register.
fn special_value(special: &str) -> u32 {
    let body = format!("mov.u32 %r1, {special}; st.global.u32 [%d0], %r1;");
    memory_of(&Launch { grid: [2, 3, 4], block: [5, 6, 7], ..launch(&body, 1, 1, 0) }).words[0]
}

#[test]
fn threads_know_their_place() {
    const LANE: u32 = 17; // The last thread's index in its warp. This thread stores last.
    for (special, value) in [
        ("%warpid", 6),
        ("%laneid", LANE),
        ("WARP_SZ", 32),
        ("%lanemask_eq", 1 << LANE),
        ("%lanemask_lt", (1 << LANE) - 1),
        ("%lanemask_le", (2 << LANE) - 1),
        ("%lanemask_gt", u32::MAX << (LANE + 1)),
        ("%lanemask_ge", u32::MAX << LANE),
    ] {
        assert_eq!(special_value(special), value, "{special}");
    }
    for (special, values) in [("%tid", [4, 5, 6]), ("%ntid", [5, 6, 7]), ("%ctaid", [1, 2, 3]), ("%nctaid", [2, 3, 4])]
    {
        assert_eq!(["x", "y", "z"].map(|axis| special_value(&format!("{special}.{axis}"))), values, "{special}");
    }
}

#[test]
fn shared_memory_is_that_of_the_variables_in_use() {
    let declared =
        ".extern .shared .align 4 .b8 added[]; .shared .align 4 .b8 used[40]; .shared .b8 other[5000]; .visible";
    let body =
        "st.shared.u32 [added], 7; st.shared.u32 [used], 5; ld.shared.u32 %r1, [added]; st.global.u32 [%d0], %r1;";
    let kernel = kernel(&text(body).replace(".visible", declared), "test").unwrap();
    assert_eq!(kernel.shared, 40);
    // The shared memory that the launch adds comes after the GPU kernel's own shared variables.
    assert_eq!(memory_of(&Launch { kernel, shared: 4, ..launch("", 1, 1, 0) }).words[0], 7);
}

/// Runs a body only in the last thread of the last block, where it must trap.
fn stopped(body: &str) -> Stopped {
    let body = format!(
        "mov.u32 %r1, %ctaid.x; mov.u32 %r2, %tid.x; mad.lo.u32 %r1, %r1, 4, %r2;\n\
         setp.ne.u32 %p, %r1, 11; @%p ret;\n{body}"
    );
    run(&launch(&body, 3, 4, 0), &mut Words::new()).unwrap_err()
}

#[test]
fn an_illegal_access_ends_the_launch_and_is_located() {
    for (access, trap) in [
        ("mov.u32 %r1, 1;\nst.volatile.global.u32 [%d0+4096], 1;", Trap::IllegalAddress(BASE + 4096)),
        (".shared .u32 s;\nst.shared.u32 [s+4], 1;", Trap::IllegalAddress(4)),
        ("ld.volatile.global.u32 %r1, [%d0+2];", Trap::MisalignedAddress(BASE + 2)),
        ("ld.global.v2.u32 {%r1, %r2}, [%d0+4];", Trap::MisalignedAddress(BASE + 4)),
        ("trap;", Trap::Explicit),
        ("st.volatile.global.u32 [%d0+2], 1;", Trap::MisalignedAddress(BASE + 2)),
        ("red.global.add.u32 [%d0+1], 1;", Trap::MisalignedAddress(BASE + 1)),
        ("ld.volatile.global.u32 %r1, [%d1];", Trap::IllegalAddress(0)),
        ("red.global.add.u32 [%d1+8], 1;", Trap::IllegalAddress(8)),
    ] {
        let line = 11 + access.matches('\n').count() as u32;
        assert_eq!(stopped(access), Stopped { trap, line, thread: 3, block: 2 }, "{access}");
    }
}

#[test]
fn a_warp_barrier_waits_for_the_lanes_in_its_mask() {
    // Lane 0 waits for lanes 1 and 2. The mask also has lane 3, which has ended like all other threads.
    let body = "mov.u32 %r1, %tid.x; setp.gt.u32 %p, %r1, 2; @%p ret; setp.eq.u32 %p, %r1, 0;\n\
                @%p bra wait; mov.u32 %r2, 200; delay: sub.u32 %r2, %r2, 1;\n\
                setp.ne.u32 %q, %r2, 0; @%q bra delay; red.global.add.u32 [%d0], 1;\n\
                wait: bar.warp.sync 0xf; @!%p ret; ld.global.u32 %r3, [%d0]; st.global.u32 [%d0+4], %r3;";
    assert_eq!(memory_after(body, 1, 40, 0).words[1], 2);
}

#[test]
fn unsupported_instructions_are_refused_by_name_and_line() {
    for (body, reason) in [
        ("add.f32 %f1, %f0, %f0;", "add.f32 is not supported"),
        ("shfl.sync.idx.b32 %r1, %r0, 0, 31, -1;", "shfl.sync.idx.b32 is not supported"),
        ("cvt.rn.f32.u32 %f1, %r0;", "cvt.rn.f32.u32 is not supported"),
        ("{ .param .b64 param0; call.uni (r), vprintf, (param0); }", "call of vprintf is not supported"),
        ("setp.eq.u32 %p|%q, %r0, 1;", "setp.eq.u32: ',' is missing before '|'"),
        ("add.u32 %r9, %r0, 1;", "add.u32: %r9 is not a register"),
        ("add.u64 %d1, %d0, %r0;", "add.u64: %r0 has another size"),
        ("mov.u32 %r1, %p;", "mov.u32: %p has another size"),
        ("add.u32 %r1, %r0;", "add.u32: ',' is missing before ';'"),
        ("mov.b64 %d1, {%r0, %r0, %r0};", "this number of elements is not supported"),
        ("ld.global.v2.u32 %r1, [%d0];", "ld.global.v2.u32 has 2 elements"),
        ("ld.global.u32 %r1, [memory];", "ld.global.u32: memory is in another space"),
        ("cvta.param.u64 %d1, %d0;", "cvta.param.u64 is not supported"),
        ("add.u32 %r1, %r0, 4+4;", "add.u32: ';' is missing before '+'"),
        ("mov.u64 %d1, %globaltimer;", "mov.u64: %globaltimer is not a value"),
        ("bar.sync 0, 64;", "bar.sync: ';' is missing before ','"),
        (".loc 1 2 3 add.u32 %r1, %r0, 1;", "more than one directive in a line is not supported"),
        (".reg .b32 %x1<5>;", ".reg %x1< is not supported"),
        ("bar.sync 1;", "bar.sync: '0' is missing before '1'"),
        ("bra nowhere;", "there is no label nowhere"),
        ("here: ret; here: ret;", "here is declared already"),
    ] {
        let error = kernel(&text(body), "test").unwrap_err().to_string();
        assert!(error.starts_with("PTX line 9: "), "{error}");
        assert!(error.contains(reason), "{error}");
    }
}

#[test]
fn text_that_is_not_ptx_is_rejected() {
    for text in ["", "int main() {}", ".version", ".version 7.0 .address_size 32", ".version 7.0 .global .u32"] {
        assert!(parse(text).is_err(), "{text}");
    }
    assert!(parse(".version 7.0 .visible .entry e() {").is_err());
}

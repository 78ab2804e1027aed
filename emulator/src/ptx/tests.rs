//! Kernels over memory that is a few bytes at address [`BASE`].

use std::sync::atomic::{AtomicBool, Ordering};

use super::types::Width;
use super::{Fault, GlobalMemory, Launch, Stopped, Trap, parse, run};

const BASE: u64 = 0x7000_0000;

/// Global memory, and how strongly ordered each access was.
struct Bytes {
    bytes: Vec<u8>,
    orders: Vec<Ordering>,
}

impl Bytes {
    fn place(&self, address: u64, width: Width) -> Result<std::ops::Range<usize>, Fault> {
        let start = address.checked_sub(BASE).ok_or(Fault)? as usize;
        let end = start + width.bytes() as usize;
        (end <= self.bytes.len()).then_some(start..end).ok_or(Fault)
    }

    fn word(&self, index: usize) -> u32 {
        let bytes = &self.bytes[4 * index..4 * index + 4];
        u32::from_le_bytes(bytes.try_into().unwrap())
    }

    fn long(&self, index: usize) -> u64 {
        let bytes = &self.bytes[8 * index..8 * index + 8];
        u64::from_le_bytes(bytes.try_into().unwrap())
    }
}

impl GlobalMemory for Bytes {
    fn load(&mut self, address: u64, width: Width, order: Ordering) -> Result<u64, Fault> {
        let place = self.place(address, width)?;
        self.orders.push(order);
        let mut value = [0; 8];
        value[..place.len()].copy_from_slice(&self.bytes[place.clone()]);
        Ok(u64::from_le_bytes(value))
    }

    fn store(
        &mut self,
        address: u64,
        width: Width,
        value: u64,
        order: Ordering,
    ) -> Result<(), Fault> {
        let place = self.place(address, width)?;
        self.orders.push(order);
        let len = place.len();
        self.bytes[place].copy_from_slice(&value.to_le_bytes()[..len]);
        Ok(())
    }

    fn update(
        &mut self,
        address: u64,
        width: Width,
        order: Ordering,
        change: &mut dyn FnMut(u64) -> u64,
    ) -> Result<u64, Fault> {
        let old = self.load(address, width, order)?;
        self.store(address, width, change(old), order)?;
        Ok(old)
    }
}

/// A kernel of this body with the parameter `memory`, an address, and `value`.
fn text(body: &str) -> String {
    format!(
        ".version 7.0\n.target sm_70\n.address_size 64\n\
         .visible .entry test(.param .u64 memory, .param .u32 value) {{\n\
         .reg .pred %p<4>; .reg .b16 %h<8>; .reg .b32 %r<16>; .reg .b64 %d<16>;\n\
         ld.param.u64 %d0, [memory]; ld.param.u32 %r0, [value];\n{body}\n}}\n"
    )
}

fn launch(text: &str, grid: [u32; 3], block: [u32; 3], value: u32) -> Launch {
    let module = parse(text).unwrap_or_else(|refused| panic!("{refused}"));
    let mut parameters = BASE.to_le_bytes().to_vec();
    parameters.extend(value.to_le_bytes());
    Launch {
        kernel: module.kernel("test").unwrap().clone(),
        grid,
        block,
        parameters,
        dynamic_shared: 64,
        resident_threads: 64,
    }
}

fn memory() -> Bytes {
    Bytes {
        bytes: vec![0; 4096],
        orders: Vec::new(),
    }
}

/// What a grid of threads leaves in memory.
fn ran_by(body: &str, grid: [u32; 3], block: [u32; 3], value: u32) -> Bytes {
    let mut memory = memory();
    let launch = launch(&text(body), grid, block, value);
    run(&launch, &mut memory, &AtomicBool::new(false)).unwrap();
    memory
}

/// What one thread leaves in memory.
fn ran(body: &str, value: u32) -> Bytes {
    ran_by(body, [1; 3], [1; 3], value)
}

fn stopped(body: &str) -> Stopped {
    let launch = launch(&text(body), [1; 3], [1; 3], 0);
    run(&launch, &mut memory(), &AtomicBool::new(false)).unwrap_err()
}

/// The first 64-bit word after `code` has put a result into %d1; %r0 is `value`.
fn result(code: &str, value: u32) -> u64 {
    ran(&format!("{code} st.global.u64 [%d0], %d1;"), value).long(0)
}

#[test]
fn integers_have_the_width_and_sign_of_their_type() {
    assert_eq!(
        result("add.u32 %r1, %r0, 2; cvt.u64.u32 %d1, %r1;", u32::MAX),
        1
    );
    assert_eq!(result("cvt.s64.s32 %d1, %r0;", -5i32 as u32) as i64, -5);
    assert_eq!(result("cvt.u64.u32 %d1, %r0;", -5i32 as u32), 0xffff_fffb);
    assert_eq!(result("cvt.s64.s8 %d1, %r0;", 0x1ff) as i64, -1);
    assert_eq!(result("mul.wide.s32 %d1, %r0, -3;", 7) as i64, -21);
    assert_eq!(
        result("mul.wide.u32 %d1, %r0, %r0;", u32::MAX),
        0xffff_fffe_0000_0001
    );
    assert_eq!(
        result("mul.hi.u32 %r1, %r0, %r0; cvt.u64.u32 %d1, %r1;", u32::MAX),
        0xffff_fffe
    );
    assert_eq!(
        result("mov.u64 %d2, -1; mul.hi.u64 %d1, %d2, %d2;", 0),
        u64::MAX - 1
    );
    assert_eq!(
        result("mov.u64 %d2, -1; mul.hi.s64 %d1, %d2, 4;", 0),
        u64::MAX
    );
    assert_eq!(
        result("mad.wide.u32 %d1, %r0, 4, 100;", u32::MAX),
        0x4_0000_0060
    );
    assert_eq!(
        result("mad.lo.s32 %r1, %r0, 2, 1; cvt.s64.s32 %d1, %r1;", 1 << 31),
        1
    );
    assert_eq!(
        result("div.s32 %r1, %r0, 2; cvt.s64.s32 %d1, %r1;", -7i32 as u32) as i64,
        -3
    );
    assert_eq!(
        result("rem.u32 %r1, %r0, 10; cvt.u64.u32 %d1, %r1;", 1234),
        4
    );
    assert_eq!(result("div.u64 %d1, 5, 0;", 0), u64::MAX);
    assert_eq!(
        result("min.s32 %r1, %r0, 0; cvt.s64.s32 %d1, %r1;", -7i32 as u32) as i64,
        -7
    );
    assert_eq!(result("max.u32 %r1, %r0, 1; cvt.u64.u32 %d1, %r1;", 0), 1);
    assert_eq!(
        result("neg.s32 %r1, %r0; cvt.s64.s32 %d1, %r1;", 3) as i64,
        -3
    );
    assert_eq!(
        result("not.b32 %r1, %r0; cvt.u64.u32 %d1, %r1;", 0xff),
        0xffff_ff00
    );
}

#[test]
fn shifts_by_more_than_there_are_bits_leave_none() {
    assert_eq!(
        result("shl.b32 %r1, %r0, 31; cvt.u64.u32 %d1, %r1;", 3),
        1 << 31
    );
    assert_eq!(result("shl.b32 %r1, %r0, 32; cvt.u64.u32 %d1, %r1;", 3), 0);
    assert_eq!(
        result("mov.u64 %d2, -8; shr.s64 %d1, %d2, 1;", 0) as i64,
        -4
    );
    assert_eq!(
        result("mov.u64 %d2, -8; shr.s64 %d1, %d2, 99;", 0) as i64,
        -1
    );
    assert_eq!(result("mov.u64 %d2, -8; shr.u64 %d1, %d2, 64;", 0), 0);
    assert_eq!(result("mov.u64 %d2, -8; shl.b64 %d1, %d2, 64;", 0), 0);
}

#[test]
fn comparisons_know_signs() {
    let compare = |how, value| {
        result(
            &format!(
                "setp.{how} %p0|%p1, %r0, 1; selp.u64 %d1, 1, 0, %p0; @%p1 add.u64 %d1, %d1, 2;"
            ),
            value,
        )
    };
    let minus_one = u32::MAX;
    assert_eq!(compare("lt.s32", minus_one), 1);
    assert_eq!(compare("lt.u32", minus_one), 2);
    assert_eq!(compare("lo.s32", minus_one), 2);
    assert_eq!(compare("ge.u32", 1), 1);
    assert_eq!(compare("ne.b32", 1), 2);
    assert_eq!(compare("eq.s32", 1), 1);
    assert_eq!(compare("hi.u32", 1), 2);
    assert_eq!(compare("le.u32", 1), 1);
}

#[test]
fn loops_run_as_often_as_they_say() {
    let body = "mov.u64 %d1, 0;\nagain:\nadd.u64 %d1, %d1, 3;\nsub.u32 %r0, %r0, 1;\n\
                setp.ne.u32 %p0, %r0, 0;\n@%p0 bra.uni again;";
    assert_eq!(result(body, 1000), 3000);
}

#[test]
fn accesses_have_their_width() {
    let body = "st.global.u64 [%d0], -1; st.u8 [%d0+1], %r0; st.global.v2.u32 [%d0+8], {%r0, 7};\n\
                ld.global.s8 %r1, [%d0+1]; st.global.u32 [%d0+16], %r1;\n\
                ld.volatile.global.v2.u32 {%r2, _}, [%d0+8]; st.global.u32 [%d0+20], %r2;\n\
                ld.u16 %h0, [%d0]; cvt.u32.u16 %r3, %h0; st.u32 [%d0+24], %r3;";
    let memory = ran(body, 0x1f0);
    assert_eq!(memory.long(0), 0xffff_ffff_ffff_f0ff);
    assert_eq!((memory.word(2), memory.word(3)), (0x1f0, 7));
    assert_eq!(memory.word(4), 0xffff_fff0);
    assert_eq!(memory.word(5), 0x1f0);
    assert_eq!(memory.word(6), 0xf0ff);
}

#[test]
fn strong_accesses_are_ordered() {
    use Ordering::*;
    let body = "ld.acquire.sys.global.u32 %r1, [%d0]; st.release.sys.u32 [%d0], %r1;\n\
                ld.relaxed.gpu.global.u32 %r1, [%d0]; st.volatile.u32 [%d0], %r1;\n\
                atom.acq_rel.sys.global.exch.b32 %r1, [%d0], 1;";
    let orders = ran(body, 0).orders;
    assert_eq!(orders, [Acquire, Release, Relaxed, Relaxed, AcqRel, AcqRel]);
}

#[test]
fn atomics_return_the_old_value() {
    let body = "atom.global.add.u32 %r1, [%d0], %r0; red.add.u32 [%d0], 5;\n\
                atom.exch.b32 %r2, [%d0], 100; atom.cas.b32 %r3, [%d0], 100, 200;\n\
                atom.cas.b32 %r4, [%d0], 100, 300; atom.max.s32 %r5, [%d0], -1;\n\
                st.v4.u32 [%d0+16], {%r1, %r2, %r3, %r4}; st.u32 [%d0+32], %r5;";
    let memory = ran(body, 10);
    let words: Vec<_> = (0..9).map(|index| memory.word(index)).collect();
    assert_eq!(words, [200, 0, 0, 0, 0, 15, 100, 200, 200]);
}

#[test]
fn every_thread_of_every_block_runs_once() {
    let body = "mov.u32 %r1, %ctaid.y; mov.u32 %r2, %nctaid.x; mov.u32 %r3, %ctaid.x;\n\
                mad.lo.u32 %r1, %r1, %r2, %r3; mov.u32 %r2, %ntid.x; mov.u32 %r3, %ntid.y;\n\
                mul.lo.u32 %r4, %r2, %r3; mul.lo.u32 %r1, %r1, %r4; mov.u32 %r4, %tid.y;\n\
                mad.lo.u32 %r1, %r4, %r2, %r1; mov.u32 %r4, %tid.x; add.u32 %r1, %r1, %r4;\n\
                mul.wide.u32 %d1, %r1, 4; add.u64 %d1, %d1, %d0; red.add.u32 [%d1], %r1;";
    // 96 blocks of 10 threads, of which 6 run side by side.
    let memory = ran_by(body, [12, 8, 1], [5, 2, 1], 0);
    assert!((0..960).all(|index| memory.word(index) == index as u32));
    assert_eq!(memory.word(960), 0);
}

#[test]
fn blocks_run_side_by_side_as_far_as_there_is_room() {
    let body = "atom.add.u32 %r1, [%d0], 1; add.u32 %r1, %r1, 1; red.max.u32 [%d0+4], %r1;\n\
                again: sub.u32 %r0, %r0, 1; setp.ne.u32 %p0, %r0, 0; @%p0 bra again;\n\
                red.add.u32 [%d0], -1; red.add.u32 [%d0+8], 1;";
    // Blocks of 20 threads in room for 64.
    let memory = ran_by(body, [50, 1, 1], [20, 1, 1], 100);
    let words: Vec<_> = (0..3).map(|index| memory.word(index)).collect();
    assert_eq!(words, [0, 60, 1000]);
}

#[test]
fn a_thread_that_waits_for_another_does_not_keep_it_from_running() {
    let body = "mov.u32 %r1, %tid.x; setp.eq.u32 %p0, %r1, 3; @%p0 bra raise;\n\
                wait: ld.volatile.global.u32 %r2, [%d0]; setp.eq.u32 %p1, %r2, 0; @%p1 bra wait;\n\
                red.add.u32 [%d0+4], 1; ret;\n\
                raise: st.release.sys.global.u32 [%d0], 1;";
    assert_eq!(ran_by(body, [1; 3], [4, 1, 1], 0).word(1), 3);
}

#[test]
fn barriers_hold_all_threads_until_the_last_has_come() {
    // Each thread writes its own slot and reads its neighbor's, in shared memory.
    let body = ".shared .align 4 .u32 slots[8]; mov.u32 %r1, %tid.x; mov.u32 %r2, slots;\n\
                mad.lo.u32 %r3, %r1, 4, %r2; add.u32 %r4, %r1, 100; st.shared.u32 [%r3], %r4;\n\
                bar.sync 0; add.u32 %r5, %r1, 1; and.b32 %r5, %r5, 7;\n\
                mad.lo.u32 %r6, %r5, 4, %r2; ld.shared.u32 %r7, [%r6];\n\
                mul.wide.u32 %d1, %r1, 4; add.u64 %d1, %d1, %d0; st.global.u32 [%d1], %r7;";
    let memory = ran_by(body, [1; 3], [8, 1, 1], 0);
    assert!((0..8).all(|index| memory.word(index) == 100 + (index as u32 + 1) % 8));
}

#[test]
fn threads_that_have_ended_are_not_waited_for() {
    let body = "mov.u32 %r1, %tid.x; setp.ge.u32 %p0, %r1, 5; @%p0 ret;\n\
                barrier.sync 1; red.add.u32 [%d0], 1;";
    assert_eq!(ran_by(body, [1; 3], [8, 1, 1], 0).word(0), 5);
}

#[test]
fn arriving_is_not_waiting() {
    let body = "mov.u32 %r1, %tid.x; setp.eq.u32 %p0, %r1, 0; @%p0 bra wait;\n\
                red.add.u32 [%d0], 1; bar.arrive 2, 4; ret;\n\
                wait: bar.sync 2, 4; ld.global.u32 %r2, [%d0]; st.global.u32 [%d0+4], %r2;";
    assert_eq!(ran_by(body, [1; 3], [4, 1, 1], 0).word(1), 3);
}

#[test]
fn shared_memory_has_generic_addresses_and_a_part_of_the_launch() {
    let text = format!(
        ".extern .shared .align 16 .b8 more[];\n{}",
        text(
            ".shared .u64 own; mov.u64 %d1, own; cvta.shared.u64 %d1, %d1; st.u64 [%d1], 5;\n\
             ld.shared.u64 %d2, [own]; mov.u64 %d3, more; st.shared.u64 [%d3+56], 6;\n\
             cvta.shared.u64 %d4, %d3; ld.u64 %d5, [%d4+56]; cvta.to.shared.u64 %d6, %d4;\n\
             add.u64 %d2, %d2, %d5; cvta.to.global.u64 %d0, %d0; st.global.u64 [%d0], %d2;\n\
             sub.u64 %d6, %d6, %d3; st.global.u64 [%d0+8], %d6; st.global.u64 [%d0+16], %d3;"
        )
        .replace(".version 7.0\n.target sm_70\n.address_size 64\n", "")
    );
    let mut memory = memory();
    let launch = launch(&text, [1; 3], [1; 3], 0);
    run(&launch, &mut memory, &AtomicBool::new(false)).unwrap();
    assert_eq!(
        (memory.long(0), memory.long(1), memory.long(2)),
        (11, 0, 16)
    );
}

#[test]
fn what_cannot_be_accessed_ends_the_launch() {
    let stopped_by = stopped("mov.u64 %d1, 16;\nst.global.u32 [%d1], 1;");
    assert_eq!(
        (stopped_by.trap, stopped_by.line),
        (Trap::IllegalAddress(16), 8)
    );
    let trap = |body| stopped(body).trap;
    assert_eq!(
        trap("ld.u32 %r1, [%d0+2];"),
        Trap::MisalignedAddress(BASE + 2)
    );
    assert_eq!(
        trap("ld.v2.u32 {%r1, %r2}, [%d0+4];"),
        Trap::MisalignedAddress(BASE + 4)
    );
    assert_eq!(
        trap("ld.u32 %r1, [%d0+4096];"),
        Trap::IllegalAddress(BASE + 4096)
    );
    assert_eq!(trap("ld.shared.u32 %r1, [64];"), Trap::IllegalAddress(64));
    assert_eq!(trap("trap;"), Trap::Instruction);
}

#[test]
fn a_launch_ends_when_it_is_told_to() {
    let launch = launch(&text("forever: bra forever;"), [1; 3], [2, 1, 1], 0);
    assert_eq!(run(&launch, &mut memory(), &AtomicBool::new(true)), Ok(()));
}

#[test]
fn what_compilers_write_around_the_code_is_skipped() {
    let text = "// made by a compiler\n.version 8.4\n.target sm_90, debug\n.address_size 64\n\
        /* a comment\n of two lines */ .file 1 \"kernel.cu\"\n\
        .visible .entry test(.param .u64 .ptr .global .align 4 memory,\n .param .u32 value)\n\
        .maxntid 128, 2, 1\n.minnctapersm 2\n{\n.pragma \"nounroll\";\n.reg .b64 %rd<3>;\n\
        .loc 1 7 3\nld.param.u64 %rd1, [memory];\n{ .reg .b64 %rd1; mov.u64 %rd1, 5; }\n\
        $L__BB0_1: st.global.u32 [%rd1], 0x1F;\nret;\n}\n\
        .section .debug_str { info_string0: .b8 97,0 }\n";
    let module = parse(text).unwrap_or_else(|refused| panic!("{refused}"));
    let kernel = module.kernel("test").unwrap();
    assert_eq!(kernel.max_threads(), Some(256));
    let mut memory = memory();
    let launch = launch(text, [1; 3], [1; 3], 0);
    run(&launch, &mut memory, &AtomicBool::new(false)).unwrap();
    assert_eq!(memory.word(0), 31);
}

#[test]
fn parameters_are_aligned_as_in_c() {
    let text = ".version 7.0 .entry test(.param .u8 a, .param .u64 b, .param .align 4 .b8 c[6], \
                .param .u16 d) { ret; }";
    let module = parse(text.replacen(" .entry", "\n.entry", 1).as_str()).unwrap();
    let kernel = module.kernel("test").unwrap();
    let places: Vec<_> = kernel
        .parameters()
        .iter()
        .map(|p| (p.offset, p.len))
        .collect();
    assert_eq!(places, [(0, 1), (8, 8), (16, 6), (22, 2)]);
    assert_eq!(kernel.parameter_bytes(), 24);
}

#[test]
fn what_is_not_understood_is_named() {
    let refusal = |body: &str| parse(&text(body)).unwrap_err().to_string();
    for (body, why) in [
        (
            "shfl.sync.idx.b32 %r1, %r0, 0, 31, -1;",
            "shfl.sync.idx.b32 is not among",
        ),
        ("add.rn.f32 %r1, %r0, %r0;", "add.rn.f32 is not among"),
        ("ld.const.u32 %r1, [%d0];", "ld.const.u32 is not among"),
        ("st.u32 [%d0], %r99;", "there is no register %r99 here"),
        ("st.u32 [%d0], nobody;", "nothing is called nobody here"),
        ("bra nowhere;", "there is no label nowhere"),
        ("ld.v2.u32 {%r1}, [%d0];", "as many registers as it loads"),
        ("add.u32 %r1, %r0;", "an operand is missing"),
        ("add.u32 %r1, %r0, 1, 2;", "too many operands"),
        ("here: ret; here: ret;", "label here is there already"),
        (".local .b8 stack[16];", ".local is not among"),
        ("st.u32 [%d0], ?;", "this is no operand"),
    ] {
        let said = refusal(body);
        assert!(said.starts_with("line 7: "), "{said}");
        assert!(said.contains(why), "{said}");
    }
    assert!(parse("/* no end").is_err());
    assert!(parse(".address_size 32").is_err());
    assert!(parse(".func f() { ret; }").is_err());
    assert!(parse(".entry test() {").is_err());
}

//! GPU kernels over memory that is a few words at address [`BASE`].

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::opcodes::OPCODES;
use super::{Fault, GlobalMemory, Launch, Stopped, Trap, Width, parse, run};

const BASE: u64 = 0x7000_0000;

/// Global memory, and how strongly ordered each access was.
struct Words {
    words: Vec<u32>,
    orders: Vec<Ordering>,
}

impl Words {
    fn new() -> Self {
        Words {
            words: vec![0; 1024],
            orders: Vec::new(),
        }
    }

    fn word(&mut self, address: u64) -> Result<&mut u32, Fault> {
        let offset = address.checked_sub(BASE).ok_or(Fault)?;
        self.words.get_mut(offset as usize / 4).ok_or(Fault)
    }
}

impl GlobalMemory for Words {
    fn load(&mut self, address: u64, order: Ordering) -> Result<u32, Fault> {
        self.orders.push(order);
        self.word(address).copied()
    }

    fn store(&mut self, address: u64, value: u32, order: Ordering) -> Result<(), Fault> {
        self.orders.push(order);
        *self.word(address)? = value;
        Ok(())
    }

    fn add(&mut self, address: u64, value: u32, order: Ordering) -> Result<u32, Fault> {
        self.orders.push(order);
        let word = self.word(address)?;
        let old = *word;
        *word = old.wrapping_add(value);
        Ok(old)
    }
}

/// The text of a GPU kernel that has `memory` in %d0, `value` in %r0, and `body` from line 9 on.
fn text(body: &str) -> String {
    format!(
        ".version 7.0\n.target sm_70\n.address_size 64\n\
         .visible .entry test(.param .u64 memory, .param .u32 value)\n{{\n\
         .reg .pred %p, %q; .reg .u32 %r0, %r1, %r2, %r3, %r4; .reg .u64 %d0, %d1;\n\
         ld.param.u64 %d0, [memory];\nld.param.u32 %r0, [value];\n{body}\n}}\n"
    )
}

fn launch(body: &str, grid: u32, block: u32, value: u32) -> Launch {
    let kernel = parse(&text(body)).unwrap_or_else(|error| panic!("{error}"));
    Launch {
        kernel: Arc::new(kernel.into_iter().next().unwrap()),
        grid,
        block,
        parameters: vec![BASE, value.into()],
    }
}

/// Runs a body and returns what it leaves in memory.
fn memory_after(body: &str, grid: u32, block: u32, value: u32) -> Words {
    let mut memory = Words::new();
    let launch = launch(body, grid, block, value);
    run(&launch, &mut memory, &AtomicBool::new(false)).unwrap();
    memory
}

/// Runs a body in one thread and returns the first words of memory.
fn words_after<const N: usize>(body: &str, value: u32) -> [u32; N] {
    memory_after(body, 1, 1, value).words[..N]
        .try_into()
        .unwrap()
}

/// Runs an instruction that computes %r1, and returns that.
fn result(instruction: &str, value: u32) -> u32 {
    let body = format!("{instruction} st.volatile.global.u32 [%d0], %r1;");
    let [word] = words_after(&body, value);
    word
}

#[test]
fn opcodes_are_those_that_our_kernels_use() {
    let kernels = [
        include_str!("../../../../tools/src/commands/pplat/kernel.ptx"),
        include_str!("../../../../c_tests/freshness.c"),
    ];
    let used: Vec<_> = kernels
        .iter()
        .flat_map(|text| text.split(|c: char| c.is_whitespace() || c == ';' || c == '"'))
        .collect();
    for (opcode, _) in OPCODES {
        assert!(used.contains(opcode), "no GPU kernel uses {opcode}");
    }
    let ping_pong = &parse(kernels[0]).unwrap()[0];
    assert_eq!(ping_pong.name(), "ping_pong");
    let (five, four) = ([Width::U64; 5], [Width::U32; 4]);
    assert_eq!(ping_pong.parameters(), [&five[..], &four].concat());
}

#[test]
fn arithmetic_wraps_at_32_bits() {
    assert_eq!(result("add.u32 %r1, %r0, 3;", u32::MAX), 2);
    assert_eq!(result("sub.u32 %r1, %r0, 3;", 2), u32::MAX);
    assert_eq!(
        result("mul.lo.u32 %r1, %r0, 0x10001;", 0xffff_0000),
        0xffff_0000
    );
    assert_eq!(result("mad.lo.u32 %r1, %r0, 2, 5;", 0x8000_0001), 7);
    assert_eq!(result("and.b32 %r1, %r0, 0xff;", 0x1234), 0x34);
    assert_eq!(result("xor.b32 %r1, %r0, 0xff;", 0x12ff), 0x1200);
    // What wraps leaves nothing in the upper half of the register, which 64-bit instructions read.
    let far = "sub.u32 %r1, %r0, 1; add.u32 %r1, %r1, 2; add.u64 %d1, %d0, %r1;\n\
               st.volatile.global.u32 [%d1+3], 7;";
    assert_eq!(words_after(far, 0), [0, 7]);
}

#[test]
fn wide_products_have_64_bits() {
    // 0x8000_0000 * 2 is 1 << 32, which the sum of the addresses must contain.
    let body = "mul.wide.u32 %d1, %r0, 2; add.u64 %d1, %d1, %d0; st.volatile.global.u32 [%d1], 1;";
    let trap = stopped(body, 0x8000_0000).trap;
    assert_eq!(trap, Trap::IllegalAddress(BASE + (1 << 32)));
    let body = "mad.wide.u32 %d1, %r0, 2, %d0; st.volatile.global.u32 [%d1], 1;";
    let trap = stopped(body, 0x8000_0000).trap;
    assert_eq!(trap, Trap::IllegalAddress(BASE + (1 << 32)));
    assert_eq!(words_after(body, 2), [0, 1]);
}

#[test]
fn comparisons_set_the_predicate_of_guards() {
    for (comparison, below, same, above) in [
        ("eq", 0, 1, 0),
        ("ne", 1, 0, 1),
        ("lt", 1, 0, 0),
        ("le", 1, 1, 0),
        ("ge", 0, 1, 1),
    ] {
        let body = format!(
            "setp.{comparison}.u32 %p, %r0, 0x80000000; mov.u32 %r1, 2;\n\
             @%p mov.u32 %r1, 1; @!%p mov.u32 %r1, 0;"
        );
        assert_eq!(result(&body, 0x7fff_ffff), below, "{comparison}");
        assert_eq!(result(&body, 0x8000_0000), same, "{comparison}");
        assert_eq!(result(&body, 0x8000_0001), above, "{comparison}");
    }
}

#[test]
fn a_loop_runs_until_its_branch_is_not_taken() {
    let body = "mov.u32 %r1, 0;\nagain:\nadd.u32 %r1, %r1, 3; sub.u32 %r0, %r0, 1;\n\
                setp.ne.u32 %p, %r0, 0; @%p bra again;";
    assert_eq!(result(body, 1000), 3000);
}

#[test]
fn accesses_have_the_order_that_the_opcode_names() {
    use Ordering::*;
    let body = "ld.acquire.sys.global.u32 %r1, [%d0]; st.relaxed.sys.global.u32 [%d0], 1;\n\
                ld.relaxed.sys.global.u32 %r1, [%d0]; st.volatile.global.u32 [%d0], 1;\n\
                ld.volatile.global.u32 %r1, [%d0]; red.global.add.u32 [%d0], 1;\n\
                atom.acq_rel.gpu.global.add.u32 %r1, [%d0], 1;";
    let orders = memory_after(body, 1, 1, 0).orders;
    let expected = [Acquire, Relaxed, Relaxed, Relaxed, Relaxed, Relaxed, AcqRel];
    assert_eq!(orders, expected);
}

#[test]
fn atom_and_red_add_and_atom_returns_the_old_value() {
    let body = "red.global.add.u32 [%d0], %r0; atom.acq_rel.gpu.global.add.u32 %r1, [%d0], 5;\n\
                st.volatile.global.u32 [%d0+4], %r1;";
    assert_eq!(words_after(body, 10), [15, 10]);
}

#[test]
fn every_thread_of_every_block_runs_once() {
    let body = "mov.u32 %r1, %ctaid.x; mov.u32 %r2, %ntid.x; mov.u32 %r3, %tid.x;\n\
                mad.lo.u32 %r3, %r1, %r2, %r3; mad.wide.u32 %d1, %r3, 4, %d0;\n\
                mov.u32 %r4, %nctaid.x; mad.lo.u32 %r4, %r4, 1000, %r3;\n\
                red.global.add.u32 [%d1], %r4;";
    let words = memory_after(body, 90, 10, 0).words;
    assert!((0..900).all(|index| words[index] == 90_000 + index as u32));
    assert!(words[900..].iter().all(|word| *word == 0));
}

#[test]
fn a_thread_that_waits_for_another_block_lets_it_run() {
    let body = "mov.u32 %r1, %ctaid.x; setp.eq.u32 %p, %r1, 2; @%p bra raise;\n\
                wait: ld.volatile.global.u32 %r2, [%d0]; setp.eq.u32 %q, %r2, 0; @%q bra wait;\n\
                red.global.add.u32 [%d0+4], 1; ret;\n\
                raise: st.volatile.global.u32 [%d0], 1;";
    assert_eq!(memory_after(body, 3, 4, 0).words[1], 8);
}

#[test]
fn a_barrier_holds_all_threads_of_a_block_until_the_last_arrives() {
    // Later threads take longer to arrive. Each counts itself first, then looks at the count.
    let body = "mov.u32 %r1, %tid.x; mul.lo.u32 %r2, %r1, 100;\n\
                delay: setp.eq.u32 %p, %r2, 0; @%p bra arrive; sub.u32 %r2, %r2, 1; bra delay;\n\
                arrive: red.global.add.u32 [%d0], 1; fence.acq_rel.sys; bar.sync 0;\n\
                ld.volatile.global.u32 %r3, [%d0]; red.global.add.u32 [%d0+4], %r3;";
    assert_eq!(memory_after(body, 1, 8, 0).words[..2], [8, 64]);
}

#[test]
fn a_barrier_does_not_wait_for_threads_that_have_ended() {
    let body = "mov.u32 %r1, %tid.x; setp.ge.u32 %p, %r1, 5; @%p ret;\n\
                bar.sync 0; red.global.add.u32 [%d0], 1;";
    assert_eq!(memory_after(body, 1, 8, 0).words[0], 5);
}

#[test]
fn shared_variables_are_shared_by_a_block_only() {
    let body = ".shared .u32 unused; .shared .u32 block;\n\
                mov.u32 %r1, %ctaid.x; mov.u32 %r2, %tid.x; setp.ne.u32 %p, %r2, 0;\n\
                @!%p st.shared.u32 [unused], 99; @!%p st.shared.u32 [block], %r1; bar.sync 0;\n\
                ld.shared.u32 %r3, [block]; mad.wide.u32 %d1, %r1, 4, %d0;\n\
                @%p red.global.add.u32 [%d1], %r3;";
    assert_eq!(memory_after(body, 3, 6, 0).words[..3], [0, 5, 10]);
}

/// Runs a body that cannot end well, in the last thread of the last block.
fn stopped(body: &str, value: u32) -> Stopped {
    let body = format!(
        "mov.u32 %r1, %ctaid.x; mov.u32 %r2, %tid.x; mad.lo.u32 %r1, %r1, 4, %r2;\n\
         setp.ne.u32 %p, %r1, 11; @%p ret;\n{body}"
    );
    let launch = launch(&body, 3, 4, value);
    run(&launch, &mut Words::new(), &AtomicBool::new(false)).unwrap_err()
}

#[test]
fn an_illegal_access_ends_the_launch_and_is_located() {
    let found = stopped("mov.u32 %r1, 1;\nst.volatile.global.u32 [%d0+4096], 1;", 0);
    let expected = Stopped {
        trap: Trap::IllegalAddress(BASE + 4096),
        line: 12,
        thread: 3,
        block: 2,
    };
    assert_eq!(found, expected);
    for (access, trap) in [
        (
            "ld.volatile.global.u32 %r1, [%d0+2];",
            Trap::MisalignedAddress(BASE + 2),
        ),
        (
            "st.volatile.global.u32 [%d0+2], 1;",
            Trap::MisalignedAddress(BASE + 2),
        ),
        (
            "red.global.add.u32 [%d0+1], 1;",
            Trap::MisalignedAddress(BASE + 1),
        ),
        (
            "ld.volatile.global.u32 %r1, [%d1];",
            Trap::IllegalAddress(0),
        ),
        ("red.global.add.u32 [%d1+8], 1;", Trap::IllegalAddress(8)),
    ] {
        assert_eq!(stopped(access, 0).trap, trap, "{access}");
    }
}

#[test]
fn a_launch_ends_when_it_is_stopped() {
    let launch = launch("forever: bra forever;", 1, 2, 0);
    let stop = AtomicBool::new(true);
    assert_eq!(run(&launch, &mut Words::new(), &stop), Ok(()));
}

#[test]
fn unsupported_and_wrong_text_is_rejected_by_name_and_line() {
    for (body, reason) in [
        (
            "shfl.sync.idx.b32 %r1, %r0;",
            "shfl.sync.idx.b32 is not supported: the emulated GPU",
        ),
        ("add.s32 %r1, %r0, 1;", "add.s32 is not supported"),
        (
            "ld.global.v2.u32 {%r1, %r2}, [%d0];",
            "ld.global.v2.u32 is not supported",
        ),
        (".local .u32 stack;", ".local is not supported"),
        (".reg .f32 %f;", ".f32 is not supported"),
        (".reg .u32 %r0;", "%r0 is declared already"),
        ("add.u32 %r9, %r0, 1;", "%r9 is not a register"),
        ("add.u32 %r1, %r0, words;", "words is not a value"),
        ("add.u32 %r1, %r0, 010;", "010 is not a value"),
        ("add.u32 %r1, %r0;", "',' is missing before ';'"),
        ("add.u32 %r1, %r0, 1, 2;", "';' is missing before ','"),
        ("mov.u32 %r1, [%d0];", "[ is not a value"),
        (
            "ld.param.u32 %r1, [memory];",
            "memory is not a parameter of this width",
        ),
        (
            "ld.shared.u32 %r1, [value];",
            "value is not a shared variable",
        ),
        ("st.volatile.global.u32 [64], 1;", "64 is not a register"),
        ("bar.sync 1;", "'0' is missing before '1'"),
        ("bra nowhere;", "there is no label nowhere"),
        ("here: ret; here: ret;", "label here exists already"),
    ] {
        let error = parse(&text(body)).unwrap_err().to_string();
        assert!(error.starts_with("PTX line 9: "), "{error}");
        assert!(error.contains(reason), "{error}");
    }
    for outside in [
        ".address_size 32",
        ".func f() {}",
        ".visible .entry test() {",
        "/* no */",
    ] {
        assert!(parse(outside).is_err(), "{outside}");
    }
}

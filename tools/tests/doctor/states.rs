//! Planted states, the remedy that doctor chooses first for each, and the remedies that no test runs.

use super::harness::Content::{Absent, Driver, Faulty, Foreign, Libcuda, Link, Nvml, Old, Ours, Text};
use super::harness::{HEALTHY, State};
use super::remedies::Remedy::{self, *};

const BAD: State = State { usable: false, ..HEALTHY };

/// A state that keeps GDRCopy from working.
const fn bad(first: &'static [Remedy], emulated: &'static str) -> State {
    State { first, emulated, ..BAD }
}

/// A state in which it works.
const fn warns(first: &'static [Remedy], emulated: &'static str) -> State {
    State { usable: true, ..bad(first, emulated) }
}

const POD: &[(&str, &str)] = &[("KUBERNETES_SERVICE_HOST", "10.0.0.1")];
const APPTAINER: &[(&str, &str)] = &[("APPTAINER_CONTAINER", "/images/job.sif")];
const SINGULARITY: &[(&str, &str)] = &[("SINGULARITY_CONTAINER", "/images/job.sif")];

/// Has doctor obey the permissions of files, as root still, who can read the files of the test.
macro_rules! as_user {
    () => {
        "; set -- setpriv --bounding-set=-dac_override,-dac_read_search \"$@\""
    };
}

/// A root without the files that mark containers, and a computer without a PCI bus.
macro_rules! root {
    () => {
        concat!(
            "mkdir {dir}/root; mount -t tmpfs root {dir}/root; for top in /*/; do mkdir {dir}/root$top; ",
            "[ $top = /run/ ] || mount --rbind $top {dir}/root$top; done; cd {dir}/root; pivot_root . mnt; ",
            "unset container KUBERNETES_SERVICE_HOST; mount -t tmpfs pci /sys/bus/pci; "
        )
    };
}

/// There, a /dev with this node, and gdrdrv as the driver of major 120.
macro_rules! dev {
    ($node:literal) => {
        concat!(
            root!(),
            "mount -t tmpfs -o mode=755 dev /dev; mknod -m 666 /dev/null c 1 3; mount -t tmpfs driver /proc/driver; ",
            "mkdir /proc/driver/gdrdrv; echo >/proc/driver/gdrdrv/params; mount --bind {dir}/devices /proc/devices; ",
            "export LD_PRELOAD={dir}/driver.so; ",
            $node
        )
    };
}

/// Where the module is not loaded and there is no node. The test may itself run in a container.
const NO_MODULE: &[Remedy] = &[
    ModuleInstall,
    ModuleHeaders,
    ModuleSources,
    ModuleLog,
    ModuleBuild,
    ModuleLoad,
    ModuleSigned,
    NodeDocker,
    NodePodman,
    NodeContainer,
    NodePod,
];

/// Its CUDA, whose cuInit fails with this.
const fn cuda(first: &'static [Remedy], variables: &'static [(&'static str, &'static str)]) -> State {
    State {
        first,
        variables,
        before: root!(),
        files: &[("cuda/libcuda.so.1", Libcuda)],
        is_real: true,
        is_private: true,
        ..BAD
    }
}

const CUDA_PATH: (&str, &str) = ("LD_LIBRARY_PATH", "{dir}/right:{dir}/cuda");
const NO_GPU: &[(&str, &str)] = &[CUDA_PATH, ("CU_INIT", "100")];

pub(crate) const DRIVER: &[State] = &[
    cuda(&[GpuUnseen], NO_GPU),
    State { before: concat!(root!(), "mkdir -p /sys/bus/pci/devices/0"), ..cuda(&[GpuNone], NO_GPU) },
    State { before: concat!(root!(), "export container=docker"), ..cuda(&[GpuDocker], NO_GPU) },
    State { before: concat!(root!(), "export container=podman"), ..cuda(&[GpuPodman], NO_GPU) },
    State { before: concat!(root!(), "export container=lxc"), ..cuda(&[GpuContainer], NO_GPU) },
    State { variables: POD, ..bad(&[GpuPod], "--fault cuInit:100") },
    State { variables: APPTAINER, ..bad(&[GpuApptainer], "--fault cuInit:100") },
    State { variables: &[("CUDA_VISIBLE_DEVICES", "")], ..bad(&[GpuHidden], "") },
    State { variables: &[("CUDA_VISIBLE_DEVICES", "7")], ..bad(&[GpuHidden], "") },
    State { files: &[("cuda/libcuda.so.1", Text("no library"))], ..cuda(&[DriverMissing], NO_GPU) },
    // CUDA's errors.
    warns(&[GpuFull], "--fault cuDevicePrimaryCtxRetain:2"),
    warns(&[GpuFull], "--fault cuMemAlloc:2"),
    State { arguments: "--for ucx", ..warns(&[GpuFull], "--fault cuDevicePrimaryCtxRetain:2") },
    warns(&[GpuExclusive], "--fault cuDevicePrimaryCtxRetain:46"),
    warns(&[CudaMps], "--fault cuDevicePrimaryCtxRetain:808"),
    bad(&[GpuReset], "--fault cuDevicePrimaryCtxRetain:214"),
    bad(&[CudaMps], "--fault cuInit:805"),
    bad(&[CudaLicense], "--fault cuInit:102"),
    bad(&[CudaPermission], "--fault cuInit:800"),
    bad(&[FabricManager], "--fault cuInit:802"),
    bad(&[DriverMismatch], "--fault cuInit:803"),
    bad(&[DriverNodes], "--fault cuInit:999"),
    bad(&[CudaError], "--fault cuInit:1"),
    cuda(&[CudaStub], &[CUDA_PATH, ("CU_INIT", "34")]),
    cuda(&[CudaCompat], &[CUDA_PATH, ("CU_INIT", "804")]),
    // Not by LD_LIBRARY_PATH.
    State { is_fixed: true, ..cuda(&[CudaStub], &[("LD_PRELOAD", "{dir}/cuda/libcuda.so.1"), ("CU_INIT", "34")]) },
    State { arguments: "--limit 1", ..cuda(&[GpuHung], &[CUDA_PATH, ("CU_INIT", "hang")]) },
    // dma-bufs.
    bad(&[DriverUpdate], "--no-gdrdrv --cuda-version 12.2"),
    bad(&[DriverOpen], "--no-gdrdrv --cuda-version 13.5 --dmabuf no"),
    bad(&[DriverOpen], "--no-gdrdrv --cuda-version 13.5 --dmabuf export"),
    bad(&[DriverOpen], "--no-gdrdrv --cuda-version 13.5 --gpus 2 --dmabuf no,mmap"),
    State { variables: &[("GDRCOPY_USE_DMABUF_MMAP", "1")], ..bad(&[DmabufUnforced], "") },
    State {
        variables: &[("GDRCOPY_USE_DMABUF_MMAP", "1")],
        ..bad(&[DmabufUnforced], "--cuda-version 13.3 --dmabuf export")
    },
    // GPUs.
    bad(&[GpuKind], "--rdma no"),
    bad(&[GpuExclude], "--gpus 2 --rdma yes,no"),
    bad(&[GpuKind], "--rdma no --gdrdrv-errno EACCES"),
    State { arguments: "--gpu 3", ..bad(&[GpuNumber], "--gpus 3") },
    State { arguments: "--gpu 1", variables: &[("CUDA_VISIBLE_DEVICES", "0")], ..bad(&[GpuHidden], "--gpus 2") },
    State {
        files: &[("version", Text("Linux version 5.15.167.4-microsoft-standard-WSL2 (root@build) #1 SMP\n"))],
        ..bad(&[GpuWsl], "--file=/proc/version={dir}/version")
    },
    State {
        files: &[("node", Text("77\n"))],
        before: "mount -t tmpfs cpu /sys/devices/system/cpu; cd /sys/devices/system/cpu
            seq -f cpu%.0f/node0 0 1023 | xargs mkdir -p",
        is_private: true,
        ..warns(&[NumaFar], "--file=/sys/bus/pci/devices/0000:1b:00.0/numa_node={dir}/node")
    },
    warns(&[Bar1Small], "--bar1-size 256M"),
    bad(&[Bar1Full], "--bar1-size 512K"),
    bad(&[Bar1Full], "--fault PIN_BUFFER_V2:ENOMEM"),
    // Preloaded: gdremu has an NVML of its own, which comes before LD_LIBRARY_PATH.
    State {
        files: &[("libnvidia-ml.so.1", Nvml)],
        variables: &[
            ("LD_PRELOAD", "{dir}/libnvidia-ml.so.1"),
            ("NVML_GPU", "0000:1b:00.0"),
            ("NVML_BAR1_USED", "131000"),
        ],
        ..warns(&[Bar1Full], "")
    },
    State {
        files: &[("width", Text("4\n"))],
        ..warns(&[LinkNarrow], "--file=/sys/bus/pci/devices/0000:1b:00.0/current_link_width={dir}/width")
    },
];

/// Its computer, with a GPU.
const NODE: State = State {
    files: &[
        ("driver.so", Driver),
        ("devices", Text("Character devices:\n  1 mem\n120 gdrdrv\n")),
        ("cuda/libcuda.so.1", Libcuda),
    ],
    ..cuda(&[], &[CUDA_PATH, ("CU_INIT", "0")])
};

pub(crate) const NODES: &[State] = &[
    State { first: &[VmmKind], usable: true, before: dev!("mknod -m 666 /dev/gdrdrv c 120 0"), ..NODE },
    State {
        first: &[NodeMode],
        before: concat!(dev!("mknod -m 600 /dev/gdrdrv c 120 0; chown 1 /dev/gdrdrv"), as_user!()),
        ..NODE
    },
    State {
        first: &[NodeDirectory],
        before: concat!(dev!("mknod -m 666 /dev/gdrdrv c 120 0; chmod 700 /dev; chown 1 /dev"), as_user!()),
        ..NODE
    },
    State {
        first: &[NodeNodev],
        before: dev!("mknod -m 666 /dev/gdrdrv c 120 0; mount -o remount,nodev /dev"),
        ..NODE
    },
    State {
        first: &[NodeSecurity],
        before: concat!(dev!("mknod -m 666 /dev/gdrdrv c 120 0"), "; export GDRDRV=forbid"),
        ..NODE
    },
    State { first: &[NodeCreate], before: dev!(""), ..NODE },
    State { first: &[NodeDocker], before: dev!("export container=docker"), ..NODE },
    State { first: &[NodePodman], before: dev!("export container=podman"), ..NODE },
    State { first: &[NodeContainer], before: dev!("export container=lxc"), ..NODE },
    State { first: &[NodeReplace], before: dev!("mkdir /dev/gdrdrv"), ..NODE },
    State { first: &[NodeReplace], before: dev!("touch /dev/gdrdrv"), ..NODE },
    State { first: &[NodeReplace], before: dev!("ln -s null /dev/gdrdrv"), ..NODE },
    // A number that is no longer the module's.
    State { first: &[NodeReplace], before: dev!("mknod -m 666 /dev/gdrdrv c 121 0"), ..NODE },
];

const EMPTY: (&str, super::harness::Content) = ("empty", Text(""));

pub(crate) const MODULE: &[State] = &[
    bad(NO_MODULE, "--no-gdrdrv"),
    bad(NO_MODULE, "--no-gdrdrv --platform cached"),
    State { files: &[EMPTY], ..bad(&[ModuleDummy], "--file=/sys/module/nv_p2p_dummy/holders/gdrdrv={dir}/empty") },
    State {
        files: &[EMPTY],
        ..warns(&[ModuleDummy], "--cuda-version 13.3 --file=/sys/module/nv_p2p_dummy/holders/gdrdrv={dir}/empty")
    },
    bad(&[ModuleUpdate], "--driver-version 1.9"),
    warns(&[ModuleUpdate], "--driver-version 2.4"),
    bad(&[LibraryUpdate], "--min-api-version 3.0"),
    warns(&[ModuleOption], "--traditional"),
    State { is_fixed: true, ..warns(&[NodeMode], "--gdrdrv-errno EACCES --cuda-version 13.3") },
    State { is_fixed: true, ..bad(&[NodeReplace], "--gdrdrv-errno ENOTTY") },
    State { is_fixed: true, ..bad(&[OpenFiles], "--gdrdrv-errno EMFILE") },
    bad(&[FilesOfSystem], "--gdrdrv-errno ENFILE"),
    bad(&[NodeSandbox], "--fault GET_VERSION:EPERM"),
    State {
        files: &[("driver.so", Driver)],
        before: "export GDRDRV=sandbox LD_PRELOAD={dir}/driver.so:$LD_PRELOAD",
        ..bad(&[NodeSandbox], "")
    },
    bad(&[ModuleReload], "--gdrdrv-errno EIO"),
    State {
        files: &[("driver.so", Driver)],
        before: "export GDRDRV=hang LD_PRELOAD={dir}/driver.so:$LD_PRELOAD",
        arguments: "--limit 3",
        ..bad(&[ModuleReload], "--cuda-version 13.3")
    },
    // A device cgroup.
    bad(&[NodeService, NodeDocker, NodePodman, NodeContainer, NodePod], "--gdrdrv-errno EPERM"),
    State { variables: POD, ..bad(&[NodePod], "--gdrdrv-errno EPERM") },
    State { variables: APPTAINER, ..bad(&[NodeService], "--gdrdrv-errno EPERM") },
    State {
        variables: &[("APPTAINER_CONTAINER", "/images/job.sif"), ("SLURM_JOB_ID", "7")],
        ..bad(&[NodeSlurm], "--gdrdrv-errno EPERM")
    },
    // The module is loaded, but the container has no node.
    State { variables: POD, ..bad(&[NodePod], "--no-gdrdrv") },
    State { variables: APPTAINER, ..bad(&[NodeApptainer], "--no-gdrdrv") },
    State { variables: SINGULARITY, ..bad(&[NodeApptainer], "--no-gdrdrv") },
    State {
        is_fixed: true,
        files: &[("modules", Text("gdrdrv 24576 0 - Live 0x0\n"))],
        ..bad(
            &[NodeCreate, NodeDocker, NodePodman, NodeContainer, NodePod],
            "--no-gdrdrv --file=/proc/modules={dir}/modules",
        )
    },
    // The kernel only loads signed modules.
    State {
        files: &[("lockdown", Text("none [integrity] confidentiality\n"))],
        ..bad(NO_MODULE, "--no-gdrdrv --file=/sys/kernel/security/lockdown={dir}/lockdown")
    },
    State { arguments: "--for mscclpp", ..bad(NO_MODULE, "--no-gdrdrv --cuda-version 13.3") },
    State {
        arguments: "--for nccl",
        variables: &[("NCCL_GDRCOPY_ENABLE", "1")],
        ..bad(&[EngineModule], "--driver-version 2.0")
    },
    State { arguments: "--for aws-ofi-nccl", ..bad(&[EngineModule], "--driver-version 2.4") },
    State { arguments: "--for mscclpp", ..bad(&[EngineModule], "--driver-version 2.4") },
    // The machine.
    State {
        before: "mount -t tmpfs etc /etc; mkdir /etc/cdi; echo path: /dev/nvidiactl >/etc/cdi/nvidia.yaml",
        is_private: true,
        ..warns(&[CdiNode], "")
    },
    State {
        before: "mount -t tmpfs class /sys/class; mkdir -p /sys/class/infiniband/mlx5_0; ulimit -S -l 64",
        is_private: true,
        ..warns(&[LockedMemory], "")
    },
    State { before: "ulimit -S -n 64", ..warns(&[OpenFiles], "") },
    State { before: "ulimit -n 64", ..warns(&[OpenFilesHard], "") },
    State { before: "ulimit -S -n 5", arguments: "--for ucx", ..warns(&[OpenFiles], "") },
    State { before: "ulimit -n 5", ..warns(&[OpenFilesHard], "") },
    State { before: "ulimit -S -v 100000000", ..warns(&[AddressSpace], "--fault cuMemAlloc:2") },
    State { before: "mount -t tmpfs none /proc", is_private: true, ..warns(&[ProcMount], "") },
    State { before: "set -- env --ignore-signal=CHLD \"$@\"", ..HEALTHY },
    // gdremu writes files itself.
    State {
        first: &[DoctorLimits],
        usable: true,
        before: dev!("mknod -m 666 /dev/gdrdrv c 120 0; ulimit -S -f 0"),
        arguments: "--for ucx",
        is_fixed: true, // With larger files, it sees that the stand-in's GPU is full.
        ..NODE
    },
    State { variables: &[("GDRCOPY_ISA", "abacus")], ..warns(&[CopyRoutine], "") },
    State {
        files: &[("version", Text("Linux version 4.4.0 #1 SMP Sun Jan 10 15:06:54 PST 2016\n"))],
        ..warns(&[RuntimeOther], "--file=/proc/version={dir}/version")
    },
];

/// The library under one name only.
const ONE: &[(&str, super::harness::Content)] = &[("one/libgdrapi.so.2", Ours)];
const ONE_PATH: &[(&str, &str)] = &[("LD_LIBRARY_PATH", "{dir}/one")];

/// Before this project's.
const FAULTY: &[(&str, super::harness::Content)] =
    &[("other/libgdrapi.so.2", Faulty), ("other/libgdrapi.so", Link("libgdrapi.so.2")), ("one/libgdrapi.so.2", Ours)];
const OLD: &[(&str, super::harness::Content)] =
    &[("other/libgdrapi.so.2", Old), ("other/libgdrapi.so", Link("libgdrapi.so.2"))];
const PRELOADED: &[(&str, super::harness::Content)] = &[("profiler.so", Old)];
const PRELOADED_PATH: &[(&str, &str)] = &[("LD_PRELOAD", "{dir}/profiler.so")];
const OLDER: &[(&str, super::harness::Content)] =
    &[("other/libgdrapi.so.2", Ours), ("other/libgdrapi.so.1", Driver), ("other/libgdrapi.so", Link("libgdrapi.so.1"))];
const OTHER_FIRST: &[(&str, &str)] = &[("LD_LIBRARY_PATH", "{dir}/other:{dir}/right"), ("NCCL_GDRCOPY_ENABLE", "1")];
const OTHER_PATH: &[(&str, &str)] = &[("LD_LIBRARY_PATH", "{dir}/other"), ("NCCL_GDRCOPY_ENABLE", "1")];

pub(crate) const LIBRARY: &[State] = &[
    State {
        files: &[("new.conf", Text("{dir}/right\n"))],
        variables: &[("LD_LIBRARY_PATH", "{dir}/none")],
        before: "cp -a /etc {dir}; mount --bind {dir}/etc /etc; cp {dir}/new.conf /etc/ld.so.conf.d
            mount -t tmpfs cache /var/cache",
        is_private: true,
        ..bad(&[LibraryCache], "")
    },
    State {
        files: &[("other/libgdrapi.so.2", Ours)],
        variables: OTHER_PATH,
        before: concat!("chmod 0 {dir}/other/*; chown 1 {dir}/other/*", as_user!()),
        is_private: true,
        ..bad(&[LibraryReadable], "")
    },
    State { variables: &[("LD_LIBRARY_PATH", "{dir}/none")], ..bad(&[LibraryInstall], "") },
    State { files: ONE, variables: ONE_PATH, ..warns(&[LibraryLink], "") },
    State { files: ONE, variables: ONE_PATH, arguments: "--for dpdk", ..bad(&[LibraryLink], "") },
    State {
        files: ONE,
        variables: &[("LD_LIBRARY_PATH", "{dir}/one"), ("NCCL_GDRCOPY_ENABLE", "1")],
        arguments: "--for nccl",
        ..bad(&[LibraryLink], "")
    },
    State { files: ONE, variables: &[("LD_LIBRARY_PATH", "{dir}/one:{dir}/right")], ..warns(&[LibraryLink], "") },
    // Another one comes first.
    State { files: FAULTY, variables: OTHER_FIRST, ..warns(&[LibraryPath], "") },
    State {
        files: FAULTY,
        variables: &[("LD_LIBRARY_PATH", "{dir}/one:{dir}/other"), ("NCCL_GDRCOPY_ENABLE", "1")],
        ..warns(&[LibraryLink], "")
    },
    State {
        files: FAULTY,
        variables: &[("LD_LIBRARY_PATH", "{dir}/one:{dir}/other"), ("NCCL_GDRCOPY_ENABLE", "1")],
        arguments: "--for nccl",
        ..warns(&[LibraryLink], "")
    },
    State { files: FAULTY, variables: &[("LD_LIBRARY_PATH", "{dir}/other:{dir}/one")], ..warns(&[LibraryPath], "") },
    State {
        files: &[("other.so", Faulty), ("one/libgdrapi.so.2", Ours), ("one/libgdrapi.so", Link("../other.so"))],
        variables: ONE_PATH,
        ..warns(&[LibraryLink], "")
    },
    State {
        files: &[
            ("libgdrapi.so.2", Faulty),
            ("one/libgdrapi.so.2", Ours),
            ("one/libgdrapi.so", Link("../libgdrapi.so.2")),
        ],
        variables: &[("LD_LIBRARY_PATH", "{dir}/one"), ("LD_PRELOAD", "{dir}/libgdrapi.so.2")],
        ..warns(&[LibraryPreload], "")
    },
    State { variables: &[("LD_PRELOAD", "{dir}/gone.so")], ..warns(&[LibraryPreload], "") },
    State { files: PRELOADED, variables: PRELOADED_PATH, ..warns(&[LibraryPreload], "") },
    State { files: PRELOADED, variables: PRELOADED_PATH, arguments: "--for ucx", ..warns(&[LibraryPreload], "") },
    // Files that are no library.
    State {
        files: &[("other/libgdrapi.so.2", Text("no library"))],
        variables: OTHER_FIRST,
        ..bad(&[LibraryRemove], "")
    },
    State {
        files: &[("other/libgdrapi.so.2", Text("no library")), ("other/libgdrapi.so", Link("libgdrapi.so.2"))],
        variables: OTHER_FIRST,
        arguments: "--for nccl",
        ..bad(&[LibraryRemove], "")
    },
    State {
        files: &[("other/libgdrapi.so.2", Link("/opt/gone/libgdrapi.so.2.6"))],
        variables: OTHER_PATH,
        ..bad(&[LibraryDangling], "")
    },
    State {
        files: &[("other/libgdrapi.so.2", Link("/opt/gone/libgdrapi.so.2.6"))],
        variables: OTHER_PATH,
        arguments: "--for ucx",
        ..bad(&[LibraryDangling], "")
    },
    State { arguments: "--lib /dev/null", ..bad(&[LibraryName], "") },
    State { files: &[("absent.so", Absent)], arguments: "--lib {dir}/absent.so", ..bad(&[LibraryName], "") },
    // The loader passes over it.
    State {
        files: &[
            ("other/libgdrapi.so.2", Faulty),
            ("other/libgdrapi.so", Link("libgdrapi.so.2")),
            ("one/libgdrapi.so.2", Foreign),
        ],
        variables: &[("LD_LIBRARY_PATH", "{dir}/other:{dir}/one")],
        ..HEALTHY
    },
    // A name without a version, of an older one.
    State { files: OLDER, variables: OTHER_PATH, ..warns(&[LibraryLink], "") },
    State { files: OLDER, variables: OTHER_PATH, arguments: "--for nccl", ..bad(&[LibraryLink], "") },
    // Good ones, which cannot be loaded here.
    State {
        variables: &[("LD_LIBRARY_PATH", "{dir}/mount")],
        before: "mkdir {dir}/mount; mount -t tmpfs -o noexec none {dir}/mount; cp -a {dir}/right/. {dir}/mount",
        is_private: true,
        ..bad(&[LibraryNoexec], "")
    },
    State {
        variables: &[("LD_LIBRARY_PATH", "{dir}/musl")],
        before: "mkdir {dir}/musl; cd {dir}/musl
            gcc -shared -nostdlib -Wl,-soname,libc.musl.so.1 -x c /dev/null -o libc.so
            gcc -shared -nostdlib -Wl,--no-as-needed -x c /dev/null -x none libc.so -o libgdrapi.so.2",
        ..bad(&[LibraryBuild], "")
    },
    // Entries of LD_LIBRARY_PATH.
    State { variables: &[("LD_LIBRARY_PATH", "~/right")], ..bad(&[LibraryEntry], "") },
    State { variables: &[("LD_LIBRARY_PATH", "$HOME/right")], arguments: "--for ucx", ..bad(&[LibraryEntry], "") },
    State { variables: &[("LD_LIBRARY_PATH", "{dir}/right/libgdrapi.so")], ..bad(&[LibraryEntry], "") },
    State {
        files: &[("closed/lib/libgdrapi.so.2", Ours), ("closed/lib/libgdrapi.so", Link("libgdrapi.so.2"))],
        variables: &[("LD_LIBRARY_PATH", "{dir}/closed/lib")],
        before: concat!("chmod 700 {dir}/closed; chown 1 {dir}/closed", as_user!()),
        is_private: true,
        ..bad(&[LibrarySearch], "")
    },
    // Its self-test fails.
    State { files: OLD, variables: OTHER_FIRST, ..bad(&[LibraryPath], "") },
    State { files: OLD, variables: OTHER_FIRST, arguments: "--for nccl", ..bad(&[LibraryPath], "") },
    State { files: OLD, variables: OTHER_PATH, arguments: "--for nccl", ..bad(&[SelfTestLog], "") },
    State { files: OLD, variables: OTHER_FIRST, ..bad(&[LibraryOld], "--no-gdrdrv --cuda-version 13.3") },
    State {
        files: OLD,
        variables: OTHER_FIRST,
        arguments: "--for nccl",
        ..bad(&[LibraryOld], "--no-gdrdrv --cuda-version 13.3")
    },
    State { files: OLD, variables: OTHER_FIRST, ..bad(NO_MODULE, "--no-gdrdrv") },
    State {
        files: FAULTY,
        variables: &[("FAULTY", "wrong")],
        arguments: "--lib {dir}/other/libgdrapi.so.2",
        ..bad(&[LibraryOther], "")
    },
    State {
        files: FAULTY,
        variables: &[("FAULTY", "short")],
        arguments: "--lib {dir}/other/libgdrapi.so.2",
        ..bad(&[LibraryOther], "")
    },
    State {
        files: FAULTY,
        variables: &[("FAULTY", "crash")],
        arguments: "--lib {dir}/other/libgdrapi.so.2",
        ..bad(&[LibraryOther], "")
    },
    // Its process ends with status 0.
    State {
        files: FAULTY,
        variables: &[("FAULTY", "exit")],
        arguments: "--lib {dir}/other/libgdrapi.so.2",
        ..bad(&[LibraryOther], "")
    },
    State {
        files: FAULTY,
        variables: &[("LD_LIBRARY_PATH", "{dir}/other"), ("FAULTY", "vanish")],
        ..bad(&[LibraryOther], "")
    },
    State {
        files: FAULTY,
        variables: &[("LD_LIBRARY_PATH", "{dir}/other"), ("FAULTY", "vanish")],
        arguments: "--for ucx",
        ..bad(&[LibraryOther], "")
    },
    State {
        files: FAULTY,
        variables: &[("LD_LIBRARY_PATH", "{dir}/other:{dir}/right"), ("FAULTY", "crash")],
        ..bad(&[LibraryPath], "")
    },
    State {
        files: FAULTY,
        variables: &[("FAULTY", "hang")],
        // The last one holds. However slow the computer is, the library does not end.
        arguments: "--lib {dir}/other/libgdrapi.so.2 --limit 3",
        ..bad(&[SelfTestHung], "")
    },
    bad(&[LibraryReports], "--fault MMAP:ENOMEM"),
    bad(&[LibraryReports], "--fault PIN_BUFFER_V2:EINVAL"),
    bad(&[LibraryReports], "--fault UNPIN_BUFFER:EINVAL"),
];

pub(crate) const SETTINGS: &[State] = &[
    State { variables: &[("GDRCOPY_ENABLE_LOGING", "1")], ..warns(&[VariableUnknown], "") },
    State { variables: &[("GDRCOPY_THREADS", "8")], ..warns(&[VariableGone], "") },
    State { variables: &[("GDRCOPY_LOG_LEVEL", "9")], ..warns(&[VariableValue], "") },
    State {
        variables: &[("GDRCOPY_LOG_LEVEL", "3"), ("GDRCOPY_HOME", "/opt"), ("GDRCOPY_ENABLE_LOGGING", "x")],
        ..HEALTHY
    },
    State { arguments: "--for nccl", ..bad(&[SettingExport], "") },
    State { arguments: "--for nccl", variables: &[("NCCL_GDRCOPY_ENABLE", "true")], ..bad(&[SettingExport], "") },
    State { arguments: "--for nccl", variables: &[("NCCL_GDRCOPY_ENABLE", "0x1")], ..HEALTHY },
    State {
        arguments: "--for nccl",
        variables: &[("NCCL_CONF_FILE", "{dir}/nccl.conf")],
        files: &[("nccl.conf", Text("# of NCCL\nNCCL_GDRCOPY_ENABLE=1\n"))],
        ..HEALTHY
    },
    State {
        arguments: "--for nccl",
        variables: &[("NCCL_CONF_FILE", "{dir}/nccl.conf"), ("NCCL_GDRCOPY_ENABLE", "0")],
        files: &[("nccl.conf", Text("# of NCCL\nNCCL_GDRCOPY_ENABLE=1\n"))],
        ..bad(&[SettingExport], "")
    },
    State {
        arguments: "--for nccl",
        variables: &[("NCCL_CONF_FILE", "{dir}/nccl.conf")],
        files: &[("nccl.conf", Text("NCCL_GDRCOPY_ENABLE=0\n"))],
        ..bad(&[SettingExport], "")
    },
    // The last one of these files of UCX counts.
    State { arguments: "--for ucx", ..HEALTHY },
    State { arguments: "--for ucx", variables: &[("UCX_TLS", "rc")], ..bad(&[SettingUnset], "") },
    State { arguments: "--for nixl", variables: &[("UCX_TLS", "rc")], ..bad(&[SettingUnset], "") },
    State { arguments: "--for ucx", files: &[("ucx.conf", Text("UCX_TLS=rc,sm\n"))], ..bad(&[SettingExport], "") },
    State {
        arguments: "--for ucx",
        variables: &[("HOME", "/nowhere"), ("UCX_CONFIG_DIR", "{dir}/site")],
        files: &[("site/ucx.conf", Text("UCX_TLS = rc ; no GPUs\n"))],
        ..bad(&[SettingExport], "")
    },
    State {
        arguments: "--for ucx",
        variables: &[("HOME", "/nowhere"), ("LD_LIBRARY_PATH", "{dir}/right:{dir}/lib")],
        files: &[("lib/libucs.so.0", Text("")), ("etc/ucx/ucx.conf", Text("UCX_TLS=rc\n"))],
        ..bad(&[SettingExport], "")
    },
    State {
        arguments: "--for ucx",
        variables: &[("HOME", "{dir}/home"), ("UCX_CONFIG_DIR", "{dir}/site")],
        files: &[("home/ucx.conf", Text("UCX_TLS=rc\n")), ("site/ucx.conf", Text("UCX_TLS=rc\nUCX_TLS=rc,cuda\n"))],
        ..HEALTHY
    },
    State { files: &[("ucx.conf", Text("UCX_TLS=rc,sm\n"))], ..warns(&[SettingExport], "") },
    State { arguments: "--for nvshmem", variables: &[("NVSHMEM_DISABLE_GDRCOPY", "1")], ..bad(&[SettingUnset], "") },
    State { arguments: "--for libfabric", variables: &[("FI_HMEM_CUDA_USE_GDRCOPY", "0")], ..bad(&[SettingUnset], "") },
    State { arguments: "--for libfabric", variables: &[("FI_PROVIDER", "tcp")], ..bad(&[SettingUnset], "") },
    State { arguments: "--for libfabric", variables: &[("FI_HMEM", "^cuda")], ..bad(&[SettingUnset], "") },
    State { arguments: "--for ucx", variables: &[("UCX_MODULE_DIR", "/opt")], ..HEALTHY },
    State { arguments: "--for dpdk", variables: &[("GDRCOPY_PATH_L", "/nowhere")], ..bad(&[SettingUnset], "") },
    State { arguments: "--for dpdk", ..HEALTHY },
    State { arguments: "--for nvshmem", files: ONE, variables: ONE_PATH, ..HEALTHY },
    State { arguments: "--for libfabric", files: ONE, variables: ONE_PATH, ..HEALTHY },
    State { arguments: "--for mscclpp", files: ONE, variables: ONE_PATH, ..HEALTHY },
    State { arguments: "--for nixl", files: ONE, variables: ONE_PATH, ..HEALTHY },
    State { arguments: "--for aws-ofi-nccl", ..HEALTHY },
    State { arguments: "--for tensorrt-llm", ..HEALTHY },
    // Each variable, where all engines are examined.
    State { variables: &[("NCCL_GDRCOPY_ENABLE", "2")], ..warns(&[SettingExport], "") },
    State { variables: &[("NCCL_GDRCOPY_FIFO_ENABLE", "false")], ..warns(&[SettingUnset], "") },
    State { variables: &[("NCCL_GDRCOPY_SYNC_ENABLE", "0")], ..warns(&[SettingUnset], "") },
    State { variables: &[("NCCL_GDRCOPY_USE_INTERNAL_DMABUF", "1")], ..warns(&[SettingUnset], "") },
    State { variables: &[("NVSHMEM_GDRCOPY_USE_INTERNAL_DMABUF", "1")], ..warns(&[SettingUnset], "") },
    State { variables: &[("DOCA_GPUNETIO_DISABLE_GDRCOPY", "1")], ..warns(&[SettingUnset], "") },
    State {
        variables: &[
            ("NCCL_GDRCOPY_ENABLE", " 1"),
            ("NCCL_GDRCOPY_FIFO_ENABLE", "2"),
            ("NCCL_GDRCOPY_USE_INTERNAL_DMABUF", "0"),
            ("NVSHMEM_DISABLE_GDRCOPY", "0"),
            ("FI_HMEM_CUDA_USE_GDRCOPY", "true"),
            ("DOCA_GPUNETIO_DISABLE_GDRCOPY", "0"),
            ("UCX_TLS", "rc,cuda"),
        ],
        ..HEALTHY
    },
];

/// Remedies of no state above, with the reason.
pub(crate) const NOT_PLANTED: &[(&[Remedy], &str)] = &[
    (
        &[
            ModuleInstall,
            ModuleHeaders,
            ModuleSources,
            ModuleLog,
            ModuleBuild,
            ModuleLoad,
            ModuleSigned,
            ModuleStale,
            ModuleStaleByHand,
        ],
        "a test of doctor/gdrdrv.rs has each state of the installation",
    ),
    (
        &[ProcessNone, ProcessNames, ProcessRestart, ProcessRemoved, ProcessClosed],
        "the tests of running processes plant these",
    ),
    (&[DoctorProcesses, DoctorSandbox], "a test of doctor/probe.rs has the errnos"),
];

/// Remedies that no test runs, with the reason.
pub(crate) const NOT_RUN: &[(&[Remedy], &str)] = &[
    (
        &[GpuNone, GpuUnseen, GpuKind, GpuWsl, GpuReset, LinkNarrow, Bar1Small, NumaFar],
        "wants other hardware or firmware",
    ),
    (
        &[GpuFull, GpuExclusive, Bar1Full, GpuHung, SelfTestHung],
        "wants that other programs end, or that a person reads the log",
    ),
    (&[GpuDocker, GpuPodman, GpuPod, GpuApptainer, GpuContainer], "starts another container"),
    (
        &[NodeDocker, NodePodman, NodePod, NodeApptainer, NodeContainer, RuntimeOther, CdiNode],
        "starts another container",
    ),
    (&[DriverMissing, DriverUpdate, DriverOpen, DriverMismatch, DriverNodes], "changes the GPU driver"),
    (&[FabricManager, CudaMps, CudaLicense, CudaPermission, CudaError], "changes a service of the GPU driver"),
    (
        &[
            ModuleInstall,
            ModuleHeaders,
            ModuleSources,
            ModuleLog,
            ModuleBuild,
            ModuleLoad,
            ModuleSigned,
            ModuleStale,
            ModuleStaleByHand,
        ],
        "changes the kernel: gdrdrv-c/vm and the tests of packages do this",
    ),
    (&[ModuleDummy, ModuleUpdate, ModuleOption, ModuleReload, EngineModule], "changes the kernel"),
    (&[NodeSecurity, NodeService, NodeSlurm], "changes the policy of the system"),
    (&[OpenFilesHard, LockedMemory], "goes as far as the hard limit of this computer"),
    (&[LibraryInstall, LibraryUpdate, LibraryOld, LibraryOther], "installs another library"),
    (&[GpuNumber, LibraryName, VmmKind], "changes the command or the program"),
    (&[LibraryReports, SelfTestLog], "says what the library's log says"),
    (&[ProcessNone, ProcessNames, ProcessRestart, ProcessRemoved, ProcessClosed], "starts the process again"),
    (&[NodeSandbox, DoctorSandbox, DoctorProcesses, FilesOfSystem], "changes the limits of the system"),
    (&[LibraryBuild], "installs another library"),
];

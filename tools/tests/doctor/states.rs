//! Planted states, the remedy that doctor chooses first for each, and the remedies that no test runs.

use super::choose_and_run;
use super::harness::{HEALTHY, State};
use super::remedies::Remedy::{self, *};

/// GDRCopy works in this state.
const fn works(first: &'static [Remedy]) -> State {
    State { first, ..HEALTHY }
}

/// It does not.
const fn bad(first: &'static [Remedy]) -> State {
    State { usable: false, ..works(first) }
}

/// It does not, without gdremu.
const fn real(first: &'static [Remedy]) -> State {
    State { is_real: true, ..bad(first) }
}

/// Declares lists of states, each with its kind, the remedies, and fields of `State`; and a test of each list.
macro_rules! states {
    ($($list:ident { $($kind:ident [$($remedy:ident)?] $($field:ident $value:tt)*;)* })*) => {
        $(mod $list {
            use super::*;

            pub(super) const STATES: &[State] = &[$(State { $($field: $value,)* ..$kind(&[$($remedy)?]) }),*];

            #[test]
            fn choose_the_remedy() {
                choose_and_run(STATES);
            }
        })*

        pub(crate) const STATES: &[&[State]] = &[$($list::STATES),*];
    };
}

states! {
driver_and_gpu {
    real [GpuUnseen] sh "cuda 100";
    real [GpuNone] sh "cuda 100; mkdir -p /sys/bus/pci/devices/0";
    real [GpuDocker] sh "cuda 100; export container=docker";
    real [GpuPodman] sh "cuda 100; export container=podman";
    real [GpuContainer] sh "cuda 100; export container=lxc";
    bad [GpuPod] emulated "--fault cuInit:100" sh "export KUBERNETES_SERVICE_HOST=10.0.0.1";
    bad [GpuApptainer] emulated "--fault cuInit:100" sh "export APPTAINER_CONTAINER=/images/job.sif";
    bad [GpuSlurm] emulated "--fault cuInit:100" sh "root; export SLURM_JOB_ID=7";
    bad [GpuHidden] sh "export CUDA_VISIBLE_DEVICES=";
    bad [GpuHidden] sh "export CUDA_VISIBLE_DEVICES=7";
    real [DriverMissing] sh "cuda 100; echo no library >cuda/libcuda.so.1";
    // CUDA's errors.
    works [GpuFull] emulated "--fault cuDevicePrimaryCtxRetain:2";
    works [GpuFull] emulated "--fault cuMemAlloc:2";
    works [GpuFull] emulated "--fault cuDevicePrimaryCtxRetain:2" args "--for ucx";
    works [GpuExclusive] emulated "--fault cuDevicePrimaryCtxRetain:46";
    works [CudaMps] emulated "--fault cuDevicePrimaryCtxRetain:808";
    bad [GpuReset] emulated "--fault cuDevicePrimaryCtxRetain:214";
    bad [GpuReset] emulated "--fault cuMemcpyDtoH:719";
    bad [CudaMps] emulated "--fault cuInit:805";
    bad [CudaLicense] emulated "--fault cuInit:102";
    bad [CudaPermission] emulated "--fault cuInit:800";
    bad [FabricManager] emulated "--fault cuInit:802";
    bad [DriverMismatch] emulated "--fault cuInit:803";
    bad [DriverNodes] emulated "--fault cuInit:999";
    bad [CudaError] emulated "--fault cuInit:1";
    real [CudaStub] sh "cuda 34";
    real [CudaCompat] sh "cuda 804";
    // Not by LD_LIBRARY_PATH.
    real [CudaStub] is_fixed true sh "cuda 34; path right; export LD_PRELOAD=$dir/cuda/libcuda.so.1";
    real [GpuHung] sh "cuda hang" args "--limit 1";
    // dma-bufs.
    bad [DriverUpdate] emulated "--no-gdrdrv --cuda-version 12.2";
    bad [DriverOpen] emulated "--no-gdrdrv --cuda-version 13.5 --dmabuf no";
    bad [DriverOpen] emulated "--no-gdrdrv --cuda-version 13.5 --dmabuf export";
    bad [DriverOpen] emulated "--no-gdrdrv --cuda-version 13.5 --gpus 2 --dmabuf no,mmap";
    bad [DmabufUnforced] sh "export GDRCOPY_USE_DMABUF_MMAP=1";
    bad [DmabufUnforced] emulated "--cuda-version 13.3 --dmabuf export" sh "export GDRCOPY_USE_DMABUF_MMAP=1";
    // GPUs.
    bad [GpuKind] emulated "--rdma no";
    bad [GpuExclude] emulated "--gpus 2 --rdma yes,no";
    bad [GpuKind] emulated "--rdma no --gdrdrv-errno EACCES";
    bad [GpuNumber] emulated "--gpus 3" args "--gpu 3";
    bad [GpuHidden] emulated "--gpus 2" sh "export CUDA_VISIBLE_DEVICES=0" args "--gpu 1";
    bad [GpuWsl] file ("/proc/version", "Linux version 5.15.167.4-microsoft-standard-WSL2 (root@build) #1 SMP\n");
    works [NumaFar] file ("/sys/bus/pci/devices/0000:1b:00.0/numa_node", "77\n")
        sh "mount -t tmpfs cpu /sys/devices/system/cpu
            cd /sys/devices/system/cpu; seq -f cpu%.0f/node0 0 1023 | xargs mkdir -p; cd $dir";
    works [Bar1Small] emulated "--bar1-size 256M";
    bad [Bar1Full] emulated "--bar1-size 512K";
    bad [Bar1Full] emulated "--fault PIN_BUFFER_V2:ENOMEM";
    // Preloaded: gdremu has an NVML of its own, which comes before LD_LIBRARY_PATH.
    works [Bar1Full] sh "preload $nvml; export NVML_GPU=0000:1b:00.0 NVML_BAR1_USED=131000";
    works [LinkNarrow] file ("/sys/bus/pci/devices/0000:1b:00.0/current_link_width", "4\n");
}

device_nodes {
    real [VmmKind] usable true sh "node";
    real [NodeMode] sh "node 600; chown 1 /dev/gdrdrv; as_user";
    real [NodeDirectory] sh "node; chmod 700 /dev; chown 1 /dev; as_user";
    real [NodeNodev] sh "node; mount -o remount,nodev /dev";
    real [NodeSecurity] sh "node; export GDRDRV=forbid";
    real [NodeCreate] sh "dev";
    real [NodeDocker] sh "dev; export container=docker";
    real [NodePodman] sh "dev; export container=podman";
    real [NodeContainer] sh "dev; export container=lxc";
    real [NodeReplace] sh "dev; mkdir /dev/gdrdrv";
    real [NodeReplace] sh "dev; touch /dev/gdrdrv";
    real [NodeReplace] sh "dev; ln -s null /dev/gdrdrv";
    real [NodeReplace] sh "dev; ln -s nowhere /dev/gdrdrv";
    real [NodeReplace] sh "node 666 b";
    real [NodeDocker] sh "dev; mkdir /dev/gdrdrv; export container=docker";
    // A number that is no longer the module's.
    real [NodeReplace] sh "node 666 c 121";
    // doctor itself. gdremu also writes files.
    real [DoctorLimits] usable true sh "node; ulimit -S -f 0";
}

module_and_machine {
    bad [ModuleInstall] emulated "--no-gdrdrv" sh "modules";
    bad [ModuleInstall] emulated "--no-gdrdrv --platform cached" sh "modules";
    bad [ModuleInstall] emulated "--no-gdrdrv --cuda-version 13.3" sh "modules" args "--for mscclpp";
    bad [ModuleHeaders] emulated "--no-gdrdrv" sh "sources";
    bad [ModuleSources] emulated "--no-gdrdrv" sh "headers";
    bad [ModuleBuild] emulated "--no-gdrdrv" sh "driver";
    bad [ModuleLog] emulated "--no-gdrdrv" sh "driver; put /dev/null /var/lib/dkms/gdrdrv/2.6/build/make.log";
    bad [ModuleLoad] emulated "--no-gdrdrv" sh "module";
    bad [ModuleLoad] emulated "--no-gdrdrv" sh "module; loaded OE";
    bad [ModuleSigned] emulated "--no-gdrdrv" sh "module"
        file ("/sys/kernel/security/lockdown", "none [integrity] confidentiality\n");
    bad [ModuleStale] emulated "--no-gdrdrv" sh "module; installed NVIDIA; mkdir -p /var/lib/dkms/gdrdrv/2.6/source";
    bad [ModuleStaleByHand] emulated "--no-gdrdrv" sh "module; installed NVIDIA";
    bad [ModuleLoad] emulated "--no-gdrdrv" sh "module; installed 'Dual MIT/GPL'";
    bad [DriverInstall] emulated "--no-gdrdrv" sh "module; loaded POE; mkdir -p /var/lib/dkms/gdrdrv/2.6/source";
    bad [DriverInstall] emulated "--no-gdrdrv" sh "module; loaded OE; refused 9999999999";
    bad [ModuleLoad] emulated "--no-gdrdrv" sh "module; loaded OE; refused 0";
    bad [ModuleDummy] file ("/sys/module/nv_p2p_dummy/holders/gdrdrv", "");
    works [ModuleDummy] emulated "--cuda-version 13.3" file ("/sys/module/nv_p2p_dummy/holders/gdrdrv", "");
    bad [ModuleUpdate] emulated "--driver-version 1.9";
    works [ModuleUpdate] emulated "--driver-version 2.4";
    bad [LibraryUpdate] emulated "--min-api-version 3.0";
    works [ModuleOption] emulated "--traditional";
    works [NodeMode] is_fixed true emulated "--gdrdrv-errno EACCES --cuda-version 13.3";
    bad [NodeReplace] is_fixed true emulated "--gdrdrv-errno ENOTTY" sh "root";
    bad [NodeDocker] emulated "--gdrdrv-errno ENXIO" sh "root; export container=docker";
    bad [OpenFiles] is_fixed true emulated "--gdrdrv-errno EMFILE";
    bad [FilesOfSystem] emulated "--gdrdrv-errno ENFILE";
    bad [NodeSandbox] emulated "--fault GET_VERSION:EPERM";
    bad [NodeSandbox] sh "export GDRDRV=sandbox; preload $driver";
    bad [ModuleReload] emulated "--gdrdrv-errno EIO";
    bad [ModuleReload] emulated "--cuda-version 13.3" sh "export GDRDRV=hang; preload $driver" args "--limit 3";
    // A device cgroup.
    bad [NodeService] emulated "--gdrdrv-errno EPERM" sh "root";
    bad [NodePod] emulated "--gdrdrv-errno EPERM" sh "export KUBERNETES_SERVICE_HOST=10.0.0.1";
    bad [NodeService] emulated "--gdrdrv-errno EPERM" sh "export APPTAINER_CONTAINER=/images/job.sif";
    bad [NodeSlurm] emulated "--gdrdrv-errno EPERM" sh "export APPTAINER_CONTAINER=/images/job.sif SLURM_JOB_ID=7";
    // The container has no node.
    bad [NodePod] emulated "--no-gdrdrv" sh "export KUBERNETES_SERVICE_HOST=10.0.0.1";
    bad [NodeApptainer] emulated "--no-gdrdrv" sh "export APPTAINER_CONTAINER=/images/job.sif";
    bad [NodeApptainer] emulated "--no-gdrdrv" sh "export SINGULARITY_CONTAINER=/images/job.sif";
    bad [EngineModule] emulated "--driver-version 2.0" sh "export NCCL_GDRCOPY_ENABLE=1" args "--for nccl";
    bad [EngineModule] emulated "--driver-version 2.4" args "--for aws-ofi-nccl";
    bad [EngineModule] emulated "--driver-version 2.4" args "--for mscclpp";
    // The machine.
    works [CdiNode] sh "mount -t tmpfs etc /etc; mkdir /etc/cdi; echo path: /dev/nvidiactl >/etc/cdi/nvidia.yaml";
    works [] sh "mount -t tmpfs etc /etc; mkdir /etc/cdi; echo path: /dev/gdrdrv >/etc/cdi/nvidia.yaml";
    works [LockedMemory] sh "mount -t tmpfs class /sys/class; mkdir -p /sys/class/infiniband/mlx5_0; ulimit -S -l 64";
    works [OpenFiles] sh "ulimit -S -n 64";
    works [OpenFiles] emulated "--cuda-version 13.3" sh "ulimit -S -n 512; export GDRCOPY_USE_DMABUF_MMAP=1";
    works [OpenFilesHard] sh "ulimit -n 64";
    works [OpenFiles] sh "ulimit -S -n 5" args "--for ucx";
    works [OpenFilesHard] sh "ulimit -n 5";
    works [AddressSpace] emulated "--fault cuMemAlloc:2" sh "ulimit -S -v 100000000";
    works [ProcMount] sh "mount -t tmpfs none /proc";
    works [CopyRoutine] sh "export GDRCOPY_ISA=abacus";
    works [RuntimeOther] file ("/proc/version", "Linux version 4.4.0 #1 SMP Sun Jan 10 15:06:54 PST 2016\n");
    works [] sh "wrap='env --ignore-signal=CHLD'";
    works [] sh "export TMPDIR=/nowhere";
    works [] sh "ulimit -s 64";
    works [] sh "sandbox poll 1";
    works [DoctorSandbox] sh "sandbox clone 1";
    works [DoctorProcesses] sh "sandbox clone 11";
    works [DoctorMemory] sh "both $faulty other; path other; FAULTY=kill";
    works [ModuleInstall] emulated "--no-gdrdrv --cuda-version 13.5 --dmabuf mmap" sh "modules";
    works [ModuleInstall] emulated "--rdma no --no-gdrdrv --cuda-version 13.3" sh "modules";
    works [] emulated "--platform cached";
    works [] emulated "--no-mempools --cuda-version 12.2";
}

libraries {
    bad [LibraryCache] sh "cp -a /etc etc; mount --bind etc /etc; echo $dir/right >/etc/ld.so.conf.d/new.conf
            mount -t tmpfs cache /var/cache; path none";
    bad [LibraryReadable] sh "root; put $ours one/libgdrapi.so.2; path one; chmod 0 one/*; chown 1 one/*; as_user";
    bad [LibraryInstall] sh "path none";
    works [LibraryLink] sh "put $ours one/libgdrapi.so.2; path one";
    bad [LibraryLink] sh "put $ours one/libgdrapi.so.2; path one" args "--for dpdk";
    bad [LibraryLink] sh "put $ours one/libgdrapi.so.2; path one; export NCCL_GDRCOPY_ENABLE=1" args "--for nccl";
    works [LibraryLink] sh "put $ours one/libgdrapi.so.2; path one right";
    // glibc compares names with SONAMEs.
    works [LibraryPath] sh "path none; preload $dir/right/libgdrapi.so.2";
    // As `make tools` leaves them, and as they are installed.
    bad [LibraryPath] sh "put $gdrcopy tools/bin/gdrcopy; both $ours lib; gdrcopy=tools/bin/gdrcopy; path none";
    bad [LibraryPath] sh "put $gdrcopy bin/gdrcopy; both $ours lib64; gdrcopy=bin/gdrcopy; path none";
    works [] sh "path nowhere right; LD_LIBRARY_PATH=$(printf '/\\377:')$LD_LIBRARY_PATH";
    // Another one comes first.
    works [LibraryPath] sh "both $faulty other; path other right; export NCCL_GDRCOPY_ENABLE=1";
    works [LibraryLink] sh "both $faulty other; put $ours one/libgdrapi.so.2; path one other";
    works [LibraryLink] sh "both $faulty other; put $ours one/libgdrapi.so.2; path one other; export NCCL_GDRCOPY_ENABLE=1"
        args "--for nccl";
    works [LibraryPath] sh "both $faulty other; put $ours one/libgdrapi.so.2; path other one";
    works [LibraryLink] sh "put $ours one/libgdrapi.so.2; cp $faulty .; ln -sf ../doctors-faulty.so one/libgdrapi.so; path one";
    works [LibraryPreload] sh "both $ours one; cp $faulty libgdrapi.so.2; ln -sfn ../libgdrapi.so.2 one/libgdrapi.so
            path one; preload $dir/libgdrapi.so.2";
    works [LibraryPreload] sh "preload $dir/gone.so";
    works [LibraryPreload] sh "cp $ours libgdrapi.so.2; foreign libgdrapi.so.2; preload $dir/libgdrapi.so.2";
    works [LibraryPreload] sh "preload $old";
    works [LibraryPreload] sh "preload $old" args "--for ucx";
    // As the banner of a profiler.
    works [] sh "preload $talking";
    // Files that are no library.
    bad [LibraryRemove] sh "mkdir other; echo no library >other/libgdrapi.so.2; path other right";
    bad [LibraryRemove] sh "both $dir/file other; path other right; export NCCL_GDRCOPY_ENABLE=1" args "--for nccl";
    works [LibraryDangling] sh "mkdir other; ln -sf /opt/gone/libgdrapi.so.2.6 other/libgdrapi.so.2; path other right";
    bad [LibraryDangling] is_fixed true sh "mkdir other; ln -sf /opt/gone/libgdrapi.so.2.6 other/libgdrapi.so.2; path other" args "--for ucx";
    bad [LibraryRemove] sh "mkdir pipe; mkfifo pipe/libgdrapi.so.2; path pipe right";
    works [] sh "mkdir pipe; mkfifo pipe/libgdrapi.so.2; path pipe right; export NCCL_GDRCOPY_ENABLE=1" args "--for nccl";
    bad [LibraryRemove] sh "mkdir pipe; mkfifo pipe/libgdrapi.so.2; path pipe right" args "--for ucx";
    bad [LibraryRemove] sh "mkdir -p other/libgdrapi.so.2; path other right";
    bad [LibraryName] args "--lib /dev/null";
    bad [LibraryName] sh "args=\"--lib $absent\"";
    // For another CPU, which the loader passes over.
    bad [LibraryCpu] sh "put $ours other/libgdrapi.so.2; foreign other/libgdrapi.so.2; path other";
    bad [LibraryCpu] sh "both $ours other; foreign other/libgdrapi.so.2; path other" args "--for ucx";
    works [] sh "both $faulty other; put $ours one/libgdrapi.so.2; foreign one/libgdrapi.so.2; path other one";
    // A name without a version, of an older one.
    works [LibraryLink] sh "put $ours other/libgdrapi.so.2; cp $driver other/libgdrapi.so.1
            ln -s libgdrapi.so.1 other/libgdrapi.so; path other";
    bad [LibraryLink] sh "put $ours other/libgdrapi.so.2; cp $driver other/libgdrapi.so.1
            ln -s libgdrapi.so.1 other/libgdrapi.so; path other; export NCCL_GDRCOPY_ENABLE=1" args "--for nccl";
    bad [LibraryUpdate] sh "mkdir other; echo 'int gdr_open(void) { return 0; }' >1.c; gcc -shared 1.c -o other/libgdrapi.so
            path other";
    // Good ones, which cannot be loaded here.
    bad [LibraryNeeds] sh "mkdir other; gcc -shared -x c /dev/null -Wl,-soname,libnuma.so.9 -o n.so; path other
            gcc -shared -Wl,--no-as-needed -x c /dev/null -x none n.so -o other/libgdrapi.so.2";
    // The wheel's empty object, without the library.
    bad [LibraryNeeds] sh "mkdir other; path other
            gcc -shared -Wl,--no-as-needed -x c /dev/null -x none right/libgdrapi.so.2 -o other/libgdrapi.so";
    bad [LibraryNoexec] sh "mkdir mount; mount -t tmpfs -o noexec none mount; both $ours mount; path mount";
    bad [LibraryBuild] sh "mkdir musl; cd musl
            gcc -shared -nostdlib -Wl,-soname,libc.musl.so.1 -x c /dev/null -o libc.so
            gcc -shared -nostdlib -Wl,--no-as-needed -x c /dev/null -x none libc.so -o libgdrapi.so.2; path musl";
    // Entries of LD_LIBRARY_PATH.
    bad [LibraryEntry] sh "LD_LIBRARY_PATH='~/right'";
    bad [LibraryEntry] sh "LD_LIBRARY_PATH='$HOME/right'" args "--for ucx";
    bad [LibraryEntry] sh "path right/libgdrapi.so";
    bad [LibrarySearch] sh "root; both $ours closed/lib; path closed/lib; chmod 700 closed; chown 1 closed; as_user";
    // Its self-test fails.
    bad [LibraryPath] sh "both $old other; path other right";
    bad [LibraryPath] sh "both $old other; path other right; export NCCL_GDRCOPY_ENABLE=1" args "--for nccl";
    bad [SelfTestLog] sh "both $old other; path other; export NCCL_GDRCOPY_ENABLE=1" args "--for nccl";
    bad [LibraryOld] emulated "--no-gdrdrv --cuda-version 13.3" sh "both $old other; path other right";
    bad [LibraryOld] emulated "--no-gdrdrv --cuda-version 13.3" args "--for nccl"
        sh "both $old other; path other right; export NCCL_GDRCOPY_ENABLE=1";
    bad [ModuleInstall] emulated "--no-gdrdrv" sh "modules; both $old other; path other right";
    bad [LibraryOther] sh "args=\"--lib $faulty\"; FAULTY=wrong";
    bad [LibraryOther] sh "args=\"--lib $faulty\"; FAULTY=short";
    bad [LibraryOther] sh "args=\"--lib $faulty\"; FAULTY=crash";
    bad [LibraryBuild] sh "both $faulty other; path other; FAULTY=illegal";
    // Its process ends with status 0.
    bad [LibraryOther] sh "args=\"--lib $faulty\"; FAULTY=exit";
    bad [LibraryOther] sh "both $faulty other; path other; FAULTY=vanish";
    bad [LibraryOther] sh "both $faulty other; path other; FAULTY=vanish" args "--for ucx";
    bad [LibraryPath] sh "both $faulty other; path other right; FAULTY=crash";
    // The last limit holds. However slow the computer is, the library does not end.
    bad [SelfTestHung] sh "args=\"--lib $faulty\"; FAULTY=hang" args "--limit 3";
    bad [LibraryReports] emulated "--fault MMAP:ENOMEM";
    bad [LibraryReports] emulated "--fault PIN_BUFFER_V2:EINVAL";
    bad [LibraryReports] emulated "--fault UNPIN_BUFFER:EINVAL";
}

settings_and_engines {
    works [VariableUnknown] sh "export GDRCOPY_ENABLE_LOGING=1";
    works [VariableGone] sh "export GDRCOPY_THREADS=8";
    works [VariableValue] sh "export GDRCOPY_LOG_LEVEL=9";
    works [] sh "export GDRCOPY_LOG_LEVEL=3 GDRCOPY_HOME=/opt GDRCOPY_ENABLE_LOGGING=x";
    bad [SettingExport] args "--for nccl";
    bad [SettingExport] sh "export NCCL_GDRCOPY_ENABLE=true" args "--for nccl";
    works [] sh "export NCCL_GDRCOPY_ENABLE=0x1" args "--for nccl";
    works [] sh "echo NCCL_GDRCOPY_ENABLE=1 >c; export NCCL_CONF_FILE=c" args "--for nccl";
    bad [SettingExport] sh "echo NCCL_GDRCOPY_ENABLE=1 >c; export NCCL_CONF_FILE=c NCCL_GDRCOPY_ENABLE=0" args "--for nccl";
    bad [SettingExport] sh "echo NCCL_GDRCOPY_ENABLE=0 >c; export NCCL_CONF_FILE=c" args "--for nccl";
    // The last one of these files of UCX counts.
    works [] args "--for ucx";
    bad [SettingUnset] sh "export UCX_TLS=rc" args "--for ucx";
    bad [SettingUnset] sh "export UCX_TLS=rc" args "--for nixl";
    bad [SettingExport] sh "echo UCX_TLS=rc,sm >ucx.conf" args "--for ucx";
    bad [SettingExport] sh "put file site/ucx.conf; echo 'UCX_TLS = rc ; no GPUs' >site/ucx.conf; HOME=/nowhere
            export UCX_CONFIG_DIR=$dir/site" args "--for ucx";
    bad [SettingExport] sh "put file lib/libucs.so.0; path right lib; put file etc/ucx/ucx.conf
            echo UCX_TLS=rc >etc/ucx/ucx.conf; HOME=/nowhere" args "--for ucx";
    works [] sh "put file home/ucx.conf; put file site/ucx.conf; echo UCX_TLS=rc >home/ucx.conf
            printf 'UCX_TLS=rc\\nUCX_TLS=rc,cuda\\n' >site/ucx.conf; HOME=$dir/home; export UCX_CONFIG_DIR=$dir/site"
        args "--for ucx";
    works [SettingExport] sh "echo UCX_TLS=rc,sm >ucx.conf";
    bad [SettingUnset] sh "export NVSHMEM_DISABLE_GDRCOPY=1" args "--for nvshmem";
    bad [SettingUnset] sh "export FI_HMEM_CUDA_USE_GDRCOPY=0" args "--for libfabric";
    bad [SettingUnset] sh "export FI_PROVIDER=tcp" args "--for libfabric";
    bad [SettingUnset] sh "export FI_HMEM=^cuda" args "--for libfabric";
    bad [SettingUnset] sh "export GDRCOPY_PATH_L=/nowhere" args "--for dpdk";
    works [] args "--for dpdk";
    works [] sh "put $ours one/libgdrapi.so.2; path one" args "--for nvshmem";
    works [] sh "put $ours one/libgdrapi.so.2; path one" args "--for libfabric";
    works [] sh "put $ours one/libgdrapi.so.2; path one" args "--for mscclpp";
    works [] sh "put $ours one/libgdrapi.so.2; path one" args "--for nixl";
    works [] args "--for aws-ofi-nccl";
    works [] args "--for tensorrt-llm";
    // Each variable, where all engines are examined.
    works [SettingExport] sh "export NCCL_GDRCOPY_ENABLE=2";
    works [SettingUnset] sh "export NCCL_GDRCOPY_FIFO_ENABLE=false";
    works [SettingUnset] sh "export NCCL_GDRCOPY_SYNC_ENABLE=0";
    works [SettingUnset] sh "export NCCL_GDRCOPY_USE_INTERNAL_DMABUF=1";
    works [SettingUnset] sh "export NVSHMEM_GDRCOPY_USE_INTERNAL_DMABUF=1";
    works [SettingUnset] sh "export DOCA_GPUNETIO_DISABLE_GDRCOPY=1";
    works [] sh "export NCCL_GDRCOPY_ENABLE=' 1' NCCL_GDRCOPY_FIFO_ENABLE=2 NCCL_GDRCOPY_USE_INTERNAL_DMABUF=0
            export NVSHMEM_DISABLE_GDRCOPY=0 FI_HMEM_CUDA_USE_GDRCOPY=true DOCA_GPUNETIO_DISABLE_GDRCOPY=0 UCX_TLS=rc,cuda";
}

running_processes {
    real [ProcessNone] sh "process sleep sleep 1000";
    // It has loaded a library, and opened nothing.
    real [ProcessClosed] sh "export LD_PRELOAD=$dir/right/libgdrapi.so.2; process libgdrapi sleep 1000";
    works [] sh "holder";
    works [] sh "holder" args "--for ucx";
    works [SettingUnset] is_fixed true sh "export UCX_TLS=rc; holder";
    bad [SettingUnset] is_fixed true sh "export UCX_TLS=rc; holder" args "--for ucx";
    // An empty object of the plain name, as the wheel has it, is no second library.
    works [] sh "ln -s libgdrapi.so.2 right/libgdrapi.so.1; rm right/libgdrapi.so
            gcc -shared -nostdlib -x c /dev/null -x none -Wl,-soname,libgdrapi.so -Wl,--no-as-needed right/libgdrapi.so.2 \
                -o right/libgdrapi.so; preload right/libgdrapi.so; holder";
    works [ProcessNames] sh "put $faulty other/libgdrapi.so; preload $dir/other/libgdrapi.so; holder";
    works [ProcessRemoved] sh "holder; rm right/libgdrapi.so.2";
    works [ProcessRestart] sh "holder; rm right/libgdrapi.so.2; cp $ours right/libgdrapi.so.2";
    // Its files, as it sees them.
    works [] sh "echo NCCL_GDRCOPY_ENABLE=1 >.nccl.conf; holder" args "--for nccl";
    bad [SettingExport] is_fixed true sh "echo NCCL_GDRCOPY_ENABLE=1 >.nccl.conf; echo NCCL_GDRCOPY_ENABLE=0 >named
            export NCCL_CONF_FILE=named; holder" args "--for nccl";
    bad [SettingExport] is_fixed true sh "HOME=/nowhere; holder" args "--for nccl";
    // No file of this name can be opened, also by root.
    works [] sh "ln -s endless endless; export NCCL_CONF_FILE=$dir/endless; holder" args "--for nccl";
    bad [SettingExport] is_fixed true sh "echo UCX_TLS=rc >ucx.conf; holder; HOME=/nowhere" args "--for ucx";
}
}

/// Declares the remedies that no test runs, by their reasons.
macro_rules! not_run {
    ($($reason:literal $($remedy:ident)*;)*) => {
        pub(crate) const NOT_RUN: &[(&str, &[Remedy])] = &[$(($reason, &[$($remedy),*])),*];
    };
}

not_run! {
    "wants other hardware or firmware" GpuNone GpuUnseen GpuKind GpuWsl GpuReset LinkNarrow Bar1Small NumaFar;
    "wants that other programs end, or that a person reads the log" GpuFull GpuExclusive Bar1Full GpuHung SelfTestHung;
    "starts another container" GpuDocker GpuPodman GpuPod GpuApptainer GpuContainer GpuSlurm
        NodeDocker NodePodman NodePod NodeApptainer NodeContainer RuntimeOther CdiNode;
    "changes the GPU driver" DriverMissing DriverInstall DriverUpdate DriverOpen DriverMismatch
        DriverNodes;
    "changes a service of the GPU driver" FabricManager CudaMps CudaLicense CudaPermission CudaError;
    "changes the kernel, as gdrdrv-c/vm and the tests of packages do" ModuleInstall ModuleHeaders ModuleSources ModuleLog
        ModuleBuild ModuleLoad ModuleSigned ModuleStale ModuleStaleByHand ModuleDummy ModuleUpdate ModuleOption ModuleReload
        EngineModule;
    "changes the policy of the system" NodeSecurity NodeService NodeSlurm;
    "goes as far as the hard limit of this computer" OpenFilesHard LockedMemory;
    "installs another library" LibraryInstall LibraryUpdate LibraryOld LibraryOther LibraryBuild LibraryNeeds LibraryCpu;
    "changes the command or the program" GpuNumber LibraryName VmmKind;
    "says what the library's log says" LibraryReports SelfTestLog;
    "starts the process again" ProcessNone ProcessNames ProcessRestart ProcessRemoved ProcessClosed;
    "changes the limits of the system" NodeSandbox DoctorSandbox DoctorProcesses DoctorMemory FilesOfSystem;
}

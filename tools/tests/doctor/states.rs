//! Lists states of the system, the remedy that doctor must advise first in each, and the remedies that no test runs.

use super::choose_and_run;
use super::harness::{HEALTHY, State};
use super::remedies::Remedy::{self, *};

/// Returns a state of the system in which GDRCopy works. `first` is the remedy that doctor must advise first, or empty.
const fn works(first: &'static [Remedy]) -> State {
    State { first, ..HEALTHY }
}

/// Returns a state of the system in which GDRCopy does not work.
const fn bad(first: &'static [Remedy]) -> State {
    State { usable: false, ..works(first) }
}

/// Returns a state of the system in which GDRCopy does not work, and doctor runs without gdremu.
const fn real(first: &'static [Remedy]) -> State {
    State { is_real: true, ..bad(first) }
}

/// Declares lists of states, and a test for each list. Each state is written as one of the functions above, the remedy
/// that doctor must advise first, and values of fields of `State`.
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
    // NVIDIA_DRIVER_CAPABILITIES without `compute` leaves libcuda.so.1 out of a container. A container without
    // /dev/nvidiactl has no GPU at all.
    real [GpuCapabilities] sh "capabilities; touch /dev/nvidiactl; export NVIDIA_DRIVER_CAPABILITIES=utility,video";
    real [GpuDocker] sh "capabilities; touch /dev/nvidiactl; export NVIDIA_DRIVER_CAPABILITIES=utility,compute";
    real [GpuDocker] sh "capabilities; export NVIDIA_DRIVER_CAPABILITIES=utility";
    // A device node of the GPU can be opened only by a group without this user, only by its owner, or by everyone.
    real [GpuGroup] sh "dev; export CU_INIT=100; mknod -m 660 /dev/nvidia0 c 195 0; chown 1:44 /dev/nvidia0; as_user";
    real [GpuGroup] sh "dev; export CU_INIT=304; mknod -m 660 /dev/nvidiactl c 195 255; chown 1:44 /dev/nvidiactl; as_user";
    real [GpuMode] sh "dev; export CU_INIT=100; mknod -m 600 /dev/nvidia-uvm c 511 0; chown 1:44 /dev/nvidia-uvm; as_user";
    real [GpuUnseen] sh "dev; export CU_INIT=100; mknod -m 666 /dev/nvidia0 c 195 0; chown 1 /dev/nvidia0; as_user";
    bad [GpuPod] emulated "--fault cuInit:100" sh "export KUBERNETES_SERVICE_HOST=10.0.0.1";
    bad [GpuApptainer] emulated "--fault cuInit:100" sh "export APPTAINER_CONTAINER=/images/job.sif";
    bad [GpuSlurm] emulated "--fault cuInit:100" sh "root; export SLURM_JOB_ID=7";
    bad [GpuHidden] sh "export CUDA_VISIBLE_DEVICES=";
    bad [GpuHidden] sh "export CUDA_VISIBLE_DEVICES=7";
    real [GpuUnseen] sh "cuda 100; export CUDA_VISIBLE_DEVICES=0";
    real [DriverMissing] sh "cuda 100; echo no library >cuda/libcuda.so.1";
    // Functions of CUDA fail. The number after each colon is the error (CUresult).
    works [GpuFull] emulated "--fault cuDevicePrimaryCtxRetain:2";
    works [GpuFull] emulated "--fault cuMemAlloc:2";
    works [GpuExclusive] emulated "--fault cuDevicePrimaryCtxRetain:46";
    works [CudaMps] emulated "--fault cuDevicePrimaryCtxRetain:808";
    bad [GpuReset] emulated "--fault cuDevicePrimaryCtxRetain:214";
    bad [GpuReset] emulated "--fault cuMemcpyDtoH:719";
    bad [CudaLicense] emulated "--fault cuInit:102";
    bad [CudaPermission] emulated "--fault cuInit:800";
    bad [FabricManager] emulated "--fault cuInit:802";
    bad [DriverMismatch] emulated "--fault cuInit:803";
    bad [DriverNodes] emulated "--fault cuInit:999";
    bad [CudaError] emulated "--fault cuInit:1";
    real [CudaStub] sh "cuda 34";
    real [CudaCompat] sh "cuda 804";
    // LD_PRELOAD, not LD_LIBRARY_PATH, makes the loader take the stub libcuda.
    real [CudaStub] is_fixed true sh "cuda 34; path right; export LD_PRELOAD=$dir/cuda/libcuda.so.1";
    real [GpuHung] sh "cuda hang" args "--limit 1";
    // CUDA cannot map dma-bufs.
    bad [DriverUpdate] emulated "--no-gdrdrv --cuda-version 12.2";
    bad [DriverOpen] emulated "--no-gdrdrv --cuda-version 13.5 --dmabuf no";
    bad [DriverOpen] emulated "--no-gdrdrv --cuda-version 13.5 --dmabuf export";
    bad [DmabufUnforced] sh "export GDRCOPY_USE_DMABUF_MMAP=1";
    bad [DmabufUnforced] emulated "--cuda-version 13.3 --dmabuf export" sh "export GDRCOPY_USE_DMABUF_MMAP=1";
    // The only GPU, or one of two, lacks GPUDirect RDMA.
    bad [GpuKind] emulated "--rdma no";
    bad [GpuExclude] emulated "--gpus 2 --rdma yes,no";
    // CUDA_VISIBLE_DEVICES hides the GPU that has GPUDirect RDMA, or gives it another number.
    bad [GpuExclude] emulated "--gpus 2 --rdma yes,no" sh "export CUDA_VISIBLE_DEVICES=1";
    bad [GpuExclude] emulated "--gpus 2 --rdma yes,no" sh "export CUDA_VISIBLE_DEVICES=GPU-67647265-6d75-4000-8000-000000000001";
    bad [GpuExclude] emulated "--gpus 2 --rdma yes,no" sh "export CUDA_VISIBLE_DEVICES=1,0";
    // The GPU of this container lacks GPUDirect RDMA. In the first state, the host has a second GPU.
    real [GpuElsewhere] sh "node; gpu 1; gpu 2; export CU_RDMA=0 container=docker NVIDIA_VISIBLE_DEVICES=1";
    real [GpuKind] sh "node; gpu 1; export CU_RDMA=0 container=docker NVIDIA_VISIBLE_DEVICES=1";
    bad [GpuNumber] emulated "--gpus 3" args "--gpu 3";
    bad [GpuWsl] file ("/proc/version", "Linux version 5.15.167.4-microsoft-standard-WSL2 (root@build) #1 SMP\n");
    works [Bar1Small] emulated "--bar1-size 256M";
    bad [Bar1Full] emulated "--bar1-size 512K";
    bad [Bar1Full] emulated "--fault PIN_BUFFER_V2:ENOMEM";
}

device_nodes {
    real [GpuFull] usable true sh "node";
    real [NodeMode] sh "node 600; chown 1 /dev/gdrdrv; as_user";
    // This user namespace maps only root's user ID. So in it, root cannot change the mode of another user's node.
    real [NodeModeHost] sh "node 600; chown 1 /dev/gdrdrv; wrap='unshare --map-root-user'";
    real [NodeModeHost] sh "node 600; chown 1 /dev/gdrdrv; export container=podman; wrap='unshare --map-root-user'";
    real [NodeNodev] sh "node; mount -o remount,nodev /dev";
    real [NodeSecurity] sh "node; export GDRDRV=forbid";
    real [NodeCreate] sh "dev";
    real [NodePrivate] sh "dev; export INVOCATION_ID=0123456789abcdef";
    real [NodeCreate] sh "dev; mknod /dev/kmsg c 1 11; export INVOCATION_ID=0123456789abcdef";
    real [NodeDocker] sh "dev; export container=docker";
    real [NodePodman] sh "dev; export container=podman";
    real [NodeContainer] sh "dev; export container=lxc";
    real [NodeReplace] sh "dev; mkdir /dev/gdrdrv";
    real [NodeReplace] sh "dev; ln -s null /dev/gdrdrv";
    real [NodeReplace] sh "dev; ln -s nowhere /dev/gdrdrv";
    real [NodeReplace] sh "node 666 b";
    // The device node has a major number that is no longer the module's.
    real [NodeReplace] sh "node 666 c 121";
    // doctor cannot start the processes in which it examines the system. gdremu is not used, as it could not start.
    real [DoctorStart] usable true sh "node; ulimit -S -f 0";
    real [DoctorStart] usable true is_fixed true sh "node; wrap='setpriv --reuid=12345 --clear-groups prlimit --nproc=0'";
}

module_and_machine {
    bad [ModuleInstall] emulated "--no-gdrdrv" sh "modules";
    bad [ModuleInstall] emulated "--no-gdrdrv --cuda-version 13.3" sh "modules" args "--for mscclpp";
    bad [ModuleHeaders] emulated "--no-gdrdrv" sh "sources";
    bad [ModuleSources] emulated "--no-gdrdrv" sh "headers";
    // The kernel was updated. The module is built for the new kernel in the first state only.
    bad [KernelReboot] emulated "--no-gdrdrv" sh "module; mv $kernel /lib/modules/7.99.0-test";
    bad [ModuleHeaders] emulated "--no-gdrdrv" sh "module; mv $kernel /lib/modules/7.99.0-test; >/lib/modules/7.99.0-test/modules.dep";
    bad [ModuleBuild] emulated "--no-gdrdrv" sh "driver";
    // DKMS's log has a failed build of an old version, for this kernel or another one, or of the newest version.
    bad [ModuleTooOld] emulated "--no-gdrdrv" sh "driver; failed 2.3 $(uname -r)";
    bad [ModuleBuild] emulated "--no-gdrdrv" sh "driver; failed 2.3 6.0.0";
    bad [ModuleBuild] emulated "--no-gdrdrv" sh "driver; failed 2.6 $(uname -r)";
    bad [ModuleLoad] emulated "--no-gdrdrv" sh "module";
    bad [ModuleLoad] emulated "--no-gdrdrv" sh "module; loaded OE";
    bad [ModuleForbidden] emulated "--no-gdrdrv" sh "module; etc; mkdir -p /etc/modprobe.d
            printf '# loads\\ninstall gdrdrv /bin/false\\n' >/etc/modprobe.d/hardening.conf";
    bad [ModuleForbidden] emulated "--no-gdrdrv" sh "module; etc; mkdir -p /etc/modprobe.d
            echo '  blacklist  gdrdrv' >/etc/modprobe.d/hardening.conf";
    // If /etc and /run have a file of one name, modprobe reads only that in /etc. Here, this file loads the module.
    bad [ModuleLoad] emulated "--no-gdrdrv" sh "module; etc; mkdir -p /etc/modprobe.d; mount -t tmpfs run /run; mkdir /run/modprobe.d
            echo install gdrdrv /bin/false >/run/modprobe.d/gdrdrv.conf
            echo 'install gdrdrv /sbin/modprobe --ignore-install gdrdrv' >/etc/modprobe.d/gdrdrv.conf";
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
    bad [ModuleUpdate] emulated "--driver-version 1.9" sh "modules";
    bad [ModuleSwitch] emulated "--driver-version 1.9" sh "module";
    bad [LibraryUpdate] emulated "--min-api-version 3.0";
    works [NodeMode] is_fixed true emulated "--gdrdrv-errno EACCES --cuda-version 13.3";
    bad [NodeReplace] is_fixed true emulated "--gdrdrv-errno ENOTTY" sh "root";
    bad [NodeSandbox] emulated "--fault GET_VERSION:EPERM";
    bad [ModuleReload] emulated "--gdrdrv-errno EIO";
    bad [ModuleReload] emulated "--cuda-version 13.3" sh "export GDRDRV=hang; preload $driver" args "--limit 3";
    bad [ModuleReload] emulated "--cuda-version 13.3" sh "export GDRDRV=kill; preload $driver";
    // Opening the device node ends the process. This is only a warning, because the library maps dma-bufs instead.
    works [ModuleReload] emulated "--cuda-version 13.3" sh "export GDRDRV=kill GDRCOPY_USE_DMABUF_MMAP=1; preload $driver";
    // Opening the device node fails with EPERM, as it does if a device cgroup forbids it.
    bad [NodeService] emulated "--gdrdrv-errno EPERM" sh "root";
    bad [NodePod] emulated "--gdrdrv-errno EPERM" sh "export KUBERNETES_SERVICE_HOST=10.0.0.1";
    bad [NodeService] emulated "--gdrdrv-errno EPERM" sh "export APPTAINER_CONTAINER=/images/job.sif";
    bad [NodeSlurm] emulated "--gdrdrv-errno EPERM" sh "export APPTAINER_CONTAINER=/images/job.sif SLURM_JOB_ID=7";
    // The container has no device node.
    bad [NodePod] emulated "--no-gdrdrv" sh "export KUBERNETES_SERVICE_HOST=10.0.0.1";
    bad [NodeApptainer] emulated "--no-gdrdrv" sh "export APPTAINER_CONTAINER=/images/job.sif";
    bad [EngineModule] emulated "--driver-version 2.0" sh "modules; export NCCL_GDRCOPY_ENABLE=1" args "--for nccl";
    bad [EngineModule] emulated "--driver-version 2.4" sh "modules" args "--for aws-ofi-nccl";
    // A newer module is installed, but not loaded.
    bad [ModuleSwitch] emulated "--driver-version 2.4" sh "module" args "--for aws-ofi-nccl";
    // Limits, mounts or variables of the system are wrong.
    works [OpenFiles] sh "ulimit -S -n 64";
    works [OpenFiles] emulated "--cuda-version 13.3" sh "ulimit -S -n 512; export GDRCOPY_USE_DMABUF_MMAP=1";
    // The hard limits are too low. doctor first advises to raise them, even without gdrdrv, because dma-bufs work here.
    works [OpenFilesHard] sh "ulimit -n 128";
    works [OpenFilesHard] emulated "--no-gdrdrv --cuda-version 13.3" sh "modules; ulimit -n 256";
    works [OpenFilesHard] emulated "--no-gdrdrv --cuda-version 13.3" sh "ulimit -S -n 256; ulimit -H -n 512";
    works [AddressSpace] emulated "--fault cuMemAlloc:2" sh "ulimit -S -v 100000000";
    works [ProcMount] sh "mount -t tmpfs none /proc";
    works [] sh "wrap='env --ignore-signal=CHLD'";
    works [] sh "export TMPDIR=/nowhere";
    works [DoctorStart] is_fixed true sh "ulimit -S -n 5";
    bad [DoctorStart] is_fixed true sh "both $faulty other; path other; FAULTY=kill";
    // doctor starts some of its processes, and then cannot start more.
    works [DoctorStart] is_fixed true sh "export GDRDRV=starve; preload $driver";
    bad [DoctorStart] is_fixed true sh "both $faulty other; path other; FAULTY=starve";
    bad [DoctorStart] is_fixed true sh "both $faulty other; ucx other; path other; FAULTY=starve" args "--for ucx";
    works [] sh "exec <&-";
    works [] sh "root; mount -t tmpfs none /sys";
    works [ModuleInstall] emulated "--rdma no --no-gdrdrv --cuda-version 13.3" sh "modules";
    works [] emulated "--no-mempools --cuda-version 12.2";
}

libraries {
    bad [LibraryReadable] sh "root; put $ours one/libgdrapi.so.2; path one; chmod 0 one/*; chown 1 one/*; as_user";
    bad [LibraryReadable] sh "root; put $ours one/libgdrapi.so.2; put $ours one/libgdrapi.so.2.6; path one; chmod 0 one/*.2
            chown 1 one/*.2; as_user";
    bad [LibraryInstall] sh "path none";
    works [LibraryLink] sh "put $ours one/libgdrapi.so.2; path one";
    bad [LibraryLink] sh "put $ours one/libgdrapi.so.2; path one" args "--for dpdk";
    bad [LibraryLink] sh "put $ours one/libgdrapi.so.2; path one; export NCCL_GDRCOPY_ENABLE=1" args "--for nccl";
    works [LibraryLink] sh "put $ours one/libgdrapi.so.2; path one right";
    // glibc compares the name that a program asks for with SONAMEs of loaded libraries, so it finds the preloaded one.
    works [LibraryPath] sh "path none; preload $dir/right/libgdrapi.so.2";
    // The program and the library are where `make tools` leaves them, or installed, but not on LD_LIBRARY_PATH.
    bad [LibraryPath] sh "put $gdrcopy tools/bin/gdrcopy; both $ours lib; gdrcopy=tools/bin/gdrcopy; path none";
    bad [LibraryPath] sh "put $gdrcopy bin/gdrcopy; both $ours lib64; gdrcopy=bin/gdrcopy; path none";
    works [] sh "path nowhere right; LD_LIBRARY_PATH=$(printf '/\\377:')$LD_LIBRARY_PATH";
    // The names libgdrapi.so.2 and libgdrapi.so lead to two different libraries, in two directories or in one.
    works [LibraryLink] sh "both $faulty other; put $ours one/libgdrapi.so.2; path one other";
    works [LibraryLink] sh "put $ours one/libgdrapi.so.2; cp $faulty .; ln -sf ../doctors-faulty.so one/libgdrapi.so; path one";
    // LD_PRELOAD names a file that does not exist, or a libgdrapi.
    works [LibraryPreload] sh "preload $dir/gone.so";
    works [LibraryPreload] sh "old; preload $dir/old.so";
    works [LibraryPreload] sh "put $ours pre/other.so; preload $dir/pre/other.so";
    works [LibraryPreload] sh "put $ours pre/libgdrapi.so.2; preload $dir/pre/libgdrapi.so.2";
    // An old libgdrapi is preloaded. It has the SONAME that programs ask for, or, in the third state, no SONAME.
    bad [LibraryPreload] sh "old -Wl,-soname,libgdrapi.so.2; put old.so pre/libgdrapi.so.2; preload $dir/pre/libgdrapi.so.2";
    bad [LibraryPreload] sh "old -Wl,-soname,libgdrapi.so.2; put old.so pre/libgdrapi.so.2; preload $dir/pre/libgdrapi.so.2" args "--for mscclpp";
    works [LibraryPreload] sh "old; put old.so pre/libgdrapi.so.2; preload $dir/pre/libgdrapi.so.2" args "--for dpdk";
    bad [LibraryPreloadFile] sh "root; etc; old -Wl,-soname,libgdrapi.so.2; put old.so pre/libgdrapi.so.2
            printf '# site\\n%s\\n' $dir/pre/libgdrapi.so.2 >/etc/ld.so.preload";
    bad [LibraryPreloadFile] sh "root; etc; old -Wl,-soname,libgdrapi.so.2; put old.so pre/libgdrapi.so.2
            echo $dir/pre/libgdrapi.so.2 >/etc/ld.so.preload" args "--for nvshmem";
    works [LibraryPreloadFile] sh "root; etc; old -Wl,-soname,libgdrapi.so.2; put old.so pre/libgdrapi.so.2
            echo $dir/pre/libgdrapi.so.2 >/etc/ld.so.preload" args "--for libfabric";
    works [LibraryPreloadFile] sh "root; etc; echo /lib/none.so >/etc/ld.so.preload";
    // LD_LIBRARY_PATH has a wrong entry: one that is no directory, a directory that this user may not read, or an empty
    // entry, which means the current directory.
    bad [LibraryPath] sh "both $ours gdr; LD_LIBRARY_PATH='~/gdr'";
    bad [LibraryPath] sh "both $ours gdr; path gdr/libgdrapi.so.2";
    bad [LibraryRemove] sh "echo no library >libgdrapi.so.2; LD_LIBRARY_PATH=:$dir/right";
    bad [LibraryClosed] sh "root; both $ours one/two; path one/two; chmod 0 one; chown 1 one; as_user";
    // In these states, a file, link, pipe or directory has a library's name, but is no library.
    bad [LibraryRemove] sh "mkdir other; echo no library >other/libgdrapi.so.2; path other right";
    works [LibraryDangling] sh "mkdir other; ln -sf /opt/gone/libgdrapi.so.2.6 other/libgdrapi.so.2; path other right";
    bad [LibraryDangling] is_fixed true sh "mkdir other; ln -sf /opt/gone/libgdrapi.so.2.6 other/libgdrapi.so.2; path other" args "--for ucx";
    // These links are broken. The loader's search ends at errors other than ENOENT or EACCES, here ENOTDIR and ELOOP.
    bad [LibraryDangling] sh "mkdir other; ln -s /dev/null/libgdrapi.so.2.6 other/libgdrapi.so.2; path other right";
    bad [LibraryDangling] sh "mkdir other; ln -s libgdrapi.so.2 other/libgdrapi.so.2; path other right";
    bad [LibraryRelink] sh "put $ours one/libgdrapi.so.2.6; ln -s libgdrapi.so.2.5 one/libgdrapi.so.2; path one";
    // The links form a loop.
    bad [LibraryRelink] sh "put $ours one/libgdrapi.so.2.6; ln -s libgdrapi.so.2 one/libgdrapi.so
            ln -s libgdrapi.so one/libgdrapi.so.2; path one";
    // Instead of each link there is a file whose text is the link's target. A good library is in the same directory. In
    // the second state, the next directory that the loader searches has another good library.
    bad [LibraryRelinkBoth] sh "put $ours one/libgdrapi.so.2.6; printf libgdrapi.so.2.6 >one/libgdrapi.so.2
            printf libgdrapi.so.2 >one/libgdrapi.so; path one";
    bad [LibraryRelink] sh "put $ours one/libgdrapi.so.2.6; printf libgdrapi.so.2.6 >one/libgdrapi.so.2; path one right"
        args "--for ucx";
    // A link leads, by a link to a directory, into a directory that this user may not search.
    bad [LibraryClosed] sh "root; both $ours one/two; mkdir other; ln -s one/two three; path other
            ln -s ../three/libgdrapi.so.2 other/libgdrapi.so.2; chmod 0 one; chown 1 one; as_user";
    // Reading the file fails with EIO.
    bad [LibraryUnread] sh "mkdir other; ln -s /proc/self/mem other/libgdrapi.so.2; path other right";
    bad [LibraryRemove] is_fixed true sh "mkdir pipe; mkfifo pipe/libgdrapi.so.2; path pipe right" args "--limit 3";
    bad [LibraryRemove] sh "mkdir -p other/libgdrapi.so.2; path other right";
    bad [LibraryRemove] sh "mkdir \"it's one\"; true >\"it's one/libgdrapi.so.2\"; path \"it's one\" right";
    // The library's file is cut off, is no library, or is missing. Or it aborts at each call, or hangs on loading.
    bad [LibraryBuild] sh "mkdir other; head -c 4096 $ours >other/libgdrapi.so.2; path other right";
    bad [LibraryName] args "--lib /dev/null";
    bad [LibraryName] args "--lib /nowhere/libgdrapi.so.2";
    bad [LibraryOther] sh "args=\"--lib $absent\"";
    bad [LibraryOther] sh "both $faulty other; path other; FAULTY='stuck constructor'" args "--limit 3";
    // The library needs a newer C library.
    bad [LibraryBuild] sh "newer; args='--lib newer.so'";
    bad [LibraryBuild] sh "newer; both newer.so other; path other";
    // The library is for another CPU, so the loader skips it.
    bad [LibraryCpu] sh "put $ours other/libgdrapi.so.2; foreign other/libgdrapi.so.2; path other";
    // The library is for a CPU of 32 bits.
    bad [LibraryCpu] sh "put $ours other/libgdrapi.so.2; path other
            printf '\\1' | dd of=other/libgdrapi.so.2 bs=1 seek=4 conv=notrunc status=none";
    bad [LibraryUpdate] sh "mkdir other; echo 'int gdr_open(void) { return 0; }' >1.c; gcc -shared 1.c -o other/libgdrapi.so
            path other";
    // These libraries cannot be loaded here: one that they need is missing, or the mount forbids execution.
    bad [LibraryNeeds] sh "mkdir other; gcc -shared -x c /dev/null -Wl,-soname,libnuma.so.9 -o n.so; path other
            gcc -shared -Wl,--no-as-needed -x c /dev/null -x none n.so -o other/libgdrapi.so.2";
    bad [LibraryNoexec] sh "mkdir mount; mount -t tmpfs -o noexec none mount; both $ours mount; path mount";
    bad [LibraryBuild] sh "mkdir musl; cd musl
            gcc -shared -nostdlib -Wl,-soname,libc.musl.so.1 -x c /dev/null -o libc.so
            gcc -shared -nostdlib -Wl,--no-as-needed -x c /dev/null -x none libc.so -o libgdrapi.so.2; path musl";
    // The library lacks gdr_get_info_v2, which UCX's plugin calls unless the plugin was built with an old header. In
    // the first three states, the loader's path also has a newer library, after the old one.
    bad [LibraryOrder] sh "old -DMINOR=3; both old.so other; path other right" args "--for ucx";
    bad [LibraryOrder] sh "old -DMINOR=3; both old.so other; path other right" args "--for mscclpp";
    works [LibraryOrder] emulated "--fault cuMemAlloc:2" sh "old -DMINOR=3; both old.so other; path other right";
    bad [LibraryUpdate] sh "old -DMINOR=3; both old.so other; ucx other; path other" args "--for ucx";
    works [GpuFull] emulated "--fault cuMemAlloc:2" sh "old -DMINOR=3; both old.so other; put file other/ucx/libuct_cuda_gdrcopy.so
            put file other/libucs.so.0; path other" args "--for ucx";
    // The self-test of these libraries fails.
    bad [LibraryUpdate] sh "old; both old.so other; path other" args "--for aws-ofi-nccl";
    bad [SelfTestLog] sh "old; both old.so other; path other; export NCCL_GDRCOPY_ENABLE=1" args "--for nccl";
    bad [LibraryOld] emulated "--no-gdrdrv --cuda-version 13.3" sh "old; both old.so other; path other right";
    bad [LibraryOther] sh "args=\"--lib $faulty\"; FAULTY=wrong";
    bad [LibraryOther] sh "args=\"--lib $faulty\"; FAULTY=short";
    bad [LibraryOther] sh "args=\"--lib $faulty\"; FAULTY=long";
    bad [LibraryOther] sh "args=\"--lib $faulty\"; FAULTY=crash";
    bad [LibraryBuild] sh "both $faulty other; path other; FAULTY=illegal";
    // The library ends the process in which doctor uses it, with status 0.
    bad [LibraryOther] sh "args=\"--lib $faulty\"; FAULTY=exit";
    bad [LibraryOther] sh "both $faulty other; path other; FAULTY=vanish";
    // harness.rs passes a --limit before this one, and doctor obeys the last. This one is short, because doctor waits
    // that long for a call that never returns.
    bad [SelfTestHung] sh "args=\"--lib $faulty\"; FAULTY=hang" args "--limit 3";
    bad [LibraryReports] emulated "--fault MMAP:ENOMEM";
    bad [LibraryReports] emulated "--fault PIN_BUFFER_V2:EINVAL";
}

settings_and_engines {
    works [VariableUnknown] sh "export GDRCOPY_ENABLE_LOGING=1";
    works [VariableGone] sh "export GDRCOPY_THREADS=8";
    works [VariableValue] sh "export GDRCOPY_LOG_LEVEL=9";
    works [] sh "export GDRCOPY_LOG_LEVEL=3 GDRCOPY_HOME=/opt GDRCOPY_ENABLE_LOGGING=x";
    bad [SettingExport] args "--for nccl";
    bad [SettingExport] sh "export NCCL_GDRCOPY_ENABLE=true" args "--for nccl";
    works [] sh "echo NCCL_GDRCOPY_ENABLE=1 >c; export NCCL_CONF_FILE=c" args "--for nccl";
    bad [SettingExport] sh "echo NCCL_GDRCOPY_ENABLE=1 >c; export NCCL_CONF_FILE=c NCCL_GDRCOPY_ENABLE=0" args "--for nccl";
    // In these states, UCX's settings allow or exclude GDRCopy. If a file sets a variable twice, the last value counts.
    works [] args "--for ucx";
    bad [SettingUnset] sh "export UCX_TLS=rc" args "--for ucx";
    bad [SettingUnset] sh "export UCX_TLS=rc" args "--for nixl";
    bad [SettingUnset] sh "export UCX_MODULES=^cuda" args "--for ucx";
    bad [SettingUnset] sh "export UCX_MODULES=ib,cuda" args "--for nixl";
    bad [SettingExport] sh "echo UCX_MODULES=^gdrcopy >ucx.conf" args "--for ucx";
    works [] sh "export UCX_MODULES=^ib" args "--for ucx";
    // UCX's plugin is beside UCX's library, in the directory that UCX_MODULE_DIR names, or in neither.
    works [] sh "export UCX_MODULE_DIR=/nowhere" args "--for ucx";
    works [] sh "rm -r right/ucx; put file plugins/libuct_cuda_gdrcopy.so; export UCX_MODULE_DIR=$dir/plugins" args "--for ucx";
    bad [UcxPlugin] sh "rm right/ucx/*" args "--for ucx";
    bad [UcxPlugin] sh "rm -r right/ucx; export UCX_MODULE_DIR=$dir" args "--for ucx";
    works [UcxPlugin] sh "rm right/ucx/*" args "--for nixl";
    works [SettingUnset] sh "rm right/ucx/*; export UCX_MODULE_DIR=/nowhere";
    bad [SettingExport] sh "echo UCX_TLS=rc,sm >ucx.conf" args "--for ucx";
    bad [SettingExport] sh "put file site/ucx.conf; echo 'UCX_TLS = rc ; no GPUs' >site/ucx.conf; HOME=/nowhere
            export UCX_CONFIG_DIR=$dir/site" args "--for ucx";
    bad [SettingExport] sh "ucx lib; rm right/libucs.so.0; path right lib; put file etc/ucx/ucx.conf
            echo UCX_TLS=rc >etc/ucx/ucx.conf; HOME=/nowhere" args "--for ucx";
    works [] sh "put file home/ucx.conf; put file site/ucx.conf; echo UCX_TLS=rc >home/ucx.conf
            printf 'UCX_TLS=rc\\nUCX_TLS=rc,cuda\\n[G]\\nCPU model=G\\nUCX_TLS=rc\\n' >site/ucx.conf; HOME=$dir/home; export UCX_CONFIG_DIR=$dir/site"
        args "--for ucx";
    works [SettingExport] sh "echo UCX_TLS=rc,sm >ucx.conf";
    bad [SettingUnset] sh "export NVSHMEM_DISABLE_GDRCOPY=1" args "--for nvshmem";
    bad [SettingUnset] sh "export FI_HMEM_CUDA_USE_GDRCOPY=0" args "--for libfabric";
    bad [SettingUnset] sh "export FI_PROVIDER=tcp" args "--for libfabric";
    bad [SettingUnset] sh "export FI_HMEM=^cuda" args "--for libfabric";
    works [] args "--for dpdk";
    // GDRCOPY_PATH_L, which DPDK reads, names the library's directory, the library's file, or something else.
    works [] sh "path none; export GDRCOPY_PATH_L=$dir/right" args "--for dpdk";
    bad [SettingExport] sh "export GDRCOPY_PATH_L=$dir/right/libgdrapi.so" args "--for dpdk";
    bad [SettingUnset] sh "export GDRCOPY_PATH_L=/nowhere" args "--for dpdk";
    bad [LibraryRelink] sh "put $ours other/libgdrapi.so.2; printf libgdrapi.so.2 >other/libgdrapi.so; export GDRCOPY_PATH_L=$dir/other"
        args "--for dpdk";
    works [SettingExport] sh "export GDRCOPY_PATH_L=$dir/right/libgdrapi.so";
    works [] sh "put $ours one/libgdrapi.so.2; path one" args "--for nvshmem";
    works [] sh "put $ours one/libgdrapi.so.2; path one" args "--for libfabric";
    works [] sh "put $ours one/libgdrapi.so.2; path one" args "--for mscclpp";
    works [] sh "put $ours one/libgdrapi.so.2; ucx one; path one" args "--for nixl";
    works [] args "--for aws-ofi-nccl";
    works [] args "--for tensorrt-llm";
    // Without --for, doctor examines the variables of all programs that it knows, such as NCCL.
    works [SettingUnset] sh "export NCCL_GDRCOPY_USE_INTERNAL_DMABUF=1";
    works [SettingUnset] sh "export NVSHMEM_GDRCOPY_USE_INTERNAL_DMABUF=1";
    works [] sh "export NCCL_GDRCOPY_ENABLE=' 1' NCCL_GDRCOPY_USE_INTERNAL_DMABUF=0
            export NVSHMEM_DISABLE_GDRCOPY=0 FI_HMEM_CUDA_USE_GDRCOPY=true UCX_TLS=rc,cuda";
}
}

/// Declares the remedies that no test runs, in groups. The text before each group is the reason why no test runs it.
macro_rules! not_run {
    ($($reason:literal $($remedy:ident)*;)*) => {
        pub(crate) const NOT_RUN: &[(&str, &[Remedy])] = &[$(($reason, &[$($remedy),*])),*];
    };
}

not_run! {
    "wants other hardware or firmware" GpuNone GpuUnseen GpuElsewhere GpuKind GpuWsl GpuReset Bar1Small;
    "wants that other programs end, or that a person reads the log" GpuFull GpuExclusive Bar1Full GpuHung SelfTestHung
        LibraryReports SelfTestLog;
    "starts another container" GpuDocker GpuPodman GpuPod GpuApptainer GpuContainer GpuSlurm GpuCapabilities
        NodeDocker NodePodman NodePod NodeApptainer NodeContainer;
    "changes the GPU driver, its service, or its libcuda" DriverMissing DriverInstall DriverUpdate DriverOpen DriverMismatch
        DriverNodes GpuGroup GpuMode FabricManager CudaMps CudaLicense CudaPermission CudaError CudaStub CudaCompat;
    "changes the kernel, as gdrdrv-c/vm and the tests of packages do" ModuleInstall ModuleHeaders ModuleSources
        ModuleBuild ModuleLoad ModuleForbidden ModuleSigned ModuleStale ModuleStaleByHand ModuleDummy ModuleUpdate ModuleReload
        EngineModule KernelReboot ModuleTooOld ModuleSwitch;
    "changes the policy or the limits of the system" OpenFilesHard NodeSecurity NodePrivate NodeService NodeSlurm NodeSandbox;
    "installs another library, or mends a file system" LibraryUnread LibraryInstall LibraryUpdate LibraryOld LibraryOther LibraryBuild LibraryNeeds LibraryCpu
        UcxPlugin;
    "changes the command or the program" GpuNumber LibraryName;
}

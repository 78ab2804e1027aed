//! The remedies of doctor, by identifier. A test runs each one, or says why it cannot.
#![forbid(unsafe_code)]

use std::fmt::Display;

use serde::Serialize;

/// Declares the remedies, each with its text and the commands that do it. `{words}` in braces are filled in.
macro_rules! remedies {
    ($($name:ident $text:literal $($command:literal)*;)*) => {
        /// The identifier, in JSON as `module-load`.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
        #[serde(rename_all = "kebab-case")]
        pub(crate) enum Remedy { $($name,)* }

        /// Each remedy, with its text and commands.
        pub(crate) const REMEDIES: &[(Remedy, &str, &[&str])] = &[$((Remedy::$name, $text, &[$($command),*]),)*];
    };
}

remedies! {
    // ---- The GPU and its driver ----
    GpuNone "use a computer with a GPU of NVIDIA, or pass one through to this virtual machine; without any GPU, \
        programs run under gdremu";
    GpuHidden "have CUDA_VISIBLE_DEVICES name GPUs of `nvidia-smi -L`, or unset it" "unset CUDA_VISIBLE_DEVICES";
    GpuUnseen "have nvidia-smi list the GPU: load its kernel module, and see the kernel's log for NVRM lines if that \
        fails" "nvidia-smi -L" "modprobe nvidia";
    GpuDocker "start the container with --gpus all, which needs NVIDIA's container toolkit";
    GpuPodman "start the container with --device nvidia.com/gpu=all, which needs NVIDIA's container toolkit";
    GpuPod "request the GPU in the pod's limits: nvidia.com/gpu: 1";
    GpuApptainer "start the container with --nv";
    GpuSlurm "request a GPU for the Slurm job: --gpus-per-node=1";
    GpuContainer "pass the GPU and its driver's libraries into the container";
    GpuKind "use a data-center or RTX PRO GPU";
    GpuExclude "use the GPUs that support GPUDirect RDMA only" "export CUDA_VISIBLE_DEVICES={others}";
    GpuNumber "name a GPU that CUDA has: {count}, counted from 0" "nvidia-smi -L";
    GpuWsl "boot Linux itself";
    GpuFull "wait until other programs free memory of the GPU, or use another GPU" "nvidia-smi";
    GpuExclusive "wait until the process that uses the GPU has ended, or have root allow more than one" "nvidia-smi"
        "nvidia-smi -i {gpu} -c DEFAULT";
    GpuReset "see Xid lines in the kernel's log, stop the programs on the GPU, and reset it or reboot" "dmesg | grep -i xid"
        "nvidia-smi --gpu-reset -i {gpu}";
    GpuHung "see Xid lines in the kernel's log; a GPU that hangs needs a reset or a reboot" "dmesg | grep -i xid";
    DriverMissing "install the GPU driver with its libcuda.so.1" "ldconfig -p | grep libcuda.so.1";
    DriverInstall "the GPU driver is loaded out of another tree, such as a container's: install it and its sources for this \
        kernel (its package …-dkms), then run this again; or have the GPU Operator load gdrdrv (gdrcopy.enabled)";
    DriverUpdate "update the GPU driver to 610 or later";
    DriverOpen "use the open kernel modules of the GPU driver, which dma-bufs need";
    DriverMismatch "libcuda.so.1 and the loaded kernel module are of different releases: after an update of the driver \
        reload the module, or reboot; in a container, use the libraries of the host" "cat /proc/driver/nvidia/version";
    DriverNodes "make the device nodes of the GPU driver, and let this user open them" "nvidia-modprobe -u -c 0"
        "ls -l /dev/nvidia*";
    FabricManager "start the fabric manager, of the same release as the GPU driver" "systemctl enable --now nvidia-fabricmanager"
        "systemctl status nvidia-fabricmanager";
    CudaStub "{file} is CUDA's stub for linking: remove {entry}" "export LD_LIBRARY_PATH={path}";
    CudaCompat "{file} is CUDA's compat library, which this GPU or driver does not support: remove {entry}"
        "export LD_LIBRARY_PATH={path}";
    CudaMps "restart the MPS daemon, or do without it: stop the daemon, and unset CUDA_MPS_PIPE_DIRECTORY"
        "echo quit | nvidia-cuda-mps-control" "unset CUDA_MPS_PIPE_DIRECTORY";
    CudaLicense "get a license for this virtual GPU" "systemctl status nvidia-gridd";
    CudaPermission "run this as a user that may use the GPU: CUDA is not permitted to";
    CudaError "see whether nvidia-smi works, and what the kernel's log has of NVRM" "nvidia-smi" "dmesg | grep NVRM";

    // ---- A GPU's features ----
    VmmKind "pin memory from cuMemAlloc or cudaMalloc";
    Bar1Small "enable Resizable BAR and Above 4G Decoding in the firmware, or on workstation cards NVIDIA's \
        displaymodeselector; or pin less";
    Bar1Full "end programs that hold pins" "gdrcopy ps";
    NumaFar "run programs near the GPU: numactl --cpunodebind={node} --membind={node}";
    LinkNarrow "reseat the card, or use a slot that is wired for more lanes";

    // ---- The module ----
    ModuleInstall "install the module (package gdrdrv-dkms), and load it" "modprobe gdrdrv";
    ModuleHeaders "install the headers of this kernel (linux-headers-{kernel}, kernel-devel-{kernel}){others}, then build \
        the module" "dkms autoinstall" "modprobe gdrdrv";
    ModuleSources "install the GPU driver's sources, which contain nv-p2p.c (its package …-dkms; packages with built \
        modules have none), then build the module" "dkms autoinstall" "modprobe gdrdrv";
    ModuleLog "see in {log} why the build failed, then repeat it" "dkms autoinstall" "modprobe gdrdrv";
    ModuleBuild "build the module" "dkms autoinstall" "modprobe gdrdrv";
    ModuleLoad "load the module; if the kernel refuses it, run this again as root, to have the kernel's log read"
        "modprobe gdrdrv";
    ModuleSigned "load the module; if this kernel refuses it, as it only loads signed modules, enroll the key that DKMS \
        signs with (mokutil --import /var/lib/dkms/mok.pub), and reboot" "modprobe gdrdrv";
    ModuleStale "rebuild the module for the GPU driver in use" "dkms build --force gdrdrv/{version}"
        "dkms install --force gdrdrv/{version}" "modprobe gdrdrv";
    ModuleStaleByHand "rebuild the module for the GPU driver in use, in the directory of its sources" "make driver"
        "make drv_install" "modprobe gdrdrv";
    ModuleDummy "unload both, keep the latter from loading, build gdrdrv against the sources of the GPU driver in use, and \
        load it" "modprobe -r gdrdrv nv-p2p-dummy" "echo blacklist nv-p2p-dummy >/etc/modprobe.d/nv-p2p-dummy.conf"
        "modprobe gdrdrv";
    ModuleUpdate "update the module to {oldest} or later (package gdrdrv-dkms)";
    ModuleOption "load the module with use_persistent_mapping=1 (GPU driver 535 or later)" "modprobe -r gdrdrv"
        "modprobe gdrdrv use_persistent_mapping=1";
    ModuleReload "see the kernel's log, and reload the module; reboot if it cannot be unloaded" "dmesg | tail"
        "modprobe -r gdrdrv" "modprobe gdrdrv";
    NodeCreate "make the node" "mknod -m 666 /dev/gdrdrv c $(awk '/gdrdrv/ {print $1}' /proc/devices) 0";
    NodeReplace "remove what is there, load the module, and make the node; in a container, start it after the module is \
        loaded" "rm -rf /dev/gdrdrv" "modprobe gdrdrv"
        "mknod -m 666 /dev/gdrdrv c $(awk '/gdrdrv/ {print $1}' /proc/devices) 0";
    NodeMode "make it readable and writable for all users, and have a udev rule keep it so" "chmod 666 /dev/gdrdrv";
    NodeDirectory "let this user search /dev" "chmod a+x /dev";
    NodeNodev "mount it without nodev" "mount -o remount,dev {mount}";
    NodeSecurity "a security module (SELinux, AppArmor) forbids it: see the audit log, and allow it there"
        "ausearch -m avc -ts recent";
    NodeSandbox "a sandbox (seccomp, gVisor) refuses ioctl on it: allow that in its profile, or start the container with \
        --security-opt seccomp=unconfined";
    NodeService "a device cgroup forbids it: allow it in the service" "systemctl edit UNIT   # DeviceAllow=/dev/gdrdrv rw";
    NodeSlurm "the job's device cgroup forbids it: have the administrator allow /dev/gdrdrv in Slurm's jobs (in the \
        GPU's File= of gres.conf, or by DeviceAllow=/dev/gdrdrv rw for slurmd)";
    NodeDocker "{host}start the container with --device=/dev/gdrdrv, or with NVIDIA_GDRCOPY=enabled and NVIDIA's container \
        toolkit";
    NodePodman "{host}start the container with --device=/dev/gdrdrv";
    NodePod "{host}have NVIDIA's device plugin pass it into pods: GDRCOPY_ENABLED=true; a hostPath by itself works in \
        privileged pods only";
    NodeApptainer "{host}start the container with --bind /dev/gdrdrv, which it needs with --contain only";
    NodeContainer "{host}pass /dev/gdrdrv into the container, and allow it in the container's device cgroup";
    DmabufUnforced "unset GDRCOPY_USE_DMABUF_MMAP, with which the library does without gdrdrv"
        "unset GDRCOPY_USE_DMABUF_MMAP";

    // ---- The machine ----
    RuntimeOther "start the container with another runtime, as runc";
    CdiNode "start containers with --device=/dev/gdrdrv; in Kubernetes set GDRCOPY_ENABLED=true for NVIDIA's device plugin";
    OpenFiles "raise the limit of open files (LimitNOFILE= in a service)" "ulimit -n {limit}";
    OpenFilesHard "have root raise the hard limit of open files: nofile in /etc/security/limits.conf, LimitNOFILE= in a \
        service, --ulimit nofile= for a container";
    LockedMemory "raise the limit of locked memory (LimitMEMLOCK= in a service, --ulimit memlock=-1 for a container); only \
        root can raise the hard limit" "ulimit -l $(ulimit -Hl)";
    CopyRoutine "let the library choose: {best}" "unset GDRCOPY_ISA";
    FilesOfSystem "raise the kernel's limit of open files" "sysctl -w fs.file-max=9223372036854775807";
    AddressSpace "the address space of a process is limited to {limit}, and CUDA needs more" "ulimit -v unlimited";
    ProcMount "mount /proc, which doctor needs" "mount -t proc proc /proc";
    DoctorLimits "doctor starts itself for this: allow larger files" "ulimit -f unlimited";
    DoctorMemory "doctor starts itself for this, and something killed it, as the kernel does where memory is short: allow more \
        (memory.max of the cgroup, MemoryMax= in a service, --memory for a container, --mem in Slurm)" "dmesg | tail";
    DoctorProcesses "doctor starts itself for this: allow more processes, of the user (ulimit -u) and of the cgroup (pids.max, \
        TasksMax= in a service, --pids-limit for a container)";
    DoctorSandbox "doctor starts itself for this, which a sandbox refuses: allow the call in its seccomp profile, or start the \
        container with --security-opt seccomp=unconfined";

    // ---- The library ----
    LibraryInstall "install libgdrapi (package libgdrapi, or make lib_install), then run ldconfig" "ldconfig";
    LibraryCache "have the loader see {file}" "ldconfig";
    LibraryPath "have the loader find the directory{first}" "export LD_LIBRARY_PATH={directory}:$LD_LIBRARY_PATH";
    LibraryLink "add the link" "ln -sf {target} {link}";
    LibraryDangling "{file} leads to {target}, which is not there: install that again, or remove the link" "rm {file}";
    LibraryRemove "remove {file}, which is no library, or replace it by one" "rm -r {file}";
    LibraryNoexec "{file} is mounted noexec: mount it with exec, or move it; the loader reports: {reason}"
        "mount -o remount,exec {mount}";
    LibraryBuild "install a current build of libgdrapi for this distribution and CPU in place of {file}: {reason}";
    LibraryNeeds "install {needed}, which {file} needs, or have the loader find it" "ldd {file}";
    LibraryCpu "{file} is for another CPU: install the libgdrapi for {arch}, then run ldconfig" "ldconfig";
    LibraryEntry "have LD_LIBRARY_PATH name a directory, without ~ and variables of the shell, instead of {entry}"
        "export LD_LIBRARY_PATH={path}";
    LibrarySearch "let this user search {directory}, as LD_LIBRARY_PATH leads there" "chmod a+x {directory}";
    LibraryReadable "make {file} readable for this user" "chmod a+r {file}";
    LibraryPreload "remove {file} from {place}" "export LD_PRELOAD={rest}";
    LibraryName "name a libgdrapi file for this CPU";
    LibraryUpdate "update libgdrapi to {oldest} or later";
    LibraryOld "have programs load libgdrapi {oldest} or later, as {version} does not work without the module gdrdrv; or \
        load that" "modprobe gdrdrv";
    LibraryOther "do not use {file} here: use another library, and report this one";
    LibraryReports "the library reports: {line}";
    SelfTestHung "see Xid lines in the kernel's log; if there are none, try another library than {file}"
        "dmesg | grep -i xid";
    SelfTestLog "see the kernel's log, and run a program with the library's log" "dmesg | tail"
        "export GDRCOPY_ENABLE_LOGGING=1";

    // ---- Variables and engines ----
    VariableUnknown "the nearest name is {nearest}: correct it, or unset it" "unset {name}";
    VariableGone "{name} has no effect any more: {instead}" "unset {name}";
    VariableValue "{name} must be {values}: correct it, or unset it" "unset {name}";
    SettingUnset "unset {name}{or}" "unset {name}";
    SettingExport "set {name}{or}" "export {name}={value}";
    EngineModule "{engine} needs gdrdrv {oldest}: update the module (package gdrdrv-dkms)";

    // ---- Running processes ----
    ProcessNone "run the program until it uses GPUs, as it loads the library only then; if there is still none, `gdrcopy \
        doctor --for ENGINE` in the same environment names the reason";
    ProcessNames "have both names lead to one file: `gdrcopy doctor` shows what they lead to";
    ProcessRestart "restart the process, which uses the new file then";
    ProcessRemoved "install libgdrapi again before the process is restarted";
    ProcessClosed "start the program with its log, which says why gdr_open fails; if it logs nothing, the program does not \
        call it" "export GDRCOPY_ENABLE_LOGGING=1";
}

/// A remedy with its words filled in.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Advice {
    pub(crate) remedy: Remedy,
    pub(crate) text: String,
    /// One after the other.
    pub(crate) commands: Vec<String>,
}

impl From<Remedy> for Advice {
    fn from(remedy: Remedy) -> Advice {
        let &(_, text, commands) = &REMEDIES[remedy as usize];
        Advice { remedy, text: text.into(), commands: commands.iter().map(|&command| command.into()).collect() }
    }
}

impl Remedy {
    /// Returns whether it is for something that did not end.
    pub(crate) fn is_of_hang(self) -> bool {
        [Remedy::GpuHung, Remedy::SelfTestHung].contains(&self)
    }

    /// The identifier, as in JSON.
    pub(crate) fn name(self) -> String {
        serde_json::to_value(self).unwrap_or_default().as_str().unwrap_or_default().to_owned()
    }

    pub(crate) fn with(self, word: &str, value: impl Display) -> Advice {
        Advice::from(self).with(word, value)
    }
}

impl Advice {
    /// Fills in a word, in commands as a word of the shell.
    pub(crate) fn with(mut self, word: &str, value: impl Display) -> Advice {
        let (word, value) = (format!("{{{word}}}"), value.to_string());
        let is_plain = value.chars().all(|char| char.is_alphanumeric() || "/._-+:,=@%".contains(char));
        let quoted = if is_plain { value.clone() } else { format!("'{}'", value.replace('\'', r"'\''")) };
        self.text = self.text.replace(&word, &value);
        for command in &mut self.commands {
            *command = command.replace(&word, &quoted);
        }
        self
    }
}

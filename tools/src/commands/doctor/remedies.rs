//! The remedies that doctor advises, each with an identifier. A test carries out each remedy, or states why it cannot.
#![forbid(unsafe_code)]

use std::fmt::Display;

use serde::Serialize;

/// Declares the remedies, each with its text and the commands that carry it out. Words in braces, such as `{file}`, are
/// filled in by `Advice::with`.
macro_rules! remedies {
    ($($name:ident $text:literal $($command:literal)*;)*) => {
        /// The identifier of a remedy. In JSON it has the form `module-load`.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
        #[serde(rename_all = "kebab-case")]
        pub(crate) enum Remedy { $($name,)* }

        /// Each remedy, with its text and commands.
        pub(crate) const REMEDIES: &[(Remedy, &str, &[&str])] = &[$((Remedy::$name, $text, &[$($command),*]),)*];
    };
}

remedies! {
    // ---- The GPU and its driver ----
    GpuNone "use a computer with a GPU of NVIDIA, or pass one through to this virtual machine; or gdremu, without any";
    GpuHidden "have CUDA_VISIBLE_DEVICES name GPUs of `nvidia-smi -L`, or unset it" "unset CUDA_VISIBLE_DEVICES";
    GpuUnseen "load the GPU driver; if that fails, the kernel's log has NVRM lines" "nvidia-smi -L" "modprobe nvidia";
    GpuDocker "start the container with --gpus all, which needs NVIDIA's container toolkit";
    GpuPodman "start the container with --device nvidia.com/gpu=all, which needs NVIDIA's container toolkit";
    GpuGroup "{file} is for the group {group}: have root add this user to it, then log in again (a container: --group-add); or \
        have the GPU driver open its nodes to all (NVreg_DeviceFileMode=0666)" "usermod -aG {group} {user}";
    GpuMode "have root open {file} to this user; for good, by NVreg_DeviceFileMode=0666 of the module nvidia, in modprobe.d"
        "chmod 666 /dev/nvidia*";
    GpuPod "request the GPU in the pod's limits: nvidia.com/gpu: 1";
    GpuApptainer "start the container with --nv";
    GpuSlurm "request a GPU for the Slurm job: --gpus-per-node=1";
    GpuContainer "pass the GPU and its driver's libraries into the container";
    GpuCapabilities "start the container with NVIDIA_DRIVER_CAPABILITIES=compute,utility: it is {list}, so NVIDIA's container \
        toolkit passes the GPU in without libcuda.so.1" "docker run -e NVIDIA_DRIVER_CAPABILITIES=compute,utility …";
    GpuKind "use a data-center or RTX PRO GPU";
    GpuElsewhere "use a data-center or RTX PRO GPU: if one of the {count} other GPUs of this computer is of that kind, have it passed \
        to this process, from which it is hidden by {by}" "lspci -d 10de:";
    GpuExclude "use only GPUs that support GPUDirect RDMA{hidden}. These are CUDA's numbers, which only with \
        CUDA_DEVICE_ORDER=PCI_BUS_ID are those of nvidia-smi" "export CUDA_VISIBLE_DEVICES={others}";
    GpuNumber "name a GPU that CUDA has: {count}, counted from 0, without those that CUDA_VISIBLE_DEVICES hides" "nvidia-smi -L";
    GpuWsl "boot Linux itself";
    GpuFull "wait until other programs free memory of the GPU, or use another GPU" "nvidia-smi";
    GpuExclusive "wait until the process that uses the GPU has ended, or have root allow more than one" "nvidia-smi"
        "nvidia-smi -i {gpu} -c DEFAULT";
    GpuReset "see Xid lines in the kernel's log, stop the programs on the GPU, and reset it or reboot" "dmesg | grep -i xid"
        "nvidia-smi --gpu-reset -i {gpu}";
    GpuHung "see Xid lines in the kernel's log; a GPU that hangs needs a reset or a reboot" "dmesg | grep -i xid";
    DriverMissing "install the GPU driver with its libcuda.so.1" "ldconfig -p | grep libcuda.so.1";
    DriverInstall "the GPU driver is loaded out of another tree, as a container's: install it and its sources for this kernel \
        (package …-dkms), then run this again; or have the GPU Operator load gdrdrv (gdrcopy.enabled)";
    DriverUpdate "update the GPU driver to 610 or later";
    DriverOpen "use the open kernel modules of the GPU driver, which dma-bufs need";
    DriverMismatch "reload the GPU driver after its update, or reboot; in a container, use the libraries of the host"
        "cat /proc/driver/nvidia/version";
    DriverNodes "make the device nodes of the GPU driver, and let this user open them" "nvidia-modprobe -u -c 0"
        "ls -l /dev/nvidia*";
    FabricManager "start the fabric manager, of the same release as the GPU driver" "systemctl enable --now nvidia-fabricmanager"
        "systemctl status nvidia-fabricmanager";
    CudaStub "{file} is CUDA's stub for linking: take it off LD_LIBRARY_PATH, LD_PRELOAD or /etc/ld.so.conf.d";
    CudaCompat "{file} is CUDA's compat library, which this GPU or driver does not support: take it off LD_LIBRARY_PATH, \
        LD_PRELOAD or /etc/ld.so.conf.d";
    CudaMps "restart the MPS daemon, or do without it: stop the daemon, and unset CUDA_MPS_PIPE_DIRECTORY"
        "echo quit | nvidia-cuda-mps-control" "unset CUDA_MPS_PIPE_DIRECTORY";
    CudaLicense "get a license for this virtual GPU" "systemctl status nvidia-gridd";
    CudaPermission "run this as a user that may use the GPU: CUDA is not permitted to";
    CudaError "see whether nvidia-smi works, and what the kernel's log has of NVRM" "nvidia-smi" "dmesg | grep NVRM";

    // ---- A GPU's features ----
    Bar1Small "enable Resizable BAR and Above 4G Decoding in the firmware (workstation cards: displaymodeselector)";
    Bar1Full "end programs that hold pins; with gdrdrv-c, root sees all in /proc/driver/gdrdrv/pins" "gdrcopy ps"
        "nvidia-smi -q -d MEMORY";

    // ---- The module ----
    ModuleInstall "install the module (package gdrdrv-dkms), and load it" "modprobe gdrdrv";
    ModuleHeaders "install the headers of this kernel (linux-headers-{kernel}, kernel-devel-{kernel}){others}, then build \
        the module" "dkms autoinstall" "modprobe gdrdrv";
    ModuleSources "install the GPU driver's sources, with nv-p2p.c (package …-dkms), then build the module"
        "dkms autoinstall" "modprobe gdrdrv";
    ModuleBuild "build the module; if that fails, /var/lib/dkms/gdrdrv/*/build/make.log has the reason" "dkms autoinstall" "modprobe gdrdrv";
    ModuleTooOld "install gdrdrv {newer} or later (package gdrdrv-dkms), as {version} does not compile for this kernel, by {log}; \
        then load it" "modprobe gdrdrv";
    ModuleLoad "load the module; if the kernel refuses it, run this again as root, to have the kernel's log read"
        "modprobe gdrdrv";
    ModuleForbidden "comment out line {number} of {file}, `{line}`, by which {effect}; then load the module"
        "sed -i '{number}s/^/#/' {file}" "modprobe gdrdrv";
    ModuleSigned "load the module; if this kernel refuses it, as it only loads signed modules, enroll the key that DKMS \
        signs with (mokutil --import /var/lib/dkms/mok.pub), and reboot" "modprobe gdrdrv";
    ModuleStale "rebuild the module for the GPU driver in use" "dkms unbuild gdrdrv/{version}"
        "dkms install --force gdrdrv/{version}" "modprobe gdrdrv";
    ModuleStaleByHand "rebuild the module for the GPU driver in use, in the directory of its sources" "make driver"
        "make drv_install" "modprobe gdrdrv";
    KernelReboot "reboot into Linux {other}, for which the module is built: the modules of the running {kernel} are gone, as after \
        an update" "reboot";
    ModuleDummy "unload both, keep the latter from loading, build gdrdrv against the sources of the GPU driver in use, and \
        load it" "modprobe -r gdrdrv nv-p2p-dummy" "echo blacklist nv-p2p-dummy >/etc/modprobe.d/nv-p2p-dummy.conf"
        "modprobe gdrdrv";
    ModuleUpdate "update the module to {oldest} or later (package gdrdrv-dkms)";
    ModuleReload "see the kernel's log, and reload the module; reboot if it cannot be unloaded" "dmesg | tail"
        "modprobe -r gdrdrv" "modprobe gdrdrv";
    ModuleSwitch "gdrdrv {installed} is installed, but {loaded} is still loaded: end the programs that use it, and reload it, or \
        reboot" "gdrcopy ps" "modprobe -r gdrdrv" "modprobe gdrdrv";
    NodeCreate "make the node" "mknod -m 666 /dev/gdrdrv c $(awk '/gdrdrv/ {print $1}' /proc/devices) 0";
    NodeReplace "remove what is there, load the module, and make the node; start containers after that" "rm -rf /dev/gdrdrv"
        "modprobe gdrdrv" "mknod -m 666 /dev/gdrdrv c $(awk '/gdrdrv/ {print $1}' /proc/devices) 0";
    NodeMode "make it readable and writable for all users, and have a udev rule keep it so" "chmod 666 /dev/gdrdrv";
    NodeModeHost "on the host, make it readable and writable for all users, and have a udev rule keep it so. This user namespace \
        cannot, as it does not map the owner. If a group of this user may open it, Podman's --group-add keep-groups is enough"
        "chmod 666 /dev/gdrdrv   # on the host";
    NodeNodev "mount it without nodev" "mount -o remount,dev {mount}";
    NodeSecurity "a security module (SELinux, AppArmor) forbids it: see the audit log, and allow it there"
        "ausearch -m avc -ts recent";
    NodeSandbox "a sandbox (seccomp) refuses ioctl: allow that in its profile, or --security-opt seccomp=unconfined";
    NodePrivate "this service has a /dev of its own (PrivateDevices=yes): have it see the host's" "systemctl edit UNIT   # \
        PrivateDevices=no";
    NodeService "a device cgroup forbids it: allow it in the service" "systemctl edit UNIT   # DeviceAllow=/dev/gdrdrv rw";
    NodeSlurm "have the administrator allow /dev/gdrdrv in Slurm's jobs: no File= for it in gres.conf, and a DeviceAllow= for it if slurmd's unit has others";
    NodeDocker "{host}start the container with --device=/dev/gdrdrv, or NVIDIA_GDRCOPY=enabled and NVIDIA's toolkit";
    NodePodman "{host}start the container with --device=/dev/gdrdrv";
    NodePod "{host}have NVIDIA's device plugin pass it in: GDRCOPY_ENABLED=true (a hostPath needs a privileged pod)";
    NodeApptainer "{host}start the container with --bind /dev/gdrdrv, which it needs with --contain only";
    NodeContainer "{host}pass /dev/gdrdrv into the container, and allow it in the container's device cgroup";
    DmabufUnforced "let the library use gdrdrv" "unset GDRCOPY_USE_DMABUF_MMAP";

    // ---- The machine ----
    OpenFiles "raise the limit of open files" "ulimit -n $(ulimit -Hn)";
    OpenFilesHard "have root raise the hard limit of open files: nofile in \
        /etc/security/limits.conf or limits.d for logins, LimitNOFILE= for a systemd service, --ulimit nofile= for a \
        container; for the whole system, fs.file-max" "grep -r nofile /etc/security/limits.conf /etc/security/limits.d";
    AddressSpace "the address space of a process is limited to {limit}, and CUDA needs more" "ulimit -v unlimited";
    ProcMount "mount /proc, from which doctor reads what this system has" "mount -t proc proc /proc";
    DoctorStart "doctor starts itself for this, and cannot, or was killed. It needs /proc, files (ulimit -n and -f), processes \
        (ulimit -u; the cgroup's pids.max), memory (memory.max), and a sandbox that lets it start them" "ulimit -f unlimited";

    // ---- The library ----
    LibraryInstall "install libgdrapi (package libgdrapi, or make lib_install); if it is, have the loader see it" "ldconfig";
    LibraryPath "have the loader find the directory" "export LD_LIBRARY_PATH={directory}${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}";
    LibraryLink "add the link" "ln -sf {target} {link}";
    LibraryRelink "{link} does not open ({reason}): have it lead to {target}, which is beside it" "ln -sfn {target} {link}";
    LibraryRelinkBoth "{soname} and {plain} are texts, as git and zip leave in place of links: have them lead to {target}, which is \
        beside them" "ln -sfn {target} {soname}" "ln -sfn {target} {plain}";
    LibraryDangling "{file} leads to {target}, which does not open ({reason}): install that again, or remove the link" "rm {file}";
    LibraryUnread "{file} cannot be read ({reason}): see the kernel's log about its file system, or install the library elsewhere"
        "dmesg | tail";
    LibraryClosed "{file} is not found, as this user may not search {directory}: have root install the library where all users \
        may read it, or let them search that directory" "chmod a+x {directory}";
    LibraryRemove "remove {file}, which is no library, or replace it by one" "rm -r {file}";
    LibraryNoexec "mount what has {file} with exec, or move it: {reason}" "mount -o remount,exec {mount}";
    LibraryBuild "install a libgdrapi for this distribution and CPU in place of {file}: {reason}";
    LibraryNeeds "install {needed}, which {file} needs, or have the loader find it" "ldd {file}";
    LibraryCpu "{file} is for another CPU: install the libgdrapi for {arch}, then run ldconfig" "ldconfig";
    LibraryReadable "make {file} readable for this user, or install the library elsewhere" "chmod a+rX {file}";
    LibraryPreload "remove {file} from LD_PRELOAD" "export LD_PRELOAD={rest}";
    LibraryPreloadFile "remove {file} from line {line} of /etc/ld.so.preload, which has it loaded into every program"
        "sed -i {line}s,{file},, /etc/ld.so.preload";
    LibraryName "name a libgdrapi file for this CPU";
    LibraryUpdate "update libgdrapi to {oldest} or later, in place of {file}";
    LibraryOrder "{file} hides {newer}, which is newer: have the loader search {directory} first; or remove the old file, and run \
        ldconfig as root" "export LD_LIBRARY_PATH={directory}${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}";
    LibraryOld "have programs load libgdrapi {oldest}, as {version} does not work without gdrdrv; or load that" "modprobe gdrdrv";
    LibraryOther "do not use {file} here: use another library, and report this one";
    LibraryReports "the library reports: {line}";
    SelfTestHung "if the kernel's log has no Xid lines, try another library than {file}" "dmesg | grep -i xid";
    SelfTestLog "see the kernel's log, and run a program with the library's log" "dmesg | tail"
        "export GDRCOPY_ENABLE_LOGGING=1";

    // ---- Variables and engines ----
    VariableUnknown "correct {name}, or unset it: `man gdrapi` lists all variables" "unset {name}";
    VariableGone "{name} has no effect any more: {instead}" "unset {name}";
    VariableValue "{name} must be {values}: correct it, or unset it" "unset {name}";
    SettingUnset "unset {name}{or}" "unset {name}";
    SettingExport "set {name}{or}" "export {name}={value}";
    UcxPlugin "install UCX's plugin for GDRCopy (package ucx-gdrcopy), or build UCX with --with-gdrcopy; for a program that brings \
        another UCX, have that one shown" "ucx_info -d | grep gdr_copy";
    EngineModule "{engine} needs gdrdrv {oldest}: update the module (package gdrdrv-dkms)";
}

/// A remedy, with values in place of the words in braces, such as `{file}`, in its text and commands.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Advice {
    pub(crate) remedy: Remedy,
    pub(crate) text: String,
    /// The commands to run, one after the other.
    pub(crate) commands: Vec<String>,
}

impl From<Remedy> for Advice {
    fn from(remedy: Remedy) -> Advice {
        let &(_, text, commands) = &REMEDIES[remedy as usize];
        Advice { remedy, text: text.into(), commands: commands.iter().map(|&command| command.into()).collect() }
    }
}

impl Remedy {
    /// Returns the identifier in the form that JSON output has, such as `module-load`.
    pub(crate) fn name(self) -> String {
        serde_json::to_value(self).unwrap_or_default().as_str().unwrap_or_default().to_owned()
    }

    pub(crate) fn with(self, word: &str, value: impl Display) -> Advice {
        Advice::from(self).with(word, value)
    }
}

impl Advice {
    /// Replaces a word in braces with its value. In commands, the value is quoted for the shell.
    pub(crate) fn with(mut self, word: &str, value: impl Display) -> Advice {
        let word = format!("{{{word}}}");
        let value = value.to_string();
        let is_plain = value.chars().all(|char| char.is_alphanumeric() || "/._-+:,=@%".contains(char));
        let quoted = if is_plain { value.clone() } else { format!("'{}'", value.replace('\'', r"'\''")) };
        self.text = self.text.replace(&word, &value);
        for command in &mut self.commands {
            *command = command.replace(&word, &quoted);
        }
        self
    }
}

#!/usr/bin/env bash
# Boots a Debian kernel with gdrdrv and emugpu, and runs a command in it.
set -euo pipefail

usage() {
    cat <<END
usage: gdrdrv-c/vm/run.sh [options] -- COMMAND [ARGUMENT ...]

Runs a command, as root, in a virtual machine with /dev/gdrdrv and /dev/emugpu, in this directory: the guest sees
the files of this one, and what it writes is gone with it. The command's output and exit status are passed through.
Afterwards the modules are unloaded.

  --traditional     pins are not persistent (the module's use_persistent_mapping=0)
  --kernel SERIES   5.10, 6.1 (default), 6.12, newest (of Debian 13's backports); or one of two 6.1 that are built here,
                    which takes a quarter of an hour: debug (lockdep, KASAN, kmemleak), kcsan (data races of gdrdrv)
  --branch NUMBER   of the GPU driver whose interface emugpu has: 515, 525, 570 or 580 (default; emugpu/nv-p2p.h)
  --proprietary     emugpu has the license of NVIDIA's proprietary driver
  --emugpu "N=V …"  parameters of emugpu
  --source DIR      use another gdrdrv
  --gdrdrv FILE     load this gdrdrv.ko, NVIDIA's for example (contract/README.md), and make the node that it lacks
  --cpus N          default: 2
  --memory MIB      default: 1024, and 2048 for the debug kernel
  --timeout S       end the virtual machine after S seconds (default: 600)
  --no-modules      load neither module
  --dmesg FILE      write the kernel's messages to FILE
  -h, --help        this text

Exit status 121: the command ended with 0, but the kernel complained, a page table stayed pinned, or a module could not
be unloaded. 124: it took too long. 125: the virtual machine died.
END
}

here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)

series=6.1
branch=580
cpus=2
memory=
limit=600
boot_limit=200
license=open
emugpu_parameters=
source=()
persistent=1
with_modules=yes
gdrdrv=
keep_dmesg=
while [ $# -gt 0 ]; do
    case $1 in
    --traditional) persistent=0 && shift ;;
    --kernel) series=$2 && shift 2 ;;
    --branch) branch=$2 && shift 2 ;;
    --proprietary) license=proprietary && shift ;;
    --emugpu) emugpu_parameters=$2 && shift 2 ;;
    --source) source=("$2") && shift 2 ;;
    --gdrdrv) gdrdrv=$(realpath "$2") && shift 2 ;;
    --cpus) cpus=$2 && shift 2 ;;
    --memory) memory=$2 && shift 2 ;;
    --timeout) limit=$2 && shift 2 ;;
    --no-modules) with_modules=no && shift ;;
    --dmesg) keep_dmesg=$2 && shift 2 ;;
    -h | --help) usage && exit 0 ;;
    --) shift && break ;;
    *) usage >&2 && exit 2 ;;
    esac
done
[ $# -gt 0 ] || { usage >&2 && exit 2; }
gpu_memory=1G
case $series in
debug | kcsan) boot_limit=1000 && gpu_memory=128M ;; # little, because tests that fill it are slow on these kernels
esac
[ -n "$memory" ] || memory=$([ "$series" = debug ] && echo 2048 || echo 1024)

# pack IMAGE: packs the files that the guest needs until the host's files are mounted.
pack() {
    local files driver file name number=100
    files=$(mktemp -d)
    mkdir -p "$files"/{bin,drivers,proc,sys,dev,job,host,written,root}
    cp "$(command -v busybox)" "$files/bin/busybox"
    cp "$here/init" "$files/init"
    # These are the drivers for the host's files, for their transport, and for the writable layer above them.
    for driver in virtio_pci 9pnet_virtio 9p overlay; do
        # modprobe lists files in the order of their dependencies. Built-in drivers have no file.
        for file in $(modprobe --dirname "$kernel" --set-version "$(cat "$kernel/release")" --show-depends "$driver" | sed -n 's/^insmod //p'); do
            name=$(basename "$file")
            ls "$files/drivers"/*-"$name" >/dev/null 2>&1 || cp "$file" "$files/drivers/$number-$name"
            number=$((number + 1))
        done
    done
    (cd "$files" && find . | cpio --quiet --create --format=newc --owner=0:0) >"$1"
    rm -rf "$files"
}

# Several runs of this script may start at the same time. The first builds what all of them need, and the others wait.
mkdir -p "$root/build/gdrdrv-c"
exec {lock}>"$root/build/gdrdrv-c/lock"
flock "$lock"
"$root/ci/scripts/apt-install.sh" qemu-system-x86 seabios busybox-static cpio kmod libelf1 make gcc >&2
kernel=$("$here/kernel.sh" "$series")
initramfs=$kernel/initramfs.cpio
if ! [[ $initramfs -nt $here/init && $initramfs -nt $kernel/complete && $initramfs -nt $0 ]]; then
    pack "$initramfs"
fi
modules=
[ "$with_modules" = no ] || modules=$("$here/modules.sh" "$kernel" "$branch" "$license" ${source[@]+"${source[@]}"})
exec {lock}>&-

job=$(mktemp -d "$root/build/gdrdrv-c/job.XXXXXX")
trap 'rm -rf "$job"' EXIT

cat >"$job/settings" <<END
job=$job
modules=${modules:+/host$modules}
gdrdrv=/host${gdrdrv:-$modules/gdrdrv/gdrdrv.ko}
emugpu_parameters="$emugpu_parameters"
gdrdrv_parameters="use_persistent_mapping=$persistent dbg_enabled=1"
END
{
    printf 'cd %q\n' "$PWD"
    printf 'export PATH=%q HOME=%q\n' "$PATH" "${HOME:-/root}"
    printf 'exec'
    printf ' %q' "$@"
    echo
} >"$job/command"

# Without hardware virtualization, /dev/kvm does not work even if it exists.
if grep -qwE 'vmx|svm' /proc/cpuinfo && [ -w /dev/kvm ]; then
    accelerator=(-accel kvm -cpu host)
else
    # cx16 is off: QEMU 7.2 sets wrong flags after cmpxchg16b, and Linux 6.12 looks at them. The others only cost time.
    accelerator=(-accel "tcg,thread=$([ "$cpus" -gt 1 ] && echo multi || echo single)"
        -cpu 'max,cx16=off,smap=off,smep=off,la57=off')
fi

machine=(
    timeout --kill-after=10 "$limit"
    qemu-system-x86_64 "${accelerator[@]}" -smp "$cpus" -m "$memory" -nodefaults -no-user-config -display none -no-reboot
    -kernel "$kernel/vmlinuz" -initrd "$initramfs"
    -append "console=ttyS0 loglevel=5 log_buf_len=16M panic=-1 oops=panic mitigations=off no_timer_check rcupdate.rcu_cpu_stall_timeout=120"
    -object "memory-backend-ram,id=gpumem,size=$gpu_memory,share=on" -device "ivshmem-plain,memdev=gpumem"
    -device virtio-rng-pci
    -device pci-serial
    -fsdev 'local,id=host,path=/,security_model=none,readonly=on,multidevs=remap'
    -device 'virtio-9p-pci,fsdev=host,mount_tag=host'
    -fsdev "local,id=job,path=$job,security_model=none"
    -device 'virtio-9p-pci,fsdev=job,mount_tag=job'
    -serial "file:$job/console" -serial stdio
)

# await_start PID: waits a limited time for the guest's first program. Fails if it has not started.
await_start() {
    local tries=$((boot_limit * 5))
    while [ ! -e "$job/started" ] && [ $tries -gt 0 ] && kill -0 "$1" 2>/dev/null; do
        sleep 0.2
        tries=$((tries - 1))
    done
    [ -e "$job/started" ]
}

# The guest sometimes fails to boot in multi-threaded emulation, so up to three boots are tried.
for _ in 1 2 3; do
    ended=0
    "${machine[@]}" </dev/null &
    trap 'kill $!; rm -rf "$job"' EXIT
    await_start $! || kill $! 2>/dev/null || true
    wait $! || ended=$?
    trap 'rm -rf "$job"' EXIT
    [ ! -e "$job/started" ] || break
done

[ -z "$keep_dmesg" ] || cat "$job/dmesg" >"$keep_dmesg" 2>/dev/null || true

# Looks for warnings in the console's output, which has all of them. The guest's dmesg may have lost old ones.
complaints=$(
    cat "$job/complaints" 2>/dev/null || true
    sed '1,/vm: the modules are next/d' "$job/console" | grep -E 'WARNING|BUG|Oops|Call Trace|refcount_t|KASAN|KCSAN|UBSAN|kmemleak:|x86/PAT|locking|hung|stall' || true
)
if [ -n "$complaints" ]; then
    printf 'gdrdrv-c/vm/run.sh: %s\n' "$complaints" >&2
    tail -n 60 "$job/console" >&2
fi

if [ ! -e "$job/status" ]; then
    [ "$ended" -ne 124 ] || { echo "gdrdrv-c/vm/run.sh: not done after $limit s" >&2 && exit 124; }
    echo "gdrdrv-c/vm/run.sh: the virtual machine died" >&2
    [ -n "$complaints" ] || tail -n 60 "$job/console" >&2
    exit 125
fi

status=$(cat "$job/status")
[ "$status" -ne 0 ] || [ -z "$complaints" ] || status=121
exit "$status"

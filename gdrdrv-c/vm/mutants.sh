#!/usr/bin/env bash
# mutants.sh [COUNT | NAME ...]: breaks gdrdrv in one place at a time, and checks that a test fails.
# With COUNT, it breaks only that many places, which differ from day to day. Its exit status is 1 if a broken module
# passes the test, or if the test does not end.
set -euo pipefail

here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
work=$root/build/gdrdrv-c/mutants
mapfile -t all < <(sed -n 's/^mutant \([a-z0-9-]*\) .*/\1/p' "$0")
names=("$@")
if [[ ${1-} =~ ^[0-9]+$ ]]; then
    names=()
    for ((i = 0; i < $1; i++)); do
        names+=("${all[($(date +%s) / 86400 * $1 + i) % ${#all[@]}]}")
    done
fi
for name in "${names[@]}"; do
    [[ " ${all[*]} " == *" $name "* ]] || { echo "mutants.sh: no mutant is named $name" >&2 && exit 2; }
done
wanted=" ${names[*]-${all[*]}} "

make --no-print-directory --silent -C "$root/gdrdrv-c/tests"
rm -rf "$work"
mkdir -p "$work"
noticed=0
missed=0

# mutant NAME "PROGRAM ARGUMENTS" "RUN.SH OPTIONS" FILE PERL [FILE PERL …]: changes each file by its Perl expression, which
# must change something, and checks that the program fails.
mutant() {
    local name=$1 program=$2 options=$3 source=$work/$1 status=0
    shift 3
    [[ $wanted == *" $name "* ]] || return 0
    mkdir "$source"
    cp --preserve=timestamps "$root"/gdrdrv-c/*.[ch] "$root/gdrdrv-c/Kbuild" "$source"
    while [ $# -gt 0 ]; do
        perl -0pi -e "$2" "$source/$1"
        ! cmp -s "$source/$1" "$root/gdrdrv-c/$1" || { echo "mutants.sh: $name changes nothing in $1" >&2 && exit 2; }
        shift 2
    done
    # shellcheck disable=SC2086 # $options has several words.
    "$here/run.sh" $options --source "$source" --timeout 600 -- "$root/gdrdrv-c/tests/run.sh" "$program" \
        >"$source.log" 2>&1 || status=$?
    if [ $status -eq 0 ] || [ $status -eq 4 ]; then # status 4 means that the test program was skipped
        missed=$((missed + 1))
        printf 'MISSED   %-22s by %s\n' "$name" "$program"
    elif [ $status -eq 124 ]; then # the run took too long, as also happens on a machine that is too slow
        missed=$((missed + 1))
        printf 'ENDLESS  %-22s by %s\n' "$name" "$program"
    elif ls "$root"/build/gdrdrv-c/kernel/*/modules-*-"$name"/gdrdrv/gdrdrv.ko >/dev/null 2>&1; then
        noticed=$((noticed + 1))
        printf 'noticed  %-22s by %s: %s\n' "$name" "${program%% *}" "$(grep -m 1 -E '\.[ch]:[0-9]+:|, round|pinned: |WARNING|BUG|died' "$source.log" |
            sed 's/^.*tests\///')"
    else
        echo "mutants.sh: $name does not build" >&2 && exit 2
    fi
    rm -rf "$root"/build/gdrdrv-c/kernel/*/modules-*-"$name"
}

t=--traditional

mutant no-zap contract '' map.c 's/\tunmap_mapping_range\(.*?;\n//'
mutant fault-after-end 'races 500' $t map.c 's/if \(pin->live\)\n\t\tresult = gdr_fill/if (true)\n\t\tresult = gdr_fill/'
mutant mmap-after-end contract $t map.c 's/!pin->live \|\| //'
mutant mapped-twice contract '' map.c 's/ \|\| atomic_read\(&pin->vmas\)\)/)/'
mutant beyond-the-pin contract '' map.c 's/size > pin->size \|\| //'
mutant private-mapping contract '' map.c 's/!\(vma->vm_flags & VM_MAYSHARE\)/false/'
mutant inherited-by-fork contract '' map.c 's/ \| VM_DONTCOPY//'
mutant no-write-combining memory_types '' map.c 's/\t\tgdr_reserve_wc\(pin\);/\t\tif (false)\n\t$&/'
mutant reservation-stays memory_types '' map.c 's/\tif \(pin->wc_reserved\)\n\t\tgdr_unreserve_wc\(pin, pin->size\);\n//'
mutant reservation-ends-first memory_types '' map.c 's/(\tunmap_mapping_range\(.*?;\n)(.*?)(\n\})/$2$1$3/s'
mutant cached-on-x86 contract '--emugpu coherent=1' pages.c 's/if \(IS_ENABLED\(CONFIG_X86\)\)/if (false)/'
mutant end-of-a-thread contract '' main.c 's/ && !atomic_read\(&current->signal->live\)//'
mutant death-ignored killed '' main.c 's/current->flags & PF_EXITING/false/'
mutant private-node contract '' main.c 's/gdr_mode = 0666/gdr_mode = 0600/'
mutant any-process contract '' commands.c 's/if \(!gdr_owner_is_caller\(file->owner\)\)/if (false)/'
mutant any-process-maps contract '' map.c 's/if \(!gdr_owner_is_caller\(file->owner\)\)/if (false)/'
mutant put-by-any-process owners $t pages.c 's/if \(gdr_owner_is_caller\(pin->owner\)\)/if (true)/'
mutant failed-put-ignored failed_puts $t pages.c 's/!gdr_put\(pin\);/(gdr_put(pin), true);/'
mutant no-wait-for-revoke 'races 2000' $t pages.c 's/\twait_for_completion\(&pin->revocation\);\n//'
mutant oldest-pin contract '' gdrdrv.h 's/xa_load\(&file->pins, handle\)/xa_find(\&file->pins, \&(unsigned long){ 0 }, ULONG_MAX, XA_PRESENT)/'
mutant handles-overlap contract '' pin.c 's/max\(1ULL, pin->size >> PAGE_SHIFT\)/1/'
mutant pcie-not-forced answers '' pages.c 's/pin->force_pcie \? NVIDIA_P2P_FLAGS_FORCE_BAR1_MAPPING/false ? 1/'
mutant every-argument-back contract '' commands.c 's/err \|\| !command->answers/err/'
mutant every-argument-read answers '' commands.c 's/command->reads &&/true \&\&/'
mutant pin-not-undone contract '' commands.c 's/if \(new_handle\)/if (false)/'
mutant trace-with-gaps answers '' gdrdrv.h 's/pr_info\(format/pr_info_ratelimited(format/'
mutant reused-table reused_tables $t pages.c 's/down_write\(&pin->owner->tables\)/down_read(\&pin->owner->tables)/; s/up_write\(&pin->owner->tables\)/up_read(\&pin->owner->tables)/'
mutant ended-pin-found ignored_puts $t pin.c 's/(static void gdr_pin_forget.*?\{\n)\txa_erase\(&gdr_pins, pin->id\);\n/$1/s'
mutant put-believed ignored_puts $t pages.c 's/ && cmpxchg\(&pin->fate, GDR_PINNED, GDR_RETURNED\) == GDR_PINNED/ \&\& pin/'
mutant tokens-for-pins tokens $t commands.c 's/static int gdr_pin_buffer\(/extern u64 gdr_token;\nextern u32 gdr_space;\n\n$&/; s/\tif \(gdr_pages_can_persist\(\) && \(a->p2p_token/\tgdr_token = a->p2p_token;\n\tgdr_space = a->va_space;\n$&/' pages.c 's/static atomic_t gdr_tables/u64 gdr_token;\nu32 gdr_space;\n$&/; s/nvidia_p2p_get_pages\(0, 0,/nvidia_p2p_get_pages(gdr_token, gdr_space,/'
mutant tokens-for-unpins tokens $t commands.c 's/static int gdr_pin_buffer\(/extern u64 gdr_token;\nextern u32 gdr_space;\n\n$&/; s/\tif \(gdr_pages_can_persist\(\) && \(a->p2p_token/\tgdr_token = a->p2p_token;\n\tgdr_space = a->va_space;\n$&/' pages.c 's/static atomic_t gdr_tables/u64 gdr_token;\nu32 gdr_space;\n$&/; s/nvidia_p2p_put_pages\(0, 0,/nvidia_p2p_put_pages(gdr_token, gdr_space,/; s/down_write\(&pin->owner->tables\)/down_read(\&pin->owner->tables)/; s/up_write\(&pin->owner->tables\)/up_read(\&pin->owner->tables)/'
mutant any-size answers '' pin.c 's/ \|\| !gdr_pages_can_exist\(pin->size\)//'
mutant size-before-rounding answers '' pin.c 's/gdr_pages_can_exist\(pin->size\)/gdr_pages_can_exist(size)/'
mutant no-limits limits '' owner.c 's/return -ENOMEM;\n/return 0;\n/'
mutant limit-of-each-open limits '' owner.c 's/if \(owner->pid == pid &&/if (!owner->pid \&\& owner->pid == pid \&\&/'
mutant no-limit-of-users limits '' owner.c 's/\} else if \(!gdr_owner_add\(user, /} else if (false \&\& !gdr_owner_add(user, /'
mutant users-share-a-limit limits '' owner.c 's/ && uid_eq\(owner->uid, uid\)//; s/pid \?: __kuid_val\(uid\)/pid ?: 1/'
mutant unseen-limit limits '' owner.c 's/\tatomic64_inc\(&gdr_owner_refused\);\n//'
mutant limit-of-one-pin limits '' owner.c 's/ \|\| bytes > most_bytes - owner->bytes/ || bytes > most_bytes/'
mutant failed-pin-counts limits '' pin.c 's/(\t\tgdr_info\("the GPU driver failed to pin.*?;\n)\t\tgdr_pin_forget\(pin\);\n/$1\t\txa_erase(\&gdr_pins, pin->id);\n\t\tgdr_pin_put(pin);\n/s'
mutant put-twice contract '' pages.c 's/err = gdr_put\(pin\);/err = gdr_put(pin) ?: gdr_put(pin);/'
mutant unloadable ignored_puts $t pages.c 's/\t\t__module_get\(THIS_MODULE\);/\t\t;/'
mutant not-retried failed_puts '' pages.c 's/if \(err == -ENOMEM\)/if (false)/'
mutant device-that-left removed '' pin.c 's/gdr_pages_are_of\(pin, to_pci_dev\(device\)\)/false/'
mutant any-device removed '' pin.c 's/gdr_pages_are_of\(pin, to_pci_dev\(device\)\)/device/'
mutant first-bars-only removed '' pages.c 's/bar < PCI_STD_NUM_BARS && pin->live/bar < 2 \&\& pin->live/'
mutant all-printable pins '' proc.c 's/isascii\(\*name\) && //'
mutant device-during-pin waits '' pages.c 's/atomic_read\(&gdr_departures\) != pin->departures/false/'
mutant pin-not-made-again waits '' pin.c 's/ && !fatal_signal_pending\(current\)/ \&\& false/'
mutant any-vendor waits '' pages.c 's/device->vendor != GDR_GPU_VENDOR/false/'
mutant devices-wait-for-pins waits '' pin.c 's/(static int gdr_pin_pages)/static DECLARE_RWSEM(all);\n\n$1/; s/(\terr = gdr_pages_get.*?;\n)/\tdown_read(\&all);\n$1\tup_read(\&all);\n/; s/(void gdr_pin_remove_all.*?\n\t\t.*?\n)/$1\tdown_write(\&all);\n\tup_write(\&all);\n/s'
mutant tables-of-all waits $t pages.c 's/&pin->owner->tables/\&all/g; s/static atomic_t gdr_tables/static DECLARE_RWSEM(all);\n$&/'
mutant large-of-all waits '' pages.c 's/&pin->user->large/\&all/g; s/static atomic_t gdr_tables/static struct semaphore all = __SEMAPHORE_INITIALIZER(all, 16);\n$&/'
mutant large-without-end waits '' pages.c 's/down_killable\(&pin->user->large\)/(down(\&pin->user->large), false)/'
mutant large-at-once waits '' owner.c 's/AT_A_TIME 16/AT_A_TIME 17/'
mutant one-log-for-all limits '' owner.c 's/hash_32\(__kuid_val\(user->uid\), GDR_LOG_BITS\)/0/'
mutant kept-by-failure answers $t pages.c 's/if \(!err && !pin->persistent/if (!pin->persistent/'
mutant executable answers '' map.c 's/vma->vm_flags & VM_EXEC\)/false)/'
mutant made-executable answers '' map.c 's/\(vma->vm_flags & ~VM_MAYEXEC\)/vma->vm_flags/'
mutant all-minors contract '' main.c 's/__register_chrdev\(0, 0, 1,/__register_chrdev(0, 0, 256,/; s/__unregister_chrdev\(gdr_major, 0, 1,/__unregister_chrdev(gdr_major, 0, 256,/g'
mutant fixed-mode answers '' main.c 's/gdr_device\.mode = gdr_mode/gdr_device.mode = 0664/'
mutant pins-for-all pins '' proc.c 's/"pins", 0400/"pins", 0444/'
mutant pins-for-containers pins '' proc.c 's/capable\(CAP_SYS_ADMIN\) \?/true ?/'
mutant no-gpu pins '' pages.c 's/if \(pin->table->gpu_uuid\)/if (false)/'
mutant two-lines pins '' proc.c 's/isascii\(\*name\) && isprint\(\*name\)/true/'
mutant pins-of-the-past pins $t proc.c 's/\tif \(READ_ONCE\(pin->fate\) == GDR_REVOKED\)\n\t\treturn 0;.*?\n//'
mutant pin-read-without-reference pins '' pin.c 's/\tif \(pin\)\n\t\tkref_get\(&pin->refs\);\n//'
mutant unseen-revocation tracepoints $t pin.c 's/\ttrace_gdrdrv_revoke\(pin\);\n//'
huge='--kernel 6.12 --emugpu longest_run=65536'
mutant never-huge huge_pages "$huge" map.c 's/order != PMD_ORDER/true/'
mutant huge-over-small huge_pages "$huge" map.c 's/\tdown_read\(&pin->gate\);\n\tif \(pin->live && \(pin->wc/\tusleep_range(300, 400);\n$&/; s/#include <linux.io.h>/#include <linux\/delay.h>\n$&/; s/!pmd_none\(vmf->orig_pmd\)/vma->vm_flags & VM_WRITE/'
mutant huge-anywhere huge_pages "$huge" map.c 's/IS_ALIGNED\(gdr_pages_address\(pin, offset\), PMD_SIZE\)/true/'
mutant huge-across-runs huge_pages '--kernel 6.12 --traditional --emugpu longest_run=100' map.c 's/gdr_run\(pin, offset, PMD_SIZE\) == PMD_SIZE/true/'

echo "$noticed noticed, $missed missed"
[ $missed -eq 0 ]

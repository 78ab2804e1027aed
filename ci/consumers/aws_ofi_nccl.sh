# Compiles and runs aws_ofi_nccl.c, which makes the same calls as aws-ofi-nccl.

aws_ofi_nccl() {
    local profile log
    cc -Wall -Werror -pthread -I"$cache/cuda/include" -I"$cache/gdrcopy/include" "$here/aws_ofi_nccl.c" -o aws_ofi_nccl \
        -L"$cache/cuda/lib64" -lcudart >aws_ofi_nccl.log 2>&1 || skip "aws_ofi_nccl.c does not compile, see $cache/aws_ofi_nccl.log"
    export LD_LIBRARY_PATH=$cache/gdrcopy/lib
    for profile in default traditional high-handles gdrdrv-2.4 cached dmabuf; do
        log=aws_ofi_nccl-$profile.log
        "${gdremu[@]}" --profile $profile --leak-exit 3 -- gdb --batch --nx -x "$here/calls.gdb" --args ./aws_ofi_nccl \
            >"$log" 2>&1 || touch failed
        row 'calls of aws-ofi-nccl' $profile aws_ofi_nccl.c "$(grep -c '^test ' "$log")" "$(grep -c '^ok ' "$log")" 0 "$log"
    done
}

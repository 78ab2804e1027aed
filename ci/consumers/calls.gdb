# Runs a program, prints how often it called these functions of libgdrapi, and exits with its status. `ignore` makes gdb
# count the hits of a breakpoint without stopping the program.
set breakpoint pending on
set confirm off
set debuginfod enabled off
break gdr_map
break gdr_copy_to_mapping
break gdr_copy_from_mapping
ignore 1 2000000000
ignore 2 2000000000
ignore 3 2000000000
run
info breakpoints
quit $_exitcode

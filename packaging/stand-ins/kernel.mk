# Builds modules for a stand-in for a kernel. The modules are objects with only the data that modinfo, depmod and objdump read.
# A directory with nv-p2p.c has the sources of the GPU driver: the first line of nv-p2p.c is the version, and nv-p2p.h is the
# interface. Any other directory has the sources of gdrdrv.
symbol := nvidia_p2p_get_pages

ifneq ($(wildcard $(M)/nv-p2p.c),)
name := nvidia
define object
.section .modinfo, "a"
.asciz "name=nvidia", "license=$(shell sed -n 's/.*MODULE_LICENSE("\(.*\)").*/\1/p' $(M)/nv-p2p.c)"
.asciz "version=$(shell head -n 1 $(M)/nv-p2p.c | tr -dc 0-9.)"
.globl __crc_$(symbol)
.set __crc_$(symbol), 0x$(shell sha256sum $(M)/nv-p2p.h | head -c 8)
endef
else
name := gdrdrv
-include $(if $(NVIDIA_SRC_DIR),$(M)/Kbuild)
version := $(shell awk '$$2 == "$(symbol)" { print $$1 }' $(KBUILD_EXTRA_SYMBOLS) /dev/null)
define object
.section .modinfo, "a"
.asciz "name=gdrdrv", "sources=$(shell cd $(M) && sha256sum *.c)"
.asciz "gpu_driver=$(if $(filter -DGDR_NVIDIA_IS_OPENSOURCE,$(ccflags-y)),opensource,proprietary)"
.section __versions, "a"
.quad $(or $(version),0)
1: .asciz "$(if $(version),$(symbol))"
.org 1b + 56
.data
.quad $(symbol)
endef
endif
export object

modules:
	echo "$$object" | gcc -x assembler -c - -o $(M)/$(name).ko

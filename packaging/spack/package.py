# Spack package: a repository's packages/gdrapi/package.py. The tarball is that of `make dist`; it has no checksum here,
# because it contains this file: add one, or install with --no-checksum.
# Checked: compiled and loaded by Python, over stand-ins for Spack's modules; pycodestyle. Not run: Spack.
# The URLs are placeholders.

from spack_repo.builtin.build_systems.makefile import MakefilePackage

from spack.package import *


class Gdrapi(MakefilePackage):
    """CPU access to NVIDIA GPU memory through PCIe BAR1: a drop-in replacement for NVIDIA's libgdrapi."""

    homepage = "https://gdrapi.example.org"
    url = "https://gdrapi.example.org/gdrapi-2.6.0.tar.gz"

    license("MIT OR Apache-2.0")

    version("2.6.0")

    variant("tools", default=True, description="The program gdrcopy: diagnosis and benchmarks")

    depends_on("c", type="build")
    depends_on("rust@1.89:", type="build")

    requires("platform=linux")
    conflicts("gdrcopy", msg="both provide libgdrapi.so.2")

    @property
    def build_targets(self):
        return ["tools" if self.spec.satisfies("+tools") else "lib"]

    @property
    def install_targets(self):
        targets = ["lib_install", f"prefix={self.prefix}"]
        if self.spec.satisfies("+tools"):
            targets.append("tools_install")
        return targets

    def setup_run_environment(self, env):
        env.prepend_path("LD_LIBRARY_PATH", self.prefix.lib)

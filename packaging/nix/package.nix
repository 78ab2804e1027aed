# Nix derivation: `callPackage ./package.nix { }` in a checkout, after `make dist`.
# Checked: parsed and evaluated with Nix's own builtins, over stand-ins for its arguments. Not run: the build.
# The home page is a placeholder.
{
  lib,
  stdenv,
  cargo,
  rustc,
  rustPlatform,
  src ? ../../build/dist/gdrapi-2.6.0.tar.gz,
}:

stdenv.mkDerivation {
  pname = "gdrapi";
  version = "2.6.0";
  inherit src;

  cargoDeps = rustPlatform.importCargoLock { lockFile = ../../Cargo.lock; };

  nativeBuildInputs = [
    cargo
    rustc
    rustPlatform.cargoSetupHook
  ];

  makeFlags = [ "prefix=${placeholder "out"}" ];
  buildFlags = [ "tools" ]; # and the library, which the tools need
  installTargets = [
    "lib_install"
    "tools_install"
  ];

  meta = {
    description = "CPU access to NVIDIA GPU memory through PCIe BAR1, a drop-in replacement for NVIDIA's libgdrapi";
    homepage = "https://gdrapi.example.org";
    license = with lib.licenses; [
      mit
      asl20
    ];
    mainProgram = "gdrcopy";
    platforms = [
      "x86_64-linux"
      "aarch64-linux"
      "powerpc64le-linux"
    ];
  };
}

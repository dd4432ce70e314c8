#!/usr/bin/env bash
# Packs the acceptance for a machine with an NVIDIA GPU and without cargo.
#
#   scripts/gpu-pack.sh [--cupti VERSION|PATH] [--counters] FOLDER
#
# FOLDER gets stripped release builds of examples/cuda, of the command `kineto` and of the injection library, and a runner:
# copy it to that machine and call FOLDER/run.sh (scripts/gpu-run.sh explains its parts and options). The runner needs bash and
# coreutils; python3 for injection and torch's comparison. The machine's glibc must not be older than the one here.
#
#   --cupti VERSION   packs NVIDIA's libcupti of that version as well (13.5, 13.4.92), from Python's package index
#   --cupti PATH      packs this libcupti
#   --counters        packs the libraries that CUPTI needs to sample counters as well: those next to the packed libcupti
#
# Fails if FOLDER is larger than 64 MiB. What FOLDER had from an earlier call is replaced; its results are kept.
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
readonly root limit=$((64 << 20))

fail() {
  echo "$0: $1" >&2
  exit 2
}

cupti='' counters=0 folder=''
while [[ $# -gt 0 ]]; do
  case $1 in
  --cupti)
    [[ $# -ge 2 ]] || fail "--cupti needs a version or a path"
    cupti=$2
    shift
    ;;
  --counters) counters=1 ;;
  -*) fail "unknown option $1" ;;
  *)
    [[ -z $folder ]] || fail "more than one folder"
    folder=$1
    ;;
  esac
  shift
done
[[ -n $folder ]] || fail "usage: $0 [--cupti VERSION|PATH] [--counters] FOLDER"
((!counters)) || [[ -n $cupti ]] || fail "--counters needs --cupti"

target=$(realpath -m "${CARGO_TARGET_DIR:-$root/target}")
if [[ $cupti =~ ^[0-9]+(\.[0-9]+)+$ ]]; then
  # Not the gate's folder, whose libraries have fixed versions.
  bash "$root/scripts/wheels.sh" "$target/gpu-pack-wheels" "$cupti"
  version=$cupti
  cupti=$(compgen -G "$target/gpu-pack-wheels/$version/lib/libcupti.so.*") || fail "the package $version has no libcupti"
fi
[[ -z $cupti || -f $cupti ]] || fail "no such library: $cupti"
[[ -z $cupti ]] || cupti=$(realpath --no-symlinks "$cupti")
[[ -z $cupti || ${cupti##*/} = libcupti.so.* ]] || fail "$cupti must be named libcupti.so.VERSION, as programs load it"
mkdir -p "$folder"
# Files of a pack are replaced, but nothing else.
[[ -f $folder/pack.sha256 || -z $(ls -A "$folder") ]] || fail "$folder is neither empty nor an earlier pack"
folder=$(cd "$folder" && pwd)

cd "$root"
CARGO_TARGET_DIR=$target/examples-of-their-own cargo build --release --locked --manifest-path examples/cuda/Cargo.toml
CARGO_TARGET_DIR=$target cargo build --release --locked --package kineto-cli --package tracing-kineto-capi

# The runner's process may still execute the old files.
rm -rf "${folder:?}"/{lib,cuda-example,kineto,run.sh,gpu-inject.py,gpu-torch.py,pack.sha256}
mkdir "$folder/lib"
strip -o "$folder/cuda-example" "$target/examples-of-their-own/release/cuda-example"
strip -o "$folder/kineto" "$target/release/kineto"
strip --strip-unneeded -o "$folder/lib/libtracing_kineto_capi.so" "$target/release/libtracing_kineto_capi.so"
if [[ -n $cupti ]]; then
  cp -L "$cupti" "$folder/lib/"
  if ((counters)); then
    for helper in "$(dirname "$cupti")"/libnvperf_{host,target}.so; do
      [[ -f $helper ]] || fail "no such library: $helper"
      # Plain, they exceed the limit.
      gzip -c "$helper" >"$folder/lib/${helper##*/}.gz"
    done
  fi
fi
cp scripts/gpu-run.sh "$folder/run.sh"
cp scripts/gpu-inject.py scripts/gpu-torch.py "$folder/"
(cd "$folder" && sha256sum cuda-example kineto lib/* | sha256sum | cut -d' ' -f1 >pack.sha256)

size=$(du -sb --exclude="$folder/results" "$folder" | cut -f1)
(cd "$folder" && du -b --apparent-size cuda-example kineto lib/* run.sh ./*.py)
echo "$folder: $((size >> 10)) KiB of at most $((limit >> 10)) KiB"
if ((size > limit)); then
  echo "$0: too large: leave out --counters or --cupti" >&2
  exit 1
fi

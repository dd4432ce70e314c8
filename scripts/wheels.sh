#!/usr/bin/env bash
# Fetches NVIDIA's own CUPTI libraries and headers, and Intel's PTI libraries, for crates/kineto-cli/tests/wheels.
#
#   scripts/wheels.sh FOLDER [VERSION]
#
# With VERSION (13.5, 13.4.92), only that libcupti is fetched, in the newest release that begins so.
# They come as wheels from Python's package index, about 165 MB, and are unpacked into FOLDER/<version>/{lib,include}; the
# headers of CUDA that theirs include go into FOLDER/cuda. PTI goes into FOLDER/pti/<version>/lib, with the libraries of
# Intel's compiler beside it; the distribution's Level Zero loader, which is too old for PTI, goes into FOLDER/pti/loader
# where apt-get can fetch it. What is there already is kept. For x86-64: 11.8 has no other.
# Exit status: 0 all are there, 3 they cannot be fetched here, 2 wrong use.
set -euo pipefail

if [[ $# -ne 1 && ! ($# -eq 2 && $2 =~ ^[0-9]+\.[0-9.]+$) ]]; then
  echo "usage: $0 FOLDER [VERSION]" >&2
  exit 2
fi
mkdir -p "$1"
folder=$(cd "$1" && pwd)

# Folder, then the packages whose files go there.
wanted=(
  '11.8 nvidia-cuda-cupti-cu11==11.8.87'
  '12.4 nvidia-cuda-cupti-cu12==12.4.127'
  '12.6 nvidia-cuda-cupti-cu12==12.6.80'
  '12.9 nvidia-cuda-cupti-cu12==12.9.79'
  '13.0 nvidia-cuda-cupti==13.0.85'
  '13.1 nvidia-cuda-cupti==13.1.115'
  '13.2 nvidia-cuda-cupti==13.2.86'
  '13.4 nvidia-cuda-cupti==13.4.92'
  '13.5 nvidia-cuda-cupti==13.5.25'
  'cuda nvidia-cuda-runtime==13.4.92 nvidia-cuda-crt==13.4.92'
  'pti/0.12.4 intel-pti==0.12.4 intel-cmplr-lib-rt==2025.3.3'
  'pti/0.16.0 intel-pti==0.16.0 intel-cmplr-lib-rt==2025.3.3'
  'pti/1.2.0 intel-pti==1.2.0 intel-cmplr-lib-rt==2025.3.3'
)
if [[ $# -eq 2 ]]; then
  package=nvidia-cuda-cupti release=$2
  [[ $2 != 1[12].* ]] || package+=-cu${2%%.*}
  [[ $2 == *.*.* ]] || release+='.*'
  wanted=("$2 $package==$release")
fi

fail() {
  echo "the vendors' libraries cannot be fetched: $1"
  exit 3
}

scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
python=${PYTHON:-python3}

# unpack TARGET: takes libcupti with its library of metrics and the headers, or PTI and what it needs, out of all wheels in the scratch folder.
unpack() {
  "$python" - "$scratch" "$1" <<'PYTHON'
import pathlib
import sys
import zipfile

scratch, target = map(pathlib.Path, sys.argv[1:])
pti = ("libpti", "libintlc.so.5", "libimf.so", "libsvml.so", "libirng.so", "libxptifw.so")
for wheel in scratch.glob("*.whl"):
    with zipfile.ZipFile(wheel) as archive:
        for name in archive.namelist():
            path = pathlib.PurePosixPath(name)
            if "include" in path.parts and path.suffix == ".h":
                part = pathlib.Path(*path.parts[path.parts.index("include"):])
            elif path.name.startswith(("libcupti.so", "libnvperf_host.so", "libnvperf_target.so")):
                part = pathlib.Path("lib", path.name)
            elif path.name.startswith(pti) and "lib" in path.parts:
                part = pathlib.Path(*path.parts[path.parts.index("lib"):])
            else:
                continue
            (target / part).parent.mkdir(parents=True, exist_ok=True)
            (target / part).write_bytes(archive.read(name))
PYTHON
}

for line in "${wanted[@]}"; do
  read -r -a words <<<"$line"
  target=$folder/${words[0]}
  packages=("${words[@]:1}")
  # Its presence says that nothing of it is missing; the name changes with the files that are taken.
  complete=$target/${packages[0]}.3
  [[ -e $complete ]] && continue
  "$python" -m pip --version >/dev/null 2>&1 || fail "there is no pip for $python (set PYTHON to one that has it)"
  echo "fetching ${packages[*]}"
  rm -rf "$target" "$scratch"/*
  timeout 200 "$python" -m pip download --disable-pip-version-check --quiet --no-deps --only-binary=:all: --retries 1 \
    --dest "$scratch" "${packages[@]}" || fail "pip download ${packages[*]} (no network, or no wheel for this platform)"
  unpack "$target"
  touch "$complete"
done
if [[ $# -eq 2 ]]; then
  echo "libcupti $2 is in $folder/$2"
  exit
fi
loader=$folder/pti/loader
if [[ ! -e $loader ]] && command -v dpkg-deb >/dev/null; then
  rm -rf "$scratch"/*
  # Without it, what is done with it is passed over.
  if (cd "$scratch" && timeout 100 apt-get download --quiet libze1) >/dev/null 2>&1; then
    mkdir -p "$loader"
    dpkg-deb -x "$scratch"/libze1_*.deb "$scratch/unpacked"
    cp "$scratch"/unpacked/usr/lib/*/libze_loader.so.1 "$loader/"
  fi
fi
echo "the vendors' libraries are in $folder"

#!/usr/bin/env bash
# Fetches NVIDIA's own CUPTI libraries and headers, for tests/wheels.
#
#   scripts/wheels.sh FOLDER
#
# They come as wheels from Python's package index, about 80 MB, and are unpacked into FOLDER/<version>/{lib,include}; the
# headers of CUDA that theirs include go into FOLDER/cuda. What is there already is kept. For x86-64: 11.8 has no other.
# Exit status: 0 all are there, 3 they cannot be fetched here, 2 wrong use.
set -euo pipefail

if [[ $# -ne 1 ]]; then
  echo "usage: $0 FOLDER" >&2
  exit 2
fi
mkdir -p "$1"
folder=$(cd "$1" && pwd)

# Folder, then the packages whose files go there.
wanted=(
  '11.8 nvidia-cuda-cupti-cu11==11.8.87'
  '12.4 nvidia-cuda-cupti-cu12==12.4.127'
  '12.9 nvidia-cuda-cupti-cu12==12.9.79'
  '13.0 nvidia-cuda-cupti==13.0.85'
  '13.2 nvidia-cuda-cupti==13.2.86'
  '13.4 nvidia-cuda-cupti==13.4.92'
  'cuda nvidia-cuda-runtime==13.4.92 nvidia-cuda-crt==13.4.92'
)

fail() {
  echo "NVIDIA's libraries cannot be fetched: $1"
  exit 3
}

scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
python=${PYTHON:-python3}

# unpack TARGET: takes libcupti and the headers out of all wheels in the scratch folder.
unpack() {
  "$python" - "$scratch" "$1" <<'PYTHON'
import pathlib
import sys
import zipfile

scratch, target = map(pathlib.Path, sys.argv[1:])
for wheel in scratch.glob("*.whl"):
    with zipfile.ZipFile(wheel) as archive:
        for name in archive.namelist():
            path = pathlib.PurePosixPath(name)
            if "include" in path.parts and path.suffix == ".h":
                part = pathlib.Path(*path.parts[path.parts.index("include"):])
            elif path.name.startswith("libcupti.so"):
                part = pathlib.Path("lib", path.name)
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
  # Its presence says that nothing of it is missing.
  complete=$target/${packages[0]}
  [[ -e $complete ]] && continue
  "$python" -m pip --version >/dev/null 2>&1 || fail "there is no pip for $python (set PYTHON to one that has it)"
  echo "fetching ${packages[*]}"
  rm -rf "$target" "$scratch"/*
  timeout 100 "$python" -m pip download --disable-pip-version-check --quiet --no-deps --only-binary=:all: --retries 1 \
    --dest "$scratch" "${packages[@]}" || fail "pip download ${packages[*]} (no network, or no wheel for this platform)"
  unpack "$target"
  touch "$complete"
done
echo "NVIDIA's libraries are in $folder"

#!/usr/bin/env bash
# The checks whose tools take long to install or whose runs take long: not part of the gate.
#
#   scripts/extra-checks.sh                     all of them
#   scripts/extra-checks.sh [--resume] NAME...  some of them; with --resume without those that have passed at this commit
#   scripts/extra-checks.sh --last              when each ran last, and how it ended
#
#     deny        licences, sources and duplicates of the dependencies (cargo deny, deny.toml)
#     advisories  known faults of the dependencies (cargo deny)
#     semver      the public API against the last release (cargo semver-checks); BASELINE=<git revision> for another one
#     miri        undefined behaviour in the modules with unsafe code (nightly, miri)
#     address     memory errors (nightly, AddressSanitizer)
#     thread      data races (nightly, ThreadSanitizer)
#     memcheck    invalid accesses in one recording with each vendor's simulated libraries (valgrind)
#     overflow    arithmetic that overflows in a release build
#     fuzz        each target of fuzz/, FUZZ_SECONDS long, by default 600 (nightly, cargo fuzz)
#     clock       the tests on a virtual clock, when its jumps come late, and when each is a thousand steps
#     load        the tests LOAD_RUNS times, by default 10, beside four busy loops, and on a slow disk if root can mount one
#     soak        kills, forks, corrupted records and properties, many times; the vendors' own libraries, all versions
#     mutants     changes of the code that no test of its package notices (cargo mutants); FILES=<glob> for others than the default
#
# Each ends as ok, FAILED, or "not run" with the reason, and may take as long as `limits` states; the exit status is 0 when none failed.
set -euo pipefail

self=$(realpath "${BASH_SOURCE[0]}")
cd "$(dirname "$self")/.."
export CARGO_TERM_COLOR=${CARGO_TERM_COLOR:-never}
target=${CARGO_TARGET_DIR:-$PWD/target}
host=$(rustc -vV | sed -n 's/^host: //p')
readonly not_run=77
# In the order in which they run. Minutes, with the installation of the tool and the build.
readonly checks=(deny advisories semver miri address thread memcheck overflow fuzz clock load soak mutants)
declare -Ar limits=([deny]=15 [advisories]=15 [semver]=40 [miri]=180 [address]=120 [thread]=120 [memcheck]=60 [overflow]=60 [fuzz]=150
  [clock]=120 [load]=240 [soak]=180 [mutants]=300)
# A line for each run: name, end, commit, result, seconds.
readonly journal=$target/extra-checks.tsv

# Ends the check at hand as "not run".
pass_over() {
  echo "not run: $*"
  exit "$not_run"
}

# need_tool SUBCOMMAND CRATE: installs a cargo subcommand from its sources, which takes minutes.
need_tool() {
  cargo "$1" --version 2>/dev/null || cargo install --locked "$2" || pass_over "$2 could not be installed"
}

# need_nightly COMPONENT...
need_nightly() {
  rustc +nightly --version 2>/dev/null || rustup toolchain install nightly --profile minimal --no-self-update ||
    pass_over 'there is no nightly toolchain here'
  local component
  for component in "$@"; do
    rustup component add --toolchain nightly "$component" || pass_over "the nightly toolchain has no $component here"
  done
}

# Runs a test command, and fails if it has no test to run.
some_tests() {
  local log=$target/extra-checks.log
  "$@" 2>&1 | tee "$log"
  grep -Eq '^running [1-9]' "$log" || { echo 'no test ran'; return 1; }
}

deny() {
  need_tool deny cargo-deny
  cargo deny --locked check bans licenses sources
}

# Their database is a git repository, which is not to be reached from everywhere.
advisories() {
  need_tool deny cargo-deny
  cargo deny --locked fetch db || pass_over 'the advisories could not be fetched'
  cargo deny --locked check advisories
}

semver() {
  local baseline=${BASELINE:-$(git describe --tags --abbrev=0 --match 'v[0-9]*' 2>/dev/null || true)}
  [[ -n $baseline ]] || pass_over 'nothing has been released yet; name a BASELINE'
  need_tool semver-checks cargo-semver-checks
  cargo semver-checks --all-features --baseline-rev "$baseline"
}

# The modules with unsafe code, and what hangs on them. Miri has no fork, no signals and a slow clock: tests that need these are
# marked `#[cfg_attr(miri, ignore)]`. A property is tried twice.
miri() {
  need_nightly miri rust-src
  local flags='-Zmiri-strict-provenance -Zmiri-symbolic-alignment-check -Zmiri-disable-isolation'
  export PROPTEST_CASES=2
  CARGO_TARGET_DIR=$target/miri MIRIFLAGS=$flags \
    some_tests cargo +nightly miri test --lib -- buffer:: recorder:: fields:: layer:: clock::
  CARGO_TARGET_DIR=$target/miri MIRIFLAGS="$flags -Zmiri-tree-borrows -Zmiri-many-seeds=0..16" \
    some_tests cargo +nightly miri test --lib -- buffer::
}

# sanitize NAME [OPTION]...: all tests, the standard library instrumented with them. The simulated libraries find the sanitizer
# in the program that loads them. By default it ends a program that allocates too much.
sanitize() {
  need_nightly rust-src
  export ASAN_OPTIONS=allocator_may_return_null=1:${ASAN_OPTIONS:-} TSAN_OPTIONS=allocator_may_return_null=1
  CARGO_TARGET_DIR=$target/sanitizer-$1 RUSTFLAGS="-Zsanitizer=$1 -Clink-arg=-rdynamic" \
    some_tests cargo +nightly test --workspace --lib --tests -Zbuild-std --target "$host" -- "${@:2}"
}

# Leaks are not counted: what a process keeps for its life is reachable by no pointer at its end.
address() {
  ASAN_OPTIONS=detect_leaks=0 sanitize address
}

# The sanitizer's own threads do not survive a fork.
thread() {
  sanitize thread --skip fork
}

# Leaks are not counted, as above.
memcheck() {
  local vendor test runner
  valgrind --version || pass_over 'there is no valgrind here'
  runner=CARGO_TARGET_$(tr a-z- A-Z_ <<<"$host")_RUNNER
  for vendor in cuda:collector::all_work_is_found_with_each_version rocm:either::step_is_recorded_completely \
    roctracer:either::step_is_recorded_completely xpu:recording::all_work_has_rows_and_links; do
    test=${vendor#*:}
    some_tests env "$runner=valgrind --error-exitcode=9" \
      cargo test --workspace --all-features --test "${vendor%%:*}" -- --exact "$test" --test-threads=1
  done
}

overflow() {
  CARGO_TARGET_DIR=$target/overflow CARGO_PROFILE_RELEASE_OVERFLOW_CHECKS=true CARGO_PROFILE_RELEASE_LTO=off \
    some_tests cargo test --release --workspace --all-features --lib --tests
}

# A crash is in fuzz/artifacts, with the command that repeats it in the log.
fuzz() {
  need_nightly
  need_tool fuzz cargo-fuzz
  local name
  for name in $(cargo fuzz list); do
    # What it finds stays out of the corpus in git.
    mkdir -p "$target/corpus/$name"
    cargo +nightly fuzz run --target-dir "$target/fuzz" "$name" "$target/corpus/$name" "fuzz/corpus/$name" -- \
      -max_total_time="${FUZZ_SECONDS:-600}" -rss_limit_mb=4096 -timeout=20
  done
}

# All others do not read the variable.
clock() {
  VIRTUAL_CLOCK_PACE=late some_tests cargo test --workspace --all-features --no-fail-fast
  VIRTUAL_CLOCK_PACE=fine some_tests cargo test --workspace --all-features --no-fail-fast
}

# limit_disk DEVICE BYTES OPERATIONS: lets the kernel do so much in a second; 0 for no limit.
limit_disk() {
  local throttle=/sys/fs/cgroup/blkio/blkio.throttle way
  for way in read write; do
    echo "$1 $2" >"$throttle.${way}_bps_device" && echo "$1 $3" >"$throttle.${way}_iops_device" || return
  done
}

# mount_slow_disk FOLDER
mount_slow_disk() {
  local device
  truncate -s 6G "$1.image" && mkfs.ext4 -q -F "$1.image" && mount -o loop "$1.image" "$1" || return
  # It lasts as long as the mount.
  rm "$1.image"
  device=$(mountpoint -d "$1")
  # Else gigabytes wait to be written, and all that creates a file waits for them.
  limit_disk "$device" 60000000 1000 && echo 60000000 >"/sys/class/bdi/$device/max_bytes" &&
    echo 1 >"/sys/class/bdi/$device/strict_limit"
}

# end_load FOLDER: ends the busy loops, and gives the disk back.
end_load() {
  kill $(jobs -p)
  if mountpoint -q "$1"; then
    limit_disk "$(mountpoint -d "$1")" 0 0
    umount --lazy "$1"
  fi
  rmdir "$1"
}

load() {
  local disk run
  # Paths of sockets are short.
  disk=$(mktemp -d)
  trap "end_load '$disk'" EXIT
  if mount_slow_disk "$disk"; then
    export TMPDIR=$disk
  else
    echo 'without a slow disk: that needs root, mkfs.ext4 and the throttle of cgroups, version 1'
  fi
  for run in 1 2 3 4; do
    (set +x; while :; do :; done) &
  done
  for ((run = 1; run <= ${LOAD_RUNS:-10}; run++)); do
    some_tests cargo test --workspace --all-features --no-fail-fast
  done
}

soak() {
  KINETO_KILLS=200 some_tests cargo test --workspace --all-features --test programs killed_process
  FORKS=5000 some_tests cargo test --workspace --all-features --test programs forks
  MUTATIONS=2000 some_tests cargo test --workspace --all-features --test devices cuda::faults::mutated
  PROPTEST_CASES=20000 some_tests cargo test --workspace --all-features --lib
  local wheels=${CUPTI_WHEELS:-$target/wheels}
  bash scripts/wheels.sh "$wheels" || pass_over "the vendors' libraries cannot be fetched here; all else passed"
  CUPTI_WHEELS=$wheels some_tests cargo test --package kineto-cli --test wheels
}

mutants() {
  need_tool mutants cargo-mutants
  cargo mutants --output "$target" --test-tool cargo --no-shuffle --file "${FILES:-crates/kineto-base/src/{sorted,sorting,fallible,time}.rs}"
}

# Prints the last run of each check.
last_runs() {
  local check
  printf '%-12s %-21s %-10s %8s  %s\n' check 'ended (UTC)' commit seconds result
  for check in "${checks[@]}"; do
    awk -F'\t' -v name="$check" '$1 == name { line = $0 }
      END { split(line, part, FS); if (line == "") part[2] = "never"
            printf "%-12s %-21s %-10s %8s  %s\n", name, part[2], part[3], part[5], part[4] }' "$journal"
  done
}

# This check alone, in a process that a limit ends.
if [[ ${1:-} = --run ]]; then
  set -x
  "$2"
  exit
fi

mkdir -p "$target"
touch "$journal"
commit=$(git rev-parse --short HEAD)$([[ -z $(git status --porcelain) ]] || echo +)
resumes=
case ${1:-} in
--last)
  last_runs
  exit
  ;;
--resume)
  resumes=yes
  shift
  ;;
esac
chosen=("$@")
[[ $# -gt 0 ]] || chosen=("${checks[@]}")
for check in "${chosen[@]}"; do
  if [[ ! -v limits[$check] ]]; then
    echo "no such check: $check" >&2
    sed -n '3,22s/^# \{0,1\}//p' "$self" >&2
    exit 2
  fi
done
failed=0
for check in "${chosen[@]}"; do
  # What is not committed may have changed since.
  if [[ -n $resumes && $commit != *+ ]] && grep -q "^$check"$'\t[^\t]*\t'"$commit"$'\tok\t' "$journal"; then
    echo "$check has passed at $commit"
    continue
  fi
  start=$SECONDS
  printf '\n==== %s\n' "$check"
  code=0
  timeout "${limits[$check]}m" bash "$self" --run "$check" </dev/null || code=$?
  case $code in
  0) result=ok ;;
  "$not_run") result='not run' ;;
  124) result="FAILED (more than ${limits[$check]} minutes)" ;;
  *) result="FAILED ($code)" ;;
  esac
  [[ $result != FAILED* ]] || failed=1
  TZ=UTC printf '%s\t%(%Y-%m-%dT%H:%M:%SZ)T\t%s\t%s\t%s\n' "$check" -1 "$commit" "$result" "$((SECONDS - start))" >>"$journal"
done
printf '\n==== summary\n'
last_runs
exit "$failed"

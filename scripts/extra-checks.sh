#!/usr/bin/env bash
# The checks whose tools take long to install or whose runs take long: not part of the gate.
#
#   scripts/extra-checks.sh              all of them
#   scripts/extra-checks.sh NAME...      some of them:
#
#     deny        licences, sources and duplicates of the dependencies (cargo deny, deny.toml)
#     advisories  known faults of the dependencies (cargo deny)
#     semver      the public API against the last release (cargo semver-checks); BASELINE=<git revision> for another one
#     miri        undefined behaviour in the modules with unsafe code (nightly, miri)
#     address     memory errors (nightly, AddressSanitizer)
#     thread      data races (nightly, ThreadSanitizer)
#     memcheck    invalid accesses in one recording with each vendor's simulated libraries (valgrind)
#     overflow    arithmetic that overflows in a release build
#
# Each ends as ok, FAILED, or "not run" with the reason; the exit status is 0 when none failed.
set -euo pipefail

self=$(realpath "${BASH_SOURCE[0]}")
cd "$(dirname "$self")/.."
export CARGO_TERM_COLOR=${CARGO_TERM_COLOR:-never}
target=${CARGO_TARGET_DIR:-$PWD/target}
host=$(rustc -vV | sed -n 's/^host: //p')
readonly not_run=77
summary=()
failed=0

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
  mkdir -p "$target"
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
      cargo test --all-features --test "${vendor%%:*}" -- --exact "$test" --test-threads=1
  done
}

overflow() {
  CARGO_TARGET_DIR=$target/overflow CARGO_PROFILE_RELEASE_OVERFLOW_CHECKS=true CARGO_PROFILE_RELEASE_LTO=off \
    some_tests cargo test --release --workspace --all-features --lib --tests
}

checks=("$@")
[[ $# -gt 0 ]] || checks=(deny advisories semver miri address thread memcheck overflow)
for check in "${checks[@]}"; do
  case $check in
  deny | advisories | semver | miri | address | thread | memcheck | overflow) ;;
  *)
    echo "no such check: $check" >&2
    sed -n '3,17s/^# \{0,1\}//p' "$self" >&2
    exit 2
    ;;
  esac
done
for check in "${checks[@]}"; do
  start=$SECONDS
  printf '\n==== %s\n' "$check"
  set +e
  (set -e; "$check") </dev/null
  code=$?
  set -e
  case $code in
  0) result=ok ;;
  "$not_run") result='not run' ;;
  *)
    result="FAILED ($code)"
    failed=1
    ;;
  esac
  summary+=("$(printf '%-12s %5s s  %s' "$check" "$((SECONDS - start))" "$result")")
done
printf '\n==== summary\n'
printf '%s\n' "${summary[@]}"
exit "$failed"

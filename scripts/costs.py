#!/usr/bin/env python3
"""Checks that the command's costs grow no faster than n log n with the size of a trace.

  costs.py KINETO [--all]

KINETO is the command. Each case is a trace whose conversion or figures could cost the square of its size. It is made here in three sizes,
each twice the one before, and valgrind counts the instructions of the commands that read it, with --all of every command. From one size to the
next, their growth may double, with a tolerance for the logarithm; a square would grow four times. Of commands that print a line for each
row, the memory of a row is limited too. Prints a line for each; the exit status is 1 if one costs too much, and 3 without valgrind.
"""
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

# The largest growth of the growth when the size doubles.
LIMIT = 2.8
# The most memory of a row, in bytes.
ROW_BYTES = 1024
# Threads that meet in another order may need one more buffer, which only adds instructions: the least of so many counts is compared.
TRIES = 4


def slice_(name, tid, ts, dur, cat="cpu_op", pid=1, **args):
    return {"ph": "X", "cat": cat, "name": name, "pid": pid, "tid": tid, "ts": ts, "dur": dur, "args": args}


def kernel(name, stream, ts, dur, **args):
    return slice_(name, stream, ts, dur, "kernel", 0, device=0, stream=stream, **args)


def overlapping_async_spans(n):
    for at in range(n):
        span = {"span id": at + 1}
        yield from (slice_("request", 1, start, 1, **span) for start in (2 * at, 10 * n + 2 * at))
        begin = {"cat": "async", "name": "request", "id2": {"local": hex(at + 1)}, "pid": 1, "tid": 1}
        yield {"ph": "b", **begin, "ts": 2 * at, "args": span}
        yield {"ph": "e", **begin, "ts": 10 * n + 2 * at + 1}


def overlapping_kernels(n):
    return (kernel("gemm", 7, at, n + at) for at in range(n))


def arrows_of_one_id(n):
    for at in range(n):
        yield slice_("cudaLaunchKernel", 1, 4 * at, 1, "cuda_runtime", correlation=7)
        yield {"ph": "s", "cat": "ac2g", "id": 7, "pid": 1, "tid": 1, "ts": 4 * at}
        yield kernel("gemm", 7, 4 * at + 1, 2, correlation=7)
        yield {"ph": "f", "bp": "e", "cat": "ac2g", "id": 7, "pid": 0, "tid": 7, "ts": 4 * at + 1}


def equal_times(n):
    return (slice_(f"op{at % 100}", 1, 5, 10) for at in range(n))


def distinct_names(n):
    """The last one is the longest: a sort moves it past all others."""
    return (slice_(f"op{at}", 1, (n + 9) * at, n - at if at < n - 1 else n + 5) for at in range(n))


def nested_steps(n):
    return (slice_(f"ProfilerStep#{at}", 1, at, 3 * n - 2 * at, "user_annotation") for at in range(n))


def streams(n):
    for at in range(n):
        yield slice_("cudaLaunchKernel", 1, 10 * at, 3, "cuda_runtime", correlation=at + 1)
        yield kernel("gemm", at, 10 * at + 5, 8, correlation=at + 1)


def devices(n):
    return (slice_("gemm", 7, at, 5, "kernel", at, device=at, stream=7) for at in range(n))


def processes(n):
    for at in range(n):
        yield {"ph": "M", "name": "process_name", "pid": at, "tid": 0, "args": {"name": f"rank {at}"}}
        yield {"ph": "M", "name": "thread_name", "pid": at, "tid": 1, "args": {"name": "main"}}
        yield slice_("op", 1, at, 5, pid=at)
        yield {"ph": "C", "name": "load", "pid": at, "tid": 1, "ts": at, "args": {"value": at}}


PERFETTO, SPEEDSCOPE, REPORT = (["convert", "-o", "out.pftrace"], ["convert", "-o", "out.speedscope.json"], ["report", "-o", "out.html"])
TABLE, BY_STACK, PATH, STACKS, SUMMARY = (["table", "--json"], ["table", "--by", "stack"], ["path", "--json"], ["stacks"], ["summary", "--json"])
ALL = [PERFETTO, SPEEDSCOPE, ["convert", "-o", "out.json"], ["convert", "-o", "out.csv"], REPORT, TABLE, BY_STACK, PATH, STACKS, SUMMARY, ["validate"], ["diff"]]
# The smallest size is so large that a square would show above what each event costs.
CASES = {
    "overlapping async spans": (overlapping_async_spans, 1000, [PERFETTO]),
    "overlapping kernels": (overlapping_kernels, 1000, [PERFETTO, SPEEDSCOPE]),
    "arrows of one id": (arrows_of_one_id, 1000, [PERFETTO]),
    "equal times": (equal_times, 2000, [PERFETTO, BY_STACK]),
    "distinct names": (distinct_names, 1000, [TABLE, PATH]),
    "nested steps": (nested_steps, 1000, [STACKS, BY_STACK]),
    # At some sizes, a page tries one more way to shorten its lists; that of processes does not.
    "streams": (streams, 1000, [SUMMARY]),
    "devices": (devices, 1000, [REPORT]),
    "processes": (processes, 1000, [PERFETTO, SPEEDSCOPE, REPORT]),
}


def run_arguments(kineto, command, path):
    """Returns the arguments that run a command on a trace."""
    first, *rest = command
    return [kineto, first, *([path] if first == "diff" else []), path, *rest]


def count_instructions(command, folder):
    """Returns the instructions of a command."""
    counted = subprocess.run(["valgrind", "--tool=cachegrind", "--cache-sim=no", "--cachegrind-out-file=/dev/null", *command], cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    found = re.search(r"I\s+refs:\s+([\d,]+)", counted.stderr)
    assert found and counted.returncode in (0, 1), counted.stderr
    return int(found[1].replace(",", ""))


def count_kilobytes(command, folder):
    """Returns the most memory that a command held at once."""
    child = subprocess.Popen(command, cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    _, status, usage = os.wait4(child.pid, 0)
    assert os.waitstatus_to_exitcode(status) in (0, 1), command
    return usage.ru_maxrss


def compute_growth(values):
    """Returns how many times more is added from the second size to the third than from the first to the second."""
    first, second = values[1] - values[0], values[2] - values[1]
    # Less than a hundredth of the whole is noise.
    return second / first if first > values[2] / 100 else 0


def write_trace(path, events):
    path.write_text(json.dumps({"traceEvents": list(events)}))
    return path


def check_case(kineto, name, commands):
    """Returns a line for each command, and whether all are good."""
    make, smallest, own_commands = CASES[name]
    lines, good = [], True
    with tempfile.TemporaryDirectory() as folder:
        folder = Path(folder)
        paths = [write_trace(folder / f"{size}.json", make(size)) for size in (smallest, 2 * smallest, 4 * smallest)]
        for command in commands or own_commands:
            is_good, line = check_command(kineto, name, command, paths, folder)
            lines.append(line)
            good &= is_good
    return lines, good


def check_command(kineto, name, command, paths, folder):
    values = [count_instructions(run_arguments(kineto, command, path), folder) for path in paths]
    for _ in range(TRIES - 1):
        if compute_growth(values) <= LIMIT:
            break
        values = [min(value, count_instructions(run_arguments(kineto, command, path), folder)) for value, path in zip(values, paths)]
    growth = compute_growth(values)
    is_good = growth <= LIMIT
    return is_good, f"{name}: {' '.join(command)}: {' '.join(f'{value:,}' for value in values)} instructions, growth times {growth:.2f}{'' if is_good else '  FAULT'}"


def check_memory(kineto, folder):
    rows, good = 20_000, True
    path = write_trace(folder / "rows.json", distinct_names(rows))
    read = count_kilobytes(run_arguments(kineto, ["validate"], path), folder)
    for command in (TABLE, PATH, STACKS):
        row_bytes = (count_kilobytes(run_arguments(kineto, command, path), folder) - read) * 1024 // rows
        is_good = row_bytes <= ROW_BYTES
        good &= is_good
        print(f"{' '.join(command)}: {row_bytes} bytes of memory for each of {rows:,} rows{'' if is_good else '  FAULT'}")
    return good


def main():
    if len(sys.argv) < 2:
        raise SystemExit(__doc__)
    if not shutil.which("valgrind"):
        print("valgrind is missing; nothing is counted")
        return 3
    kineto, commands = Path(sys.argv[1]).resolve(), ALL if "--all" in sys.argv else None
    with tempfile.TemporaryDirectory() as folder:
        good = check_memory(kineto, Path(folder))
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        for lines, is_good in pool.map(lambda name: check_case(kineto, name, commands), CASES):
            print(*lines, sep="\n", flush=True)
            good &= is_good
    return 0 if good else 1


sys.exit(main())

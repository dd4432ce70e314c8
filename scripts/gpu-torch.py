"""Compares what the CUDA example's trace says of its kernel with what torch.profiler says of the same.

    python3 scripts/gpu-torch.py TRACE KERNELS.ptx

Launches `vecadd` from the PTX as the example does, on vectors of the same size, under torch.profiler. What both say of the
kernel must be equal where it does not depend on time: its name, grid, block, registers, shared memory and occupancy. Of
the durations the medians are compared, which must be within a quarter of each other: two runs on one GPU are not alike.
"""

import ctypes
import gzip
import json
import os
import statistics
import sys
import tempfile

import torch

ELEMENTS = 1 << 20
LAUNCHES = 22
EQUAL = ("grid", "block", "registers per thread", "shared memory", "blocks per SM", "warps per SM", "est. achieved occupancy %")


def kernels(path):
    """The rows of the kernels in a trace."""
    with (gzip.open if path.endswith(".gz") else open)(path, "rt") as file:
        events = json.load(file)["traceEvents"]
    return [event for event in events if event.get("ph") == "X" and event.get("cat") == "kernel"]


def check(code, name):
    if code:
        sys.exit(f"FAIL  {name} returns {code}")


def loaded(ptx):
    """The kernel, in the context that torch uses."""
    driver = ctypes.CDLL("libcuda.so.1")
    module, function = ctypes.c_void_p(), ctypes.c_void_p()
    check(driver.cuModuleLoadData(ctypes.byref(module), ptx), "cuModuleLoadData")
    check(driver.cuModuleGetFunction(ctypes.byref(function), module, b"vecadd"), "cuModuleGetFunction")
    return driver, function


def launch(driver, function, vectors):
    values = [ctypes.c_uint64(vector.data_ptr()) for vector in vectors] + [ctypes.c_uint32(ELEMENTS)]
    parameters = (ctypes.c_void_p * 4)(*[ctypes.cast(ctypes.byref(value), ctypes.c_void_p) for value in values])
    stream = ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)
    code = driver.cuLaunchKernel(function, 1024, 1, 1, 1024, 1, 1, 0, stream, parameters, None)
    check(code, "cuLaunchKernel")


def by_torch(ptx):
    a = torch.arange(ELEMENTS, dtype=torch.float32, device="cuda")
    b, c = a * 2, torch.zeros_like(a)
    driver, function = loaded(ptx)
    launch(driver, function, (a, b, c))
    torch.cuda.synchronize()
    activities = [torch.profiler.ProfilerActivity.CPU, torch.profiler.ProfilerActivity.CUDA]
    with torch.profiler.profile(activities=activities) as profiler:
        for _ in range(LAUNCHES):
            launch(driver, function, (a, b, c))
        torch.cuda.synchronize()
    assert torch.equal(c, a + b)
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "torch.json")
        profiler.export_chrome_trace(path)
        return kernels(path)


def said(value):
    """A value as text; torch writes fewer digits of ratios."""
    return f"{value:.4g}" if isinstance(value, float) else json.dumps(value)


def main():
    trace, ptx = sys.argv[1:]
    with open(ptx, "rb") as file:
        text = file.read() + b"\0"
    ours, theirs = kernels(trace), by_torch(text)
    theirs = [kernel for kernel in theirs if kernel["name"] == "vecadd"]
    ours = [kernel for kernel in ours if kernel["name"] == "vecadd"]
    failed = not ours or len(theirs) != LAUNCHES
    print(f"{'FAIL' if failed else 'PASS'}  kernels named vecadd: {len(ours)} of ours, {len(theirs)} of torch's {LAUNCHES}")
    if failed:
        return 1
    for key in EQUAL:
        values = [{said(kernel["args"].get(key)) for kernel in kernels} for kernels in (ours, theirs)]
        equal = values[0] == values[1]
        failed |= not equal
        print(f"{'PASS' if equal else 'FAIL'}  {key}: {', '.join(values[0])} and {', '.join(values[1])}")
    missing = sorted(set(theirs[0]["args"]) - set(ours[0]["args"]))
    print(f"{'FAIL' if missing else 'PASS'}  torch's arguments that ours lack: {', '.join(missing) or 'none'}")
    failed |= bool(missing)
    medians = [statistics.median(kernel["dur"] for kernel in kernels) for kernels in (ours, theirs)]
    near = max(medians) <= 1.25 * min(medians)
    failed |= not near
    print(f"{'PASS' if near else 'FAIL'}  median duration: {medians[0]:.3f} us and {medians[1]:.3f} us")
    return int(failed)


sys.exit(main())

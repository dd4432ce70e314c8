"""Launches the CUDA example's kernel from a program without tracing-kineto, for a test of the injection library.

    python3 gpu-inject.py KERNELS.ptx

CUDA's driver loads the library that CUDA_INJECTION64_PATH names; Python needs no packages to call the driver.
"""

import ctypes
import sys

ELEMENTS = 1 << 20
LAUNCHES = 22

driver = ctypes.CDLL("libcuda.so.1")


def call(name, *arguments):
    code = getattr(driver, name)(*arguments)
    if code:
        sys.exit(f"FAIL  {name} returns {code}")


def main():
    with open(sys.argv[1], "rb") as file:
        ptx = file.read() + b"\0"
    device, context, module, function = ctypes.c_int(), ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_void_p()
    call("cuInit", 0)
    call("cuDeviceGet", ctypes.byref(device), 0)
    call("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
    call("cuCtxSetCurrent", context)
    call("cuModuleLoadData", ctypes.byref(module), ptx)
    call("cuModuleGetFunction", ctypes.byref(function), module, b"vecadd")
    values = [ctypes.c_uint64() for _ in range(3)] + [ctypes.c_uint32(ELEMENTS)]
    for vector in values[:3]:
        call("cuMemAlloc_v2", ctypes.byref(vector), ctypes.c_size_t(4 * ELEMENTS))
    parameters = (ctypes.c_void_p * 4)(*[ctypes.cast(ctypes.byref(value), ctypes.c_void_p) for value in values])
    for _ in range(LAUNCHES):
        call("cuLaunchKernel", function, 1024, 1, 1, 1024, 1, 1, 0, None, parameters, None)
    call("cuCtxSynchronize")
    print(f"{LAUNCHES} launches")


main()

//! The result codes of HIP.

sim_core::codes! {
    /// A `hipError_t` other than success.
    Error(i32), INVALID_VALUE;
    SUCCESS = 0, c"hipSuccess", c"no error";
    INVALID_VALUE = 1, c"hipErrorInvalidValue", c"invalid argument";
    OUT_OF_MEMORY = 2, c"hipErrorOutOfMemory", c"out of memory";
    INVALID_DEVICE_FUNCTION = 98, c"hipErrorInvalidDeviceFunction", c"invalid device function";
    NO_DEVICE = 100, c"hipErrorNoDevice", c"no ROCm-capable device is detected";
    INVALID_DEVICE = 101, c"hipErrorInvalidDevice", c"invalid device ordinal";
    INVALID_IMAGE = 200, c"hipErrorInvalidImage", c"device kernel image is invalid";
    INVALID_HANDLE = 400, c"hipErrorInvalidHandle", c"invalid resource handle";
    ILLEGAL_STATE = 401, c"hipErrorIllegalState", c"the operation cannot be performed in the present state";
    NOT_FOUND = 500, c"hipErrorNotFound", c"named symbol not found";
    NOT_READY = 600, c"hipErrorNotReady", c"device not ready";
    CAPTURE_UNSUPPORTED = 900, c"hipErrorStreamCaptureUnsupported", c"operation not permitted when stream is capturing";
    CAPTURE_INVALIDATED = 901, c"hipErrorStreamCaptureInvalidated", c"operation failed due to a previous error during capture";
}

/*
 * tracing-kineto for the C and C++ code of a program: records ranges with the GPU work launched inside, and writes them in
 * the trace format of PyTorch's profiler. C11 and C++17.
 *
 *   tracing_kineto_init();                          the environment configures the recording
 *   tracing_kineto_push_range("forward", TRACING_KINETO_ANNOTATION);
 *   tracing_kineto_arg_int("batch", 32);
 *   ...                                             kernels launched here belong to "forward"
 *   tracing_kineto_pop_range();
 *   tracing_kineto_shutdown();                      writes the trace
 *
 *   KINETO_ENABLED=1 KINETO_ACTIVITIES_LOG_FILE=app.pt.trace.json ./app
 *
 * Any thread may call any function at any time. Before init and after shutdown, calls do nothing: until init, a call is one
 * atomic load. Functions that return an int return a tracing_kineto_status. Texts are copied; invalid UTF-8 in them is
 * replaced. Functions do not throw or unwind.
 *
 * Each copy of the library in a process is a separate profiler. Build a Rust program that uses the crate tracing-kineto with
 * that crate's feature `capi`: it then contains these functions, and both parts share one trace. Such a program must not
 * load the shared library too: there would be two independent profilers, and only one of them would get the GPU's records.
 *
 * A program that cannot be rebuilt can be recorded without these functions: when it first uses CUDA, the driver loads the
 * library that a variable names, and calls its InitializeInjection.
 *
 *   CUDA_INJECTION64_PATH=/path/to/libtracing_kineto_capi.so KINETO_ACTIVITIES_LOG_FILE=app.pt.trace.json ./app
 *
 * The file contains kernels, copies and the CUDA calls that caused them. It is written when main returns, exit is called, or
 * SIGINT, SIGTERM or SIGHUP ends the program; not by _exit. With KINETO_USE_DAEMON=1 instead of the file, `dyno gputrace`
 * requests traces. KINETO_NVTX_RANGES=1 and NVTX_INJECTION64_PATH=/path/to/libcupti.so.13 add the program's NVTX ranges.
 * A child process is recorded into its own file from its own first use of CUDA. If the program calls tracing_kineto_init
 * from the same library file, it gets that profiler. If it contains another copy of tracing-kineto, that copy records, the
 * variable has no effect, and a message reports it.
 */
#ifndef TRACING_KINETO_H
#define TRACING_KINETO_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The result of a call. Numbers never change; later versions may add some. */
enum tracing_kineto_status {
  TRACING_KINETO_OK = 0,
  /* tracing_kineto_init has not been called, or has failed. */
  TRACING_KINETO_NOT_INITIALIZED = 1,
  /* The environment does not enable recording; this is permanent. */
  TRACING_KINETO_DISABLED = 2,
  /* tracing_kineto_shutdown has been called. */
  TRACING_KINETO_SHUT_DOWN = 3,
  /* There is a profiler already, from an earlier call or from the program's Rust part: calls use that one. */
  TRACING_KINETO_ALREADY_INITIALIZED = 4,
  /* The program's Rust part has a `tracing` subscriber without a KinetoLayer. */
  TRACING_KINETO_NO_LAYER = 5,
  /* An argument is null or invalid. */
  TRACING_KINETO_BAD_ARGUMENT = 6,
  /* The calling thread has no range open. */
  TRACING_KINETO_NOTHING_OPEN = 7,
  /* The innermost is a range and the call pops a correlation id, or vice versa. It stays open. */
  TRACING_KINETO_MISNESTED = 8,
  /* No recording is running. */
  TRACING_KINETO_NOT_RECORDING = 9,
  /* A recording is running already. */
  TRACING_KINETO_ALREADY_RECORDING = 10,
  /* An environment variable or the configuration file has an invalid value. */
  TRACING_KINETO_BAD_CONFIGURATION = 11,
  /* The operating system refused a file. */
  TRACING_KINETO_IO = 12,
  /* Any other error. */
  TRACING_KINETO_FAILED = 13,
  /* A bug in the library; the panic was caught. */
  TRACING_KINETO_PANICKED = 14
};

/* The type of a range in the trace. */
enum tracing_kineto_kind {
  /* A part of the program (user_annotation), such as a step; torch's record_function. */
  TRACING_KINETO_ANNOTATION = 0,
  /* An operation (cpu_op), such as a layer of a model. */
  TRACING_KINETO_OP = 1
};

/* The library's version, such as "0.1.0". */
const char *tracing_kineto_version(void);

/*
 * Returns a message about the last failed call on this thread: the cause, and what to do. If no call has failed, returns the
 * reason why the library is inactive, or an empty text. Valid until the next failure on this thread, or the thread's end.
 */
const char *tracing_kineto_last_error(void);

/*
 * Starts recording if the environment enables it: KINETO_ENABLED decides; else any of KINETO_CONFIG,
 * KINETO_ACTIVITIES_LOG_FILE, KINETO_ACTIVITY_TYPES and KINETO_ACTIVITIES enables it. With KINETO_RECORD_FROM_START=0,
 * tracing_kineto_start starts it. If several threads call this, one of them succeeds. After a failure, call it again.
 */
int tracing_kineto_init(void);

/*
 * Ends the recording and writes it to KINETO_ACTIVITIES_LOG_FILE. All further calls do nothing, even if the write failed;
 * there is no second init. Not needed if main returns or exit is called: the trace is written then. A profiler of the
 * program's Rust part continues.
 */
int tracing_kineto_shutdown(void);

/* Starts a recording. */
int tracing_kineto_start(void);

/* Ends the recording, and waits for its GPU work. It can be saved until the next one starts. */
int tracing_kineto_stop(void);

/* Saves the recording so far, or the last stopped one, as .json or .json.gz. */
int tracing_kineto_save(const char *path);

/* Writes the recording so far to KINETO_ACTIVITIES_LOG_FILE; the recording continues. */
int tracing_kineto_flush(void);

/* Ends a step of the program, like torch.profiler's step. */
int tracing_kineto_step(void);

/* Returns 1 while recording, else 0. It is cheap: use it to skip formatting costly texts. */
int tracing_kineto_is_recording(void);

/* Adds a JSON value to the trace's header, of the running recording or of the next one. */
int tracing_kineto_metadata(const char *key, const char *json);

/*
 * Opens a range on the calling thread. Everything that the thread does, launches and opens until it closes the range lies
 * within. If a thread ends with open ranges, they end too.
 */
int tracing_kineto_push_range(const char *name, int kind);

/* Closes the innermost range of the calling thread. A thread cannot close another thread's ranges. */
int tracing_kineto_pop_range(void);

/*
 * Add an argument to the innermost range of the calling thread; a repeated key replaces the value. Keys are kept for the
 * life of the process: at most 4096, of 1 to 256 bytes, not beginning with "kineto.". Keys that name Kineto's arguments
 * ("Input Dims", "dims", "Collective name" ...) set those arguments.
 */
int tracing_kineto_arg_int(const char *key, int64_t value);
int tracing_kineto_arg_double(const char *key, double value);
int tracing_kineto_arg_string(const char *key, const char *value);
/* 0 is false. */
int tracing_kineto_arg_bool(const char *key, int value);

/*
 * Opens an operation that a framework identifies by a number without a name, like libkineto's pushCorrelationId. In the
 * trace it is a slice "operation" (cpu_op) whose argument "framework id" is that number; work launched inside has the
 * slice's "External id". Ranges and ids nest: the last one opened is closed first.
 */
int tracing_kineto_push_correlation_id(uint64_t id);
int tracing_kineto_pop_correlation_id(void);

/* Records the current value of a counter; values that are not finite are omitted. */
int tracing_kineto_counter(const char *name, double value);

/* Records an instant on the calling thread. */
int tracing_kineto_instant(const char *name);

#ifdef __cplusplus
} /* extern "C" */

namespace tracing_kineto {

/* A range that is open while the object lives; keep it in its block. */
class Range {
 public:
  explicit Range(const char *name, int kind = TRACING_KINETO_ANNOTATION) noexcept
      : open_(tracing_kineto_push_range(name, kind) == TRACING_KINETO_OK) {}
  ~Range() {
    if (open_) tracing_kineto_pop_range();
  }
  Range(const Range &) = delete;
  Range &operator=(const Range &) = delete;

 private:
  bool open_;
};

} /* namespace tracing_kineto */
#endif

#endif

/*
 * tracing-kineto for the C and C++ in a program: records what it does, with the GPU work that it launches, and writes it
 * in the trace format of PyTorch's profiler. C11 and C++17.
 *
 *   tracing_kineto_init();                          the environment says whether and what to record
 *   tracing_kineto_push_range("forward", TRACING_KINETO_ANNOTATION);
 *   tracing_kineto_arg_int("batch", 32);
 *   ...                                             kernels that are launched here belong to "forward"
 *   tracing_kineto_pop_range();
 *   tracing_kineto_shutdown();                      writes the trace
 *
 *   KINETO_ENABLED=1 KINETO_ACTIVITIES_LOG_FILE=app.pt.trace.json ./app
 *
 * Functions may be called by any thread at any time, before init and after shutdown too, where they do nothing: until init,
 * a call is one atomic load. Those that return an int return a tracing_kineto_status. Texts are copied; what is no UTF-8 in
 * them is replaced. Nothing is thrown and nothing unwinds.
 *
 * In a process, a copy of the library is a profiler by itself: a program in Rust that has the crate tracing-kineto in it
 * is built with that crate's feature `capi` and has these functions already, so that both halves are in one trace. Such a
 * program does not load the shared library; with both there are two profilers that know nothing of each other, of which one
 * alone gets the GPU's records.
 *
 * A program that cannot be rebuilt is recorded without any of these functions: CUDA's driver loads the library that a
 * variable names, and calls its InitializeInjection, when the program first uses CUDA.
 *
 *   CUDA_INJECTION64_PATH=/path/to/libtracing_kineto_capi.so KINETO_ACTIVITIES_LOG_FILE=app.pt.trace.json ./app
 *
 * Kernels, copies and the CUDA calls that made them are in the file that is written when main returns, exit is called, or
 * SIGINT, SIGTERM or SIGHUP ends the program; not by _exit. With KINETO_USE_DAEMON=1 in place of the file, `dyno gputrace`
 * has traces taken. KINETO_NVTX_RANGES=1 and NVTX_INJECTION64_PATH=/path/to/libcupti.so.13 add the program's NVTX ranges.
 * A child process is recorded where it first uses CUDA itself, in a file of its own. If the program calls
 * tracing_kineto_init after all, by the same file of the library, it gets that profiler. One that has tracing-kineto in
 * it otherwise records by itself: the variable changes nothing then, and a message says so.
 */
#ifndef TRACING_KINETO_H
#define TRACING_KINETO_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* What a call came to. Numbers stay what they are; there may be more of them one day. */
enum tracing_kineto_status {
  TRACING_KINETO_OK = 0,
  /* tracing_kineto_init has not been called, or has failed. */
  TRACING_KINETO_NOT_INITIALIZED = 1,
  /* The environment does not ask for a trace, so there is nothing to do, for good. */
  TRACING_KINETO_DISABLED = 2,
  /* tracing_kineto_shutdown has been called. */
  TRACING_KINETO_SHUT_DOWN = 3,
  /* There is a profiler already, by an earlier call or by the program's Rust half: calls go to that one. */
  TRACING_KINETO_ALREADY_INITIALIZED = 4,
  /* The program's Rust half has a `tracing` subscriber, and no KinetoLayer on it. */
  TRACING_KINETO_NO_LAYER = 5,
  /* A null, or something that cannot be used. */
  TRACING_KINETO_BAD_ARGUMENT = 6,
  /* The calling thread has no range open. */
  TRACING_KINETO_NOTHING_OPEN = 7,
  /* The innermost is a range where a correlation id was to end, or the other way around. It stays. */
  TRACING_KINETO_MISNESTED = 8,
  /* No recording is going on. */
  TRACING_KINETO_NOT_RECORDING = 9,
  /* One is going on already. */
  TRACING_KINETO_ALREADY_RECORDING = 10,
  /* A variable of the environment, or the configuration file, says what cannot be. */
  TRACING_KINETO_BAD_CONFIGURATION = 11,
  /* The operating system refused a file. */
  TRACING_KINETO_IO = 12,
  /* Anything else. */
  TRACING_KINETO_FAILED = 13,
  /* A defect of the library, which has been contained. */
  TRACING_KINETO_PANICKED = 14
};

/* What a range is in the trace. */
enum tracing_kineto_kind {
  /* A part of the program as its reader thinks of it (user_annotation), such as a step; torch's record_function. */
  TRACING_KINETO_ANNOTATION = 0,
  /* An operation (cpu_op), such as a layer of a model. */
  TRACING_KINETO_OP = 1
};

/* The library's version, such as "0.1.0". */
const char *tracing_kineto_version(void);

/*
 * A sentence on the call that failed last on this thread: what was wrong, and what to do. If none has, and the library is
 * not at work, why not; else an empty text. It stays until the next failure on this thread, or its end.
 */
const char *tracing_kineto_last_error(void);

/*
 * Begins to record if the environment asks for it: KINETO_ENABLED decides; else KINETO_CONFIG, KINETO_ACTIVITIES_LOG_FILE,
 * KINETO_ACTIVITY_TYPES or KINETO_ACTIVITIES switch it on. With KINETO_RECORD_FROM_START=0, tracing_kineto_start begins.
 * Of several threads, one does it. After a failure it may be called again.
 */
int tracing_kineto_init(void);

/*
 * Ends the recording, writes it to KINETO_ACTIVITIES_LOG_FILE, and has all further calls do nothing, whether or not it
 * could be written; there is no second init. Not needed where main returns or exit is called, as what is recorded by then
 * is written there. A profiler of the program's Rust half goes on.
 */
int tracing_kineto_shutdown(void);

/* Starts a recording. */
int tracing_kineto_start(void);

/* Ends it, and waits for the GPU work that was launched in it. It can be saved until the next one is started. */
int tracing_kineto_stop(void);

/* Saves what is recorded so far, or the recording that was stopped last, as .json or .json.gz. */
int tracing_kineto_save(const char *path);

/* Writes what is recorded so far to KINETO_ACTIVITIES_LOG_FILE; the recording goes on. */
int tracing_kineto_flush(void);

/* Says that a step of the program has ended, as torch.profiler's step. */
int tracing_kineto_step(void);

/* 1 while something is recorded, else 0; cheap, for texts that are costly to make. */
int tracing_kineto_is_recording(void);

/* Adds a JSON value to the head of the trace: of the recording that goes on, or of the next one. */
int tracing_kineto_metadata(const char *key, const char *json);

/*
 * The calling thread goes into a range. What it does, what it launches and what further ranges it opens until it goes out
 * of it lie within. A range that is open when its thread ends, ends then.
 */
int tracing_kineto_push_range(const char *name, int kind);

/* The thread goes out of the range that it went into last. Another thread's ranges are out of reach. */
int tracing_kineto_pop_range(void);

/*
 * Give an argument to what the calling thread has gone into last; a key that comes again has the last value. Keys are kept
 * for the life of the process: at most 4096, of 1 to 256 bytes, not beginning with "kineto.". The names of Kineto's
 * arguments ("Input Dims", "dims", "Collective name" ...) are those arguments.
 */
int tracing_kineto_arg_int(const char *key, int64_t value);
int tracing_kineto_arg_double(const char *key, double value);
int tracing_kineto_arg_string(const char *key, const char *value);
/* 0 is false. */
int tracing_kineto_arg_bool(const char *key, int value);

/*
 * The thread goes into an operation that a framework knows by a number and has no name for here, as libkineto's
 * pushCorrelationId. In the trace it is a slice "operation" (cpu_op) whose argument "framework id" is that number; what is
 * launched within has the slice's "External id". Ranges and ids nest: what was opened last is closed first.
 */
int tracing_kineto_push_correlation_id(uint64_t id);
int tracing_kineto_pop_correlation_id(void);

/* Says where a counter stands now; what is no finite number is left out. */
int tracing_kineto_counter(const char *name, double value);

/* Marks a moment of the calling thread. */
int tracing_kineto_instant(const char *name);

#ifdef __cplusplus
} /* extern "C" */

namespace tracing_kineto {

/* A range that is open as long as the object lives, which is to stay in its block. */
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

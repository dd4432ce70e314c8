/* A C program that uses tracing_kineto.h; the first argument selects the part. Failures go to stderr. */
#include "tracing_kineto.h"

#include <dlfcn.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { THREADS = 8, RANGES = 100 };

static void check(int line, int got, int expected) {
  if (got != expected) {
    fprintf(stderr, "line %d: %d instead of %d: %s\n", line, got, expected, tracing_kineto_last_error());
    exit(1);
  }
}

#define IS(call, status) check(__LINE__, (call), (status))
#define OK(call) IS(call, TRACING_KINETO_OK)

/* Checks that the message of the last failure contains a text. */
static void says(int line, const char *part) {
  if (!strstr(tracing_kineto_last_error(), part)) {
    fprintf(stderr, "line %d: \"%s\" does not say \"%s\"\n", line, tracing_kineto_last_error(), part);
    exit(1);
  }
}

#define SAYS(part) says(__LINE__, part)

static void ranges(void) {
  OK(tracing_kineto_init());
  IS(tracing_kineto_is_recording(), 1);
  OK(tracing_kineto_metadata("model", "{\"layers\": 2}"));
  OK(tracing_kineto_push_range("ProfilerStep#1", TRACING_KINETO_ANNOTATION));
  OK(tracing_kineto_push_range("forward", TRACING_KINETO_OP));
  OK(tracing_kineto_arg_int("batch", -32));
  OK(tracing_kineto_arg_int("big", INT64_MAX));
  OK(tracing_kineto_arg_double("loss", 0.25));
  OK(tracing_kineto_arg_double("nothing", NAN));
  OK(tracing_kineto_arg_string("source", "di\"sk\xff"));
  OK(tracing_kineto_arg_string("Input Dims", "[[1]]"));
  OK(tracing_kineto_arg_string("dims", "[[2, 3]]"));
  OK(tracing_kineto_arg_string("target", "of the program"));
  OK(tracing_kineto_arg_bool("train", 1));
  OK(tracing_kineto_arg_bool("cached", 1));
  OK(tracing_kineto_arg_bool("cached", 0));
  OK(tracing_kineto_push_correlation_id(UINT64_C(0x7000000000000001)));
  OK(tracing_kineto_arg_int("batch", 1));
  OK(tracing_kineto_instant("here"));
  OK(tracing_kineto_pop_correlation_id());
  OK(tracing_kineto_counter("queue", 3));
  OK(tracing_kineto_counter("queue", 1.5));
  OK(tracing_kineto_counter("queue", INFINITY));
  OK(tracing_kineto_pop_range());
  OK(tracing_kineto_step());
  OK(tracing_kineto_pop_range());
  OK(tracing_kineto_shutdown());
}

/* Each status, from first to last. */
static void faults(const char *saved) {
  IS(tracing_kineto_push_range("early", TRACING_KINETO_OP), TRACING_KINETO_NOT_INITIALIZED);
  SAYS("call tracing_kineto_init first");
  IS(tracing_kineto_pop_range(), TRACING_KINETO_NOT_INITIALIZED);
  IS(tracing_kineto_start(), TRACING_KINETO_NOT_INITIALIZED);
  IS(tracing_kineto_shutdown(), TRACING_KINETO_NOT_INITIALIZED);
  IS(tracing_kineto_is_recording(), 0);
  setenv("KINETO_ENABLED", "perhaps", 1);
  IS(tracing_kineto_init(), TRACING_KINETO_BAD_CONFIGURATION);
  SAYS("KINETO_ENABLED");
  setenv("KINETO_ENABLED", "1", 1);
  setenv("KINETO_RECORD_FROM_START", "0", 1);
  OK(tracing_kineto_init());
  IS(tracing_kineto_init(), TRACING_KINETO_ALREADY_INITIALIZED);
  SAYS("called before");
  IS(tracing_kineto_is_recording(), 0);
  IS(tracing_kineto_stop(), TRACING_KINETO_NOT_RECORDING);
  IS(tracing_kineto_save(saved), TRACING_KINETO_NOT_RECORDING);
  SAYS("start one first");
  IS(tracing_kineto_flush(), TRACING_KINETO_NOT_RECORDING);
  OK(tracing_kineto_start());
  IS(tracing_kineto_start(), TRACING_KINETO_ALREADY_RECORDING);
  IS(tracing_kineto_is_recording(), 1);

  IS(tracing_kineto_pop_range(), TRACING_KINETO_NOTHING_OPEN);
  IS(tracing_kineto_pop_correlation_id(), TRACING_KINETO_NOTHING_OPEN);
  IS(tracing_kineto_arg_int("a", 1), TRACING_KINETO_NOTHING_OPEN);
  IS(tracing_kineto_push_range(NULL, TRACING_KINETO_OP), TRACING_KINETO_BAD_ARGUMENT);
  SAYS("the name is null");
  IS(tracing_kineto_push_range("a", 2), TRACING_KINETO_BAD_ARGUMENT);
  SAYS("kind 2");
  IS(tracing_kineto_push_range("a", -1), TRACING_KINETO_BAD_ARGUMENT);
  OK(tracing_kineto_push_range("", TRACING_KINETO_OP));
  IS(tracing_kineto_pop_correlation_id(), TRACING_KINETO_MISNESTED);
  SAYS("a range is the innermost");
  IS(tracing_kineto_arg_int(NULL, 1), TRACING_KINETO_BAD_ARGUMENT);
  IS(tracing_kineto_arg_int("", 1), TRACING_KINETO_BAD_ARGUMENT);
  IS(tracing_kineto_arg_int("kineto.name", 1), TRACING_KINETO_BAD_ARGUMENT);
  IS(tracing_kineto_arg_string("a", NULL), TRACING_KINETO_BAD_ARGUMENT);
  OK(tracing_kineto_push_correlation_id(0));
  IS(tracing_kineto_pop_range(), TRACING_KINETO_MISNESTED);
  OK(tracing_kineto_pop_correlation_id());
  OK(tracing_kineto_pop_range());
  IS(tracing_kineto_pop_range(), TRACING_KINETO_NOTHING_OPEN);
  IS(tracing_kineto_counter(NULL, 1), TRACING_KINETO_BAD_ARGUMENT);
  IS(tracing_kineto_instant(NULL), TRACING_KINETO_BAD_ARGUMENT);
  IS(tracing_kineto_metadata(NULL, "1"), TRACING_KINETO_BAD_ARGUMENT);
  IS(tracing_kineto_metadata("a", NULL), TRACING_KINETO_BAD_ARGUMENT);
  IS(tracing_kineto_metadata("a", "no JSON"), TRACING_KINETO_BAD_ARGUMENT);
  IS(tracing_kineto_save(NULL), TRACING_KINETO_BAD_ARGUMENT);
  IS(tracing_kineto_save("/no/such/folder/a.json"), TRACING_KINETO_IO);
  SAYS("/no/such/folder");
  IS(tracing_kineto_save("nowhere://a.json"), TRACING_KINETO_BAD_ARGUMENT);

  OK(tracing_kineto_save(saved));
  OK(tracing_kineto_stop());
  IS(tracing_kineto_stop(), TRACING_KINETO_NOT_RECORDING);
  OK(tracing_kineto_save(saved));
  OK(tracing_kineto_push_range("late", TRACING_KINETO_OP));
  OK(tracing_kineto_shutdown());
  IS(tracing_kineto_shutdown(), TRACING_KINETO_SHUT_DOWN);
  IS(tracing_kineto_init(), TRACING_KINETO_SHUT_DOWN);
  IS(tracing_kineto_push_range("later", TRACING_KINETO_OP), TRACING_KINETO_SHUT_DOWN);
  /* Open ranges are closed. */
  OK(tracing_kineto_pop_range());
  IS(tracing_kineto_pop_range(), TRACING_KINETO_SHUT_DOWN);
  IS(tracing_kineto_arg_int("a", 1), TRACING_KINETO_SHUT_DOWN);
  IS(tracing_kineto_is_recording(), 0);
}

static void disabled(void) {
  IS(tracing_kineto_init(), TRACING_KINETO_DISABLED);
  SAYS("KINETO_ENABLED=1");
  IS(tracing_kineto_init(), TRACING_KINETO_DISABLED);
  IS(tracing_kineto_push_range("a", TRACING_KINETO_OP), TRACING_KINETO_DISABLED);
  IS(tracing_kineto_pop_range(), TRACING_KINETO_DISABLED);
  IS(tracing_kineto_start(), TRACING_KINETO_DISABLED);
  IS(tracing_kineto_shutdown(), TRACING_KINETO_DISABLED);
}

/* The trace cannot be written. */
static void unwritten(const char *folder) {
  OK(tracing_kineto_init());
  IS(rmdir(folder), 0);
  OK(tracing_kineto_push_range("lost", TRACING_KINETO_OP));
  OK(tracing_kineto_pop_range());
  IS(tracing_kineto_shutdown(), TRACING_KINETO_IO);
  SAYS(folder);
  IS(tracing_kineto_shutdown(), TRACING_KINETO_SHUT_DOWN);
}

/* Two recordings, each in a file. */
static void parts(const char *first, const char *second) {
  OK(tracing_kineto_init());
  OK(tracing_kineto_push_range("first", TRACING_KINETO_OP));
  OK(tracing_kineto_pop_range());
  OK(tracing_kineto_stop());
  OK(tracing_kineto_push_range("between", TRACING_KINETO_OP));
  OK(tracing_kineto_pop_range());
  OK(tracing_kineto_save(first));
  OK(tracing_kineto_start());
  OK(tracing_kineto_push_range("second", TRACING_KINETO_OP));
  OK(tracing_kineto_pop_range());
  OK(tracing_kineto_save(second));
}

static void *worker(void *argument) {
  int number = *(int *)argument;
  char name[32];
  for (int at = 0; at < RANGES; at++) {
    snprintf(name, sizeof name, "range %d of %d", at, number);
    OK(tracing_kineto_push_range(name, TRACING_KINETO_OP));
    OK(tracing_kineto_arg_int("number", number));
    OK(tracing_kineto_push_range("within", TRACING_KINETO_ANNOTATION));
    OK(tracing_kineto_pop_range());
    OK(tracing_kineto_pop_range());
    OK(tracing_kineto_counter("counter", at));
  }
  /* The range that is open on the main thread is not this thread's. */
  IS(tracing_kineto_pop_range(), TRACING_KINETO_NOTHING_OPEN);
  OK(tracing_kineto_push_range("left open", TRACING_KINETO_OP));
  OK(tracing_kineto_push_correlation_id(7));
  return NULL;
}

static void *first_to_init(void *argument) {
  *(int *)argument = tracing_kineto_init();
  return NULL;
}

static void threads(void) {
  pthread_t all[THREADS];
  int numbers[THREADS], initialized = 0;
  for (int at = 0; at < THREADS; at++) pthread_create(&all[at], NULL, first_to_init, &numbers[at]);
  for (int at = 0; at < THREADS; at++) {
    pthread_join(all[at], NULL);
    initialized += numbers[at] == TRACING_KINETO_OK;
    if (numbers[at] != TRACING_KINETO_OK) IS(numbers[at], TRACING_KINETO_ALREADY_INITIALIZED);
  }
  IS(initialized, 1);
  OK(tracing_kineto_push_range("main", TRACING_KINETO_ANNOTATION));
  for (int at = 0; at < THREADS; at++) {
    numbers[at] = at;
    pthread_create(&all[at], NULL, worker, &numbers[at]);
  }
  for (int at = 0; at < THREADS; at++) pthread_join(all[at], NULL);
  OK(tracing_kineto_push_range("after", TRACING_KINETO_OP));
  OK(tracing_kineto_pop_range());
  OK(tracing_kineto_pop_range());
  OK(tracing_kineto_shutdown());
}

/* A forked child makes its own recording, in its own file. */
static void fork_child(const char *saved) {
  OK(tracing_kineto_init());
  OK(tracing_kineto_push_range("parent", TRACING_KINETO_OP));
  pid_t child = fork();
  if (child == 0) {
    IS(tracing_kineto_is_recording(), 0);
    OK(tracing_kineto_pop_range());
    IS(tracing_kineto_stop(), TRACING_KINETO_NOT_RECORDING);
    OK(tracing_kineto_start());
    OK(tracing_kineto_push_range("child", TRACING_KINETO_OP));
    OK(tracing_kineto_arg_int("new key", 1));
    OK(tracing_kineto_pop_range());
    OK(tracing_kineto_stop());
    OK(tracing_kineto_save(saved));
    _exit(0);
  }
  int status = 1;
  waitpid(child, &status, 0);
  IS(status, 0);
  OK(tracing_kineto_pop_range());
  OK(tracing_kineto_shutdown());
}

/* Launches kernels by driver functions; those that end in a number are macros in the driver's header. */
typedef int (*Init)(unsigned);
typedef int (*Retain)(uint64_t *, int);
typedef int (*Current)(uint64_t);
typedef int (*Load)(uint64_t *, const void *);
typedef int (*Function)(uint64_t *, uint64_t, const char *);
typedef int (*Launch)(uint64_t, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, uint64_t,
                      void **, void **);

static void *find(void *library, const char *name) {
  void *found = library ? dlsym(library, name) : NULL;
  if (!found) {
    fprintf(stderr, "%s: %s\n", name, dlerror());
    exit(1);
  }
  return found;
}

/* dlsym returns an object pointer, so it is copied into a function pointer. */
#define FIND(library, type, name, into) \
  type into;                            \
  *(void **)&into = find(library, name)

static void gpu(const char *driver, const char *cupti) {
  void *cuda = dlopen(driver, RTLD_NOW);
  find(dlopen(cupti, RTLD_NOW), "cuptiSubscribe");
  FIND(cuda, Init, "cuInit", init);
  FIND(cuda, Retain, "cuDevicePrimaryCtxRetain", retain);
  FIND(cuda, Current, "cuCtxSetCurrent", set_current);
  FIND(cuda, Load, "cuModuleLoadData", load);
  FIND(cuda, Function, "cuModuleGetFunction", function);
  FIND(cuda, Launch, "cuLaunchKernel", launch);
  uint64_t context, module, kernels[2];
  OK(init(0) | retain(&context, 0) | set_current(context));
  OK(load(&module, ".version 8.0\n.target sm_90\n.address_size 64\n"
                   ".visible .entry gemm(.param .u64 a) { ret; }\n.visible .entry relu(.param .u64 a) { ret; }\n"));
  OK(function(&kernels[0], module, "gemm") | function(&kernels[1], module, "relu"));

  OK(tracing_kineto_init());
  OK(tracing_kineto_push_range("ProfilerStep#7", TRACING_KINETO_ANNOTATION));
  for (int layer = 0; layer < 3; layer++) {
    OK(tracing_kineto_push_range("linear", TRACING_KINETO_OP));
    OK(tracing_kineto_arg_int("layer", layer));
    OK(launch(kernels[0], 8, 1, 1, 256, 1, 1, 0, 0, NULL, NULL));
    OK(tracing_kineto_push_correlation_id(1000 + (uint64_t)layer));
    OK(launch(kernels[1], 8, 1, 1, 256, 1, 1, 0, 0, NULL, NULL));
    OK(tracing_kineto_pop_correlation_id());
    OK(tracing_kineto_pop_range());
  }
  OK(tracing_kineto_pop_range());
  OK(tracing_kineto_shutdown());
}

int main(int count, char **arguments) {
  const char *part = count > 1 ? arguments[1] : "";
  const char *first = count > 2 ? arguments[2] : NULL, *second = count > 3 ? arguments[3] : NULL;
  if (!strcmp(part, "ranges")) ranges();
  else if (!strcmp(part, "faults")) faults(first);
  else if (!strcmp(part, "disabled")) disabled();
  else if (!strcmp(part, "unwritten")) unwritten(first);
  else if (!strcmp(part, "parts")) parts(first, second);
  else if (!strcmp(part, "threads")) threads();
  else if (!strcmp(part, "fork")) fork_child(first);
  else if (!strcmp(part, "gpu")) gpu(first, second);
  else return 2;
  printf("%s\n", tracing_kineto_version());
  return 0;
}

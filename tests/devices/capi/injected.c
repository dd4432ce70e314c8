/* A program without tracing-kineto, linked with CUDA's driver, to which it launches kernels. */
#include <dlfcn.h>
#include <poll.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

int cuInit(unsigned flags);
int cuDevicePrimaryCtxRetain(uint64_t *context, int device);
int cuCtxSetCurrent(uint64_t context);
int cuModuleLoadData(uint64_t *module, const void *image);
int cuModuleGetFunction(uint64_t *function, uint64_t module, const char *name);
int cuLaunchKernel(uint64_t function, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, uint64_t stream,
                   void **, void **);
int cuCtxSynchronize(void);

static uint64_t gemm;

static void check(int code, int line) {
  if (code == 0) return;
  fprintf(stderr, "line %d: %d\n", line, code);
  exit(1);
}
#define OK(call) check(call, __LINE__)

static void begin(void) {
  uint64_t context, module;
  OK(cuInit(0));
  OK(cuDevicePrimaryCtxRetain(&context, 0));
  OK(cuCtxSetCurrent(context));
  OK(cuModuleLoadData(&module, ".version 8.0\n.target sm_90\n.address_size 64\n"
                               ".visible .entry gemm(.param .u64 a) { ret; }\n"));
  OK(cuModuleGetFunction(&gemm, module, "gemm"));
}

static void work(int kernels) {
  for (int kernel = 0; kernel < kernels; kernel++) OK(cuLaunchKernel(gemm, 8, 1, 1, 256, 1, 1, 0, 0, NULL, NULL));
  OK(cuCtxSynchronize());
}

static void *leave(void *nothing) {
  (void)nothing;
  exit(0);
}

static void exit_in_thread(void) {
  pthread_t thread;
  OK(pthread_create(&thread, NULL, leave, NULL));
  OK(pthread_join(thread, NULL));
}

/* Works until its input ends. */
static void run_until_input_ends(void) {
  struct pollfd input = {.fd = 0, .events = POLLIN};
  while (poll(&input, 1, 1) == 0) work(1);
}

static void after_fork(pid_t child) {
  int status = 1;
  waitpid(child, &status, 0);
  OK(status);
}

typedef int (*Init)(void);

static void *initialize(void *init) {
  OK((*(Init *)init)());
  return NULL;
}

/* The program loads the library itself, and initializes it before, during or after CUDA's initialization. */
static void own(const char *path, const char *when) {
  Init init;
  int (*push)(const char *, int), (*pop)(void);
  pthread_t thread;
  void *library = dlopen(path, RTLD_NOW);
  if (!library) exit(1);
  *(void **)&init = dlsym(library, "tracing_kineto_init");
  *(void **)&push = dlsym(library, "tracing_kineto_push_range");
  *(void **)&pop = dlsym(library, "tracing_kineto_pop_range");
  if (!strcmp(when, "after")) begin();
  OK(pthread_create(&thread, NULL, initialize, &init));
  if (!strcmp(when, "during")) begin();
  OK(pthread_join(thread, NULL));
  if (!strcmp(when, "before")) begin();
  OK(push("own", 1));
  work(3);
  OK(pop());
  if (init() != 4) exit(2);
}

/* A library of the program makes NVTX ranges. */
static void in_range(const char *path) {
  int (*push)(const char *), (*pop)(void);
  void *library = dlopen(path, RTLD_NOW);
  if (!library) exit(1);
  *(void **)&push = dlsym(library, "rangesPush");
  *(void **)&pop = dlsym(library, "rangesPop");
  push("layer");
  work(1);
  pop();
}

int main(int count, char **arguments) {
  const char *part = count > 1 ? arguments[1] : "";
  alarm(120);
  if (!strcmp(part, "own")) {
    own(arguments[2], arguments[3]);
    return 0;
  }
  pid_t early = strcmp(part, "fork") ? 1 : fork();
  begin();
  work(early == 0 ? 2 : 3);
  if (!strcmp(part, "_exit")) _exit(0);
  if (!strcmp(part, "exit in a thread")) exit_in_thread();
  if (!strcmp(part, "loop")) run_until_input_ends();
  if (!strcmp(part, "range")) in_range(arguments[2]);
  if (!strcmp(part, "fork") && early != 0) {
    after_fork(early);
    pid_t late = fork();
    if (late == 0) exit(0);
    after_fork(late);
  }
  return 0;
}

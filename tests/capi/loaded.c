/* A program that loads the library and lets go of it: what was begun goes on, and the file is written when it ends. With a
 * second argument "elsewhere", a thread that has ended has begun it. */
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

typedef int (*Nothing)(void);
typedef int (*Push)(const char *, int);

static void *library;

static void *find(const char *name) {
  void *found = dlsym(library, name);
  if (!found) fprintf(stderr, "%s\n", dlerror());
  return found;
}

static Nothing init, pop;
static Push push;

static void *begin(void *status) {
  *(int *)status = init() | push("before", 1) | pop();
  return status;
}

int main(int count, char **arguments) {
  library = dlopen(count > 1 ? arguments[1] : "", RTLD_NOW | RTLD_LOCAL);
  if (!library) {
    fprintf(stderr, "%s\n", dlerror());
    return 1;
  }
  *(void **)&init = find("tracing_kineto_init");
  *(void **)&pop = find("tracing_kineto_pop_range");
  *(void **)&push = find("tracing_kineto_push_range");
  if (!init || !pop || !push) return 1;
  int status = 0;
  pthread_t thread;
  if (count > 2 && !strcmp(arguments[2], "elsewhere")) {
    if (pthread_create(&thread, 0, begin, &status) || pthread_join(thread, 0)) return 1;
  } else {
    begin(&status);
  }
  dlclose(library);
  /* Time for its own threads. */
  usleep(20000);
  return status | push("after", 1) | pop();
}

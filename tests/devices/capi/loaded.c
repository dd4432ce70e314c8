/* A program that loads the library and unloads it: the recording continues, and the file is written at the end. With a
 * second argument "elsewhere", a thread that ends before the unloading begins it; with "late", the library's own threads
 * also wait until the library is unloaded. */
#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef int (*Nothing)(void);
typedef int (*Push)(const char *, int);

static void *library;

/* Threads that the library starts wait for this to become false. */
static atomic_bool is_late;

struct Start {
  void *(*run)(void *);
  void *argument;
};

static void *begin(void *status);

static void *start(void *given) {
  struct Start start = *(struct Start *)given;
  free(given);
  while (is_late && start.run != begin) usleep(1000);
  return start.run(start.argument);
}

/* Replaces the system's function, also for the library. */
int pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*run)(void *), void *argument) {
  int (*create)(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *);
  *(void **)&create = dlsym(RTLD_NEXT, "pthread_create");
  struct Start *given = malloc(sizeof *given);
  *given = (struct Start){run, argument};
  return create(thread, attributes, start, given);
}

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
  if (count > 2 && strcmp(arguments[2], "here")) {
    is_late = !strcmp(arguments[2], "late");
    if (pthread_create(&thread, 0, begin, &status) || pthread_join(thread, 0)) return 1;
  } else {
    begin(&status);
  }
  dlclose(library);
  is_late = 0;
  /* Leaves time for the library's threads. */
  usleep(20000);
  return status | push("after", 1) | pop();
}

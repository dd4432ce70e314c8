/* A program that loads the library and lets go of it: what was begun goes on, and the file is written when it ends. */
#include <dlfcn.h>
#include <stdio.h>

typedef int (*Nothing)(void);
typedef int (*Push)(const char *, int);

static void *library;

static void *find(const char *name) {
  void *found = dlsym(library, name);
  if (!found) fprintf(stderr, "%s\n", dlerror());
  return found;
}

int main(int count, char **arguments) {
  library = dlopen(count > 1 ? arguments[1] : "", RTLD_NOW | RTLD_LOCAL);
  if (!library) {
    fprintf(stderr, "%s\n", dlerror());
    return 1;
  }
  Nothing init, pop;
  Push push;
  *(void **)&init = find("tracing_kineto_init");
  *(void **)&pop = find("tracing_kineto_pop_range");
  *(void **)&push = find("tracing_kineto_push_range");
  if (!init || !pop || !push || init() != 0) return 1;
  int status = push("before", 1) | pop();
  dlclose(library);
  return status | push("after", 1) | pop();
}

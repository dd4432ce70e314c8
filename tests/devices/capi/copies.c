/* A program with two copies of the library, each with its own state: arguments are their paths, how the program ends, and the folder of the
 * traces. */
#include <dirent.h>
#include <dlfcn.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef int (*Nothing)(void);
typedef int (*Push)(const char *, int);

static void *find(void *library, const char *name) {
  void *found = dlsym(library, name);
  if (!found) fprintf(stderr, "%s\n", dlerror());
  return found;
}

static int record(const char *path, const char *range) {
  void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (!library) {
    fprintf(stderr, "%s\n", dlerror());
    return 1;
  }
  Nothing init, pop;
  Push push;
  *(void **)&init = find(library, "tracing_kineto_init");
  *(void **)&push = find(library, "tracing_kineto_push_range");
  *(void **)&pop = find(library, "tracing_kineto_pop_range");
  return init() | push(range, 1) | pop();
}

/* Returns the number of complete files. */
static int files(const char *folder) {
  int found = 0;
  DIR *open = opendir(folder);
  for (struct dirent *entry; open && (entry = readdir(open));) {
    const char *end = strrchr(entry->d_name, '.');
    found += end && !strcmp(end, ".json");
  }
  if (open) closedir(open);
  return found;
}

int main(int count, char **arguments) {
  // The tests may run in a shell that ignores it.
  signal(SIGHUP, SIG_DFL);
  if (count != 5 || record(arguments[1], "first") || record(arguments[2], "second")) return 1;
  if (!strcmp(arguments[3], "exit")) return 0;
  if (!strcmp(arguments[3], "dump")) {
    kill(getpid(), SIGUSR2);
    for (int tries = 0; files(arguments[4]) < 2 && tries < 60000; tries++) usleep(1000);
    _exit(0);
  }
  kill(getpid(), !strcmp(arguments[3], "hangup") ? SIGHUP : SIGTERM);
  for (;;) pause();
}

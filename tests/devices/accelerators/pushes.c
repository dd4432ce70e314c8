/*
 * A plugin for tests: keeps a letter for each push and pop. With USERS it gets annotations separately.
 */
#include "kineto_plugin.h"

#include <stdio.h>

static int profiler;
static char letters[64];
static size_t length;

/* Returns the letters: ( and ) for operations, [ and ] for annotations. */
const char *pushedLetters(void) { return letters; }

static int keep(char what) {
  if (length < sizeof letters - 1) letters[length++] = what;
  return 0;
}

static int query(KinetoPlugin_ProfilerQuery_Params *params) {
  snprintf(params->pProfilerName, params->profilerNameMaxLen + 1, "pushes");
  params->pSupportedActivityTypes[0] = KINETO_PLUGIN_PROFILE_EVENT_TYPE_CONCURRENT_KERNEL;
  return 0;
}

static int create(KinetoPlugin_ProfilerCreate_Params *params) {
  params->pProfilerHandle = (KinetoPlugin_ProfilerHandle *)&profiler;
  return 0;
}

static int destroy(KinetoPlugin_ProfilerDestroy_Params *params) { return params == NULL; }
static int start(KinetoPlugin_ProfilerStart_Params *params) { return params == NULL; }
static int stop(KinetoPlugin_ProfilerStop_Params *params) { return params == NULL; }
static int process(KinetoPlugin_ProfilerProcessEvents_Params *params) { return params == NULL; }

static int push(KinetoPlugin_ProfilerPushCorrelationId_Params *params) { return keep(params->correlationId ? '(' : '?'); }
static int pop(KinetoPlugin_ProfilerPopCorrelationId_Params *params) { return keep(params ? ')' : '?'); }

#ifdef USERS
static int push_user(KinetoPlugin_ProfilerPushUserCorrelationId_Params *params) {
  return keep(params->userCorrelationId ? '[' : '?');
}
static int pop_user(KinetoPlugin_ProfilerPopUserCorrelationId_Params *params) { return keep(params ? ']' : '?'); }
#endif

int KinetoPlugin_register(const KinetoPlugin_Registry *registry) {
  KinetoPlugin_ProfilerInterface table = {.unpaddedStructSize = KINETO_PLUGIN_PROFILER_INTERFACE_UNPADDED_STRUCT_SIZE,
                                          .profilerCreate = create,
                                          .profilerDestroy = destroy,
                                          .profilerQuery = query,
                                          .profilerStart = start,
                                          .profilerStop = stop,
                                          .profilerPushCorrelationId = push,
                                          .profilerPopCorrelationId = pop,
#ifdef USERS
                                          .profilerPushUserCorrelationId = push_user,
                                          .profilerPopUserCorrelationId = pop_user,
#endif
                                          .profilerProcessEvents = process};
  return registry->registerProfiler(registry->pRegistryHandle, &table);
}

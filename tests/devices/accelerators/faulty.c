/* A plugin for tests with one fault, which FAULT names at compile time. */
#include "kineto_plugin.h"

#include <string.h>
#include <time.h>
#include <unistd.h>

enum {
  REGISTER_FAILS = 1, REGISTERS_NOTHING, NULL_INTERFACE, SMALL_INTERFACE, NO_STOP, QUERY_FAILS, NO_NAME, LONG_NAME,
  CREATE_FAILS, NO_PROFILER, START_FAILS, STOP_FAILS, PROCESS_FAILS, DESTROY_FAILS, STOP_HANGS, PUSH_FAILS, NULLS,
  SMALL_STRUCTS, BAD_EVENTS, BAD_METADATA, NOTHING_BEFORE, KEEPS_BUILDER, BAD_FLOWS, BAD_DEVICES,
  QUERY_HANGS, START_HANGS, STOP_IS_SLOW, START_IS_SLOW, PUSH_IS_SLOW
};

static int profiler;
/* A time inside the recording. */
static int64_t inside;
static KinetoPlugin_TraceBuilder kept;

/* Set to end a slow call. */
static volatile int may_stop;
static volatile int destroyed, pushes;

int allowStop(void) {
  may_stop = 1;
  return 0;
}

int destroyedProfilers(void) {
  return destroyed;
}

int begunPushes(void) {
  return pushes;
}

static int64_t now(void) {
  struct timespec at;
  clock_gettime(CLOCK_REALTIME, &at);
  return (int64_t)at.tv_sec * 1000000000 + at.tv_nsec;
}

static int query(KinetoPlugin_ProfilerQuery_Params *params) {
  while (FAULT == QUERY_HANGS) pause();
  if (FAULT == QUERY_FAILS) return 3;
  if (FAULT == LONG_NAME)
    memset(params->pProfilerName, 'x', params->profilerNameMaxLen + 1);
  else if (FAULT != NO_NAME)
    strcpy(params->pProfilerName, "faulty");
  params->pSupportedActivityTypes[0] = KINETO_PLUGIN_PROFILE_EVENT_TYPE_CONCURRENT_KERNEL;
  return 0;
}

static int create(KinetoPlugin_ProfilerCreate_Params *params) {
  if (FAULT == CREATE_FAILS) return 4;
  params->pProfilerHandle = FAULT == NO_PROFILER ? NULL : (KinetoPlugin_ProfilerHandle *)&profiler;
  return 0;
}

static int destroy(KinetoPlugin_ProfilerDestroy_Params *params) {
  KinetoPlugin_ProfileEvent event = {0};
  (void)params;
  destroyed++;
  if (FAULT == KEEPS_BUILDER) {
    event.unpaddedStructSize = KINETO_PLUGIN_PROFILE_EVENT_UNPADDED_STRUCT_SIZE;
    event.eventType = KINETO_PLUGIN_PROFILE_EVENT_TYPE_CONCURRENT_KERNEL;
    event.startTimeUtcNs = event.endTimeUtcNs = now();
    /* Too late: this must be refused. */
    return kept.addEvent(kept.pTraceBuilderHandle, &event) == -1 ? 0 : 9;
  }
  return FAULT == DESTROY_FAILS ? 8 : 0;
}

static int start(KinetoPlugin_ProfilerStart_Params *params) {
  (void)params;
  while (FAULT == START_HANGS) pause();
  while (FAULT == START_IS_SLOW && !may_stop) usleep(1000);
  return FAULT == START_FAILS ? 5 : 0;
}

static int stop(KinetoPlugin_ProfilerStop_Params *params) {
  (void)params;
  while (FAULT == STOP_HANGS) pause();
  while (FAULT == STOP_IS_SLOW && !may_stop) usleep(1000);
  may_stop = 0;
  return FAULT == STOP_FAILS ? 6 : 0;
}

static int push(KinetoPlugin_ProfilerPushCorrelationId_Params *params) {
  (void)params;
  inside = now();
  pushes++;
  while (FAULT == PUSH_IS_SLOW && !may_stop) usleep(1000);
  return FAULT == PUSH_FAILS ? 1 : 0;
}

static int pops;

static int pop(KinetoPlugin_ProfilerPopCorrelationId_Params *params) {
  (void)params;
  pops++;
  return 0;
}

static int event(const KinetoPlugin_TraceBuilder *out, KinetoPlugin_ProfileEventType type, int64_t from, int64_t to) {
  KinetoPlugin_ProfileEvent event = {.unpaddedStructSize = KINETO_PLUGIN_PROFILE_EVENT_UNPADDED_STRUCT_SIZE,
                                     .eventType = type, .startTimeUtcNs = from, .endTimeUtcNs = to};
  return out->addEvent(out->pTraceBuilderHandle, &event);
}

static int process(KinetoPlugin_ProfilerProcessEvents_Params *params) {
  const KinetoPlugin_TraceBuilder *out = params->pTraceBuilder;
  KinetoPlugin_TraceBuilderHandle *handle = out->pTraceBuilderHandle;
  const KinetoPlugin_ProfileEventType kernel = KINETO_PLUGIN_PROFILE_EVENT_TYPE_CONCURRENT_KERNEL;
  KinetoPlugin_ProfileEvent small = {.unpaddedStructSize = 8};
  KinetoPlugin_ProfileEventFlow flow = {.unpaddedStructSize = 8, .flowType = 2, .flowId = 1};
  KinetoPlugin_ProfileDeviceInfo device = {.unpaddedStructSize = 8};
  KinetoPlugin_ProfileResourceInfo resource = {.unpaddedStructSize = 8};
  int64_t at = inside + 2000;
  kept = *out;
  if (FAULT == NOTHING_BEFORE) {
    out->setLastEventName(handle, "of nothing");
    out->setLastEventFlow(handle, NULL);
    out->addLastEventMetadata(handle, "a", "1");
  }
  event(out, kernel, at - 2000, at - 1000);
  out->setLastEventName(handle, "whole");
  if (FAULT == NULLS) {
    out->addEvent(handle, NULL);
    out->addEvent(NULL, NULL);
    out->setLastEventName(handle, NULL);
    out->setLastEventFlow(handle, NULL);
    out->addLastEventMetadata(handle, NULL, "1");
    out->addLastEventMetadata(handle, "a", NULL);
    out->addDeviceInfo(handle, NULL);
    out->addResourceInfo(handle, NULL);
  }
  if (FAULT == SMALL_STRUCTS) {
    out->setLastEventFlow(handle, &flow);
    out->addDeviceInfo(handle, &device);
    out->addResourceInfo(handle, &resource);
    out->addEvent(handle, &small);
  }
  if (FAULT == BAD_EVENTS) {
    event(out, 0, at - 500, at);
    event(out, 0xFFFFFFFF, at - 500, at);
    event(out, KINETO_PLUGIN_PROFILE_EVENT_TYPE_GPU_MEMCPY, at - 500, at);
    event(out, kernel, at, at - 500);
    event(out, kernel, -5, at);
    event(out, kernel, 1, 2);
    event(out, kernel, INT64_MAX - 1, INT64_MAX);
  }
  if (FAULT == BAD_METADATA) {
    out->addLastEventMetadata(handle, "bare", "a text without quotes");
    out->addLastEventMetadata(handle, "nan", "nan");
    out->addLastEventMetadata(handle, "open", "[1, 2");
    out->addLastEventMetadata(handle, "twice", "1");
    out->addLastEventMetadata(handle, "twice", "2");
    out->addLastEventMetadata(handle, "huge", "123456789012345678901234567890");
    out->addLastEventMetadata(handle, "none", "null");
    out->addLastEventMetadata(handle, "\xff\"\n", "\"\\u0000 \\\" \xc3\x28\"");
  }
  if (FAULT == BAD_FLOWS) {
    flow.unpaddedStructSize = KINETO_PLUGIN_PROFILE_EVENT_FLOW_UNPADDED_STRUCT_SIZE;
    flow.flowId = 0;
    out->setLastEventFlow(handle, &flow);
    flow.flowType = 9;
    out->setLastEventFlow(handle, &flow);
    flow.flowType = 1;
    out->setLastEventFlow(handle, &flow);
  }
  if (FAULT == BAD_DEVICES) {
    device.unpaddedStructSize = KINETO_PLUGIN_PROFILE_DEVICE_INFO_UNPADDED_STRUCT_SIZE;
    device.deviceId = INT64_MAX;
    out->addDeviceInfo(handle, &device);
    device.deviceId = 0;
    out->addDeviceInfo(handle, &device);
    resource.unpaddedStructSize = KINETO_PLUGIN_PROFILE_RESOURCE_INFO_UNPADDED_STRUCT_SIZE;
    for (int i = 0; i < 5000; i++) out->addResourceInfo(handle, &resource);
  }
  return FAULT == PROCESS_FAILS ? 7 : 0;
}

int KinetoPlugin_register(const KinetoPlugin_Registry *registry) {
  KinetoPlugin_ProfilerInterface interface = {
      .unpaddedStructSize = KINETO_PLUGIN_PROFILER_INTERFACE_UNPADDED_STRUCT_SIZE - (FAULT == SMALL_INTERFACE ? 8 : 0),
      .profilerCreate = create,
      .profilerDestroy = destroy,
      .profilerQuery = query,
      .profilerStart = start,
      .profilerStop = FAULT == NO_STOP ? NULL : stop,
      .profilerPushCorrelationId = push,
      .profilerPopCorrelationId = pop,
      .profilerProcessEvents = process,
  };
  if (FAULT == REGISTER_FAILS) return 2;
  if (FAULT == REGISTERS_NOTHING) return 0;
  registry->registerProfiler(registry->pRegistryHandle, FAULT == NULL_INTERFACE ? NULL : &interface);
  return 0;
}

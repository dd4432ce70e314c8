/*
 * A plugin for tests: an unknown accelerator with one event of each kind at its last run, and without callbacks for spans.
 * With LPU_HPU=1 it has operations of an HPU.
 */
#include "kineto_plugin.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static int profiler;
/* The time of the last run. */
static int64_t ran;

static int64_t now(void) {
  struct timespec at;
  clock_gettime(CLOCK_REALTIME, &at);
  return (int64_t)at.tv_sec * 1000000000 + at.tv_nsec;
}

void lpuRun(void) { ran = now(); }

static bool is_hpu(void) { return getenv("LPU_HPU") != NULL; }

static int query(KinetoPlugin_ProfilerQuery_Params *params) {
  const KinetoPlugin_ProfileEventType lpu[] = {
      KINETO_PLUGIN_PROFILE_EVENT_TYPE_RUNTIME, KINETO_PLUGIN_PROFILE_EVENT_TYPE_DRIVER,
      KINETO_PLUGIN_PROFILE_EVENT_TYPE_CONCURRENT_KERNEL, KINETO_PLUGIN_PROFILE_EVENT_TYPE_GPU_PM_COUNTER,
      KINETO_PLUGIN_PROFILE_EVENT_TYPE_CPU_INSTANT_EVENT, 77};
  snprintf(params->pProfilerName, params->profilerNameMaxLen + 1, is_hpu() ? "hpu" : "LPU v2");
  if (is_hpu())
    params->pSupportedActivityTypes[0] = KINETO_PLUGIN_PROFILE_EVENT_TYPE_HPU_OP;
  else
    for (size_t i = 0; i < sizeof lpu / sizeof *lpu; i++) params->pSupportedActivityTypes[i] = lpu[i];
  return 0;
}

static int create(KinetoPlugin_ProfilerCreate_Params *params) {
  params->pProfilerHandle = (KinetoPlugin_ProfilerHandle *)&profiler;
  return 0;
}

static int destroy(KinetoPlugin_ProfilerDestroy_Params *params) {
  (void)params;
  return 0;
}

static int start(KinetoPlugin_ProfilerStart_Params *params) {
  (void)params;
  return 0;
}

static int stop(KinetoPlugin_ProfilerStop_Params *params) {
  (void)params;
  return 0;
}

static void add(const KinetoPlugin_TraceBuilder *out, KinetoPlugin_ProfileEventType type, const char *name,
                int32_t device, int32_t resource) {
  KinetoPlugin_ProfileEvent event = {.unpaddedStructSize = KINETO_PLUGIN_PROFILE_EVENT_UNPADDED_STRUCT_SIZE,
                                     .eventType = type,
                                     .startTimeUtcNs = ran,
                                     .endTimeUtcNs = ran + 1000,
                                     .deviceId = device,
                                     .resourceId = resource};
  if (out->addEvent(out->pTraceBuilderHandle, &event) != 0) return;
  out->setLastEventName(out->pTraceBuilderHandle, name);
  out->addLastEventMetadata(out->pTraceBuilderHandle, "load %", "12.5");
  out->addLastEventMetadata(out->pTraceBuilderHandle, "cycles", "1234");
  if (type != KINETO_PLUGIN_PROFILE_EVENT_TYPE_GPU_PM_COUNTER)
    out->addLastEventMetadata(out->pTraceBuilderHandle, "shape", "[1, [2, 3], \"x\"]");
}

static int process(KinetoPlugin_ProfilerProcessEvents_Params *params) {
  const KinetoPlugin_TraceBuilder *out = params->pTraceBuilder;
  KinetoPlugin_ProfileDeviceInfo device = {KINETO_PLUGIN_PROFILE_DEVICE_INFO_UNPADDED_STRUCT_SIZE, 3, 7000000,
                                           is_hpu() ? "HPU" : "LPU", is_hpu() ? "HPU 3" : "LPU 3"};
  out->addDeviceInfo(out->pTraceBuilderHandle, &device);
  if (is_hpu()) {
    add(out, KINETO_PLUGIN_PROFILE_EVENT_TYPE_HPU_OP, "gemm", 3, 0);
    return 0;
  }
  add(out, KINETO_PLUGIN_PROFILE_EVENT_TYPE_RUNTIME, "lpuEnqueue", 0, 4242);
  add(out, KINETO_PLUGIN_PROFILE_EVENT_TYPE_DRIVER, "lpuSubmit", 0, 4243);
  add(out, KINETO_PLUGIN_PROFILE_EVENT_TYPE_CONCURRENT_KERNEL, "attention", 3, 1);
  add(out, KINETO_PLUGIN_PROFILE_EVENT_TYPE_GPU_PM_COUNTER, "lpu", 3, 1);
  add(out, KINETO_PLUGIN_PROFILE_EVENT_TYPE_CPU_INSTANT_EVENT, "reset", 0, 4242);
  add(out, 77, "unheard of", 3, 1);
  return 0;
}

int KinetoPlugin_register(const KinetoPlugin_Registry *registry) {
  KinetoPlugin_ProfilerInterface lpu = {.unpaddedStructSize = KINETO_PLUGIN_PROFILER_INTERFACE_UNPADDED_STRUCT_SIZE,
                                        .profilerCreate = create,
                                        .profilerDestroy = destroy,
                                        .profilerQuery = query,
                                        .profilerStart = start,
                                        .profilerStop = stop,
                                        .profilerProcessEvents = process};
  return registry->registerProfiler(registry->pRegistryHandle, &lpu);
}

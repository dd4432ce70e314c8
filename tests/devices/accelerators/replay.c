/*
 * A plugin for tests: delivers the rows of a file as an MTIA's. Each line of ROWS is
 *
 *   E type start end device resource arrow name key value ...    an event; its arrow: 0, or an id, negative where it ends
 *   D device name label                                          a device
 *   R device resource order name                                 a part of one
 *
 * with tabs as separators, times in nanoseconds after the start of the recording, and values in JSON.
 */
#include "kineto_plugin.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static int profiler;
static int64_t began;

static int query(KinetoPlugin_ProfilerQuery_Params *params) {
  snprintf(params->pProfilerName, params->profilerNameMaxLen + 1, "replay");
  params->pSupportedActivityTypes[0] = KINETO_PLUGIN_PROFILE_EVENT_TYPE_MTIA_RUNTIME;
  params->pSupportedActivityTypes[1] = KINETO_PLUGIN_PROFILE_EVENT_TYPE_MTIA_CCP_EVENTS;
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
  struct timespec at;
  (void)params;
  clock_gettime(CLOCK_REALTIME, &at);
  began = (int64_t)at.tv_sec * 1000000000 + at.tv_nsec;
  return 0;
}

static int stop(KinetoPlugin_ProfilerStop_Params *params) {
  (void)params;
  return 0;
}

static char *text(char **rest) {
  char *field = strsep(rest, "\t");
  return field ? field : "";
}

static int64_t number(char **rest) { return strtoll(text(rest), NULL, 10); }

static void add(const KinetoPlugin_TraceBuilder *out, char *rest) {
  KinetoPlugin_ProfileEvent event = {.unpaddedStructSize = KINETO_PLUGIN_PROFILE_EVENT_UNPADDED_STRUCT_SIZE};
  event.eventType = (KinetoPlugin_ProfileEventType)number(&rest);
  event.startTimeUtcNs = began + number(&rest);
  event.endTimeUtcNs = began + number(&rest);
  event.deviceId = (int32_t)number(&rest);
  event.resourceId = (int32_t)number(&rest);
  out->addEvent(out->pTraceBuilderHandle, &event);
  int64_t arrow = number(&rest);
  out->setLastEventName(out->pTraceBuilderHandle, text(&rest));
  if (arrow != 0) {
    KinetoPlugin_ProfileEventFlow flow = {.unpaddedStructSize = KINETO_PLUGIN_PROFILE_EVENT_FLOW_UNPADDED_STRUCT_SIZE,
                                          .flowType = KINETO_PLUGIN_PROFILE_EVENT_FLOW_TYPE_ASYNC_CPU_GPU,
                                          .flowId = (uint32_t)llabs(arrow),
                                          .isStartPoint = arrow > 0};
    out->setLastEventFlow(out->pTraceBuilderHandle, &flow);
  }
  while (rest) {
    const char *key = text(&rest);
    out->addLastEventMetadata(out->pTraceBuilderHandle, key, text(&rest));
  }
}

static void describe(const KinetoPlugin_TraceBuilder *out, char kind, char *rest) {
  if (kind == 'D') {
    KinetoPlugin_ProfileDeviceInfo device = {.unpaddedStructSize = KINETO_PLUGIN_PROFILE_DEVICE_INFO_UNPADDED_STRUCT_SIZE};
    device.deviceId = number(&rest);
    device.sortIndex = device.deviceId;
    device.pName = text(&rest);
    device.pLabel = text(&rest);
    out->addDeviceInfo(out->pTraceBuilderHandle, &device);
  } else {
    KinetoPlugin_ProfileResourceInfo part = {.unpaddedStructSize =
                                                 KINETO_PLUGIN_PROFILE_RESOURCE_INFO_UNPADDED_STRUCT_SIZE};
    part.deviceId = (int32_t)number(&rest);
    part.resourceId = (int32_t)number(&rest);
    part.displayOrder = (int32_t)number(&rest);
    part.pName = text(&rest);
    out->addResourceInfo(out->pTraceBuilderHandle, &part);
  }
}

static int process(KinetoPlugin_ProfilerProcessEvents_Params *params) {
  FILE *rows = fopen(ROWS, "r");
  char *line = NULL;
  size_t room = 0;
  ssize_t length;
  if (!rows) return -1;
  while ((length = getline(&line, &room, rows)) > 2) {
    line[length - 1] = 0;
    if (line[0] == 'E')
      add(params->pTraceBuilder, line + 2);
    else
      describe(params->pTraceBuilder, line[0], line + 2);
  }
  free(line);
  fclose(rows);
  return 0;
}

int KinetoPlugin_register(const KinetoPlugin_Registry *registry) {
  KinetoPlugin_ProfilerInterface replay = {.unpaddedStructSize = KINETO_PLUGIN_PROFILER_INTERFACE_UNPADDED_STRUCT_SIZE,
                                           .profilerCreate = create,
                                           .profilerDestroy = destroy,
                                           .profilerQuery = query,
                                           .profilerStart = start,
                                           .profilerStop = stop,
                                           .profilerProcessEvents = process};
  return registry->registerProfiler(registry->pRegistryHandle, &replay);
}

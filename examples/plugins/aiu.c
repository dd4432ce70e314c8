/*
 * A plugin in C, for a fictitious accelerator that runs computations and copies on one of two queues. A vendor's plugin would
 * read records from the vendor's library; this one creates them itself.
 *
 *   cc -shared -fPIC -O2 -I include examples/plugins/aiu.c -o aiu.so
 *   KINETO_PLUGIN_LIB_DIR_PATH=. KINETO_ACTIVITIES=cpu,privateuse1 ./app
 */
#include "kineto_plugin.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { RECORDS = 4096, DEPTH = 64, QUEUES = 2 };

/* A call of the program, and its device work. */
typedef struct Record {
  char name[48];
  KinetoPlugin_ProfileEventType work;
  int64_t called, returned, began, ended;
  uint64_t span;
  int32_t thread, queue;
  size_t bytes;
} Record;

struct KinetoPlugin_ProfilerHandle {
  bool calls, kernels, copies;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static bool recording;
static Record records[RECORDS];
static size_t used, lost;
/* The time at which each queue becomes free. */
static int64_t free_at[QUEUES];
/* The spans that the thread is inside. */
static _Thread_local uint64_t spans[DEPTH];
static _Thread_local size_t depth;

static int64_t now(void) {
  struct timespec at;
  clock_gettime(CLOCK_REALTIME, &at);
  return (int64_t)at.tv_sec * 1000000000 + at.tv_nsec;
}

static void enqueue(KinetoPlugin_ProfileEventType work, const char *name, int32_t queue, int64_t took, size_t bytes) {
  int64_t called = now();
  pthread_mutex_lock(&lock);
  queue = queue < 0 || queue >= QUEUES ? 0 : queue;
  int64_t returned = now();
  int64_t began = free_at[queue] > returned ? free_at[queue] : returned;
  free_at[queue] = began + took;
  if (recording && used < RECORDS) {
    Record *record = &records[used++];
    *record = (Record){.work = work, .called = called, .returned = returned, .began = began, .ended = began + took};
    snprintf(record->name, sizeof record->name, "%s", name);
    record->span = depth > 0 && depth <= DEPTH ? spans[depth - 1] : 0;
    record->thread = (int32_t)syscall(SYS_gettid);
    record->queue = queue;
    record->bytes = bytes;
  } else if (recording) {
    lost++;
  }
  pthread_mutex_unlock(&lock);
}

/* The functions that programs call. */

void aiuLaunch(const char *computation, int32_t queue) {
  enqueue(KINETO_PLUGIN_PROFILE_EVENT_TYPE_CONCURRENT_KERNEL, computation, queue, 20000, 0);
}

void aiuCopy(size_t bytes, int32_t queue) {
  enqueue(KINETO_PLUGIN_PROFILE_EVENT_TYPE_GPU_MEMCPY, "Memcpy HtoD", queue, 5000, bytes);
}

void aiuSynchronize(void) {
  for (int32_t queue = 0; queue < QUEUES; queue++) {
    pthread_mutex_lock(&lock);
    int64_t until = free_at[queue];
    pthread_mutex_unlock(&lock);
    while (now() < until) usleep(10);
  }
}

/* The functions that the host of plugins calls. */

static int query(KinetoPlugin_ProfilerQuery_Params *params) {
  static const KinetoPlugin_ProfileEventType types[] = {
      KINETO_PLUGIN_PROFILE_EVENT_TYPE_PRIVATEUSE1_RUNTIME,
      KINETO_PLUGIN_PROFILE_EVENT_TYPE_CONCURRENT_KERNEL,
      KINETO_PLUGIN_PROFILE_EVENT_TYPE_GPU_MEMCPY,
  };
  snprintf(params->pProfilerName, params->profilerNameMaxLen + 1, "aiu");
  for (size_t i = 0; i < sizeof types / sizeof *types && i < params->supportedActivityTypesMaxLen; i++)
    params->pSupportedActivityTypes[i] = types[i];
  return 0;
}

static int create(KinetoPlugin_ProfilerCreate_Params *params) {
  KinetoPlugin_ProfilerHandle *profiler = calloc(1, sizeof *profiler);
  if (profiler == NULL) return -1;
  for (size_t i = 0; i < params->enabledActivityTypesMaxLen; i++) {
    KinetoPlugin_ProfileEventType type = params->pEnabledActivityTypes[i];
    profiler->calls |= type == KINETO_PLUGIN_PROFILE_EVENT_TYPE_PRIVATEUSE1_RUNTIME;
    profiler->kernels |= type == KINETO_PLUGIN_PROFILE_EVENT_TYPE_CONCURRENT_KERNEL;
    profiler->copies |= type == KINETO_PLUGIN_PROFILE_EVENT_TYPE_GPU_MEMCPY;
  }
  params->pProfilerHandle = profiler;
  return 0;
}

static int destroy(KinetoPlugin_ProfilerDestroy_Params *params) {
  free(params->pProfilerHandle);
  return 0;
}

static int start(KinetoPlugin_ProfilerStart_Params *params) {
  (void)params;
  pthread_mutex_lock(&lock);
  recording = true;
  used = lost = 0;
  pthread_mutex_unlock(&lock);
  return 0;
}

static int stop(KinetoPlugin_ProfilerStop_Params *params) {
  (void)params;
  pthread_mutex_lock(&lock);
  recording = false;
  pthread_mutex_unlock(&lock);
  return 0;
}

static int push(KinetoPlugin_ProfilerPushCorrelationId_Params *params) {
  if (depth < DEPTH) spans[depth] = params->correlationId;
  depth++;
  return 0;
}

static int pop(KinetoPlugin_ProfilerPopCorrelationId_Params *params) {
  (void)params;
  if (depth > 0) depth--;
  return 0;
}

static void add(const KinetoPlugin_TraceBuilder *out, const char *name, KinetoPlugin_ProfileEvent event,
                KinetoPlugin_ProfileEventFlow flow, const Record *record) {
  char number[32];
  event.unpaddedStructSize = KINETO_PLUGIN_PROFILE_EVENT_UNPADDED_STRUCT_SIZE;
  flow.unpaddedStructSize = KINETO_PLUGIN_PROFILE_EVENT_FLOW_UNPADDED_STRUCT_SIZE;
  if (out->addEvent(out->pTraceBuilderHandle, &event) != 0) return;
  out->setLastEventName(out->pTraceBuilderHandle, name);
  out->setLastEventFlow(out->pTraceBuilderHandle, &flow);
  if (record->span != 0) {
    snprintf(number, sizeof number, "%llu", (unsigned long long)record->span);
    out->addLastEventMetadata(out->pTraceBuilderHandle, "External id", number);
  }
  if (!flow.isStartPoint) {
    snprintf(number, sizeof number, "%d", record->queue);
    out->addLastEventMetadata(out->pTraceBuilderHandle, "device", "0");
    out->addLastEventMetadata(out->pTraceBuilderHandle, "stream", number);
  }
  if (!flow.isStartPoint && record->bytes != 0) {
    snprintf(number, sizeof number, "%zu", record->bytes);
    out->addLastEventMetadata(out->pTraceBuilderHandle, "bytes", number);
  }
}

static int process(KinetoPlugin_ProfilerProcessEvents_Params *params) {
  const KinetoPlugin_TraceBuilder *out = params->pTraceBuilder;
  const KinetoPlugin_ProfilerHandle *profiler = params->pProfilerHandle;
  KinetoPlugin_ProfileDeviceInfo device = {
      KINETO_PLUGIN_PROFILE_DEVICE_INFO_UNPADDED_STRUCT_SIZE, 0, 6000000, "AIU", "AIU 0"};
  out->addDeviceInfo(out->pTraceBuilderHandle, &device);
  for (int32_t queue = 0; queue < QUEUES; queue++) {
    char name[32];
    snprintf(name, sizeof name, "queue %d", queue);
    KinetoPlugin_ProfileResourceInfo resource = {
        .unpaddedStructSize = KINETO_PLUGIN_PROFILE_RESOURCE_INFO_UNPADDED_STRUCT_SIZE,
        .deviceId = 0, .resourceId = queue, .displayOrder = queue, .pName = name};
    out->addResourceInfo(out->pTraceBuilderHandle, &resource);
  }
  for (size_t i = 0; i < used; i++) {
    const Record *record = &records[i];
    bool is_copy = record->work == KINETO_PLUGIN_PROFILE_EVENT_TYPE_GPU_MEMCPY;
    KinetoPlugin_ProfileEventFlow flow = {
        .flowType = KINETO_PLUGIN_PROFILE_EVENT_FLOW_TYPE_ASYNC_CPU_GPU, .flowId = (uint32_t)i + 1};
    if (profiler->calls) {
      KinetoPlugin_ProfileEvent call = {
          .eventType = KINETO_PLUGIN_PROFILE_EVENT_TYPE_PRIVATEUSE1_RUNTIME, .startTimeUtcNs = record->called,
          .endTimeUtcNs = record->returned, .eventId = (int64_t)i + 1, .processId = getpid(),
          .threadId = record->thread};
      flow.isStartPoint = true;
      add(out, is_copy ? "aiuCopy" : "aiuLaunch", call, flow, record);
    }
    if (is_copy ? profiler->copies : profiler->kernels) {
      KinetoPlugin_ProfileEvent work = {
          .eventType = record->work, .startTimeUtcNs = record->began, .endTimeUtcNs = record->ended,
          .eventId = (int64_t)i + 1, .deviceId = 0, .resourceId = record->queue};
      flow.isStartPoint = false;
      add(out, record->name, work, flow, record);
    }
  }
  return lost == 0 ? 0 : 1;
}

int KinetoPlugin_register(const KinetoPlugin_Registry *registry) {
  KinetoPlugin_ProfilerInterface aiu = {
      .unpaddedStructSize = KINETO_PLUGIN_PROFILER_INTERFACE_UNPADDED_STRUCT_SIZE,
      .profilerCreate = create,
      .profilerDestroy = destroy,
      .profilerQuery = query,
      .profilerStart = start,
      .profilerStop = stop,
      .profilerPushCorrelationId = push,
      .profilerPopCorrelationId = pop,
      .profilerProcessEvents = process,
  };
  return registry->registerProfiler(registry->pRegistryHandle, &aiu);
}

/*
 * What a plugin for tracing-kineto is written against: a shared library by which the work of an accelerator comes into
 * a trace. C11 and C++14.
 *
 * The structs and functions are those of a proposal for kineto (pull request 1148), to the byte; event types 25 and
 * later are additions. A library in the folder KINETO_PLUGIN_LIB_DIR_PATH that exports KinetoPlugin_register is a plugin.
 *
 * The order of calls:
 *
 *   KinetoPlugin_register            once, when the library is loaded: registers one profiler, or more
 *   profilerQuery                    once, then: its name, and what it can record
 *   profilerCreate, profilerStart    when a recording begins
 *   profilerPush*, profilerPop*      during it, by any thread of the program, several at once
 *   profilerStop, profilerProcessEvents, profilerDestroy    when it ends
 *
 * Of a recording, all but push and pop come one after the other, not always from the same thread. Every function returns 0,
 * or anything else if it has failed. One that does not come back in time is left alone until it does, and its recording is
 * given up.
 *
 * Every struct begins with unpaddedStructSize: how many bytes of it the one who fills it in knows of. Fields are only ever
 * added behind the last one, so a smaller struct is an older one. The host refuses structs that are smaller than those
 * below, and reads no more than it knows of larger ones.
 */
#ifndef KINETO_PLUGIN_H
#define KINETO_PLUGIN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The bytes of a struct up to the end of its last field. */
#define KINETO_PLUGIN_UNPADDED_STRUCT_SIZE(type, last) (offsetof(type, last) + sizeof(((type *)0)->last))

typedef uint32_t KinetoPlugin_ProfileEventType;

enum {
  KINETO_PLUGIN_PROFILE_EVENT_TYPE_INVALID = 0,
  KINETO_PLUGIN_PROFILE_EVENT_TYPE_CPU_OP = 1,
  KINETO_PLUGIN_PROFILE_EVENT_TYPE_USER_ANNOTATION = 2,
  KINETO_PLUGIN_PROFILE_EVENT_TYPE_GPU_USER_ANNOTATION = 3,
  KINETO_PLUGIN_PROFILE_EVENT_TYPE_GPU_MEMCPY = 4,
  KINETO_PLUGIN_PROFILE_EVENT_TYPE_GPU_MEMSET = 5,
  KINETO_PLUGIN_PROFILE_EVENT_TYPE_CONCURRENT_KERNEL = 6,
  /* eventId is the id of a span that was pushed, the metadata "correlation" that of a call within it. */
  KINETO_PLUGIN_PROFILE_EVENT_TYPE_EXTERNAL_CORRELATION = 7,
  KINETO_PLUGIN_PROFILE_EVENT_TYPE_CUDA_RUNTIME = 8,
  KINETO_PLUGIN_PROFILE_EVENT_TYPE_CUDA_DRIVER = 9,
  KINETO_PLUGIN_PROFILE_EVENT_TYPE_CPU_INSTANT_EVENT = 10,
  KINETO_PLUGIN_PROFILE_EVENT_TYPE_PYTHON_FUNCTION = 11,
  KINETO_PLUGIN_PROFILE_EVENT_TYPE_OVERHEAD = 12,
  KINETO_PLUGIN_PROFILE_EVENT_TYPE_MTIA_RUNTIME = 13,
  KINETO_PLUGIN_PROFILE_EVENT_TYPE_MTIA_CCP_EVENTS = 14,
  KINETO_PLUGIN_PROFILE_EVENT_TYPE_MTIA_INSIGHT = 15,
  KINETO_PLUGIN_PROFILE_EVENT_TYPE_CUDA_SYNC = 16,
  KINETO_PLUGIN_PROFILE_EVENT_TYPE_GLOW_RUNTIME = 17,
  KINETO_PLUGIN_PROFILE_EVENT_TYPE_CUDA_PROFILER_RANGE = 18,
  KINETO_PLUGIN_PROFILE_EVENT_TYPE_HPU_OP = 19,
  KINETO_PLUGIN_PROFILE_EVENT_TYPE_XPU_RUNTIME = 20,
  KINETO_PLUGIN_PROFILE_EVENT_TYPE_COLLECTIVE_COMM = 21,
  /* Each piece of its metadata that is a number is a counter's value at the start of the event. */
  KINETO_PLUGIN_PROFILE_EVENT_TYPE_GPU_PM_COUNTER = 22,
  KINETO_PLUGIN_PROFILE_EVENT_TYPE_PRIVATEUSE1_RUNTIME = 23,
  KINETO_PLUGIN_PROFILE_EVENT_TYPE_PRIVATEUSE1_DRIVER = 24,
  /* Not in the proposal. Calls of any accelerator's runtime and driver: */
  KINETO_PLUGIN_PROFILE_EVENT_TYPE_RUNTIME = 25,
  KINETO_PLUGIN_PROFILE_EVENT_TYPE_DRIVER = 26,
  KINETO_PLUGIN_PROFILE_EVENT_TYPE_MTIA_COUNTERS = 27,
  KINETO_PLUGIN_PROFILE_EVENT_TYPE_XPU_DRIVER = 28,
  KINETO_PLUGIN_PROFILE_EVENT_TYPE_XPU_SCOPE_PROFILER = 29,
  KINETO_PLUGIN_PROFILE_EVENT_TYPE_XPU_SYNC = 30,
  KINETO_PLUGIN_PROFILE_EVENT_TYPE_CUDA_EVENT = 31
};

/* Something that happened. */
typedef struct KinetoPlugin_ProfileEvent {
  size_t unpaddedStructSize;
  KinetoPlugin_ProfileEventType eventType;
  /* Nanoseconds since 1970-01-01 UTC. */
  int64_t startTimeUtcNs;
  int64_t endTimeUtcNs;
  /* The plugin's own number for it; looked at for EXTERNAL_CORRELATION alone. */
  int64_t eventId;
  /* On a device: which one. On the host: 0, or this process; a call may stand on a device instead, by the number of that. */
  union {
    int32_t deviceId;
    int32_t processId;
  };
  /* On a device: which stream, queue or other part. On the host: the thread, by the kernel's id. */
  union {
    int32_t resourceId;
    int32_t threadId;
  };
} KinetoPlugin_ProfileEvent;
#define KINETO_PLUGIN_PROFILE_EVENT_UNPADDED_STRUCT_SIZE \
  KINETO_PLUGIN_UNPADDED_STRUCT_SIZE(KinetoPlugin_ProfileEvent, threadId)

typedef uint32_t KinetoPlugin_ProfileEventFlowType;

enum {
  KINETO_PLUGIN_PROFILE_EVENT_FLOW_TYPE_INVALID = 0,
  KINETO_PLUGIN_PROFILE_EVENT_FLOW_TYPE_FWD_BWD = 1,
  KINETO_PLUGIN_PROFILE_EVENT_FLOW_TYPE_ASYNC_CPU_GPU = 2
};

/* One end of an arrow: from a call to what it had a device do. Both ends have the same id, which is not 0. */
typedef struct KinetoPlugin_ProfileEventFlow {
  size_t unpaddedStructSize;
  KinetoPlugin_ProfileEventFlowType flowType;
  uint32_t flowId;
  bool isStartPoint;
} KinetoPlugin_ProfileEventFlow;
#define KINETO_PLUGIN_PROFILE_EVENT_FLOW_UNPADDED_STRUCT_SIZE \
  KINETO_PLUGIN_UNPADDED_STRUCT_SIZE(KinetoPlugin_ProfileEventFlow, isStartPoint)

/* What a device is called, and where its rows stand: groups of rows are in the order of sortIndex. */
typedef struct KinetoPlugin_ProfileDeviceInfo {
  size_t unpaddedStructSize;
  int64_t deviceId;
  int64_t sortIndex;
  const char *pName;
  const char *pLabel;
} KinetoPlugin_ProfileDeviceInfo;
#define KINETO_PLUGIN_PROFILE_DEVICE_INFO_UNPADDED_STRUCT_SIZE \
  KINETO_PLUGIN_UNPADDED_STRUCT_SIZE(KinetoPlugin_ProfileDeviceInfo, pLabel)

/* What one row of a device is called, and where it stands among them. */
typedef struct KinetoPlugin_ProfileResourceInfo {
  size_t unpaddedStructSize;
  union {
    int32_t deviceId;
    int32_t processId;
  };
  union {
    int32_t resourceId;
    int32_t threadId;
  };
  int32_t displayOrder;
  const char *pName;
} KinetoPlugin_ProfileResourceInfo;
#define KINETO_PLUGIN_PROFILE_RESOURCE_INFO_UNPADDED_STRUCT_SIZE \
  KINETO_PLUGIN_UNPADDED_STRUCT_SIZE(KinetoPlugin_ProfileResourceInfo, pName)

typedef struct KinetoPlugin_TraceBuilderHandle KinetoPlugin_TraceBuilderHandle;

/*
 * Takes what was recorded, during profilerProcessEvents alone. What is pointed to is copied before the call returns.
 *
 * An event is added, then all that is said of it: a name, arguments, an end of an arrow. A call returns -1 for what is not
 * taken: null, a struct that is too small, an event of a type that was not enabled, something about no event.
 *
 * Arguments are JSON: 1.5, true, "\"a text\"", "[1, 2, 3]". Two have a meaning: "correlation", a number that a call and
 * what it had a device do share, and "External id", the id that was pushed around the call. What the device did may say the
 * latter too, which counts where calls are not recorded.
 */
typedef struct KinetoPlugin_TraceBuilder {
  size_t unpaddedStructSize;
  KinetoPlugin_TraceBuilderHandle *pTraceBuilderHandle;
  int (*addEvent)(KinetoPlugin_TraceBuilderHandle *, const KinetoPlugin_ProfileEvent *);
  int (*setLastEventName)(KinetoPlugin_TraceBuilderHandle *, const char *pName);
  int (*setLastEventFlow)(KinetoPlugin_TraceBuilderHandle *, const KinetoPlugin_ProfileEventFlow *);
  int (*addLastEventMetadata)(KinetoPlugin_TraceBuilderHandle *, const char *pKey, const char *pValue);
  int (*addDeviceInfo)(KinetoPlugin_TraceBuilderHandle *, const KinetoPlugin_ProfileDeviceInfo *);
  int (*addResourceInfo)(KinetoPlugin_TraceBuilderHandle *, const KinetoPlugin_ProfileResourceInfo *);
} KinetoPlugin_TraceBuilder;
#define KINETO_PLUGIN_TRACE_BUILDER_UNPADDED_STRUCT_SIZE \
  KINETO_PLUGIN_UNPADDED_STRUCT_SIZE(KinetoPlugin_TraceBuilder, addResourceInfo)

/* Whatever the plugin has of a recording. */
typedef struct KinetoPlugin_ProfilerHandle KinetoPlugin_ProfilerHandle;

/* Makes a profiler that records those types, and puts it into pProfilerHandle. */
typedef struct KinetoPlugin_ProfilerCreate_Params {
  size_t unpaddedStructSize;
  KinetoPlugin_ProfilerHandle *pProfilerHandle;
  KinetoPlugin_ProfileEventType *pEnabledActivityTypes;
  size_t enabledActivityTypesMaxLen;
} KinetoPlugin_ProfilerCreate_Params;
#define KINETO_PLUGIN_PROFILER_CREATE_PARAMS_UNPADDED_STRUCT_SIZE \
  KINETO_PLUGIN_UNPADDED_STRUCT_SIZE(KinetoPlugin_ProfilerCreate_Params, enabledActivityTypesMaxLen)

typedef struct KinetoPlugin_ProfilerDestroy_Params {
  size_t unpaddedStructSize;
  KinetoPlugin_ProfilerHandle *pProfilerHandle;
} KinetoPlugin_ProfilerDestroy_Params;
#define KINETO_PLUGIN_PROFILER_DESTROY_PARAMS_UNPADDED_STRUCT_SIZE \
  KINETO_PLUGIN_UNPADDED_STRUCT_SIZE(KinetoPlugin_ProfilerDestroy_Params, pProfilerHandle)

/* Puts the profiler's name into pProfilerName, which has room for one byte more, and the types that it can record into
 * pSupportedActivityTypes, where those that are not filled in stay 0. pProfilerHandle is null. */
typedef struct KinetoPlugin_ProfilerQuery_Params {
  size_t unpaddedStructSize;
  KinetoPlugin_ProfilerHandle *pProfilerHandle;
  char *pProfilerName;
  size_t profilerNameMaxLen;
  KinetoPlugin_ProfileEventType *pSupportedActivityTypes;
  size_t supportedActivityTypesMaxLen;
} KinetoPlugin_ProfilerQuery_Params;
#define KINETO_PLUGIN_PROFILER_QUERY_PARAMS_UNPADDED_STRUCT_SIZE \
  KINETO_PLUGIN_UNPADDED_STRUCT_SIZE(KinetoPlugin_ProfilerQuery_Params, supportedActivityTypesMaxLen)

typedef struct KinetoPlugin_ProfilerStart_Params {
  size_t unpaddedStructSize;
  KinetoPlugin_ProfilerHandle *pProfilerHandle;
} KinetoPlugin_ProfilerStart_Params;
#define KINETO_PLUGIN_PROFILER_START_PARAMS_UNPADDED_STRUCT_SIZE \
  KINETO_PLUGIN_UNPADDED_STRUCT_SIZE(KinetoPlugin_ProfilerStart_Params, pProfilerHandle)

typedef struct KinetoPlugin_ProfilerStop_Params {
  size_t unpaddedStructSize;
  KinetoPlugin_ProfilerHandle *pProfilerHandle;
} KinetoPlugin_ProfilerStop_Params;
#define KINETO_PLUGIN_PROFILER_STOP_PARAMS_UNPADDED_STRUCT_SIZE \
  KINETO_PLUGIN_UNPADDED_STRUCT_SIZE(KinetoPlugin_ProfilerStop_Params, pProfilerHandle)

typedef struct KinetoPlugin_ProfilerProcessEvents_Params {
  size_t unpaddedStructSize;
  KinetoPlugin_ProfilerHandle *pProfilerHandle;
  const KinetoPlugin_TraceBuilder *pTraceBuilder;
} KinetoPlugin_ProfilerProcessEvents_Params;
#define KINETO_PLUGIN_PROFILER_PROCESS_EVENTS_PARAMS_UNPADDED_STRUCT_SIZE \
  KINETO_PLUGIN_UNPADDED_STRUCT_SIZE(KinetoPlugin_ProfilerProcessEvents_Params, pTraceBuilder)

/* The calling thread goes into a span, or out of the one that it went into last; out of those that it was in when a
 * recording ended it may go in the next one. */
typedef struct KinetoPlugin_ProfilerPushCorrelationId_Params {
  size_t unpaddedStructSize;
  uint64_t correlationId;
  KinetoPlugin_ProfilerHandle *pProfilerHandle;
} KinetoPlugin_ProfilerPushCorrelationId_Params;
#define KINETO_PLUGIN_PROFILER_PUSH_CORRELATION_ID_PARAMS_UNPADDED_STRUCT_SIZE \
  KINETO_PLUGIN_UNPADDED_STRUCT_SIZE(KinetoPlugin_ProfilerPushCorrelationId_Params, pProfilerHandle)

typedef struct KinetoPlugin_ProfilerPopCorrelationId_Params {
  size_t unpaddedStructSize;
  KinetoPlugin_ProfilerHandle *pProfilerHandle;
} KinetoPlugin_ProfilerPopCorrelationId_Params;
#define KINETO_PLUGIN_PROFILER_POP_CORRELATION_ID_PARAMS_UNPADDED_STRUCT_SIZE \
  KINETO_PLUGIN_UNPADDED_STRUCT_SIZE(KinetoPlugin_ProfilerPopCorrelationId_Params, pProfilerHandle)

/* The same for spans that are user annotations. A profiler that has neither of the two is told of those as of any other
 * span, and one that has both by these alone. */
typedef struct KinetoPlugin_ProfilerPushUserCorrelationId_Params {
  size_t unpaddedStructSize;
  uint64_t userCorrelationId;
  KinetoPlugin_ProfilerHandle *pProfilerHandle;
} KinetoPlugin_ProfilerPushUserCorrelationId_Params;
#define KINETO_PLUGIN_PROFILER_PUSH_USER_CORRELATION_ID_PARAMS_UNPADDED_STRUCT_SIZE \
  KINETO_PLUGIN_UNPADDED_STRUCT_SIZE(KinetoPlugin_ProfilerPushUserCorrelationId_Params, pProfilerHandle)

typedef struct KinetoPlugin_ProfilerPopUserCorrelationId_Params {
  size_t unpaddedStructSize;
  KinetoPlugin_ProfilerHandle *pProfilerHandle;
} KinetoPlugin_ProfilerPopUserCorrelationId_Params;
#define KINETO_PLUGIN_PROFILER_POP_USER_CORRELATION_ID_PARAMS_UNPADDED_STRUCT_SIZE \
  KINETO_PLUGIN_UNPADDED_STRUCT_SIZE(KinetoPlugin_ProfilerPopUserCorrelationId_Params, pProfilerHandle)

/* The functions of a profiler. The four for ids may be null, the others not. */
typedef struct KinetoPlugin_ProfilerInterface {
  size_t unpaddedStructSize;
  int (*profilerCreate)(KinetoPlugin_ProfilerCreate_Params *);
  int (*profilerDestroy)(KinetoPlugin_ProfilerDestroy_Params *);
  int (*profilerQuery)(KinetoPlugin_ProfilerQuery_Params *);
  int (*profilerStart)(KinetoPlugin_ProfilerStart_Params *);
  int (*profilerStop)(KinetoPlugin_ProfilerStop_Params *);
  int (*profilerPushCorrelationId)(KinetoPlugin_ProfilerPushCorrelationId_Params *);
  int (*profilerPopCorrelationId)(KinetoPlugin_ProfilerPopCorrelationId_Params *);
  int (*profilerPushUserCorrelationId)(KinetoPlugin_ProfilerPushUserCorrelationId_Params *);
  int (*profilerPopUserCorrelationId)(KinetoPlugin_ProfilerPopUserCorrelationId_Params *);
  int (*profilerProcessEvents)(KinetoPlugin_ProfilerProcessEvents_Params *);
} KinetoPlugin_ProfilerInterface;
#define KINETO_PLUGIN_PROFILER_INTERFACE_UNPADDED_STRUCT_SIZE \
  KINETO_PLUGIN_UNPADDED_STRUCT_SIZE(KinetoPlugin_ProfilerInterface, profilerProcessEvents)

typedef struct KinetoPlugin_RegistryHandle KinetoPlugin_RegistryHandle;

/* Takes profilers, during KinetoPlugin_register alone. The interface is copied. */
typedef struct KinetoPlugin_Registry {
  size_t unpaddedStructSize;
  KinetoPlugin_RegistryHandle *pRegistryHandle;
  int (*registerProfiler)(KinetoPlugin_RegistryHandle *, const KinetoPlugin_ProfilerInterface *);
} KinetoPlugin_Registry;
#define KINETO_PLUGIN_REGISTRY_UNPADDED_STRUCT_SIZE \
  KINETO_PLUGIN_UNPADDED_STRUCT_SIZE(KinetoPlugin_Registry, registerProfiler)

/* What a plugin exports. */
int KinetoPlugin_register(const KinetoPlugin_Registry *pRegistry);

#ifdef __cplusplus
}
#endif

#endif /* KINETO_PLUGIN_H */

/*
 * The interface of plugins for tracing-kineto: shared libraries that record the work of an accelerator. C11 and C++14.
 *
 * The structs and functions equal those of a proposal for kineto (pull request 1148) byte for byte; event types 25 and
 * later are additions. A library in the folder KINETO_PLUGIN_LIB_DIR_PATH that exports KinetoPlugin_register is a plugin.
 *
 * The order of calls:
 *
 *   KinetoPlugin_register            once, when the library is loaded: registers one or more profilers
 *   profilerQuery                    once, afterwards: returns the name and the supported types
 *   profilerCreate, profilerStart    when a recording begins
 *   profilerPush*, profilerPop*      during it, by any thread of the program, several at once
 *   profilerStop, profilerProcessEvents, profilerDestroy    when it ends
 *
 * During a recording, all calls except push and pop are sequential, but not always on the same thread. Every function returns
 * 0 on success, any other value on failure. If a function does not return in time, the host abandons the recording and does
 * not call the plugin until it returns.
 *
 * Every struct begins with unpaddedStructSize: the size known to the side that fills it in. New fields are only added at the
 * end, so a smaller struct is an older one. The host refuses structs smaller than those below, and ignores the additional
 * fields of larger ones.
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
  /* eventId is the id of a pushed span, the metadata "correlation" that of a call inside it. */
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
  /* Each numeric metadata entry is a counter's value at the start of the event. */
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

/* An event. */
typedef struct KinetoPlugin_ProfileEvent {
  size_t unpaddedStructSize;
  KinetoPlugin_ProfileEventType eventType;
  /* Nanoseconds since 1970-01-01 UTC. */
  int64_t startTimeUtcNs;
  int64_t endTimeUtcNs;
  /* The plugin's id of the event; only used for EXTERNAL_CORRELATION. */
  int64_t eventId;
  /* On a device: its id. On the host: 0 or this process's id; for a call on a device's row, the device's id. */
  union {
    int32_t deviceId;
    int32_t processId;
  };
  /* On a device: its stream, queue or other part. On the host: the kernel's thread id. */
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

/* One end of an arrow from a call to its device work. Both ends have the same id, which is not 0. */
typedef struct KinetoPlugin_ProfileEventFlow {
  size_t unpaddedStructSize;
  KinetoPlugin_ProfileEventFlowType flowType;
  uint32_t flowId;
  bool isStartPoint;
} KinetoPlugin_ProfileEventFlow;
#define KINETO_PLUGIN_PROFILE_EVENT_FLOW_UNPADDED_STRUCT_SIZE \
  KINETO_PLUGIN_UNPADDED_STRUCT_SIZE(KinetoPlugin_ProfileEventFlow, isStartPoint)

/* A device's name, and the order of its rows: groups of rows are sorted by sortIndex. */
typedef struct KinetoPlugin_ProfileDeviceInfo {
  size_t unpaddedStructSize;
  int64_t deviceId;
  int64_t sortIndex;
  const char *pName;
  const char *pLabel;
} KinetoPlugin_ProfileDeviceInfo;
#define KINETO_PLUGIN_PROFILE_DEVICE_INFO_UNPADDED_STRUCT_SIZE \
  KINETO_PLUGIN_UNPADDED_STRUCT_SIZE(KinetoPlugin_ProfileDeviceInfo, pLabel)

/* The name of a device's row, and its order among them. */
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
 * Receives the records, only during profilerProcessEvents. Data behind pointers is copied before the call returns.
 *
 * First add an event, then its properties: a name, arguments, an end of an arrow. A call returns -1 for refused data: null, a
 * struct that is too small, an event whose type was not enabled, a property without an event.
 *
 * Arguments are JSON: 1.5, true, "\"a text\"", "[1, 2, 3]". Two have a meaning: "correlation", a number shared by a call and
 * its device work, and "External id", the id that was pushed around the call. Device work may have the latter too; it is used
 * if calls are not recorded.
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

/* The plugin's state of a recording. */
typedef struct KinetoPlugin_ProfilerHandle KinetoPlugin_ProfilerHandle;

/* Creates a profiler for those types, and stores it in pProfilerHandle. */
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

/* Stores the profiler's name in pProfilerName, a buffer of profilerNameMaxLen + 1 bytes, and the supported types in
 * pSupportedActivityTypes, whose unused elements stay 0. pProfilerHandle is null. */
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

/* The calling thread enters a span, or exits the span that it entered last. It may exit a span of an earlier recording during
 * the next one. */
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

/* The same for spans that are user annotations. If a profiler lacks both functions, it receives annotations as other spans; if
 * it has both, only through these. */
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

/* The functions of a profiler. The four for ids may be null, the others may not. */
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

/* Registers profilers, only during KinetoPlugin_register. The interface is copied. */
typedef struct KinetoPlugin_Registry {
  size_t unpaddedStructSize;
  KinetoPlugin_RegistryHandle *pRegistryHandle;
  int (*registerProfiler)(KinetoPlugin_RegistryHandle *, const KinetoPlugin_ProfilerInterface *);
} KinetoPlugin_Registry;
#define KINETO_PLUGIN_REGISTRY_UNPADDED_STRUCT_SIZE \
  KINETO_PLUGIN_UNPADDED_STRUCT_SIZE(KinetoPlugin_Registry, registerProfiler)

/* The function that a plugin exports. */
int KinetoPlugin_register(const KinetoPlugin_Registry *pRegistry);

#ifdef __cplusplus
}
#endif

#endif /* KINETO_PLUGIN_H */

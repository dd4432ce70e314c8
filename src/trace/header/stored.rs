//! The facts about a trace in a file.

use super::TraceInfo;
use crate::config::Config;
use crate::encoding::Encoded;
use kineto_base::fallible::List;
use std::sync::Arc;

/// Encodes these fields, in this order. It ends a value: what an older file lacks at the end keeps its default.
macro_rules! encoded_info {
    (|$info:ident, $config:ident| $($of:ident.$($field:ident).+,)+) => {
        impl Encoded for TraceInfo {
            fn encode(&self, out: &mut List<u8>) {
                let ($info, $config) = (self, &*self.config);
                $($of.$($field).+.encode(out);)+
            }

            fn decode(from: &mut &[u8]) -> Option<Self> {
                let mut $config = Config::default();
                let mut $info = TraceInfo::new(Arc::default());
                $(if !from.is_empty() {
                    $of.$($field).+ = Encoded::decode(from)?;
                })+
                $info.config = Arc::new($config);
                Some($info)
            }
        }
    };
}

encoded_info! { |info, config|
    info.is_recording, config.mode, info.losses, info.observers, info.counters, info.symbols, info.process, info.process_name,
    info.host_name, info.trace_id, info.group_trace_id, config.job_metadata, config.distributed, info.effective, info.clock,
    config.async_spans, config.with_target, config.with_location, config.flags, config.overload_names, config.fwd_bwd,
    config.activities, config.gpu.wait_events, info.some_threads, config.gpu.profiler_range, config.gzip_level,
    config.execution_trace, info.private_use1, info.violations,
}

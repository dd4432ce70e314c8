//! What a collector is to record, and what it records.

use super::{CaptureRange, Options};
use kineto_base::encoding::encoded;
use kineto_model::activity::{ActivityTypes, DeviceType};
use std::path::PathBuf;
use std::time::Duration;

/// What a collector is to record.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Selection {
    /// The activity types to record.
    pub types: ActivityTypes,
    /// The most bytes that the vendor's unread records may take. `ACTIVITIES_MAX_GPU_BUFFER_SIZE_MB`; default 128
    /// MiB.
    pub buffer_bytes: u64,
    /// How long a start may take to verify that records arrive.
    pub proof: Duration,
    /// Receives the program's marks of a range; outside of it nothing is recorded. `CUDA_PROFILER_RANGE`.
    pub range: Option<CaptureRange>,
    /// The user's settings for collectors. `CUSTOM_CONFIG`, torch's `custom_profiler_config`.
    pub custom_config: String,
    /// Whether device allocations and frees are recorded too. `PROFILE_DEVICE_MEMORY`.
    pub device_memory: bool,
    /// Settings that are specific to some collectors.
    pub options: Options,
}

/// What a collector can record, or does record.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Capabilities {
    /// The activity types that it records here.
    pub types: ActivityTypes,
    /// Entries for the header of a trace, such as versions: keys with JSON values, such as `cupti_version`.
    pub metadata: Vec<(String, String)>,
    /// The library that it uses.
    pub library: Option<PathBuf>,
    /// Whether records were seen to arrive; `None` if it cannot verify that.
    pub proven: Option<bool>,
    /// The kind of devices whose memory it records. Reports of the program's allocators about these devices are then
    /// left out, since they describe the same memory.
    pub memory_of: Option<DeviceType>,
    /// Whether something selected is not recorded, or only in part; `notes` name it.
    pub is_incomplete: bool,
    /// Limitations, as sentences.
    pub notes: Vec<String>,
}

encoded! {
    Capabilities { types, metadata, library, proven, memory_of, is_incomplete, notes }
}

impl Selection {
    /// Selects these types, with defaults for all other settings.
    pub fn of(types: ActivityTypes) -> Selection {
        Selection {
            types,
            buffer_bytes: 128 << 20,
            proof: Duration::from_secs(1),
            range: None,
            custom_config: String::new(),
            device_memory: false,
            options: Options::default(),
        }
    }
}

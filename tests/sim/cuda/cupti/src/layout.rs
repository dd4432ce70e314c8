//! The lengths of records of each kind, by version of CUPTI.

use crate::shared::options::CuptiVersion;
use sim_core::record::RecordLengths;

/// Kinds of activity.
pub(crate) mod kind {
    pub(crate) const MEMCPY: u32 = 1;
    pub(crate) const MEMSET: u32 = 2;
    pub(crate) const KERNEL: u32 = 3;
    pub(crate) const DRIVER: u32 = 4;
    pub(crate) const RUNTIME: u32 = 5;
    pub(crate) const CONCURRENT_KERNEL: u32 = 10;
    pub(crate) const MARKER: u32 = 12;
    pub(crate) const MARKER_DATA: u32 = 13;
    pub(crate) const OVERHEAD: u32 = 17;
    pub(crate) const MEMCPY2: u32 = 22;
    pub(crate) const CUDA_EVENT: u32 = 36;
    pub(crate) const SYNCHRONIZATION: u32 = 38;
    pub(crate) const EXTERNAL_CORRELATION: u32 = 39;
    pub(crate) const MEMORY2: u32 = 49;
    pub(crate) const GRAPH_TRACE: u32 = 51;
    /// A kind that only the simulator has, in place of future kinds.
    pub(crate) const UNKNOWN: u32 = 900;
}

/// The lengths of each kind, each with the version that introduced it.
const LENGTHS: RecordLengths = RecordLengths(&[
    (kind::MEMCPY, &[("11.7", 88), ("12.8", 96), ("13.4", 112)]),
    (kind::MEMSET, &[("11.7", 88), ("13.4", 104)]),
    (kind::KERNEL, KERNELS),
    (kind::DRIVER, &[("11.7", 40)]),
    (kind::RUNTIME, &[("11.7", 40)]),
    // Devices.
    (8, &[("11.7", 176), ("12.2", 184), ("13.2", 192)]),
    // Contexts.
    (9, &[("11.7", 16), ("12.4", 24), ("12.5", 32), ("13.1", 40)]),
    (kind::CONCURRENT_KERNEL, KERNELS),
    // Names.
    (11, &[("11.7", 32)]),
    (kind::MARKER, &[("11.7", 56)]),
    (kind::MARKER_DATA, &[("11.7", 32), ("13.0", 40)]),
    (kind::OVERHEAD, &[("11.7", 40), ("12.3", 48), ("12.4", 56)]),
    (kind::MEMCPY2, &[("11.7", 96)]),
    // Counters of unified memory.
    (25, &[("11.7", 64), ("12.8", 104)]),
    (kind::CUDA_EVENT, &[("11.7", 24), ("12.8", 56)]),
    // Streams.
    (37, &[("11.7", 24)]),
    (kind::SYNCHRONIZATION, &[("11.7", 40), ("12.8", 56)]),
    (kind::EXTERNAL_CORRELATION, &[("11.7", 24)]),
    (kind::MEMORY2, &[("11.7", 120), ("12.6", 128)]),
    // Pools of memory.
    (50, &[("11.7", 72), ("13.0", 80)]),
    (kind::GRAPH_TRACE, &[("11.7", 48), ("12.3", 56)]),
    // Compilation: the libraries step by the longer record before the headers show it.
    (52, &[("11.8", 64), ("12.4", 72)]),
    // Graphs launched by a device, decompression, host nodes of graphs.
    (53, &[("12.8", 56)]),
    (54, &[("12.8", 64)]),
    (56, &[("13.1", 56)]),
    (kind::UNKNOWN, &[("11.7", 64)]),
]);

const KERNELS: &[(&str, usize)] =
    &[("11.7", 176), ("11.8", 200), ("12.0", 208), ("13.0", 216), ("13.1", 224), ("13.3", 232), ("13.4", 248)];

/// Returns the length of a record of that kind, or none if the version lacks the kind.
pub(crate) fn length(kind: u32, version: CuptiVersion) -> Option<usize> {
    LENGTHS.get(kind, |name| version.is_since(name))
}

/// Returns the length of a version's longest record.
pub(crate) fn longest(version: CuptiVersion) -> usize {
    LENGTHS.longest(|name| version.is_since(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn versions() -> impl Iterator<Item = CuptiVersion> {
        (0..CuptiVersion::ALL.len()).map(CuptiVersion)
    }

    #[test]
    fn lengths_grow_and_are_whole_words() {
        for (kind, _) in LENGTHS.0 {
            let lengths: Vec<_> = versions().filter_map(|version| length(*kind, version)).collect();
            assert!(lengths.is_sorted() && lengths.iter().all(|length| length % 8 == 0), "{kind}: {lengths:?}");
        }
    }
}

//! How long the records of each kind are, in each version of PTI.

use crate::shared::options::Options;
use sim_core::record::RecordLengths;

/// Kinds of views.
pub(crate) mod kind {
    pub(crate) const KERNEL: u32 = 1;
    pub(crate) const CPU_KERNEL: u32 = 2;
    pub(crate) const DRIVER_API: u32 = 3;
    pub(crate) const RESERVED: u32 = 4;
    pub(crate) const OVERHEAD: u32 = 5;
    pub(crate) const RUNTIME_API: u32 = 6;
    pub(crate) const EXTERNAL_CORRELATION: u32 = 7;
    pub(crate) const MEMCPY: u32 = 8;
    pub(crate) const MEMSET: u32 = 9;
    pub(crate) const MEMCPY_PEER: u32 = 10;
    pub(crate) const SYNCHRONIZATION: u32 = 11;
    pub(crate) const COMMUNICATION: u32 = 12;
    /// A kind that only the simulator has, in place of future kinds.
    pub(crate) const UNKNOWN: u32 = 900;
}

/// The lengths of each kind, each with the version that introduced it.
const LENGTHS: RecordLengths = RecordLengths(&[
    (kind::KERNEL, &[("0.10", 168), ("1.0", 184)]),
    (kind::DRIVER_API, &[("0.10", 48)]),
    (kind::OVERHEAD, &[("0.10", 56)]),
    (kind::RUNTIME_API, &[("0.10", 48)]),
    (kind::EXTERNAL_CORRELATION, &[("0.10", 24)]),
    (kind::MEMCPY, &[("0.10", 136), ("1.0", 152)]),
    (kind::MEMSET, &[("0.10", 136), ("1.0", 152)]),
    (kind::MEMCPY_PEER, &[("0.10", 168), ("1.0", 192)]),
    (kind::SYNCHRONIZATION, &[("0.12", 72)]),
    (kind::COMMUNICATION, &[("0.17", 56), ("1.0", 64)]),
    (kind::UNKNOWN, &[("0.10", 64)]),
]);

/// Returns the length of a record of that kind, or none if the version lacks the kind.
pub(crate) fn length(kind: u32, options: &Options) -> Option<usize> {
    Some(LENGTHS.get(kind, |name| options.pti.is_since(name))? + options.longer_records)
}

/// Returns the length of a version's longest record.
pub(crate) fn longest(options: &Options) -> usize {
    LENGTHS.longest(|name| options.pti.is_since(name)) + options.longer_records
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shared::options::PtiVersion;

    fn of(name: &str) -> Options {
        Options::parse(&format!("pti={name}")).unwrap()
    }

    #[test]
    fn lengths_grow_and_are_whole_words() {
        for (kind, _) in LENGTHS.0 {
            let lengths: Vec<_> = PtiVersion::ALL.iter().filter_map(|(name, _)| length(*kind, &of(name))).collect();
            assert!(lengths.is_sorted() && lengths.iter().all(|length| length % 8 == 0), "{kind}: {lengths:?}");
        }
    }

    #[test]
    fn a_kind_begins_with_a_version() {
        assert_eq!(length(kind::COMMUNICATION, &of("0.16")), None);
        assert_eq!(length(kind::COMMUNICATION, &of("0.17")), Some(56));
        assert_eq!(length(kind::CPU_KERNEL, &of("1.2")), None);
        assert_eq!((longest(&of("0.17")), longest(&of("1.0"))), (168, 192));
        assert_eq!(length(kind::KERNEL, &Options { longer_records: 8, ..of("1.2") }), Some(192));
    }
}

//! The 29 activity types of libkineto.

/// What kind of thing an activity is; the numbers are libkineto's and do not change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
#[repr(u8)]
pub enum ActivityType {
    /// A host operation.
    CpuOp = 0,
}

/// The kind of device on which an activity ran.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum DeviceType {
    /// The host.
    Cpu,
}

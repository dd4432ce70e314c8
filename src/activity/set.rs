//! Sets of activity types.

/// A set of activity types.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ActivityTypes(u32);

/// A front-end group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ActivityGroup {
    /// Host.
    Cpu,
}

//! Optional data of a recording.

use crate::encoding::encoded;

/// The optional data that a recording requests: the five flags of libkineto's `ClientInterface::prepare`.
///
/// They come from the builder, the environment and the configuration file (`PROFILE_REPORT_INPUT_SHAPES` and so on); for an
/// external request from its text, for example `dyno gputrace --record-shapes`. A [`SessionObserver`](crate::SessionObserver)
/// receives them. All are false by default.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct RecordingFlags {
    /// Operations should record the shapes of their inputs.
    pub record_shapes: bool,
    /// Allocators' reports are recorded.
    pub profile_memory: bool,
    /// Operations should have call stacks.
    pub with_stack: bool,
    /// Operations should record the data for computing FLOPs.
    pub with_flops: bool,
    /// Operations should record the modules that they are in.
    pub with_modules: bool,
}

encoded! {
    RecordingFlags { record_shapes, profile_memory, with_stack, with_flops, with_modules }
}

impl RecordingFlags {
    /// Returns the names of those that are set, as in torch.
    pub(crate) fn enabled_names(self) -> impl Iterator<Item = &'static str> {
        let named = [
            ("record_shapes", self.record_shapes),
            ("profile_memory", self.profile_memory),
            ("with_stack", self.with_stack),
            ("with_flops", self.with_flops),
            ("with_modules", self.with_modules),
        ];
        named.into_iter().filter(|(_, is_set)| *is_set).map(|(name, _)| name)
    }
}

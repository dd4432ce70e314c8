//! What a recording is asked for beside times.

/// What a recording is asked for beside times: libkineto's five flags, as its `ClientInterface::prepare` has them.
///
/// They come from the builder, from the environment and the configuration file (`PROFILE_REPORT_INPUT_SHAPES` and so on),
/// and for a recording that is asked for from outside from the request, such as `dyno gputrace --record-shapes`. A
/// [`SessionObserver`](crate::SessionObserver) is told them. All are false by default.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct RecordingFlags {
    /// Operations are to say the shapes of their inputs.
    pub record_shapes: bool,
    /// Allocations are to be reported. What is reported is recorded if this is so, and only then.
    pub profile_memory: bool,
    /// Operations are to have call stacks.
    pub with_stack: bool,
    /// Operations are to say what FLOPs are computed of.
    pub with_flops: bool,
    /// Operations are to say which modules they are in.
    pub with_modules: bool,
}

impl RecordingFlags {
    /// Returns those that are set, under torch's names.
    pub(crate) fn names(self) -> impl Iterator<Item = &'static str> {
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

//! The external request that a recording belongs to.

/// Tracks which request has the recording, or the memory profile.
///
/// Ids ascend in the order in which requests begin, from 1. So every id up to the last is over, except the active one.
#[derive(Debug, Default)]
pub(super) struct ActiveRequest {
    /// The request that has the recording.
    active: Option<u64>,
    /// The highest id that has begun or was marked as done.
    highest_id: u64,
}

impl ActiveRequest {
    /// Returns the request that has the recording.
    pub(super) fn active_id(&self) -> Option<u64> {
        self.active
    }

    /// Returns whether the request has the recording.
    pub(super) fn is_active(&self, request_id: u64) -> bool {
        self.active == Some(request_id)
    }

    /// Returns whether the request cannot get the recording any more: it ended or failed, or a later one began.
    pub(super) fn is_over(&self, request_id: u64) -> bool {
        request_id <= self.highest_id && !self.is_active(request_id)
    }

    /// Gives the recording to a request.
    pub(super) fn begin(&mut self, request_id: u64) {
        (self.active, self.highest_id) = (Some(request_id), request_id);
    }

    /// Ends the current request.
    pub(super) fn end(&mut self) {
        self.active = None;
    }

    /// Marks a request as ended, unless it is the current one.
    pub(super) fn mark_over(&mut self, request_id: u64) {
        self.highest_id = self.highest_id.max(request_id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn request_is_active_once() {
        let mut active_request = ActiveRequest::default();
        assert!(!active_request.is_active(1) && !active_request.is_over(1));
        active_request.begin(1);
        assert!(active_request.is_active(1) && !active_request.is_over(1) && active_request.active_id() == Some(1));
        active_request.end();
        assert!(!active_request.is_active(1) && active_request.is_over(1) && active_request.active_id().is_none());
        active_request.mark_over(3);
        active_request.mark_over(2);
        assert!(active_request.is_over(3) && !active_request.is_over(4));
    }
}

//! The request from outside for which something is recorded.

/// Requests have numbers in the order in which they come, so one that has had its turn is known by its own.
#[derive(Debug, Default)]
pub(super) struct Guest {
    /// Whose turn it is.
    ticket: Option<u64>,
    /// The last one that has had a turn, or never will.
    last: u64,
}

impl Guest {
    /// Returns whose turn it is.
    pub(super) fn ticket(&self) -> Option<u64> {
        self.ticket
    }

    /// Whether it is that request's turn.
    pub(super) fn is(&self, ticket: u64) -> bool {
        self.ticket == Some(ticket)
    }

    /// Whether that request's turn is over.
    pub(super) fn is_over(&self, ticket: u64) -> bool {
        ticket <= self.last && !self.is(ticket)
    }

    /// It is that request's turn.
    pub(super) fn enter(&mut self, ticket: u64) {
        (self.ticket, self.last) = (Some(ticket), ticket);
    }

    /// It is nobody's turn.
    pub(super) fn leave(&mut self) {
        self.ticket = None;
    }

    /// That request's turn is over if it has none by now.
    pub(super) fn pass_over(&mut self, ticket: u64) {
        self.last = self.last.max(ticket);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_turn_is_had_once() {
        let mut guest = Guest::default();
        assert!(!guest.is(1) && !guest.is_over(1));
        guest.enter(1);
        assert!(guest.is(1) && !guest.is_over(1) && guest.ticket() == Some(1));
        guest.leave();
        assert!(!guest.is(1) && guest.is_over(1) && guest.ticket().is_none());
        guest.pass_over(3);
        guest.pass_over(2);
        assert!(guest.is_over(3) && !guest.is_over(4));
    }
}

//! Tracks launches that have no device record yet.

/// Correlation ids in a page.
const PAGE: usize = 1 << 16;
/// Pages that are kept: older launches are no longer waited for.
const PAGES: usize = 32;

/// Tracks for each correlation id whether something was launched with it, and whether its device record arrived.
///
/// Two bits for each id, in pages, since ids are consecutive.
#[derive(Debug)]
pub(super) struct Ledger {
    pages: Vec<LedgerPage>,
    /// Threads whose work is captured into a graph instead of running.
    capturing: Vec<u32>,
    /// Launches from then on are ignored.
    until: u64,
    /// The latest start of a call.
    latest_call: u64,
}

#[derive(Debug)]
struct LedgerPage {
    number: u32,
    launched: Box<[u64; PAGE / 64]>,
    worked: Box<[u64; PAGE / 64]>,
}

impl LedgerPage {
    fn new(number: u32) -> LedgerPage {
        LedgerPage { number, launched: Box::new([0; PAGE / 64]), worked: Box::new([0; PAGE / 64]) }
    }
}

impl Ledger {
    pub(super) fn new() -> Ledger {
        Ledger { pages: Vec::new(), capturing: Vec::new(), until: u64::MAX, latest_call: 0 }
    }

    /// Notes a call that began at that time.
    #[inline]
    pub(super) fn call(&mut self, start: u64) {
        self.latest_call = self.latest_call.max(start);
    }

    /// Ignores launches after that time, on the clock of the records.
    pub(super) fn close(&mut self, end: u64) {
        self.until = end;
    }

    /// Returns whether a call was recorded that began after that time.
    pub(super) fn is_past(&self, at: u64) -> bool {
        self.latest_call > at
    }

    /// Notes that a thread begins or ends the capture of a graph.
    pub(super) fn capture(&mut self, thread: u32, begins: bool) {
        self.capturing.retain(|capturing| *capturing != thread);
        if begins {
            self.capturing.push(thread);
        }
    }

    /// Returns whether launches of a thread run on a device.
    #[inline]
    pub(super) fn reaches_device(&self, thread: u32) -> bool {
        self.capturing.is_empty() || !self.capturing.contains(&thread)
    }

    /// Notes a launch with that id.
    #[inline]
    pub(super) fn launched(&mut self, correlation: u32, start: u64) {
        if start <= self.until {
            let (page, word, bit) = self.place(correlation);
            if let Some(word) = page.launched.get_mut(word) {
                *word |= bit;
            }
        }
    }

    /// Notes a device record with that id.
    #[inline]
    pub(super) fn worked(&mut self, correlation: u32) {
        let (page, word, bit) = self.place(correlation);
        if let Some(word) = page.worked.get_mut(word) {
            *word |= bit;
        }
    }

    /// Returns how many launches have no device record yet.
    pub(super) fn owed(&self) -> u64 {
        let words = self.pages.iter().flat_map(|page| page.launched.iter().zip(page.worked.iter()));
        words.map(|(launched, worked)| u64::from((launched & !worked).count_ones())).sum()
    }

    #[inline]
    fn place(&mut self, correlation: u32) -> (&mut LedgerPage, usize, u64) {
        let (number, within) = (correlation >> 16, correlation as usize % PAGE);
        let slot = self.slot(number);
        #[expect(clippy::indexing_slicing, reason = "the slot was just made or found")]
        let page = &mut self.pages[slot];
        (page, within / 64, 1 << (within % 64))
    }

    #[inline]
    fn slot(&mut self, number: u32) -> usize {
        let slot = number as usize % PAGES;
        match self.pages.get(slot) {
            Some(page) if page.number == number => slot,
            _ => self.make(number, slot),
        }
    }

    #[cold]
    fn make(&mut self, number: u32, slot: usize) -> usize {
        while self.pages.len() <= slot {
            let made = self.pages.len();
            self.pages.push(LedgerPage::new(u32::try_from(made).unwrap_or(0)));
        }
        if let Some(page) = self.pages.get_mut(slot).filter(|page| page.number != number) {
            *page = LedgerPage::new(number);
        }
        slot
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn launch_and_its_record_arrive_in_either_order() {
        let mut ledger = Ledger::new();
        for id in [1, 63, 64, 70_000, u32::MAX] {
            ledger.launched(id, 10);
        }
        assert_eq!(ledger.owed(), 5);
        ledger.worked(2);
        ledger.launched(2, 10);
        assert_eq!(ledger.owed(), 5);
        for id in [1, 63, 64, 70_000, u32::MAX] {
            ledger.worked(id);
        }
        assert_eq!(ledger.owed(), 0);
    }

    #[test]
    fn launches_after_the_end_are_ignored() {
        let mut ledger = Ledger::new();
        ledger.launched(1, 10);
        ledger.call(10);
        ledger.close(100);
        assert!(!ledger.is_past(100));
        ledger.launched(2, 101);
        ledger.call(101);
        assert!(ledger.is_past(100));
        assert_eq!(ledger.owed(), 1);
    }

    #[test]
    fn captured_launches_are_not_owed() {
        let mut ledger = Ledger::new();
        ledger.capture(7, true);
        ledger.capture(7, true);
        assert!(!ledger.reaches_device(7) && ledger.reaches_device(8));
        ledger.capture(7, false);
        assert!(ledger.reaches_device(7));
    }

    #[test]
    fn memory_is_bounded_for_any_ids() {
        let mut ledger = Ledger::new();
        for id in (0..1000u32).map(|id| id.wrapping_mul(0x0101_0101)) {
            ledger.launched(id, 0);
        }
        assert!(ledger.pages.len() <= PAGES);
    }
}

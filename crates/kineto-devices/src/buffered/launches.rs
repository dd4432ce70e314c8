//! Tracks launches whose device records have not arrived.

/// Correlation ids in a page.
const PAGE: usize = 1 << 16;
/// Pages that are kept: older launches are no longer waited for.
const PAGES: usize = 32;

/// Tracks for each correlation id whether something was launched with it, and whether its device record arrived.
///
/// Two bits for each id, in pages, since ids are consecutive.
#[derive(Debug, Default)]
pub(crate) struct UnfinishedLaunches {
    pages: Vec<LaunchPage>,
    /// Threads that capture work into a graph instead of running it.
    capturing: Vec<u32>,
    /// The call that ended a capture last.
    last_end: u32,
    /// Launches from then on are ignored.
    ignore_after: u64,
    /// The latest start of a call.
    latest_call: u64,
    /// The newest id of a launch.
    newest: u32,
    /// Whether records are known to be missing, so that launches cannot be waited for.
    is_missing_records: bool,
}

#[derive(Debug)]
struct LaunchPage {
    /// `None` before its first use.
    number: Option<u32>,
    launched: Box<[u64; PAGE / 64]>,
    has_record: Box<[u64; PAGE / 64]>,
}

/// Returns how far `to` is behind `from`. Ids wrap around.
fn signed_distance(from: u32, to: u32) -> i32 {
    to.wrapping_sub(from).cast_signed()
}

impl LaunchPage {
    fn new(number: Option<u32>) -> LaunchPage {
        LaunchPage { number, launched: Box::new([0; PAGE / 64]), has_record: Box::new([0; PAGE / 64]) }
    }
}

impl UnfinishedLaunches {
    pub(crate) fn new() -> UnfinishedLaunches {
        UnfinishedLaunches { ignore_after: u64::MAX, ..UnfinishedLaunches::default() }
    }

    /// Notes a call that began at that time.
    #[inline]
    pub(crate) fn note_call(&mut self, start: u64) {
        self.latest_call = self.latest_call.max(start);
    }

    /// Ignores launches after that time, on the clock of the records.
    pub(crate) fn ignore_launches_after(&mut self, end: u64) {
        self.ignore_after = end;
    }

    /// Returns whether a call was recorded that began after that time.
    pub(crate) fn is_past(&self, at: u64) -> bool {
        self.latest_call > at
    }

    /// Notes that a thread begins to capture a graph.
    pub(crate) fn begin_capture(&mut self, thread: u32) {
        if !self.capturing.contains(&thread) {
            self.capturing.push(thread);
        }
    }

    /// Notes a call that ends a capture: that of its thread, even if it fails, or else, if it `ends` one, the oldest of another
    /// thread.
    pub(crate) fn end_capture(&mut self, correlation: u32, thread: u32, ends: bool) {
        // The driver's call in one of the runtime has the same id.
        let is_first = std::mem::replace(&mut self.last_end, correlation) != correlation;
        let of_another = (is_first && ends && !self.capturing.is_empty()).then_some(0);
        let own = self.capturing.iter().position(|capturing| *capturing == thread);
        if let Some(place) = own.or(of_another) {
            self.capturing.remove(place);
        }
    }

    /// Returns whether launches are known to run on a device. A capture takes those of any thread on its streams, as in a
    /// backward pass, and records of calls name no stream.
    #[inline]
    pub(crate) fn can_reach_device(&self) -> bool {
        self.capturing.is_empty()
    }

    /// Notes a launch with that id.
    #[inline]
    pub(crate) fn note_launch(&mut self, correlation: u32, start: u64) {
        if start <= self.ignore_after
            && let Some((page, word, bit)) = self.locate_bit(correlation)
            && let Some(word) = page.launched.get_mut(word)
        {
            *word |= bit;
            if signed_distance(self.newest, correlation) > 0 {
                self.newest = correlation;
            }
        }
    }

    /// Notes a device record with that id.
    #[inline]
    pub(crate) fn note_device_record(&mut self, correlation: u32) {
        if let Some((page, word, bit)) = self.locate_bit(correlation)
            && let Some(word) = page.has_record.get_mut(word)
        {
            *word |= bit;
        }
    }

    /// Notes that this number of records is missing: from now on no launch is waited for.
    pub(crate) fn note_missing(&mut self, records: u64) {
        if records > 0 {
            self.is_missing_records = true;
            // Their ends may be among them.
            self.capturing.clear();
        }
    }

    /// Stops waiting for all launches so far, whose records may never arrive, and forgets captures, whose ends may not either.
    pub(crate) fn clear(&mut self) {
        self.capturing.clear();
        for page in &mut self.pages {
            page.launched.fill(0);
        }
    }

    /// Returns how many launches still lack their device record; 0 if records are known to be missing.
    pub(crate) fn unfinished_count(&self) -> u64 {
        self.unfinished_until(self.newest)
    }

    /// Returns the newest id of a launch.
    pub(crate) fn newest(&self) -> u32 {
        self.newest
    }

    /// Returns how many launches up to that id still lack their device record; 0 if records are known to be missing.
    pub(crate) fn unfinished_until(&self, last: u32) -> u64 {
        if self.is_missing_records {
            return 0;
        }
        let unfinished = |page: &LaunchPage| {
            let words = page.launched.iter().zip(page.has_record.iter()).zip(0..);
            let count = |((launched, worked), word): ((&u64, &u64), u32)| {
                let wanted = match signed_distance(page.number.unwrap_or_default() << 16 | word << 6, last) {
                    ..0 => 0,
                    distance @ 0..63 => (2 << distance) - 1,
                    _ => u64::MAX,
                };
                u64::from((launched & !worked & wanted).count_ones())
            };
            words.map(count).sum::<u64>()
        };
        self.pages.iter().map(unfinished).sum()
    }

    /// Returns the place of an id; `None` if its page was replaced by a newer one.
    #[inline]
    fn locate_bit(&mut self, correlation: u32) -> Option<(&mut LaunchPage, usize, u64)> {
        let (number, within) = (correlation >> 16, correlation as usize % PAGE);
        let slot = number as usize % PAGES;
        if self.pages.get(slot).is_none_or(|page| page.number != Some(number)) {
            self.make_page(number, slot);
        }
        let page = self.pages.get_mut(slot).filter(|page| page.number == Some(number))?;
        Some((page, within / 64, 1 << (within % 64)))
    }

    #[cold]
    fn make_page(&mut self, number: u32, slot: usize) {
        while self.pages.len() <= slot {
            self.pages.push(LaunchPage::new(None));
        }
        // Late work has an old id. Ids wrap around.
        let is_newer = |known: u32| number.wrapping_sub(known) & 0xFFFF < 0x8000;
        if let Some(page) = self.pages.get_mut(slot).filter(|page| page.number.is_none_or(is_newer)) {
            *page = LaunchPage::new(Some(number));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn launch_and_its_record_arrive_in_either_order() {
        let mut launches = UnfinishedLaunches::new();
        for id in [1, 63, 64, 70_000, u32::MAX] {
            launches.note_launch(id, 10);
        }
        assert_eq!(launches.unfinished_count(), 5);
        let until = [u32::MAX, 0, 1, 63, 64, 69_999, 70_000, 80_000].map(|last| launches.unfinished_until(last));
        assert_eq!(until, [1, 1, 2, 3, 4, 4, 5, 5], "the first wrapped around later");
        launches.note_device_record(2);
        launches.note_launch(2, 10);
        assert_eq!(launches.unfinished_count(), 5);
        for id in [1, 63, 64, 70_000, u32::MAX] {
            launches.note_device_record(id);
        }
        assert_eq!(launches.unfinished_count(), 0);
    }

    #[test]
    fn launches_after_the_end_are_ignored() {
        let mut launches = UnfinishedLaunches::new();
        launches.note_launch(1, 10);
        launches.note_call(10);
        launches.ignore_launches_after(100);
        assert!(!launches.is_past(100));
        launches.note_launch(2, 101);
        launches.note_call(101);
        assert!(launches.is_past(100));
        assert_eq!(launches.unfinished_count(), 1);
    }

    #[test]
    fn late_record_of_an_old_launch_removes_no_newer_one() {
        let mut launches = UnfinishedLaunches::new();
        let span = 32 << 16;
        for newest in [span + 7, 7] {
            launches.note_launch(newest, 10);
            launches.note_device_record(newest.wrapping_sub(span));
            assert_eq!(launches.unfinished_count(), 1, "{newest}");
            launches.note_device_record(newest);
            assert_eq!(launches.unfinished_count(), 0, "{newest}");
            launches = UnfinishedLaunches::new();
        }
        launches.note_launch(7, 10);
        launches.note_launch(7 + span, 10);
        assert_eq!(launches.unfinished_count(), 1, "a newer page replaces an older one");
    }

    #[test]
    fn launches_of_any_thread_may_be_captured() {
        let mut launches = UnfinishedLaunches::new();
        launches.begin_capture(7);
        launches.begin_capture(7);
        assert!(!launches.can_reach_device());
        launches.end_capture(1, 8, false);
        assert!(!launches.can_reach_device(), "the call of another thread failed");
        launches.end_capture(2, 7, false);
        assert!(launches.can_reach_device(), "a capture that was invalidated ends as well");
        launches.begin_capture(7);
        launches.end_capture(3, 8, true);
        assert!(launches.can_reach_device(), "another thread may end it");
        launches.begin_capture(7);
        launches.end_capture(3, 8, true);
        assert!(!launches.can_reach_device(), "the call around it");
        launches.clear();
        assert!(launches.can_reach_device(), "its end may lie in a pause");
        launches.begin_capture(7);
        launches.note_missing(1);
        assert!(launches.can_reach_device(), "its end may be missing");
    }

    #[test]
    fn cleared_and_missing_launches_are_not_waited_for() {
        let mut launches = UnfinishedLaunches::new();
        launches.note_launch(1, 10);
        launches.clear();
        launches.note_device_record(1);
        launches.note_launch(2, 10);
        launches.note_missing(0);
        assert_eq!(launches.unfinished_count(), 1);
        launches.note_missing(1);
        assert_eq!(launches.unfinished_count(), 0);
    }

    #[test]
    fn memory_is_bounded_for_any_ids() {
        let mut launches = UnfinishedLaunches::new();
        for id in (0..1000u32).map(|id| id.wrapping_mul(0x0101_0101)) {
            launches.note_launch(id, 0);
        }
        assert!(launches.pages.len() <= PAGES);
    }
}

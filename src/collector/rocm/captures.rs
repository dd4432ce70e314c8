//! What goes into graphs instead of onto devices: that does not run now, so nobody waits for it.

/// The captures that are under way. One takes what its thread launches on any stream, since other streams join it, and
/// what any thread launches on its stream, as a backward pass does.
#[derive(Debug, Default)]
pub(super) struct Captures(Vec<(i64, Option<u64>)>);

/// So many are told apart; more can only be ones of which no end is told.
const MOST: usize = 4096;

impl Captures {
    /// A capture of a stream begins, or ends, by a call of that thread.
    pub(super) fn change(&mut self, begins: bool, thread: i64, stream: Option<u64>) {
        self.0.retain(|capture| !is_of(*capture, thread, stream));
        if begins && self.0.len() < MOST {
            self.0.push((thread, stream));
        }
    }

    /// Whether what that thread launches on that stream goes into a graph.
    pub(super) fn take(&self, thread: i64, stream: Option<u64>) -> bool {
        self.0.iter().any(|capture| is_of(*capture, thread, stream))
    }
}

fn is_of((by, of): (i64, Option<u64>), thread: i64, stream: Option<u64>) -> bool {
    by == thread || of.is_some() && of == stream
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_capture_has_its_thread_and_its_stream() {
        let mut captures = Captures::default();
        captures.change(true, 1, Some(0xA0));
        let takes = |captures: &Captures| [(1, Some(7)), (1, None), (2, Some(0xA0))].map(|(t, s)| captures.take(t, s));
        assert_eq!(takes(&captures), [true; 3]);
        assert!(!captures.take(2, Some(7)) && !captures.take(2, None));
        captures.change(false, 2, Some(0xA0));
        assert_eq!(takes(&captures), [false; 3], "another thread may end it");
    }

    #[test]
    fn memory_is_bounded() {
        let mut captures = Captures::default();
        (0..2 * MOST as i64).for_each(|thread| captures.change(true, thread, None));
        assert_eq!(captures.0.len(), MOST);
    }
}

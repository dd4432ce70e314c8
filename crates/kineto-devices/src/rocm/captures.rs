//! Tracks stream captures: work captured into a graph does not run, so it is not waited for.

/// The captures in progress. A capture takes the launches of its thread on any stream, since other streams join it.
/// It also takes launches of any thread on its stream, as in a backward pass.
#[derive(Debug, Default)]
pub(super) struct Captures(Vec<(i64, Option<u64>)>);

/// The most captures that are tracked; more can only be captures whose end was not reported.
const MOST: usize = 4096;

impl Captures {
    /// Begins or ends the capture of a stream, by a call of that thread.
    pub(super) fn note_capture(&mut self, begins: bool, thread: i64, stream: Option<u64>) {
        self.0.retain(|capture| !is_of(*capture, thread, stream));
        if begins && self.0.len() < MOST {
            self.0.push((thread, stream));
        }
    }

    /// Returns whether launches of that thread on that stream go into a graph.
    pub(super) fn is_capturing(&self, thread: i64, stream: Option<u64>) -> bool {
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
    fn capture_takes_its_thread_and_its_stream() {
        let mut captures = Captures::default();
        captures.note_capture(true, 1, Some(0xA0));
        let takes =
            |captures: &Captures| [(1, Some(7)), (1, None), (2, Some(0xA0))].map(|(t, s)| captures.is_capturing(t, s));
        assert_eq!(takes(&captures), [true; 3]);
        assert!(!captures.is_capturing(2, Some(7)) && !captures.is_capturing(2, None));
        captures.note_capture(false, 2, Some(0xA0));
        assert_eq!(takes(&captures), [false; 3], "another thread may end it");
    }

    #[test]
    fn memory_is_bounded() {
        let mut captures = Captures::default();
        (0..2 * MOST as i64).for_each(|thread| captures.note_capture(true, thread, None));
        assert_eq!(captures.0.len(), MOST);
    }
}

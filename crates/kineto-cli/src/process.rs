//! Whether a process still runs, as `/proc` shows it.

use std::fs;
use std::path::Path;

/// Returns whether a process has ended: there is no such process, or its parent has not waited for it yet.
pub(crate) fn has_ended(pid: u32) -> bool {
    !Path::new(&format!("/proc/{pid}")).exists() || is_zombie(pid)
}

/// Returns whether a process has ended, but has a number until its parent waits for it.
///
/// The first thread of a process may end before the others, which then still run.
pub(crate) fn is_zombie(pid: u32) -> bool {
    let threads = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let mut states = threads.filter_map(|thread| thread_state(&fs::read_to_string(thread.path().join("stat")).ok()?));
    let Some(first) = states.next() else { return false };
    let has_thread_ended = |state: char| matches!(state, 'Z' | 'X' | 'x');
    has_thread_ended(first) && states.all(has_thread_ended)
}

/// Returns the state in a file `stat`. The name before it may contain any character, also parentheses.
fn thread_state(stat: &str) -> Option<char> {
    stat.rsplit_once(')')?.1.trim_start().chars().next()
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;
    use std::process::{Command, Stdio};

    #[test]
    fn state_follows_the_last_parenthesis() {
        assert_eq!(thread_state("7 (a) R (b) Z 1 7 7 0"), Some('Z'));
        assert_eq!((thread_state("7 (a) S 1"), thread_state("7"), thread_state("")), (Some('S'), None, None));
    }

    #[test]
    fn process_without_waiting_parent_has_ended() {
        let mut child = Command::new("cat").stdin(Stdio::piped()).spawn().unwrap();
        assert!(!has_ended(child.id()) && !has_ended(std::process::id()));
        drop(child.stdin.take());
        while !has_ended(child.id()) {
            std::thread::yield_now();
        }
        assert!(is_zombie(child.id()) && Path::new(&format!("/proc/{}", child.id())).exists());
        child.wait().unwrap();
        assert!(has_ended(child.id()) && !is_zombie(child.id()));
    }
}

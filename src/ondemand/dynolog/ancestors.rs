//! The process ids under which this process may be requested: its own and those of its ancestors.

use std::fs;

/// The maximum number of ids sent to the daemon.
const MOST: usize = 11;

/// Returns this process and its ancestors except process 1, as libkineto does.
pub(super) fn process_and_ancestors() -> Vec<i32> {
    collect_ancestors(std::process::id().cast_signed(), |pid| {
        parse_parent_pid(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
    })
}

fn collect_ancestors(own: i32, parent: impl Fn(i32) -> Option<i32>) -> Vec<i32> {
    let mut pids = vec![own];
    let mut next = parent(own);
    while let Some(pid) = next.filter(|pid| *pid > 1 && pids.len() < MOST && !pids.contains(pid)) {
        pids.push(pid);
        next = parent(pid);
    }
    pids
}

/// Returns the parent in a line of `/proc/<pid>/stat`: the second word after the command's name, which may contain anything.
fn parse_parent_pid(stat: &str) -> Option<i32> {
    let (_, rest) = stat.rsplit_once(')')?;
    rest.split_ascii_whitespace().nth(1)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parent_is_found_after_any_command_name() {
        assert_eq!(parse_parent_pid("29159 (cat) S 29156 29159 1"), Some(29156));
        assert_eq!(parse_parent_pid("7 (a) b) (c) R 5 7"), Some(5));
        assert_eq!(parse_parent_pid("7 (a R 5"), None);
        assert_eq!(parse_parent_pid(""), None);
    }

    #[test]
    fn ancestors_exclude_process_1_and_are_limited() {
        assert_eq!(collect_ancestors(9, |pid| Some(pid / 3)), [9, 3]);
        assert_eq!(collect_ancestors(1, |_| Some(0)), [1]);
        assert_eq!(collect_ancestors(100, |pid| Some(pid - 1)).len(), MOST);
        assert_eq!(collect_ancestors(5, |_| Some(5)), [5]);
        assert_eq!(collect_ancestors(5, |_| None), [5]);
    }

    #[test]
    #[cfg(not(miri))]
    fn this_process_has_a_parent() {
        let pids = process_and_ancestors();
        assert_eq!(pids[0].cast_unsigned(), std::process::id());
        assert!(
            std::os::unix::process::parent_id() == 1 || pids[1].cast_unsigned() == std::os::unix::process::parent_id()
        );
    }
}

//! Room for lists, which there may be none of.

/// Returns an empty list with room for `count` items; `None` if there is no room for them. For lists that may be long: without
/// address space, the usual ones end the process.
pub fn list<T>(count: usize) -> Option<Vec<T>> {
    let mut list = Vec::new();
    list.try_reserve_exact(count).ok()?;
    Some(list)
}

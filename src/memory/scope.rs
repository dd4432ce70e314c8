//! Categories for the calling thread's allocations.

use super::Category;
use std::cell::Cell;
use std::marker::PhantomData;

thread_local! {
    static CURRENT: Cell<Category> = const { Cell::new(Category::Unknown) };
}

/// Sets the category of the thread's allocations until the guard is dropped; scopes nest.
pub fn scope(category: Category) -> Scope {
    Scope { before: CURRENT.with(|current| current.replace(category)), not_send: PhantomData }
}

/// Returns the category of the thread's innermost scope.
#[inline]
pub(super) fn current_category() -> Category {
    CURRENT.with(Cell::get)
}

/// The guard of a [`scope`]; dropping it restores the previous category.
#[derive(Debug)]
#[must_use = "the category holds until the guard is dropped"]
pub struct Scope {
    before: Category,
    not_send: PhantomData<*const ()>,
}

impl Drop for Scope {
    fn drop(&mut self) {
        CURRENT.with(|current| current.set(self.before));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scopes_nest_and_are_the_threads_own() {
        let _outer = scope(Category::Parameter);
        {
            let _inner = scope(Category::Gradient);
            assert_eq!(current_category(), Category::Gradient);
            let there = std::thread::scope(|scope| scope.spawn(current_category).join().unwrap());
            assert_eq!(there, Category::Unknown);
        }
        assert_eq!(current_category(), Category::Parameter);
    }
}

//! Device memory, which is host memory at host addresses.

use std::collections::BTreeMap;

/// The alignment of all allocations.
const ALIGNMENT: usize = 256;

/// Allocated memory.
#[derive(Debug)]
pub struct Allocation<L> {
    pub bytes: usize,
    /// The location: a device, or a kind of memory.
    pub location: L,
}

/// The allocations of a program, by first address.
#[derive(Debug)]
pub struct Allocations<L>(BTreeMap<u64, Allocation<L>>);

impl<L> Default for Allocations<L> {
    fn default() -> Self {
        Allocations(BTreeMap::new())
    }
}

impl<L: Copy> Allocations<L> {
    /// Allocates memory and returns its address, or none if the host has no memory.
    pub fn allocate(&mut self, bytes: usize, location: L) -> Option<u64> {
        let mut address = std::ptr::null_mut();
        // SAFETY: the place is ours, the alignment is a power of two and a multiple of a pointer's size.
        if unsafe { libc::posix_memalign(&raw mut address, ALIGNMENT, bytes) } != 0 {
            return None;
        }
        self.0.insert(address as u64, Allocation { bytes, location });
        Some(address as u64)
    }

    /// Frees the allocation that begins at an address. Returns false if none does.
    pub fn free(&mut self, address: u64) -> bool {
        let is_ours = self.0.remove(&address).is_some();
        if is_ours {
            // SAFETY: the address was allocated here, and has just been given up.
            unsafe { libc::free(address as *mut libc::c_void) };
        }
        is_ours
    }

    /// Returns the allocation that begins at an address.
    pub fn starting_at(&self, address: u64) -> Option<&Allocation<L>> {
        self.0.get(&address)
    }

    /// Returns the allocation that contains an address, after its first address.
    fn containing(&self, address: u64) -> Option<(u64, &Allocation<L>)> {
        let (first, allocation) = self.0.range(..=address).next_back()?;
        (address < first + allocation.bytes as u64).then_some((*first, allocation))
    }

    /// Returns where an address is, or none for memory that was not allocated here.
    pub fn location(&self, address: u64) -> Option<L> {
        self.containing(address).map(|(_, allocation)| allocation.location)
    }

    /// Returns the bytes of the allocations whose location `is_counted` accepts.
    pub fn used_bytes(&self, is_counted: impl Fn(L) -> bool) -> u64 {
        let counted = self.0.values().filter(|allocation| is_counted(allocation.location));
        counted.map(|allocation| allocation.bytes as u64).sum()
    }

    /// Returns whether a range that begins in an allocation ends in it.
    fn is_inside(&self, address: u64, bytes: usize) -> bool {
        let fits = |(first, its): (u64, &Allocation<L>)| address - first + bytes as u64 <= its.bytes as u64;
        address != 0 && self.containing(address).is_none_or(fits)
    }
}

/// The bytes that a piece of work moves.
#[derive(Clone, Debug)]
pub enum Movement {
    Copy {
        target: u64,
        source: u64,
        bytes: usize,
    },
    /// Writes the lowest `width` bytes of `value`, `count` times.
    Fill {
        target: u64,
        value: u32,
        width: usize,
        count: usize,
    },
}

impl Movement {
    /// Moves the bytes. Returns false, with nothing moved, if they would leave an allocation.
    #[must_use]
    pub fn perform<L: Copy>(&self, allocations: &Allocations<L>) -> bool {
        match *self {
            Movement::Copy { target, source, bytes } => {
                if !allocations.is_inside(target, bytes) || !allocations.is_inside(source, bytes) {
                    return false;
                }
                // SAFETY: both ranges are inside our allocations, or the caller promises them.
                unsafe { std::ptr::copy(source as *const u8, target as *mut u8, bytes) };
            }
            Movement::Fill { target, value, width, count } => {
                if !allocations.is_inside(target, width * count) {
                    return false;
                }
                let pattern = value.to_le_bytes();
                for index in 0..count * width {
                    // SAFETY: the range is inside one of our allocations, or the caller promises it.
                    unsafe { (target as *mut u8).add(index).write(pattern[index % width]) };
                }
            }
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn movements_stay_inside_allocations() {
        let mut memory = Allocations::default();
        let (one, other) = (memory.allocate(8, 'a').unwrap(), memory.allocate(8, 'b').unwrap());
        assert!(Movement::Fill { target: one, value: 0x0201, width: 2, count: 4 }.perform(&memory));
        assert!(Movement::Copy { target: other + 4, source: one, bytes: 4 }.perform(&memory));
        assert!(!Movement::Copy { target: other + 5, source: one, bytes: 4 }.perform(&memory));
        assert!(!Movement::Fill { target: one, value: 0, width: 1, count: 9 }.perform(&memory));
        // SAFETY: the allocation has four bytes there.
        assert_eq!(unsafe { ((other + 4) as *const [u8; 4]).read() }, [1, 2, 1, 2]);
        assert_eq!((memory.location(one + 7), memory.location(0)), (Some('a'), None));
        assert_eq!(memory.used_bytes(|location| location == 'b'), 8);
        assert!(memory.free(one) && !memory.free(one) && memory.free(other));
    }
}

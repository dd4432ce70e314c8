//! Ids of slices and spans as text: each lies near others, so most of its digits have been there before.

use crate::write::json::{Piece, Room};

/// The digits of ids of one kind that were printed lately, all but their last two.
#[derive(Debug, Default)]
pub(super) struct Ids([Hundred; PLACES]);

/// Enough for ids of different age to be mostly out of each other's way.
const PLACES: usize = 4;

/// A hundred ids in a row.
#[derive(Debug)]
struct Hundred {
    first: u64,
    /// The digits that they share, and anything behind.
    text: [u8; DIGITS],
    length: usize,
}

/// More than ids have that are not printed as strings.
const DIGITS: usize = 24;

impl Ids {
    /// Writes `id`, as [`Piece::wide`] does.
    #[inline(always)]
    #[expect(clippy::indexing_slicing, reason = "the mask keeps the index inside")]
    pub(super) fn write(&mut self, piece: &mut Piece<'_>, id: u64) {
        const { assert!(PLACES.is_power_of_two()) };
        let hundred = &mut self.0[(id >> 7) as usize & (PLACES - 1)];
        if id.wrapping_sub(hundred.first) >= 100 {
            match Hundred::of(id) {
                Some(other) => *hundred = other,
                None => return piece.wide(id),
            }
        }
        piece.block(&hundred.text, hundred.length);
        piece.two_digits(id - hundred.first);
    }
}

impl Hundred {
    #[cold]
    fn of(id: u64) -> Option<Hundred> {
        if !(100..=i64::MAX.unsigned_abs()).contains(&id) {
            return None;
        }
        let mut room: Room = [0; size_of::<Room>()];
        let mut piece = Piece::new(&mut room);
        piece.uint(id / 100);
        let length = piece.length();
        let text = room.first_chunk().copied().unwrap_or_default();
        Some(Hundred { first: id - id % 100, text, length })
    }
}

impl Default for Hundred {
    /// One hundred to 199.
    fn default() -> Hundred {
        let mut text = [0; DIGITS];
        text[0] = b'1';
        Hundred { first: 100, text, length: 1 }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::write::buffer::Buffer;

    fn printed(ids: &[u64], write: impl Fn(&mut Ids, &mut Piece<'_>, u64)) -> String {
        let (mut buffer, mut last) = (Buffer::new(Vec::new()), Ids::default());
        for id in ids {
            buffer.piece(|piece| write(&mut last, piece, *id));
            buffer.raw(b" ");
        }
        String::from_utf8(buffer.finish().unwrap()).unwrap()
    }

    proptest! {
        #[test]
        fn ids_are_printed_as_numbers_whatever_came_before(
            start in any::<u64>(), shift in 0..64, steps in prop::collection::vec(-300..300_i64, 0..100)
        ) {
            let walk = |at: &mut u64, step: &i64| { *at = at.wrapping_add_signed(*step); Some(*at) };
            let ids: Vec<u64> = steps.iter().scan(start >> shift, walk).chain([0, 99, 100, 199, 200]).collect();
            prop_assert_eq!(printed(&ids, Ids::write), printed(&ids, |_, piece, id| piece.wide(id)));
        }
    }
}

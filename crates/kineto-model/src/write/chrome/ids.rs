//! A cache of the leading digits of ids, since nearby ids share them.

use crate::write::json::{Piece, PieceBuffer};

/// Recently printed ids of one kind, without their last two digits.
#[derive(Debug, Default)]
pub(super) struct IdCache([IdRange; PLACES]);

/// Enough entries to keep old and new ids apart.
const PLACES: usize = 4;

/// A range of a hundred consecutive ids.
#[derive(Debug)]
struct IdRange {
    first: u64,
    /// Their common digits; the rest is undefined.
    text: [u8; DIGITS],
    length: usize,
}

/// More digits than any id that is not printed as a string.
const DIGITS: usize = 24;

impl IdCache {
    /// Writes `id` as [`Piece::put_wide_uint`] does.
    #[inline(always)]
    #[expect(clippy::indexing_slicing, reason = "the mask keeps the index inside")]
    pub(super) fn put_id(&mut self, piece: &mut Piece<'_>, id: u64) {
        const { assert!(PLACES.is_power_of_two()) };
        let hundred = &mut self.0[(id >> 7) as usize & (PLACES - 1)];
        if id.wrapping_sub(hundred.first) >= 100 {
            match IdRange::from_id(id) {
                Some(other) => *hundred = other,
                None => return piece.put_wide_uint(id),
            }
        }
        piece.put_block(&hundred.text, hundred.length);
        piece.two_digits(id - hundred.first);
    }
}

impl IdRange {
    #[cold]
    fn from_id(id: u64) -> Option<IdRange> {
        if !(100..=i64::MAX.unsigned_abs()).contains(&id) {
            return None;
        }
        let mut room: PieceBuffer = [0; size_of::<PieceBuffer>()];
        let mut piece = Piece::new(&mut room);
        piece.put_uint(id / 100);
        let length = piece.length();
        let text = room.first_chunk().copied().unwrap_or_default();
        Some(IdRange { first: id - id % 100, text, length })
    }
}

impl Default for IdRange {
    /// The range from 100 to 199.
    fn default() -> IdRange {
        let mut text = [0; DIGITS];
        text[0] = b'1';
        IdRange { first: 100, text, length: 1 }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::write::buffer::Buffer;

    fn printed(ids: &[u64], write: impl Fn(&mut IdCache, &mut Piece<'_>, u64)) -> String {
        let mut bytes = Vec::new();
        let (mut buffer, mut last) = (Buffer::new(&mut bytes), IdCache::default());
        for id in ids {
            buffer.put_piece(|piece| write(&mut last, piece, *id));
            buffer.put_literal(b" ");
        }
        buffer.finish().unwrap();
        String::from_utf8(bytes).unwrap()
    }

    proptest! {
        #[test]
        fn cached_ids_print_like_plain_numbers(
            start in any::<u64>(), shift in 0..64, steps in prop::collection::vec(-300..300_i64, 0..100)
        ) {
            let walk = |at: &mut u64, step: &i64| { *at = at.wrapping_add_signed(*step); Some(*at) };
            let ids: Vec<u64> = steps.iter().scan(start >> shift, walk).chain([0, 99, 100, 199, 200]).collect();
            prop_assert_eq!(printed(&ids, IdCache::put_id), printed(&ids, |_, piece, id| piece.put_wide_uint(id)));
        }
    }
}

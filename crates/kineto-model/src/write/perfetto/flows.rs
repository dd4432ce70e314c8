//! Ids of arrows. Perfetto's flows have nothing but an id, so it contains the arrow's kind, number and end.

use crate::activity::{Flow, FlowKind};
use std::hash::{DefaultHasher, Hash, Hasher};

/// The kinds, by their code in an id.
const KINDS: [FlowKind; 3] = [FlowKind::ForwardBackward, FlowKind::AsyncCpuToGpu, FlowKind::FollowsFrom];
/// The code of an id that is a hash.
const HASHED: u64 = 3;
/// The widths of the parts below the code: the index of the arrow's end, the collector's index, and the arrow's number.
const END_BITS: u32 = 18;
const COLLECTOR_BITS: u32 = 4;
const NUMBER_BITS: u32 = 40;
/// In a recording, the numbers of each collector's arrows begin at a multiple of 2 to the power of this.
const COLLECTOR_SHIFT: u32 = 48;
const CODE_SHIFT: u32 = END_BITS + COLLECTOR_BITS + NUMBER_BITS;

/// Returns the id of the part of an arrow that leads to one of its ends.
///
/// `seed` differs between recordings, so that the arrows of joined files stay apart.
pub(super) fn flow_id(flow: Flow, end: u64, seed: u64) -> u64 {
    let code = (0..).zip(KINDS).find(|(_, kind)| *kind == flow.kind).map_or(HASHED, |(code, _)| code);
    let (collector, number) = (flow.id >> COLLECTOR_SHIFT, flow.id & ((1 << COLLECTOR_SHIFT) - 1));
    if number >> NUMBER_BITS == 0 && collector >> COLLECTOR_BITS == 0 && end >> END_BITS == 0 {
        let place = end << (COLLECTOR_BITS + NUMBER_BITS) | collector << NUMBER_BITS | number;
        return (code << CODE_SHIFT | place) ^ seed;
    }
    let mut hasher = DefaultHasher::new();
    (seed, code, flow.id, end).hash(&mut hasher);
    (HASHED << CODE_SHIFT | hasher.finish()) ^ seed
}

/// Returns the kind and number of an arrow by the id of a part of it; `None` for a number that was too large.
pub fn decode_flow_id(id: u64, seed: u64) -> Option<(FlowKind, u64)> {
    let packed = id ^ seed;
    let kind = KINDS.get(usize::try_from(packed >> CODE_SHIFT).ok()?)?;
    let collector = packed >> NUMBER_BITS & ((1 << COLLECTOR_BITS) - 1);
    Some((*kind, collector << COLLECTOR_SHIFT | packed & ((1 << NUMBER_BITS) - 1)))
}

/// Returns the kind of an arrow by its name in Kineto's JSON.
pub fn flow_kind_of_name(name: &str) -> Option<FlowKind> {
    KINDS.into_iter().find(|kind| kind.as_str() == name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::activity::FlowEnd;

    #[test]
    fn ids_tell_kind_and_number_unless_they_are_too_large() {
        for seed in [0, 7, u64::MAX, 0x0123_4567_89ab_cdef] {
            for kind in KINDS {
                let flow = |id| Flow { kind, id, end: FlowEnd::Start };
                for (id, end) in [(0, 0), (9, 3), ((1 << 40) - 1, (1 << 18) - 1), (15 << 48 | 7, 1)] {
                    assert_eq!(decode_flow_id(flow_id(flow(id), end, seed), seed), Some((kind, id)));
                }
                for (id, end) in [(1 << 40, 0), (16 << 48, 0), (9, 1 << 18), (u64::MAX, u64::MAX)] {
                    assert_eq!(decode_flow_id(flow_id(flow(id), end, seed), seed), None);
                    assert_ne!(flow_id(flow(id), end, seed), flow_id(flow(id), end ^ 1, seed));
                }
            }
        }
    }
}

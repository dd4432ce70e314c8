//! Finds ranges that do not nest with the slices of their thread: a range may begin in one slice and end in another.

use crate::link::{Call, RecordHandle, Spans};
use crate::time::Timestamp;
use kineto_base::fallible::List;
use kineto_base::sorting::sort_in_place_by;

/// Returns the ranges that overlap slices of their thread without nesting, in order. An overlap within the error of the
/// clocks is ignored.
pub(super) fn crossing_ranges(ranges: &[Call], spans: &impl Spans, slack_ns: u64) -> List<RecordHandle> {
    let mut questions = List::with_capacity(2 * ranges.len());
    for range in ranges {
        let (start, end) = (range.start.as_nanos(), range.end.as_nanos());
        let middle = start.midpoint(end);
        for at in [start.saturating_add(slack_ns).min(middle), end.saturating_sub(slack_ns).max(middle)] {
            questions.push((range.thread, Timestamp::from_nanos(at), range.at));
        }
    }
    sort_in_place_by(&mut questions, Ord::cmp);
    let asked: List<_> = questions.iter().map(|(thread, at, _)| (*thread, *at)).collect();
    let answers = questions.iter().zip(spans.innermost_slices(&asked));
    let mut answers: List<_> = answers.map(|((.., range), slice)| (*range, slice)).collect();
    sort_in_place_by(&mut answers, Ord::cmp);
    // Two slices for each range: the one that it begins in, and the one that it ends in.
    let crosses = |two: &[(RecordHandle, u64)]| match two {
        [(range, one), (_, other)] if one != other => Some(*range),
        _ => None,
    };
    answers.chunks(2).filter_map(crosses).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Slice 1 from 100 to 200, and slice 2 in it from 120 to 150.
    struct Two;

    impl Spans for Two {
        fn span_of(&self, slice: u64) -> Option<u64> {
            Some(slice)
        }
        fn parent_of(&self, _: u64) -> u64 {
            0
        }
        fn annotation_of(&self, _: u64) -> u64 {
            0
        }
        fn innermost_slices(&self, questions: &[(u32, Timestamp)]) -> List<u64> {
            assert!(questions.is_sorted());
            let slice = |at| if (120..150).contains(&at) { 2 } else { u64::from((100..200).contains(&at)) };
            questions.iter().map(|(_, at)| slice(at.as_nanos())).collect()
        }
    }

    fn crossing_of(times: &[(u64, u64)]) -> Vec<u32> {
        let range = |(at, (start, end)): (u32, &(u64, u64))| {
            let [start, end] = [*start, *end].map(Timestamp::from_nanos);
            Call { at: RecordHandle(at), correlation: 0, thread: 0, start, end, external: 0, launches: false }
        };
        let ranges: Vec<_> = (0..).zip(times).map(range).collect();
        crossing_ranges(&ranges, &Two, 3).iter().map(|range| range.0).collect()
    }

    #[test]
    fn ranges_nest_or_cross() {
        assert_eq!(crossing_of(&[(10, 300), (100, 200), (110, 160), (121, 149), (205, 206)]), [0; 0]);
        assert_eq!(crossing_of(&[(10, 110), (130, 160), (300, 400), (110, 130), (190, 250)]), [0, 1, 3, 4]);
    }

    #[test]
    fn clock_error_is_not_a_crossing() {
        assert_eq!(crossing_of(&[(98, 199), (119, 152), (149, 151), (151, 202)]), [0; 0]);
        assert_eq!(crossing_of(&[(96, 199), (119, 154)]), [0, 1]);
    }
}

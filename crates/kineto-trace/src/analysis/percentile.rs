//! Percentiles by nearest rank, the same in summaries, reports and checks.

/// Returns a percentile of sorted values, by nearest rank; 0 for an empty list. `permille` is 500 for the median.
pub(super) fn percentile(sorted: &[u64], permille: usize) -> u64 {
    let rank = (sorted.len() * permille).div_ceil(1000).saturating_sub(1);
    sorted.get(rank).copied().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::percentile;

    #[test]
    fn percentile_is_a_value_of_the_list() {
        assert_eq!([0, 1, 500, 501, 1000].map(|permille| percentile(&[1, 9], permille)), [1, 1, 1, 9, 9]);
        assert_eq!((percentile(&[1, 5, 9], 500), percentile(&[], 500)), (5, 0));
    }
}

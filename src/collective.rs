//! Collective operations as spans, with the arguments of torch's profiler.

use crate::callsite::COMMS_TARGET;
use crate::distributed::ProcessGroup;
use std::fmt::{self, Display, Write as _};
use tracing::Span;

/// A collective operation, such as an all-reduce; torch's `record_param_comms`.
///
/// [`span`](Collective::span) returns a span to be entered around the launch. Its arguments are torch's, and kernels launched
/// inside get them too; HTA and the Distributed view of TensorBoard read them. Its group is added to the header's
/// `distributedInfo`. `Comms Id` is the same number in the traces of all ranks, so the operation can be found in all of them.
/// (It is not torch's number, which differs between builds.)
///
/// ```
/// use tracing_kineto::{Collective, ProcessGroup};
///
/// let world = ProcessGroup::new("0", [0, 1, 2, 3]).with_description("default_pg").with_backend("cuda:nccl");
/// for seq in 0..3 {
///     let all_reduce = Collective::new("allreduce", &world, 1).with_elements("Float", 4096, 4096).with_seq(seq);
///     all_reduce.span().in_scope(|| { /* ncclAllReduce(...) */ });
/// }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Collective<'c> {
    /// The operation, by torch's name: "allreduce", "all_gather", "send".
    pub name: &'c str,
    /// The processes that take part.
    pub group: &'c ProcessGroup,
    /// This process's rank in the group, from 0.
    pub rank: u32,
    /// The type of the elements, by torch's name: "Float", "BFloat16"; empty if unknown.
    pub dtype: &'c str,
    /// The number of input elements.
    pub in_elements: Option<u64>,
    /// The number of output elements.
    pub out_elements: Option<u64>,
    /// The number of elements sent to each process, if they differ.
    pub in_splits: &'c [u64],
    /// The number of elements received from each process, if they differ.
    pub out_splits: &'c [u64],
    /// The sending process, for "recv".
    pub source: Option<u32>,
    /// The receiving process, for "send".
    pub destination: Option<u32>,
    /// The number of the operation, the same in all processes of the group.
    pub seq: Option<u64>,
    /// Whether the program continues before it has ended.
    pub is_async: bool,
}

impl<'c> Collective<'c> {
    /// Creates the operation of that name in a group, in which this process has the rank `rank`.
    pub const fn new(name: &'c str, group: &'c ProcessGroup, rank: u32) -> Collective<'c> {
        Collective {
            name,
            group,
            rank,
            dtype: "",
            in_elements: None,
            out_elements: None,
            in_splits: &[],
            out_splits: &[],
            source: None,
            destination: None,
            seq: None,
            is_async: false,
        }
    }

    /// Sets the type of the elements, and the numbers of input and output elements.
    #[must_use]
    pub const fn with_elements(mut self, dtype: &'c str, going_in: u64, coming_out: u64) -> Self {
        (self.dtype, self.in_elements, self.out_elements) = (dtype, Some(going_in), Some(coming_out));
        self
    }

    /// Sets the number of elements for each process.
    #[must_use]
    pub const fn with_splits(mut self, going_in: &'c [u64], coming_out: &'c [u64]) -> Self {
        (self.in_splits, self.out_splits) = (going_in, coming_out);
        self
    }

    /// Sets the process that sends to this one.
    #[must_use]
    pub const fn from_rank(mut self, source: u32) -> Self {
        self.source = Some(source);
        self
    }

    /// Sets the process that this one sends to.
    #[must_use]
    pub const fn to_rank(mut self, destination: u32) -> Self {
        self.destination = Some(destination);
        self
    }

    /// Sets the operation's number, the same in all processes of the group.
    #[must_use]
    pub const fn with_seq(mut self, seq: u64) -> Self {
        self.seq = Some(seq);
        self
    }

    /// Marks the operation as asynchronous: the program continues before it has ended.
    #[must_use]
    pub const fn asynchronous(mut self) -> Self {
        self.is_async = true;
        self
    }

    /// Creates its span: `record_param_comms`, of level INFO, with the target `kineto::comms`.
    ///
    /// It is an operation (`cpu_op`), as in torch, or a `collective_comm` if
    /// [enabled](crate::torch::TorchOptions::collective_profiling). Lists of more than 30 elements are truncated like torch's.
    /// Ranks that are not evenly spaced have no `Global rank start` and `Global rank stride`.
    pub fn span(&self) -> Span {
        let group = self.group;
        let not_empty = |text: &'c str| Some(text).filter(|text| !text.is_empty());
        let stride = group.rank_stride();
        tracing::info_span!(
            target: COMMS_TARGET,
            "record_param_comms",
            collective_name = self.name,
            dtype = not_empty(self.dtype),
            in_msg_nelems = self.in_elements,
            out_msg_nelems = self.out_elements,
            in_split_size = Shortened::from_list(self.in_splits).map(display),
            out_split_size = Shortened::from_list(self.out_splits).map(display),
            global_rank_start = stride.map(|(start, _)| start),
            global_rank_stride = stride.map(|(_, stride)| stride),
            "Group size" = group.size,
            process_group_name = group.name,
            process_group_description = not_empty(&group.description),
            process_group_ranks = Shortened::from_list(&group.ranks).map(display),
            backend_config = not_empty(&group.backend),
            "Rank" = self.rank,
            src_rank = self.source,
            dst_rank = self.destination,
            "Seq" = self.seq,
            comms_id = self.comms_id(),
            "Is asynchronized op" = self.is_async,
        )
    }

    /// Returns a number that is the same in all processes: a 63-bit FNV-1a hash of their common data.
    fn comms_id(&self) -> Option<u64> {
        let is_between_two = self.source.is_some() || self.destination.is_some();
        let (start, stride) =
            self.group.rank_stride().map_or((u64::MAX, 0), |(start, stride)| (start.into(), stride.into()));
        let numbers = [self.seq?, is_between_two.into(), start, stride, self.group.size.into()];
        let mut hash = 0xcbf2_9ce4_8422_2325_u64;
        let mut add = |bytes: &[u8]| {
            for byte in bytes {
                hash = (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3);
            }
        };
        add(self.group.name.as_bytes());
        add(&[0]);
        for number in numbers {
            add(&number.to_le_bytes());
        }
        // Readers take larger numbers for texts or floats.
        Some(hash >> 1)
    }
}

/// A list in torch's format: of more than 30 elements, the first 29 and the last.
struct Shortened<'s, T>(&'s [T]);

/// The length of the longest list that is not truncated.
const WHOLE: usize = 30;

impl<'s, T> Shortened<'s, T> {
    /// Returns `None` for an empty list.
    fn from_list(list: &'s [T]) -> Option<Shortened<'s, T>> {
        (!list.is_empty()).then_some(Shortened(list))
    }
}

impl<T: Display> Display for Shortened<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (shown, last) = match self.0 {
            [first @ .., last] if self.0.len() > WHOLE => (first.get(..WHOLE - 1).unwrap_or_default(), Some(last)),
            all => (all, None),
        };
        f.write_char('[')?;
        for (number, element) in shown.iter().enumerate() {
            write!(f, "{}{element}", if number > 0 { ", " } else { "" })?;
        }
        last.map_or(Ok(()), |last| write!(f, ", ..., {last}"))?;
        f.write_char(']')
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_lists_are_truncated_like_torchs() {
        let list: Vec<u32> = (0..31).collect();
        assert_eq!(Shortened(&list[..2]).to_string(), "[0, 1]");
        assert!(Shortened(&list[..30]).to_string().ends_with(", 28, 29]"));
        assert!(Shortened(&list).to_string().ends_with(", 27, 28, ..., 30]"));
        assert!(Shortened::from_list(&list[..0]).is_none());
    }

    #[test]
    fn comms_id_is_equal_on_all_ranks_and_unique() {
        let group = ProcessGroup::new("tp", [0, 2]);
        let id = |collective: Collective<'_>| collective.comms_id();
        let first = Collective::new("allreduce", &group, 0).with_seq(1);
        // The number is written into files, so it must not change.
        assert_eq!(id(first), id(Collective { rank: 1, dtype: "Half", ..first }));
        assert_eq!(id(Collective { seq: None, ..first }), None);
        let other = ProcessGroup::new("dp", [0, 2]);
        let others = [first.with_seq(2), first.to_rank(1), Collective { group: &other, ..first }];
        assert!(others.into_iter().all(|other| id(other).is_some() && id(other) != id(first)));
        assert_eq!(id(first.to_rank(1)), id(first.from_rank(0)));
    }
}

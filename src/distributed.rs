//! A process's place in a distributed job.

use crate::encoding::encoded;
use crate::text::joined;

/// The place of a trace's process in a distributed job; `distributedInfo` in the trace's header.
///
/// Set by the builder, or by the launcher's variables: torchrun's RANK, WORLD_SIZE and LOCAL_RANK, else Slurm's SLURM_PROCID,
/// SLURM_NTASKS and SLURM_LOCALID, else Open MPI's OMPI_COMM_WORLD_RANK, _SIZE and _LOCAL_RANK.
///
/// ```
/// use tracing_kineto::{DistributedInfo, KinetoLayer, ProcessGroup};
///
/// let world = ProcessGroup::new("0", [0, 1]).with_description("default_pg").with_backend("cuda:nccl");
/// let place = DistributedInfo::new(0, 2).with_backend("nccl").with_process_group(world);
/// let builder = KinetoLayer::builder().distributed(place);
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct DistributedInfo {
    /// This process's rank among all processes, from 0.
    pub rank: u32,
    /// The number of processes.
    pub world_size: u32,
    /// This process's rank on its machine, from 0.
    pub local_rank: Option<u32>,
    /// The communication backend: "nccl", "gloo", "mpi".
    pub backend: Option<String>,
    /// The process groups. Groups that the trace's [`Collective`](crate::Collective)s name are added automatically.
    pub process_groups: Vec<ProcessGroup>,
    /// The version of NCCL, such as "2.26.6".
    pub nccl_version: Option<String>,
}

/// A group of communicating processes; torch's `ProcessGroup`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ProcessGroup {
    /// The name, the same in all of its processes.
    pub name: String,
    /// The purpose; "default_pg" is the group of all processes.
    pub description: String,
    /// The backend for each device, such as "cuda:nccl"; empty if unknown.
    pub backend: String,
    /// The number of processes.
    pub size: u32,
    /// The ranks of its processes among all, in the group's order; empty if unknown.
    pub ranks: Vec<u32>,
}

encoded! {
    DistributedInfo { rank, world_size, local_rank, backend, process_groups, nccl_version }
    ProcessGroup { name, description, backend, size, ranks }
}

impl DistributedInfo {
    /// Creates the place `rank` among `world_size` processes.
    pub fn new(rank: u32, world_size: u32) -> Self {
        DistributedInfo {
            rank,
            world_size,
            local_rank: None,
            backend: None,
            process_groups: Vec::new(),
            nccl_version: None,
        }
    }

    /// Adds the rank on its machine.
    #[must_use]
    pub fn with_local_rank(mut self, local_rank: u32) -> Self {
        self.local_rank = Some(local_rank);
        self
    }

    /// Adds the communication backend.
    #[must_use]
    pub fn with_backend(mut self, backend: impl Into<String>) -> Self {
        self.backend = Some(backend.into());
        self
    }

    /// Adds a process group.
    #[must_use]
    pub fn with_process_group(mut self, group: ProcessGroup) -> Self {
        self.process_groups.push(group);
        self
    }

    /// Adds the version of NCCL.
    #[must_use]
    pub fn with_nccl_version(mut self, version: impl Into<String>) -> Self {
        self.nccl_version = Some(version.into());
        self
    }

    /// Returns a JSON object with a space after each colon; without it HTA does not find the rank.
    pub fn to_json(&self) -> String {
        let mut fields = Vec::new();
        if let Some(backend) = &self.backend {
            fields.push(format!(r#""backend": {}"#, serde_json::Value::from(backend.as_str())));
        }
        fields.push(format!(r#""rank": {}"#, self.rank));
        fields.push(format!(r#""world_size": {}"#, self.world_size));
        if let Some(local_rank) = self.local_rank {
            fields.push(format!(r#""local_rank": {local_rank}"#));
        }
        if !self.process_groups.is_empty() {
            let mut groups = Vec::new();
            for group in &self.process_groups {
                groups.push(group.to_json());
            }
            fields.push(format!(r#""pg_count": {}, "pg_config": [{}]"#, groups.len(), joined(&groups, ", ")));
        }
        if let Some(version) = &self.nccl_version {
            fields.push(format!(r#""nccl_version": {}"#, serde_json::Value::from(version.as_str())));
        }
        format!("{{{}}}", joined(&fields, ", "))
    }

    /// Returns the groups as in an execution trace, torch's `pg_config_info`; `None` if no group is known.
    #[cfg(feature = "chakra")]
    pub(crate) fn groups_json(&self) -> Option<String> {
        let count = self.process_groups.len();
        let groups: Vec<_> = self.process_groups.iter().map(|group| group.json_among(count, self.world_size)).collect();
        (count > 0).then(|| format!("[{}]", joined(&groups, ", ")))
    }
}

impl ProcessGroup {
    /// Creates a group of that name with these ranks.
    pub fn new(name: impl Into<String>, ranks: impl Into<Vec<u32>>) -> Self {
        let ranks = ranks.into();
        let size = u32::try_from(ranks.len()).unwrap_or(u32::MAX);
        ProcessGroup { name: name.into(), size, ranks, ..ProcessGroup::default() }
    }

    /// Adds the purpose.
    #[must_use]
    pub fn with_description(mut self, description: impl Into<String>) -> Self {
        self.description = description.into();
        self
    }

    /// Adds the backend, such as "cuda:nccl".
    #[must_use]
    pub fn with_backend(mut self, backend: impl Into<String>) -> Self {
        self.backend = backend.into();
        self
    }

    /// Returns the first rank and the distance between ranks; `None` if they are not evenly spaced.
    pub(crate) fn rank_stride(&self) -> Option<(u32, u32)> {
        let (first, rest) = self.ranks.split_first()?;
        let stride = rest.first().map_or(Some(1), |second| second.checked_sub(*first)).filter(|stride| *stride > 0)?;
        let mut pairs = self.ranks.iter().zip(rest);
        pairs.all(|(rank, next)| rank.checked_add(stride) == Some(*next)).then_some((*first, stride))
    }

    /// Returns it as torch writes it into `pg_config`.
    fn to_json(&self) -> String {
        format!(r#"{{{}, "pg_size": {}, "ranks": {:?}}}"#, self.json_text_fields(), self.size, self.ranks)
    }

    /// Returns it as torch writes it into an execution trace, with the number of groups, and without ranks if it contains
    /// all.
    #[cfg(feature = "chakra")]
    fn json_among(&self, count: usize, world_size: u32) -> String {
        let (texts, size) = (self.json_text_fields(), self.size);
        let ranks = if size == world_size { &[][..] } else { &self.ranks };
        format!(r#"{{{texts}, "ranks": {ranks:?}, "group_size": {size}, "group_count": {count}}}"#)
    }

    fn json_text_fields(&self) -> String {
        let [name, description, backend] =
            [&self.name, &self.description, &self.backend].map(|text| serde_json::Value::from(text.as_str()));
        format!(r#""pg_name": {name}, "pg_desc": {description}, "backend_config": {backend}"#)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn process_groups_equal_those_of_torch() {
        let all = ProcessGroup::new("0", [0, 1]).with_description("default_pg").with_backend("cuda:nccl");
        let info = DistributedInfo::new(0, 2).with_backend("nccl").with_process_group(all).with_nccl_version("2.17.1");
        let expected = r#"{"backend": "nccl", "rank": 0, "world_size": 2, "pg_count": 1, "pg_config": [{"pg_name": "0", "pg_desc": "default_pg", "backend_config": "cuda:nccl", "pg_size": 2, "ranks": [0, 1]}], "nccl_version": "2.17.1"}"#;
        assert_eq!(info.to_json(), expected);
        let info = info.with_process_group(ProcessGroup::new("1", [1]));
        let expected = r#"[{"pg_name": "0", "pg_desc": "default_pg", "backend_config": "cuda:nccl", "ranks": [], "group_size": 2, "group_count": 2}, {"pg_name": "1", "pg_desc": "", "backend_config": "", "ranks": [1], "group_size": 1, "group_count": 2}]"#;
        assert_eq!(info.groups_json().as_deref(), Some(expected));
        assert_eq!(DistributedInfo::new(0, 2).groups_json(), None);
    }

    #[test]
    fn evenly_spaced_ranks_have_a_start_and_a_stride() {
        for (ranks, stride) in [
            (&[][..], None),
            (&[5], Some((5, 1))),
            (&[1, 3, 5], Some((1, 2))),
            (&[1, 3, 4], None),
            (&[3, 1], None),
            (&[2, 2], None),
            (&[0, u32::MAX, 5], None),
        ] {
            assert_eq!(ProcessGroup::new("g", ranks).rank_stride(), stride, "{ranks:?}");
        }
    }

    #[test]
    fn json_has_the_space_that_hta_needs() {
        let info = DistributedInfo::new(3, 8);
        assert_eq!(info.to_json(), r#"{"rank": 3, "world_size": 8}"#);
        let info = info.with_local_rank(1).with_backend("a\"b");
        assert_eq!(info.to_json(), r#"{"backend": "a\"b", "rank": 3, "world_size": 8, "local_rank": 1}"#);
        assert!(serde_json::from_str::<serde_json::Value>(&info.to_json()).is_ok());
    }
}

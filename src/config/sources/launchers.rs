//! The variables by which launchers tell a process its place in a job.

use super::env::Env;
use crate::distributed::DistributedInfo;

/// The launchers, in order of precedence.
pub(in crate::config) const LAUNCHERS: [Launcher; 3] = [
    Launcher { rank: "RANK", size: "WORLD_SIZE", local: "LOCAL_RANK" },
    Launcher { rank: "SLURM_PROCID", size: "SLURM_NTASKS", local: "SLURM_LOCALID" },
    Launcher { rank: "OMPI_COMM_WORLD_RANK", size: "OMPI_COMM_WORLD_SIZE", local: "OMPI_COMM_WORLD_LOCAL_RANK" },
];

/// A launcher's variables.
pub(in crate::config) struct Launcher {
    pub(in crate::config) rank: &'static str,
    pub(in crate::config) size: &'static str,
    pub(in crate::config) local: &'static str,
}

/// Reads the variables of the first launcher that has set valid ones; warns about invalid ones.
pub(in crate::config) fn read_distributed_info(env: &Env, warnings: &mut Vec<String>) -> Option<DistributedInfo> {
    LAUNCHERS.iter().find_map(|launcher| launcher.read_distributed_info(env, warnings))
}

impl Launcher {
    fn read_distributed_info(&self, env: &Env, warnings: &mut Vec<String>) -> Option<DistributedInfo> {
        // Other programs may set a variable for the rank alone, so that is no reason for a warning.
        let (Some(_), Some(_)) = (env.text(self.rank), env.text(self.size)) else { return None };
        let mut number = |name: &str| {
            let text = env.text(name)?;
            let number = text.trim().parse::<u32>().ok();
            if number.is_none() {
                warnings.push(format!("{name}={text:?}: expected a whole number from 0; the variable is ignored"));
            }
            number
        };
        let (rank, size, local) = (number(self.rank), number(self.size), number(self.local));
        let (rank, size) = (rank?, size?);
        if rank >= size {
            let (rank_name, size_name) = (self.rank, self.size);
            warnings.push(format!("{rank_name}={rank} does not fit {size_name}={size}; both are ignored"));
            return None;
        }
        Some(DistributedInfo { local_rank: local, ..DistributedInfo::new(rank, size) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(pairs: &[(&str, &str)]) -> (Option<DistributedInfo>, Vec<String>) {
        let mut warnings = Vec::new();
        let info = read_distributed_info(&Env::from_pairs(pairs.iter().copied()), &mut warnings);
        (info, warnings)
    }

    const TORCHRUN: [(&str, &str); 3] = [("RANK", "3"), ("WORLD_SIZE", "8"), ("LOCAL_RANK", "1")];
    const SLURM: [(&str, &str); 2] = [("SLURM_PROCID", "5"), ("SLURM_NTASKS", "16")];
    const OMPI: [(&str, &str); 2] = [("OMPI_COMM_WORLD_RANK", "0"), ("OMPI_COMM_WORLD_SIZE", "2")];

    #[test]
    fn torchrun_wins_over_slurm_over_open_mpi() {
        let all = [&TORCHRUN[..], &SLURM, &OMPI].concat();
        assert_eq!(read(&all).0, Some(DistributedInfo::new(3, 8).with_local_rank(1)));
        assert_eq!(read(&all[3..]).0, Some(DistributedInfo::new(5, 16)));
        assert_eq!(read(&all[5..]).0, Some(DistributedInfo::new(0, 2)));
        assert_eq!(read(&[]), (None, vec![]));
    }

    #[test]
    fn rank_without_size_is_ignored() {
        assert_eq!(read(&[("RANK", "sergeant")]), (None, vec![]));
        let mixed = [&[("RANK", "3")][..], &SLURM].concat();
        assert_eq!(read(&mixed), (Some(DistributedInfo::new(5, 16)), vec![]));
    }

    #[test]
    fn invalid_numbers_warn_and_are_ignored() {
        let (info, warnings) =
            read(&[("RANK", "three"), ("WORLD_SIZE", "8"), ("SLURM_PROCID", "5"), ("SLURM_NTASKS", "16")]);
        assert_eq!(info, Some(DistributedInfo::new(5, 16)));
        assert_eq!(warnings.len(), 1);
        assert!(warnings[0].contains("RANK=\"three\""), "{warnings:?}");
        let (info, warnings) = read(&[("RANK", "1"), ("WORLD_SIZE", "8"), ("LOCAL_RANK", "-1")]);
        assert_eq!((info, warnings.len()), (Some(DistributedInfo::new(1, 8)), 1));
        let (info, warnings) = read(&[("RANK", "8"), ("WORLD_SIZE", "8")]);
        assert_eq!((info, warnings.len()), (None, 1));
    }
}

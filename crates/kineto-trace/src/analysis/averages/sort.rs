//! Sort keys of tables.

use super::Average;
use crate::{Error, ErrorKind};
use std::cmp::Ordering;
use std::str::FromStr;

/// The sort key of a table, in descending order. It parses from torch's names, such as `self_cpu_time_total`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum SortBy {
    /// `self_cpu_time_total`
    SelfHost,
    /// `cpu_time_total`
    HostTotal,
    /// `cpu_time`
    HostMean,
    /// `self_device_time_total`
    SelfDevice,
    /// `device_time_total`
    DeviceTotal,
    /// `device_time`
    DeviceMean,
    /// `self_cpu_memory_usage`
    SelfHostBytes,
    /// `cpu_memory_usage`
    HostBytes,
    /// `self_device_memory_usage`
    SelfDeviceBytes,
    /// `device_memory_usage`
    DeviceBytes,
    /// `count`
    Count,
    /// `flops`
    Flops,
    /// `max`: the longest duration
    Max,
    /// `std`: the standard deviation of durations
    Std,
}

impl SortBy {
    /// All keys by name.
    const NAMES: [(&'static str, SortBy); 14] = [
        ("self_cpu_time_total", SortBy::SelfHost),
        ("cpu_time_total", SortBy::HostTotal),
        ("cpu_time", SortBy::HostMean),
        ("self_device_time_total", SortBy::SelfDevice),
        ("device_time_total", SortBy::DeviceTotal),
        ("device_time", SortBy::DeviceMean),
        ("self_cpu_memory_usage", SortBy::SelfHostBytes),
        ("cpu_memory_usage", SortBy::HostBytes),
        ("self_device_memory_usage", SortBy::SelfDeviceBytes),
        ("device_memory_usage", SortBy::DeviceBytes),
        ("count", SortBy::Count),
        ("flops", SortBy::Flops),
        ("max", SortBy::Max),
        ("std", SortBy::Std),
    ];

    /// Compares two rows.
    pub(super) fn compare_rows(self, a: &Average, b: &Average) -> Ordering {
        let of = |row: &Average| -> i128 {
            match self {
                SortBy::SelfHost => row.self_cpu_ns.into(),
                SortBy::HostTotal => row.cpu_ns.into(),
                SortBy::SelfDevice => row.self_device_ns.into(),
                SortBy::DeviceTotal => row.device_ns.into(),
                SortBy::SelfHostBytes => row.self_bytes.host.into(),
                SortBy::HostBytes => row.total_bytes.host.into(),
                SortBy::SelfDeviceBytes => row.self_bytes.device.into(),
                SortBy::DeviceBytes => row.total_bytes.device.into(),
                SortBy::Count => row.count().into(),
                SortBy::Flops => row.flops.into(),
                SortBy::Max => row.max_ns().into(),
                SortBy::HostMean | SortBy::DeviceMean | SortBy::Std => 0,
            }
        };
        match self {
            SortBy::HostMean => a.per_call(a.cpu_ns).total_cmp(&b.per_call(b.cpu_ns)),
            SortBy::DeviceMean => a.per_call(a.device_ns).total_cmp(&b.per_call(b.device_ns)),
            SortBy::Std => a.std_ns().total_cmp(&b.std_ns()),
            _ => of(a).cmp(&of(b)),
        }
    }
}

impl FromStr for SortBy {
    type Err = Error;

    /// Parses one of torch's names; `cuda`, `xpu` and `privateuse1` mean `device`, `host` means `cpu`.
    fn from_str(name: &str) -> Result<SortBy, Error> {
        let plain =
            ["cuda", "xpu", "privateuse1"].iter().fold(name.to_owned(), |name, old| name.replace(old, "device"));
        let plain = plain.replace("host", "cpu");
        SortBy::NAMES.iter().find(|(known, _)| *known == plain).map(|(_, key)| *key).ok_or_else(|| {
            let names: Vec<_> = SortBy::NAMES.iter().map(|(name, _)| *name).collect();
            let message = format!("cannot sort by `{name}`; sort by one of {}", names.join(", "));
            Error::new(ErrorKind::Config, message)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn torch_names_parse_and_unknown_names_list_all() {
        for (name, key) in SortBy::NAMES {
            assert_eq!(name.parse::<SortBy>().unwrap(), key);
        }
        assert_eq!("cuda_time_total".parse::<SortBy>().unwrap(), SortBy::DeviceTotal);
        assert_eq!("self_xpu_memory_usage".parse::<SortBy>().unwrap(), SortBy::SelfDeviceBytes);
        let error = "time".parse::<SortBy>().unwrap_err().to_string();
        assert!(error.starts_with("cannot sort by `time`; sort by one of self_cpu_time_total, "), "{error}");
    }
}

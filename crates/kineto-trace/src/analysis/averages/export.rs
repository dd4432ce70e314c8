//! Exports averages as CSV and JSON.

use super::{Average, KeyAverages};
use crate::analysis::csv::write_record;
use crate::analysis::json::{ListMember, write_object, written_text};
use crate::write::json_object;
use serde_json::{Map, Value, json};
use std::io::{self, Write};

impl KeyAverages {
    /// Writes all rows of all sections as CSV (RFC 4180) with a header line, in whole nanoseconds and bytes.
    ///
    /// # Errors
    /// If `out` fails.
    pub fn write_csv(&self, mut out: impl Write) -> io::Result<()> {
        let titles = NUMBERS.iter().map(|(title, _)| (*title).to_owned());
        let head = ["section", "name"].map(str::to_owned).into_iter().chain(self.groups.iter().cloned());
        write_record(&mut out, head.chain(titles))?;
        for row in self.iter() {
            let numbers = NUMBERS.iter().map(|(_, number)| number(row).to_string());
            let head = [row.section.as_str().to_owned(), row.name.clone()].into_iter().chain(row.keys.iter().cloned());
            write_record(&mut out, head.chain(numbers))?;
        }
        out.flush()
    }

    /// Returns all rows by section, the bases of percentages, and the totals outside all rows, as JSON.
    ///
    /// Times are in nanoseconds, memory in bytes.
    pub fn to_json(&self) -> String {
        written_text(|out| self.write_json(out))
    }

    /// Writes the JSON of [`to_json`](KeyAverages::to_json), row by row.
    ///
    /// # Errors
    /// If `out` fails.
    pub fn write_json(&self, mut out: impl Write) -> io::Result<()> {
        let head = json!({
            "groups": self.groups,
            "device": self.device,
            "cpu_base_ns": self.cpu_base_ns(),
            "device_base_ns": self.device_base_ns(),
            "unattributed_device_ns": self.unattributed_device_ns,
            "unattributed_cpu_bytes": self.unattributed_bytes().0,
            "unattributed_device_bytes": self.unattributed_bytes().1,
            "total_flops": self.flops,
            "losses": self.notes,
        });
        let [mut ops, mut kernels, mut annotations] =
            [&self.ops, &self.kernels, &self.annotations].map(|rows| rows.iter().map(|row| self.row_to_json(row)));
        let lists: &mut [ListMember<'_>] =
            &mut [("ops", &mut ops), ("kernels", &mut kernels), ("device_annotations", &mut annotations)];
        write_object(&mut out, &head, lists)
    }

    fn row_to_json(&self, row: &Average) -> Value {
        let mut object = Map::new();
        object.insert("name".to_owned(), row.name.as_str().into());
        object.insert("annotation".to_owned(), row.is_annotation.into());
        if !self.groups.is_empty() {
            let keys = self.groups.iter().zip(&row.keys).map(|(group, key)| (group.as_str(), key.as_str().into()));
            object.insert("keys".to_owned(), json_object(keys.collect()));
        }
        object.extend(NUMBERS.iter().map(|(title, number)| ((*title).to_owned(), number(row))));
        Value::Object(object)
    }
}

/// A column's title and value.
type NumberColumn = (&'static str, fn(&Average) -> Value);

/// The numeric columns.
const NUMBERS: [NumberColumn; 19] = [
    ("count", |row| row.count().into()),
    ("enters", |row| row.enters().into()),
    ("self_cpu_ns", |row| row.self_cpu_ns.into()),
    ("cpu_ns", |row| row.cpu_ns.into()),
    ("self_device_ns", |row| row.self_device_ns.into()),
    ("device_ns", |row| row.device_ns.into()),
    ("min_ns", |row| row.min_ns().into()),
    ("max_ns", |row| row.max_ns().into()),
    ("mean_ns", |row| row.mean_ns().into()),
    ("std_ns", |row| row.std_ns().into()),
    ("p50_ns", |row| row.percentile_ns(0.5).into()),
    ("p90_ns", |row| row.percentile_ns(0.9).into()),
    ("p95_ns", |row| row.percentile_ns(0.95).into()),
    ("p99_ns", |row| row.percentile_ns(0.99).into()),
    ("self_cpu_bytes", |row| row.self_bytes.host.into()),
    ("cpu_bytes", |row| row.total_bytes.host.into()),
    ("self_device_bytes", |row| row.self_bytes.device.into()),
    ("device_bytes", |row| row.total_bytes.device.into()),
    ("flops", |row| row.flops.into()),
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::analysis::GroupBy;
    use crate::analysis::sample::SampleTrace;

    fn averages() -> KeyAverages {
        let sample = SampleTrace::default().op("a \"b\", c", 0, 10).op("mm", 2, 6).kernel("gemm", 10, 15, 2);
        sample.memory(1, 3, -8, 0).into_events().averages().by(GroupBy::Thread).compute()
    }

    #[test]
    fn csv_has_a_line_per_row_and_quotes_fields() {
        let mut text = Vec::new();
        averages().write_csv(&mut text).unwrap();
        let text = String::from_utf8(text).unwrap();
        let lines: Vec<&str> = text.split_terminator("\r\n").collect();
        assert!(
            lines[0]
                .starts_with("section,name,Thread,count,enters,self_cpu_ns,cpu_ns,self_device_ns,device_ns,min_ns,")
        );
        assert!(
            lines[1].starts_with("ops,\"a \"\"b\"\", c\",1,1,1,6000,10000,0,5000,10000,10000,10000.0,0.0,10000,"),
            "{text}"
        );
        assert!(lines[2].ends_with(",-8,-8,0,0,0"), "{text}");
        assert!(lines[3].starts_with("kernels,gemm,7,1,1,0,0,5000,5000,"), "{text}");
        assert!(lines.iter().skip(2).all(|line| line.split(',').count() == 22));
    }

    #[test]
    fn json_has_rows_by_section_and_bases() {
        let json: Value = serde_json::from_str(&averages().to_json()).unwrap();
        assert_eq!((json["cpu_base_ns"].as_i64(), json["device_base_ns"].as_i64()), (Some(10_000), Some(5000)));
        assert_eq!(
            (json["ops"][1]["name"].as_str(), json["ops"][1]["keys"]["Thread"].as_str()),
            (Some("mm"), Some("1"))
        );
        assert_eq!(json["ops"][1]["self_cpu_bytes"].as_i64(), Some(-8));
        assert_eq!(json["kernels"][0]["p95_ns"].as_i64(), Some(5000));
        assert_eq!(json["device_annotations"], Value::Array(Vec::new()));
    }
}

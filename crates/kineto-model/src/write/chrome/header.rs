//! The header and trailer of a Chrome trace.

use std::borrow::Cow;

use super::ChromeWriter;
use kineto_base::time::Timestamp;

/// The header of a trace.
#[derive(Clone, Copy, Debug)]
pub struct Header<'t> {
    /// Keys with their values as valid JSON; each key once. [Reserved](is_reserved) keys other than [`INCOMPLETE`] are skipped.
    pub metadata: &'t [(String, String)],
    /// One JSON object for each device.
    pub device_properties: &'t [String],
    /// The origin of times in the file; see [`base_time`](kineto_base::time::base_time).
    pub base: Timestamp,
}

/// Returns the minimum difference of two times, in nanoseconds, that readers can order; 0 for any difference.
///
/// Readers represent times as doubles of microseconds. From 2^42 us after the base on, which is the end of each
/// quarter, such a double is a nanosecond wide. Perfetto then treats slices that touch as overlapping, and drops one.
pub fn resolution_ns(base: Timestamp, end: Timestamp) -> u64 {
    const EXACT: u64 = (1 << 42) * 1000;
    if end.since(base) < EXACT { 0 } else { 2 }
}

/// Returns whether the writer itself writes this key of the top level.
pub fn is_reserved(key: &str) -> bool {
    const RESERVED: [&str; 7] = [
        "schemaVersion",
        "deviceProperties",
        "displayTimeUnit",
        "baseTimeNanoseconds",
        "traceEvents",
        "traceName",
        INCOMPLETE,
    ];
    RESERVED.contains(&key)
}

const DISTRIBUTED_INFO: &str = "distributedInfo";

/// The header's key for the name under which the PrivateUse1 backend is registered.
pub const PRIVATE_USE1_KEY: &str = "privateuse1_backend_name";

/// The key that marks a file as closed before its last row, at the limit of time or size.
pub const INCOMPLETE: &str = "tracing_kineto_incomplete";

impl ChromeWriter<'_> {
    pub(super) fn put_header(&mut self, header: &Header<'_>) {
        self.out.put_literal(b"{\"schemaVersion\":1,\n\"deviceProperties\":[");
        for (at, device) in header.device_properties.iter().enumerate() {
            if at > 0 {
                self.out.put_literal(b",");
            }
            self.out.put_json(device);
        }
        self.out.put_literal(b"]");
        for (key, value) in header.metadata {
            // A trace may lack records before it is written.
            if is_reserved(key) && key != INCOMPLETE {
                self.skipped += 1;
                continue;
            }
            self.has_distributed_info |= key == DISTRIBUTED_INFO;
            self.put_member(key, value);
        }
        self.out.put_literal(b",\n\"displayTimeUnit\":\"ms\",\n\"baseTimeNanoseconds\":");
        self.out.put_wide_uint(header.base.as_nanos());
        self.out.put_literal(b",\n\"traceEvents\":[");
    }

    pub(super) fn put_trailer(&mut self, window_end: Timestamp, distributed: Option<&str>, trace_name: &str) {
        self.out.put_literal(
            b"\n{\"ph\":\"i\",\"s\":\"g\",\"name\":\"Record Window End\",\"pid\":\"\",\"tid\":\"\",\"ts\":",
        );
        self.put_time(window_end);
        self.out.put_literal(b"}\n]");
        if let Some(info) = distributed.filter(|_| !self.has_distributed_info) {
            self.put_member(DISTRIBUTED_INFO, info);
        }
        if let Some((rows, of)) = self.incomplete {
            self.put_member(INCOMPLETE, &format!("{{\"rows\":{rows},\"of\":{of}}}"));
        }
        self.out.put_literal(b",\n\"traceName\":");
        self.out.put_string(trace_name);
        self.out.put_literal(b"}\n");
    }

    /// Appends a member of the top level.
    fn put_member(&mut self, key: &str, value: &str) {
        self.out.put_literal(b",\n");
        self.out.put_key(true, key);
        if key == DISTRIBUTED_INFO {
            self.out.put_json(&spaced_rank(value));
        } else {
            self.out.put_json(value);
        }
    }
}

/// Inserts a space after each `"rank":` that is not followed by white space.
///
/// `HolisticTraceAnalysis` finds the rank with the expression `"rank":\s+(\d+)`, and takes a file without the space for
/// rank 0.
pub fn spaced_rank(json: &str) -> Cow<'_, str> {
    const KEY: &str = "\"rank\":";

    if !json.contains(KEY) {
        return Cow::Borrowed(json);
    }
    let mut spaced = String::with_capacity(json.len() + 8);
    let mut rest = json;
    while let Some((before, after)) = rest.split_once(KEY) {
        spaced.push_str(before);
        spaced.push_str(KEY);
        // After a backslash it is part of a string, and does not match the expression.
        if !before.ends_with('\\') && !after.starts_with(char::is_whitespace) {
            spaced.push(' ');
        }
        rest = after;
    }
    spaced.push_str(rest);
    Cow::Owned(spaced)
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEADER: Header<'_> = Header { metadata: &[], device_properties: &[], base: Timestamp::from_nanos(0) };

    fn file(header: &Header<'_>, distributed: Option<&str>, name: &str) -> String {
        let mut file = Vec::new();
        let writer = ChromeWriter::new(&mut file, header).unwrap();
        writer.finish(Timestamp::from_nanos(5), distributed, name).unwrap();
        String::from_utf8(file).unwrap()
    }

    fn pairs(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
        pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
    }

    #[test]
    fn empty_file_matches_byte_for_byte() {
        let header = Header {
            metadata: &pairs(&[("host_name", "\"vm\""), ("a \"b\"\n", "[1,{}]")]),
            device_properties: &["{\"id\":0}".to_owned(), "{\"id\":1}".to_owned()],
            base: Timestamp::from_nanos(1_790_857_026_000_000_000),
        };
        let expected = r#"{"schemaVersion":1,
"deviceProperties":[{"id":0},{"id":1}],
"host_name":"vm",
"a \"b\"\n":[1,{}],
"displayTimeUnit":"ms",
"baseTimeNanoseconds":1790857026000000000,
"traceEvents":[
{"ph":"i","s":"g","name":"Record Window End","pid":"","tid":"","ts":0.000}
],
"traceName":"a\\b.json"}
"#;
        assert_eq!(file(&header, None, "a\\b.json"), expected);
    }

    #[test]
    fn rank_is_followed_by_a_space_from_any_source() {
        let compact = r#"{"backend":"nccl","rank":3,"note":"\"rank\":4"}"#;
        let spaced = r#""distributedInfo":{"backend":"nccl","rank": 3,"note":"\"rank\":4"}"#;
        let metadata = pairs(&[("distributedInfo", compact)]);
        let from_metadata = file(&Header { metadata: &metadata, ..HEADER }, Some("{\"rank\": 9}"), "");
        assert!(from_metadata.contains(spaced));
        assert_eq!(from_metadata.matches("distributedInfo").count(), 1);
        assert!(file(&HEADER, Some(compact), "").contains(spaced));
        assert!(
            file(&HEADER, Some("{\"rank\": 9}"), "")
                .contains("\n],\n\"distributedInfo\":{\"rank\": 9},\n\"traceName\":")
        );
    }

    #[test]
    fn reserved_keys_are_written_once() {
        let metadata = pairs(&[("traceEvents", "[]"), ("schemaVersion", "2"), ("traceName", "7"), ("kept", "1")]);
        let mut file = Vec::new();
        let writer = ChromeWriter::new(&mut file, &Header { metadata: &metadata, ..HEADER }).unwrap();
        assert_eq!(writer.skipped, 3);
        writer.finish(Timestamp::default(), None, "x").unwrap();
        let text = String::from_utf8(file).unwrap();
        for key in ["traceEvents", "schemaVersion", "traceName", "kept"] {
            assert_eq!(text.matches(&format!("\"{key}\":")).count(), 1, "{key}");
        }
    }

    #[test]
    fn times_late_in_a_quarter_are_a_nanosecond_wide() {
        let parsed = |ns: u64| {
            let text = format!("{}.{:03}", ns / 1000, ns % 1000);
            (text.parse::<f64>().unwrap() * 1000.0).floor()
        };
        let at = |ns| resolution_ns(Timestamp::default(), Timestamp::from_nanos(ns));
        let exact = (1_u64 << 42) * 1000;
        assert_eq!((at(exact - 1), at(exact)), (0, 2));
        let quarter = 7_889_238 * 1_000_000_000_u64;
        for ns in (exact..quarter).step_by(10_000_033_333_337) {
            assert!(parsed(ns + 2) > parsed(ns) && (parsed(ns) - ns as f64).abs() <= 1.0, "{ns}");
        }
    }
}

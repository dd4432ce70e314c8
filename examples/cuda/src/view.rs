//! A trace as a JSON file contains it.

use serde_json::{Map, Value};
use std::collections::BTreeMap;
use std::error::Error;
use tracing_kineto::{Format, Trace};

/// The rows and arrows of a trace; times are nanoseconds since the epoch.
pub struct View {
    pub rows: Vec<Row>,
    /// Arrows from launches to work: their ends, by id.
    pub arrows: BTreeMap<u64, Arrow>,
    /// The values of hardware counters.
    pub samples: Vec<Sample>,
    /// All entries other than the events.
    pub header: Map<String, Value>,
}

/// A slice.
#[derive(Debug)]
pub struct Row {
    pub category: String,
    pub name: String,
    pub process: i64,
    pub thread: i64,
    pub start: u64,
    pub end: u64,
    pub args: Map<String, Value>,
}

/// A value of a hardware counter.
#[derive(Debug)]
pub struct Sample {
    /// The group of its device.
    pub group: String,
    pub metric: String,
    pub at: u64,
    pub value: f64,
}

#[derive(Debug, Default)]
pub struct Arrow {
    pub starts: Vec<Point>,
    pub ends: Vec<Point>,
}

/// A time on a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Point {
    pub process: i64,
    pub thread: i64,
    pub at: u64,
}

impl View {
    pub fn new(trace: &Trace) -> Result<View, Box<dyn Error>> {
        let mut json = Vec::new();
        trace.write(&mut json, Format::Json)?;
        View::read(&json)
    }

    pub fn read(json: &[u8]) -> Result<View, Box<dyn Error>> {
        let Value::Object(mut header) = serde_json::from_slice(json)? else { return Err("not an object".into()) };
        let base = header.get("baseTimeNanoseconds").and_then(Value::as_u64).ok_or("no base time")?;
        let Some(Value::Array(events)) = header.remove("traceEvents") else { return Err("no events".into()) };
        let mut view = View { rows: Vec::new(), arrows: BTreeMap::new(), samples: Vec::new(), header };
        for event in events {
            view.add(event, base).ok_or("an event that is not as it should be")?;
        }
        Ok(view)
    }

    fn add(&mut self, event: Value, base: u64) -> Option<()> {
        let Value::Object(mut event) = event else { return None };
        let text = |key: &str| event.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
        let (phase, category, name) = (text("ph"), text("cat"), text("name"));
        if phase == "C" && category == "hardware_counters" {
            let at = base + nanoseconds(event.get("ts")?)?;
            let value = event.get("args")?.get("")?.as_f64()?;
            self.samples.push(Sample { group: text("pid"), metric: name, at, value });
            return Some(());
        }
        let is_arrow = category == "ac2g" && (phase == "s" || phase == "f");
        // Kineto's own rows, such as "Spans", have names instead of numbers.
        let number = |key: &str| event.get(key).and_then(Value::as_i64);
        let (Some(process), Some(thread)) = (number("pid"), number("tid")) else { return Some(()) };
        if phase != "X" && !is_arrow {
            return Some(());
        }
        let start = base + nanoseconds(event.get("ts")?)?;
        if is_arrow {
            let arrow = self.arrows.entry(event.get("id")?.as_u64()?).or_default();
            let ends = if phase == "s" { &mut arrow.starts } else { &mut arrow.ends };
            ends.push(Point { process, thread, at: start });
            return Some(());
        }
        let end = start + nanoseconds(event.get("dur")?)?;
        let args = match event.remove("args") {
            Some(Value::Object(args)) => args,
            _ => Map::new(),
        };
        self.rows.push(Row { category, name, process, thread, start, end, args });
        Some(())
    }

    pub fn of(&self, category: &str) -> impl Iterator<Item = &Row> {
        self.rows.iter().filter(move |row| row.category == category)
    }

    /// Returns the activities of devices.
    pub fn work(&self) -> impl Iterator<Item = &Row> {
        self.rows.iter().filter(|row| matches!(&*row.category, "kernel" | "gpu_memcpy" | "gpu_memset"))
    }

    /// Returns the calls of the runtime and the driver.
    pub fn calls(&self) -> impl Iterator<Item = &Row> {
        self.rows.iter().filter(|row| matches!(&*row.category, "cuda_runtime" | "cuda_driver"))
    }

    /// Returns the innermost span of a thread at a time.
    pub fn span_at(&self, process: i64, thread: i64, at: u64) -> Option<&Row> {
        let spans = self.rows.iter().filter(|row| matches!(&*row.category, "cpu_op" | "user_annotation"));
        let around =
            spans.filter(|row| (row.process, row.thread) == (process, thread) && row.start <= at && at < row.end);
        around.max_by_key(|row| (row.start, std::cmp::Reverse(row.end)))
    }

    /// Returns the header's entry of the CUDA collector.
    pub fn collector(&self) -> &Value {
        &self.header.get("tracing_kineto").unwrap_or(&Value::Null)["collectors"]["cupti"]
    }
}

impl Row {
    pub fn int(&self, key: &str) -> Option<i64> {
        self.args.get(key)?.as_i64()
    }

    pub fn ints(&self, key: &str) -> Vec<i64> {
        let list = self.args.get(key).and_then(Value::as_array);
        list.into_iter().flatten().filter_map(Value::as_i64).collect()
    }

    /// Returns the device and the stream.
    pub fn stream(&self) -> (i64, i64) {
        (self.process, self.int("stream").unwrap_or(-1))
    }
}

/// Parses microseconds with up to three decimals exactly: a float lacks the precision.
fn nanoseconds(value: &Value) -> Option<u64> {
    let text = value.as_number()?.to_string();
    let (whole, part) = text.split_once('.').unwrap_or((&text, ""));
    let part: u64 = format!("{part:0<3}").parse().ok().filter(|_| part.len() <= 3)?;
    Some(whole.parse::<u64>().ok()? * 1000 + part)
}

//! Writes execution traces (Chakra): the host's operations as a graph, as PyTorch's `ExecutionTraceObserver` does.

mod forward;
mod nodes;
mod operation;
mod values;

use std::io::{self, Write};

pub use self::forward::{ForwardParents, ForwardQueries};
use self::nodes::{NodeId, Nodes};
use self::operation::{Operation, Tensors};
use super::buffer::Buffer;
use crate::activity::{Activity, CorrelationId};
use crate::rows::Rows;
use kineto_base::time::{Timestamp, UtcTime};

/// Writes the operations of a trace as nodes, one per line.
///
/// Its memory use grows only with the number of threads. Node 1 is the process. Each thread has a node, below which its
/// operations follow in the order of their start.
#[derive(Debug)]
pub struct ExecutionWriter<'w> {
    out: Buffer<'w>,
    nodes: Nodes,
    forward: ForwardParents,
    /// The process groups as JSON.
    groups: Option<String>,
}

/// A node without the attributes of its operation.
struct ExecutionNode<'n> {
    id: NodeId,
    name: &'n str,
    parent: NodeId,
    /// The id in the Kineto trace.
    record: CorrelationId,
    fw_parent: NodeId,
    thread: i64,
}

impl<'n> ExecutionNode<'n> {
    /// Returns a node that is no operation of the program.
    fn label(id: NodeId, name: &'n str, parent: NodeId, thread: i64) -> ExecutionNode<'n> {
        ExecutionNode { id, name, parent, record: CorrelationId(0), fw_parent: NodeId::NONE, thread }
    }
}

const SCHEMA: &str = "1.1.1-chakra.0.0.4";

const PROCESS: &str = "[pytorch|profiler|execution_trace|process]";

const GROUPS: &str = "## process_group:init ##";

const THREAD: &str = "[pytorch|profiler|execution_trace|thread]";

impl<'w> ExecutionWriter<'w> {
    /// Writes the beginning of the file and the node of the process. `forward` resolves forward threads, `groups` is
    /// the list of process groups as JSON.
    ///
    /// # Errors
    ///
    /// If `out` fails; the same holds for all other methods.
    pub fn new(
        out: &'w mut dyn Write,
        (process, start): (i64, Timestamp),
        forward: ForwardParents,
        groups: Option<String>,
    ) -> io::Result<Self> {
        let (out, nodes) = (Buffer::new(out), Nodes::new(groups.is_some()));
        let mut writer = ExecutionWriter { out, nodes, forward, groups };
        let time = UtcTime(start.as_nanos() / 1_000_000_000).to_string();
        let out = &mut writer.out;
        out.put_literal(b"{\"schema\":");
        out.put_string(SCHEMA);
        out.put_literal(b",\"pid\":");
        out.put_int(process);
        out.put_literal(b",\"time\":");
        out.put_string(&time);
        out.put_literal(b",\"start_ts\":");
        out.put_wide_uint(to_millis(start));
        out.put_literal(b",\n\"nodes\":[");
        let root = NodeId::PROCESS;
        writer.put_node(&ExecutionNode::label(root, PROCESS, root, 0), &Operation::for_label());
        writer.out.end_row()?;
        Ok(writer)
    }

    /// Writes the end of the file, and flushes the writer.
    ///
    /// # Errors
    /// Those of the writer.
    pub fn finish(mut self, end: Timestamp) -> io::Result<()> {
        self.out.put_literal(b"\n],\"finish_ts\":");
        self.out.put_wide_uint(to_millis(end));
        self.out.put_literal(b"}\n");
        self.out.finish()
    }

    fn put_node(&mut self, node: &ExecutionNode<'_>, operation: &Operation) {
        let out = &mut self.out;
        if node.id != NodeId::PROCESS {
            out.put_literal(b",");
        }
        out.put_literal(b"\n{\"id\":");
        out.put_uint(node.id.0);
        out.put_literal(b",\"name\":");
        out.put_string(node.name);
        out.put_literal(b",\"ctrl_deps\":");
        out.put_uint(node.parent.0);
        put_tensors(out, "inputs", &operation.inputs);
        put_tensors(out, "outputs", &operation.outputs);
        out.put_literal(b",\"attrs\":[{\"name\":\"rf_id\",\"type\":\"uint64\",\"value\":");
        out.put_wide_uint(node.record.0);
        out.put_literal(b"}");
        put_attribute(out, "fw_parent", "uint64", |out| out.put_uint(node.fw_parent.0));
        put_attribute(out, "seq_id", "int64", |out| out.put_int(operation.sequence.unwrap_or(-1)));
        put_attribute(out, "scope", "uint64", |out| out.put_uint(operation.scope));
        put_attribute(out, "tid", "uint64", |out| out.put_int(node.thread));
        put_attribute(out, "fw_tid", "uint64", |out| out.put_int(operation.forward_thread.unwrap_or(0)));
        for (name, kind, value) in operation.text_attributes() {
            put_attribute(out, name, kind, |out| out.put_json(value));
        }
        out.put_literal(b"]}");
    }
}

impl Rows for ExecutionWriter<'_> {
    fn write_activity(&mut self, activity: &Activity<'_>) -> io::Result<()> {
        let Some(place) = self.nodes.place_activity(activity) else { return Ok(()) };
        let operation = Operation::from_activity(activity);
        let thread = operation.thread.unwrap_or(place.thread);
        let fw_parent = operation
            .forward_thread
            .map_or(NodeId::NONE, |forward| self.forward.node_at((place.process, forward), place.start));
        if place.is_first {
            let node = ExecutionNode::label(place.thread_node, THREAD, NodeId::PROCESS, thread);
            self.put_node(&node, &Operation::for_label());
        }
        if let (Some(id), Some(groups)) = (place.groups, self.groups.take()) {
            let node = ExecutionNode::label(id, GROUPS, place.thread_node, thread);
            self.put_node(&node, &Operation::with_input(&groups));
        }
        let (id, parent, record) = (place.id, place.parent, operation.record.map_or(activity.id, CorrelationId));
        self.put_node(&ExecutionNode { id, name: activity.name, parent, record, fw_parent, thread }, &operation);
        self.out.end_row()
    }
}

/// Appends the inputs or outputs of an operation, after a comma.
fn put_tensors(out: &mut Buffer<'_>, name: &str, tensors: &Tensors) {
    let Tensors { values, shapes, types, strides } = tensors;
    out.put_key(false, name);
    out.put_literal(b"{\"values\":");
    for (list, before) in [(values, ""), (shapes, ",\"shapes\":"), (types, ",\"types\":"), (strides, ",\"strides\":")] {
        out.put_verbatim(before.as_bytes());
        out.put_json(&values::to_json(list));
    }
    out.put_literal(b"}");
}

/// Appends an attribute, after a comma.
fn put_attribute(out: &mut Buffer<'_>, name: &str, kind: &str, value: impl FnOnce(&mut Buffer<'_>)) {
    out.put_literal(b",{\"name\":");
    out.put_string(name);
    out.put_literal(b",\"type\":");
    out.put_string(kind);
    out.put_literal(b",\"value\":");
    value(out);
    out.put_literal(b"}");
}

fn to_millis(at: Timestamp) -> u64 {
    at.as_nanos() / 1_000_000
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::activity::{ActivityType, ArgValue, Args, Body, NO_ARGS, Track};
    use serde_json::{Value, json};

    fn operation<'t>(thread: i64, times: (u64, u64), id: u64, name: &'t str, args: &'t dyn Args) -> Activity<'t> {
        let (start, end) = (Timestamp::from_nanos(times.0), Timestamp::from_nanos(times.1));
        Activity {
            kind: ActivityType::CpuOp,
            name,
            track: Track::new(9, thread),
            body: Body::Slice { start, end },
            id: CorrelationId(id),
            linked: CorrelationId(0),
            flow: None,
            args,
        }
    }

    fn written(activities: &[Activity<'_>]) -> Value {
        written_with(None, activities)
    }

    fn written_with(groups: Option<&str>, activities: &[Activity<'_>]) -> Value {
        let mut questions = ForwardQueries::default();
        activities.iter().for_each(|activity| questions.add_activity(activity));
        let mut answers = questions.into_second_pass(groups.is_some());
        activities.iter().for_each(|activity| answers.add_activity(activity));
        let start = Timestamp::from_nanos(1_719_580_011_500_000_000);
        let groups = groups.map(str::to_owned);
        let mut file = Vec::new();
        let mut writer = ExecutionWriter::new(&mut file, (9, start), answers.finish(), groups).unwrap();
        activities.iter().for_each(|activity| writer.write_activity(activity).unwrap());
        writer.finish(Timestamp::from_nanos(1_719_580_012_000_000_000)).unwrap();
        serde_json::from_slice(&file).unwrap()
    }

    fn attr<'v>(node: &'v Value, name: &str) -> &'v Value {
        let attrs = node["attrs"].as_array().unwrap();
        attrs.iter().find(|attr| attr["name"] == name).map_or(&Value::Null, |attr| &attr["value"])
    }

    #[test]
    fn header_and_process_node_match_torch() {
        let file = written(&[]);
        assert_eq!(file["schema"], SCHEMA);
        assert_eq!((&file["pid"], &file["time"]), (&json!(9), &json!("2024-06-28 13:06:51")));
        assert_eq!(file["finish_ts"].as_u64().unwrap() - file["start_ts"].as_u64().unwrap(), 500);
        let none = json!({"values": [], "shapes": [], "types": [], "strides": []});
        let attrs = json!([
            {"name": "rf_id", "type": "uint64", "value": 0},
            {"name": "fw_parent", "type": "uint64", "value": 0},
            {"name": "seq_id", "type": "int64", "value": -1},
            {"name": "scope", "type": "uint64", "value": 7},
            {"name": "tid", "type": "uint64", "value": 0},
            {"name": "fw_tid", "type": "uint64", "value": 0},
            {"name": "op_schema", "type": "string", "value": ""},
            {"name": "kernel_backend", "type": "string", "value": ""},
            {"name": "kernel_file", "type": "string", "value": ""},
        ]);
        let process =
            json!({"id": 1, "name": PROCESS, "ctrl_deps": 1, "inputs": none, "outputs": none, "attrs": attrs});
        assert_eq!(file["nodes"], json!([process]));
    }

    #[test]
    fn nodes_have_the_enclosing_node_as_parent() {
        let file = written(&[
            operation(5, (10, 100), 71, "outer", NO_ARGS),
            operation(5, (20, 30), 72, "inner", NO_ARGS),
            operation(5, (30, 40), 73, "next \"inner\"", NO_ARGS),
            operation(5, (100, 110), 74, "after", NO_ARGS),
            operation(6, (15, 20), 75, "elsewhere", NO_ARGS),
        ]);
        let node = |node: &Value| {
            let number = |value: &Value| value.as_i64().unwrap();
            let attrs = (number(attr(node, "rf_id")), number(attr(node, "tid")));
            (number(&node["id"]), node["name"].as_str().unwrap().to_owned(), number(&node["ctrl_deps"]), attrs)
        };
        let nodes: Vec<_> = file["nodes"].as_array().unwrap().iter().map(node).collect();
        let expected = [
            (1, PROCESS, 1, (0, 0)),
            (2, THREAD, 1, (0, 5)),
            (3, "outer", 2, (71, 5)),
            (4, "inner", 3, (72, 5)),
            (5, "next \"inner\"", 3, (73, 5)),
            (6, "after", 2, (74, 5)),
            (7, THREAD, 1, (0, 6)),
            (8, "elsewhere", 7, (75, 6)),
        ];
        assert_eq!(nodes, expected.map(|(id, name, parent, attrs)| (id, name.to_owned(), parent, attrs)));
    }

    #[test]
    fn backward_operation_names_its_forward_parent() {
        let args: [(&str, ArgValue<'_>); 3] = [
            ("Fwd thread id", ArgValue::U64(6)),
            ("Sequence number", ArgValue::I64(4)),
            ("Record function scope", ArgValue::I64(1)),
        ];
        let file = written(&[
            operation(5, (20, 30), 1, "backward", &args),
            operation(5, (200, 230), 2, "too late", &args),
            operation(6, (10, 100), 3, "train", NO_ARGS),
            operation(6, (12, 18), 4, "forward", NO_ARGS),
            operation(6, (19, 90), 5, "run_backward", NO_ARGS),
            operation(6, (25, 26), 6, "later", NO_ARGS),
        ]);
        let nodes = file["nodes"].as_array().unwrap();
        let by_name = |name: &str| nodes.iter().find(|node| node["name"] == name).unwrap();
        let backward = by_name("backward");
        assert_eq!(attr(backward, "fw_parent"), &by_name("run_backward")["id"]);
        assert_eq!((attr(backward, "seq_id"), attr(backward, "scope")), (&json!(4), &json!(1)));
        assert_eq!(attr(backward, "fw_tid"), &json!(6));
        // No operation was open on that thread any more, so the parent is the thread itself.
        assert_eq!(attr(by_name("too late"), "fw_parent"), &by_name("train")["ctrl_deps"]);
    }

    #[test]
    fn process_groups_have_a_node_below_first_thread() {
        let args: [(&str, ArgValue<'_>); 1] = [("Fwd thread id", ArgValue::U64(5))];
        let backward = operation(6, (20, 30), 2, "backward", &args);
        let file =
            written_with(Some(r#"[{"pg_name": "0"}]"#), &[operation(5, (10, 100), 1, "forward", NO_ARGS), backward]);
        let nodes = file["nodes"].as_array().unwrap();
        let names: Vec<_> = nodes.iter().map(|node| node["name"].as_str().unwrap()).collect();
        assert_eq!(names, [PROCESS, THREAD, GROUPS, "forward", THREAD, "backward"]);
        assert!(nodes.iter().zip(1..).all(|(node, id)| node["id"] == id));
        let inputs = json!({"values": [r#"[{"pg_name": "0"}]"#], "shapes": [[]], "types": ["String"], "strides": [[]]});
        assert_eq!(
            (&nodes[2]["inputs"], &nodes[2]["ctrl_deps"], attr(&nodes[2], "tid")),
            (&inputs, &json!(2), &json!(5))
        );
        assert_eq!(attr(&nodes[5], "fw_parent"), &nodes[3]["id"]);
    }

    #[test]
    fn calls_instants_and_device_rows_are_not_nodes() {
        let op = operation(5, (10, 20), 1, "op", NO_ARGS);
        let call = Activity { kind: ActivityType::CudaRuntime, ..op };
        let kernel = Activity { kind: ActivityType::ConcurrentKernel, ..op };
        let instant = Activity { body: Body::Instant { at: Timestamp::from_nanos(10) }, ..op };
        assert_eq!(written(&[call, kernel, instant])["nodes"].as_array().unwrap().len(), 1);
    }
}

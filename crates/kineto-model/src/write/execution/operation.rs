//! The attributes of an operation, under the names of an execution trace.

use serde_json::Value;

use super::values::{as_list, as_value, pad_list, truncate_text};
use crate::activity::{Activity, ActivityType, ArgValue, RecordScope};
use crate::write::json_text;

/// The attributes of an operation.
#[derive(Debug, Default)]
pub(super) struct Operation {
    /// Its id in the Kineto trace, if that differs from its own id.
    pub(super) record: Option<u64>,
    pub(super) scope: u64,
    pub(super) sequence: Option<i64>,
    pub(super) forward_thread: Option<i64>,
    /// The thread, if the operation is on an additional row of the thread.
    pub(super) thread: Option<i64>,
    pub(super) inputs: Tensors,
    pub(super) outputs: Tensors,
    /// By index into [`TEXTS`]: the value as JSON.
    texts: [Option<String>; TEXTS.len()],
}

/// Inputs or outputs of an operation: lists of equal length.
#[derive(Debug, Default)]
pub(super) struct Tensors {
    pub(super) values: Vec<Value>,
    pub(super) shapes: Vec<Value>,
    pub(super) types: Vec<Value>,
    pub(super) strides: Vec<Value>,
}

/// Attributes, their types, and the arguments that they come from; the first three are on every node.
const TEXTS: [(&str, &str, &str); 16] = [
    ("op_schema", "string", "op_schema"),
    ("kernel_backend", "string", "kernel_backend"),
    ("kernel_file", "string", "kernel_file"),
    ("tensor_range", "string", "tensor_range"),
    ("collective_name", "string", "Collective name"),
    ("dtype", "string", "dtype"),
    ("in_msg_nelems", "uint64", "In msg nelems"),
    ("out_msg_nelems", "uint64", "Out msg nelems"),
    ("in_split_size", "string", "In split size"),
    ("out_split_size", "string", "Out split size"),
    ("global_rank_start", "uint64", "Global rank start"),
    ("global_rank_stride", "uint64", "Global rank stride"),
    ("pg_name", "string", "Process Group Name"),
    ("pg_desc", "string", "Process Group Description"),
    ("pg_size", "uint64", "Group size"),
    ("is_asynchronized_op", "string", "Is asynchronized op"),
];

const ALWAYS: usize = 3;

impl Operation {
    /// Returns the attributes of a node that is not an operation.
    pub(super) fn for_label() -> Operation {
        Operation { scope: RecordScope::UserScope.number().into(), ..Operation::default() }
    }

    /// Returns the attributes of a node whose input is a text.
    pub(super) fn with_input(text: &str) -> Operation {
        let (values, types) = (vec![truncate_text(text).into()], vec!["String".into()]);
        let mut inputs = Tensors { values, types, ..Tensors::default() };
        inputs.pad_to_longest();
        Operation { inputs, ..Operation::for_label() }
    }

    pub(super) fn from_activity(activity: &Activity<'_>) -> Operation {
        let scope = match activity.kind {
            ActivityType::UserAnnotation => RecordScope::UserScope,
            _ => RecordScope::Function,
        };
        let mut operation = Operation { scope: scope.number().into(), ..Operation::default() };
        // Typed values take precedence over their textual form.
        let mut values = Vec::new();
        activity.args.visit(&mut |key, value| match key {
            "input_values" => values = as_list(&value),
            _ => operation.set_argument(key, &value),
        });
        if !values.is_empty() {
            operation.inputs.values = values;
        }
        operation.inputs.pad_to_longest();
        operation.outputs.pad_to_longest();
        operation
    }

    fn set_argument(&mut self, key: &str, value: &ArgValue<'_>) {
        match key {
            "Record function id" => self.record = as_unsigned(value),
            "Record function scope" => self.scope = as_unsigned(value).unwrap_or(self.scope),
            "Sequence number" => self.sequence = as_signed(value),
            "Fwd thread id" => self.forward_thread = as_signed(value).filter(|thread| *thread != 0),
            "thread id" => self.thread = as_signed(value),
            "Concrete Inputs" => self.inputs.values = as_list(value).into_iter().map(as_value).collect(),
            "Input Dims" => self.inputs.shapes = as_list(value),
            "Input type" => self.inputs.types = as_list(value),
            "Input Strides" => self.inputs.strides = as_list(value),
            "output_values" => self.outputs.values = as_list(value),
            "output_dims" => self.outputs.shapes = as_list(value),
            "output_types" => self.outputs.types = as_list(value),
            "output_strides" => self.outputs.strides = as_list(value),
            _ => {
                let known = TEXTS.iter().zip(&mut self.texts).find(|((_, _, argument), _)| *argument == key);
                if let Some(((_, kind, _), text)) = known {
                    *text = attribute_json(kind, value);
                }
            }
        }
    }

    /// Returns the attributes, each with its type and its value as JSON.
    pub(super) fn text_attributes(&self) -> impl Iterator<Item = (&'static str, &'static str, &str)> {
        let texts = TEXTS.iter().zip(&self.texts).enumerate();
        texts.filter_map(|(number, ((name, kind, _), text))| {
            let missing = (number < ALWAYS).then_some("\"\"");
            Some((*name, *kind, text.as_deref().or(missing)?))
        })
    }
}

impl Tensors {
    /// Pads the lists to equal length with empty values.
    fn pad_to_longest(&mut self) {
        let Tensors { values, shapes, types, strides } = self;
        let longest = values.len().max(shapes.len()).max(types.len()).max(strides.len());
        pad_list(values, longest, || Value::from(""));
        pad_list(shapes, longest, || Value::Array(Vec::new()));
        pad_list(types, longest, || Value::from(""));
        pad_list(strides, longest, || Value::Array(Vec::new()));
    }
}

/// Returns the thread of the forward operation, if this is a backward one.
pub(super) fn forward_thread(activity: &Activity<'_>) -> Option<i64> {
    let mut forward = None;
    activity.args.visit(&mut |key, value| {
        if key == "Fwd thread id" {
            forward = as_signed(&value).filter(|thread| *thread != 0);
        }
    });
    forward
}

/// Returns the value of an attribute as JSON; `None` if it has another type.
fn attribute_json(kind: &str, value: &ArgValue<'_>) -> Option<String> {
    match (kind, value) {
        ("string", ArgValue::Str(text)) => Some(json_text(&ArgValue::Str(truncate_text(text)))),
        ("string", other) => {
            let text = json_text(other);
            Some(json_text(&ArgValue::Str(truncate_text(&text))))
        }
        _ => as_unsigned(value).map(|number| number.to_string()),
    }
}

fn as_signed(value: &ArgValue<'_>) -> Option<i64> {
    match *value {
        ArgValue::I64(value) => Some(value),
        ArgValue::U64(value) => i64::try_from(value).ok(),
        _ => None,
    }
}

fn as_unsigned(value: &ArgValue<'_>) -> Option<u64> {
    as_signed(value).and_then(|value| u64::try_from(value).ok())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::activity::{Args, Body, CorrelationId, Track};
    use kineto_base::time::Timestamp;
    use serde_json::json;

    fn operation(kind: ActivityType, args: &dyn Args) -> Operation {
        let at = Timestamp::from_nanos(1);
        let (body, id) = (Body::Slice { start: at, end: at }, CorrelationId(1));
        Operation::from_activity(&Activity {
            kind,
            name: "op",
            track: Track::new(1, 2),
            body,
            id,
            linked: id,
            flow: None,
            args,
        })
    }

    #[test]
    fn lists_are_padded_to_equal_length() {
        let args: [(&str, ArgValue<'_>); 6] = [
            ("Concrete Inputs", ArgValue::Strs(&["", "2", "None"])),
            ("Input Dims", ArgValue::Json("[[2, 3]]")),
            ("Input type", ArgValue::Strs(&["Tensor(float)", "Int"])),
            ("output_dims", ArgValue::Str("[[2, 3], []]")),
            ("output_types", ArgValue::Str(r#"["Tensor(float)"]"#)),
            ("output_values", ArgValue::Json(r#"[[4, 5, 0, 6, 4, "cuda:0"]]"#)),
        ];
        let Operation { inputs, outputs, scope, .. } = operation(ActivityType::UserAnnotation, &args);
        assert_eq!(scope, 7);
        assert_eq!(json!(inputs.values), json!(["", 2, "None"]));
        assert_eq!(json!(inputs.shapes), json!([[2, 3], [], []]));
        assert_eq!(json!(inputs.types), json!(["Tensor(float)", "Int", ""]));
        assert_eq!(json!(inputs.strides), json!([[], [], []]));
        assert_eq!(json!(outputs.values), json!([[4, 5, 0, 6, 4, "cuda:0"], ""]));
        assert_eq!((json!(outputs.shapes), json!(outputs.types)), (json!([[2, 3], []]), json!(["Tensor(float)", ""])));
    }

    #[test]
    fn tensor_values_take_precedence_over_texts() {
        let tensor = r#"[[1, 2, 0, 6, 4, "cpu"], 7]"#;
        for args in [
            [("Concrete Inputs", ArgValue::Strs(&["", "7"])), ("input_values", ArgValue::Str(tensor))],
            [("input_values", ArgValue::Str(tensor)), ("Concrete Inputs", ArgValue::Strs(&["", "7"]))],
        ] {
            let inputs = operation(ActivityType::CpuOp, &args).inputs;
            assert_eq!(json!(inputs.values), json!([[1, 2, 0, 6, 4, "cpu"], 7]));
        }
    }

    #[test]
    fn collectives_and_kernels_have_torch_attributes() {
        let args: [(&str, ArgValue<'_>); 7] = [
            ("Collective name", ArgValue::Str("allreduce")),
            ("In msg nelems", ArgValue::I64(12)),
            ("Out msg nelems", ArgValue::Str("twelve")),
            ("In split size", ArgValue::Json("[]")),
            ("Group size", ArgValue::U64(8)),
            ("Is asynchronized op", ArgValue::Bool(true)),
            ("kernel_file", ArgValue::Str("/tmp/\"a\".py")),
        ];
        let operation = operation(ActivityType::CpuOp, &args);
        let expected = [
            ("op_schema", "string", "\"\""),
            ("kernel_backend", "string", "\"\""),
            ("kernel_file", "string", r#""/tmp/\"a\".py""#),
            ("collective_name", "string", "\"allreduce\""),
            ("in_msg_nelems", "uint64", "12"),
            ("in_split_size", "string", "\"[]\""),
            ("pg_size", "uint64", "8"),
            ("is_asynchronized_op", "string", "\"true\""),
        ];
        assert_eq!(operation.text_attributes().collect::<Vec<_>>(), expected);
    }
}

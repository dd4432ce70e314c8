//! Arguments of operations and of memory events.

use super::event::Event;
use super::shape::{self, Shape};
use super::values::{as_signed, as_text, as_unsigned};
use crate::activity::{ActivityType, ArgValue, CPU_COUNTERS, RecordScope};

impl<'e> Event<'e> {
    /// Returns whether it is an operation or annotation of the host, which device work can be attributed to.
    pub fn is_op(&self) -> bool {
        matches!(self.kind(), Some(ActivityType::CpuOp | ActivityType::UserAnnotation))
    }

    /// Returns whether it is a function of an interpreter.
    pub fn is_python_function(&self) -> bool {
        self.kind() == Some(ActivityType::PythonFunction)
    }

    /// Returns `n` if its name is "ProfilerStep#n".
    pub(in crate::analysis) fn step_number(&self) -> Option<u64> {
        let digits = self.name().strip_prefix("ProfilerStep#")?;
        digits.bytes().all(|digit| digit.is_ascii_digit()).then(|| digits.parse().ok()).flatten()
    }

    /// Returns PyTorch's scope of the operation, from its argument by number or name; an annotation is a user's scope.
    ///
    /// `None` if there is no such argument, as in files of PyTorch.
    pub fn scope(&self) -> Option<RecordScope> {
        let recorded =
            self.exact_arg("Record function scope").or_else(|| self.exact_arg("record_scope")).and_then(|recorded| {
                match recorded {
                    ArgValue::Str(name) => name.parse().ok(),
                    number => as_unsigned(number).and_then(|number| RecordScope::from_number(number.try_into().ok()?)),
                }
            });
        let annotation = self.kind() == Some(ActivityType::UserAnnotation);
        recorded.or(annotation.then_some(RecordScope::UserScope))
    }

    /// Returns the number that a forward operation shares with its backward operation, unique in the forward thread.
    pub fn sequence_number(&self) -> Option<u64> {
        self.exact_arg("Sequence number").and_then(as_unsigned)
    }

    /// Returns the backend's handle of the operation; for a span, its field `debug_handle`.
    ///
    /// torch keeps it in memory only, with -1 for none, and never writes it to a file.
    pub fn debug_handle(&self) -> Option<i64> {
        self.exact_arg("debug_handle").and_then(as_signed)
    }

    /// Returns the forward operation's thread, for a backward operation.
    ///
    /// torch has its own thread numbers, from 1; [`EventTree`](crate::analysis::EventTree) resolves them.
    pub fn forward_thread(&self) -> Option<u64> {
        self.sequence_number()?;
        self.exact_arg("Fwd thread id").and_then(as_unsigned).filter(|thread| *thread != 0)
    }

    /// Returns torch's handle of the operation's call, which links it to the execution trace.
    pub fn record_function_id(&self) -> Option<u64> {
        self.exact_arg("Record function id").and_then(as_unsigned).filter(|id| *id != 0)
    }

    /// Returns the shapes of the inputs, with the structure of lists of tensors.
    pub fn input_dims(&self) -> Option<Vec<Shape>> {
        self.json_arg("Input Dims").and_then(Shape::parse_all)
    }

    /// Returns the strides of the inputs, with the structure of lists of tensors.
    pub fn input_strides(&self) -> Option<Vec<Shape>> {
        self.json_arg("Input Strides").and_then(Shape::parse_all)
    }

    /// Returns the types of the inputs, such as "float" or "c10::Half"; "" for inputs without a type.
    pub fn input_types(&self) -> Option<Vec<String>> {
        self.json_arg("Input type").and_then(shape::parse_strings)
    }

    /// Returns the values of inputs that are not tensors, as text; "" for tensors.
    pub fn concrete_inputs(&self) -> Option<Vec<String>> {
        self.json_arg("Concrete Inputs").and_then(shape::parse_strings)
    }

    /// Returns the frames of the stack, innermost first; empty if no stack was recorded.
    pub fn stack(&self) -> impl DoubleEndedIterator<Item = &'e str> + use<'e> {
        self.split_arg("Call stack", ';')
    }

    /// Returns the hardware and kernel counters by name, including nested operations; torch's `getPerfEventCounters`.
    ///
    /// Empty if none were recorded.
    pub fn performance_counters(&self) -> impl Iterator<Item = (&'static str, u64)> + use<'e> {
        let op = (self.is_slice() && !self.is_on_device()).then_some(*self);
        let count = move |name| Some((name, op?.arg(name).and_then(as_unsigned)?));
        CPU_COUNTERS.iter().copied().filter_map(count)
    }

    /// Returns the modules around the operation, outermost first; empty if they were not recorded.
    pub fn module_hierarchy(&self) -> impl DoubleEndedIterator<Item = &'e str> + use<'e> {
        self.split_arg("Module Hierarchy", '.')
    }

    /// Returns the call site, as "file:line".
    pub fn call_from(&self) -> Option<&'e str> {
        self.exact_arg("CallFrom").and_then(as_text)
    }

    /// Returns the name of the backend that ran it, if any.
    pub fn backend(&self) -> Option<&'e str> {
        self.exact_arg("Backend").and_then(as_text).filter(|name| !name.is_empty())
    }

    /// Returns the id of an interpreter's function.
    pub fn python_id(&self) -> Option<u64> {
        self.exact_arg("Python id").and_then(as_unsigned)
    }

    /// Returns the id of the caller of an interpreter's function; `None` for the outermost.
    pub fn python_parent_id(&self) -> Option<u64> {
        self.exact_arg("Python parent id").and_then(as_unsigned)
    }

    /// Returns which instance of its class a called module is.
    pub fn python_module_id(&self) -> Option<u64> {
        self.exact_arg("Python module id").and_then(as_unsigned)
    }

    /// Returns the number of bytes allocated (positive) or freed (negative), copied or filled.
    pub fn bytes(&self) -> Option<i64> {
        self.exact_arg("Bytes").or_else(|| self.exact_arg("bytes")).and_then(as_signed)
    }

    /// Returns the address of an allocation.
    pub fn address(&self) -> Option<u64> {
        self.exact_arg("Addr").and_then(as_unsigned)
    }

    /// Returns the allocator's total of allocated bytes after the event.
    pub fn total_allocated(&self) -> Option<u64> {
        self.exact_arg("Total Allocated").and_then(as_unsigned)
    }

    /// Returns the allocator's total of reserved bytes after the event.
    pub fn total_reserved(&self) -> Option<u64> {
        self.exact_arg("Total Reserved").and_then(as_unsigned)
    }

    pub(super) fn json_arg(&self, key: &str) -> Option<&'e str> {
        match self.arg(key)? {
            ArgValue::Json(json) => Some(json),
            _ => None,
        }
    }

    fn split_arg(&self, key: &str, between: char) -> impl DoubleEndedIterator<Item = &'e str> + use<'e> {
        let all = self.arg(key).and_then(as_text).unwrap_or_default();
        all.split(between).map(str::trim).filter(|part| !part.is_empty())
    }
}

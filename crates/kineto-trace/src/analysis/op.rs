//! What an operation of the host says of itself, and what allocators say of memory.

use super::event::Event;
use super::shape::{self, Shape};
use super::values::{signed, text, unsigned};
use crate::activity::{ActivityType, ArgValue, CPU_COUNTERS, RecordScope};

impl<'e> Event<'e> {
    /// Returns whether it is an operation or an annotation of the host: what kernels are counted to.
    pub fn is_op(&self) -> bool {
        matches!(self.kind(), Some(ActivityType::CpuOp | ActivityType::UserAnnotation))
    }

    /// Returns whether it is a function of an interpreter.
    pub fn is_python_function(&self) -> bool {
        self.kind() == Some(ActivityType::PythonFunction)
    }

    /// Returns what kind of thing the operation is to PyTorch: what it says itself, by number or name; an annotation is
    /// a user's scope. `None` of what says nothing: files of PyTorch do not.
    pub fn scope(&self) -> Option<RecordScope> {
        let said =
            self.written("Record function scope").or_else(|| self.written("record_scope")).and_then(
                |said| match said {
                    ArgValue::Str(name) => name.parse().ok(),
                    number => unsigned(number).and_then(|number| RecordScope::from_number(number.try_into().ok()?)),
                },
            );
        let annotation = self.kind() == Some(ActivityType::UserAnnotation);
        said.or(annotation.then_some(RecordScope::UserScope))
    }

    /// Returns the number that a forward operation and its backward operation have in common, within the forward thread.
    pub fn sequence_number(&self) -> Option<u64> {
        self.written("Sequence number").and_then(unsigned)
    }

    /// Returns the number by which a backend knows the operation: of a span, its field `debug_handle`.
    ///
    /// torch has it in memory alone, -1 for none; a file of its own never says it.
    pub fn debug_handle(&self) -> Option<i64> {
        self.written("debug_handle").and_then(signed)
    }

    /// Returns, of a backward operation, the thread of its forward operation.
    ///
    /// torch numbers threads by itself, from 1; where such an operation belongs, [`EventTree`](super::EventTree) knows.
    pub fn forward_thread(&self) -> Option<u64> {
        self.sequence_number()?;
        self.written("Fwd thread id").and_then(unsigned).filter(|thread| *thread != 0)
    }

    /// Returns torch's handle for the call of the operation, which joins it with the execution trace.
    pub fn record_function_id(&self) -> Option<u64> {
        self.written("Record function id").and_then(unsigned).filter(|id| *id != 0)
    }

    /// Returns the shapes of the inputs, with the structure of lists of tensors.
    pub fn input_dims(&self) -> Option<Vec<Shape>> {
        self.json("Input Dims").and_then(Shape::all)
    }

    /// Returns the strides of the inputs, with the structure of lists of tensors.
    pub fn input_strides(&self) -> Option<Vec<Shape>> {
        self.json("Input Strides").and_then(Shape::all)
    }

    /// Returns the types of the inputs, such as "float" or "c10::Half"; "" of what has none.
    pub fn input_types(&self) -> Option<Vec<String>> {
        self.json("Input type").and_then(shape::texts)
    }

    /// Returns the values of the inputs that are no tensors, as text; "" of tensors.
    pub fn concrete_inputs(&self) -> Option<Vec<String>> {
        self.json("Concrete Inputs").and_then(shape::texts)
    }

    /// Returns the frames of the stack, the innermost first; none if no stack was recorded.
    pub fn stack(&self) -> impl DoubleEndedIterator<Item = &'e str> + use<'e> {
        self.parts("Call stack", ';')
    }

    /// Returns what the processor and the kernel have counted meanwhile, by name, those within included; torch's
    /// `getPerfEventCounters`. None if nothing was counted.
    pub fn performance_counters(&self) -> impl Iterator<Item = (&'static str, u64)> + use<'e> {
        let op = (self.is_slice() && !self.is_on_device()).then_some(*self);
        let count = move |name| Some((name, op?.arg(name).and_then(unsigned)?));
        CPU_COUNTERS.iter().copied().filter_map(count)
    }

    /// Returns the modules around the operation, the outermost first; none if they were not recorded.
    pub fn module_hierarchy(&self) -> impl DoubleEndedIterator<Item = &'e str> + use<'e> {
        self.parts("Module Hierarchy", '.')
    }

    /// Returns from where it was called, as "file:line".
    pub fn call_from(&self) -> Option<&'e str> {
        self.written("CallFrom").and_then(text)
    }

    /// Returns the name of the backend that ran it, if it was handed to one.
    pub fn backend(&self) -> Option<&'e str> {
        self.written("Backend").and_then(text).filter(|name| !name.is_empty())
    }

    /// Returns, of a function of an interpreter, its number.
    pub fn python_id(&self) -> Option<u64> {
        self.written("Python id").and_then(unsigned)
    }

    /// Returns, of a function of an interpreter, the number of its caller; `None` of the outermost.
    pub fn python_parent_id(&self) -> Option<u64> {
        self.written("Python parent id").and_then(unsigned)
    }

    /// Returns, of the call of a module, which instance of its class it was.
    pub fn python_module_id(&self) -> Option<u64> {
        self.written("Python module id").and_then(unsigned)
    }

    /// Returns how many bytes were allocated (above 0) or freed (below), copied or filled.
    pub fn bytes(&self) -> Option<i64> {
        self.written("Bytes").or_else(|| self.written("bytes")).and_then(signed)
    }

    /// Returns, of an allocation, its address.
    pub fn address(&self) -> Option<u64> {
        self.written("Addr").and_then(unsigned)
    }

    /// Returns, of an allocation, how many bytes its allocator has handed out since.
    pub fn total_allocated(&self) -> Option<u64> {
        self.written("Total Allocated").and_then(unsigned)
    }

    /// Returns, of an allocation, how many bytes its allocator holds since.
    pub fn total_reserved(&self) -> Option<u64> {
        self.written("Total Reserved").and_then(unsigned)
    }

    pub(super) fn json(&self, key: &str) -> Option<&'e str> {
        match self.arg(key)? {
            ArgValue::Json(json) => Some(json),
            _ => None,
        }
    }

    fn parts(&self, key: &str, between: char) -> impl DoubleEndedIterator<Item = &'e str> + use<'e> {
        let all = self.arg(key).and_then(text).unwrap_or_default();
        all.split(between).map(str::trim).filter(|part| !part.is_empty())
    }
}

//! Floating-point operations of an operation, by formulas that programs can extend.

mod formulas;
mod operands;

pub use operands::Operands;

use super::events::Event;
use crate::hash::HashMap;
use std::fmt;
use std::sync::Arc;

/// A formula from an operation's inputs to its number of floating-point operations.
///
/// Implemented for every `Fn(&Operands<'_>) -> Option<u64>`. `None` means unknown.
pub trait FlopModel: Send + Sync {
    /// Returns the floating-point operations of one call; a fused multiply-add counts as two.
    fn flops(&self, operands: &Operands<'_>) -> Option<u64>;
}

impl<F: Fn(&Operands<'_>) -> Option<u64> + Send + Sync> FlopModel for F {
    fn flops(&self, operands: &Operands<'_>) -> Option<u64> {
        self(operands)
    }
}

/// Formulas by the operation's name, with or without the prefix `aten::`.
///
/// The default contains the operations that torch's profiler counts, with the same formulas: `mm`, `addmm`, `bmm`,
/// `baddbmm`, `conv2d`, `mul` and `add`. It adds `matmul`, `linear`, `conv1d`, `conv3d` and
/// `scaled_dot_product_attention` with its variants. Shapes come from `Input Dims`, the field `dims` of a span. Other
/// inputs come from `Concrete Inputs` or a field of their name.
///
/// ```
/// use kineto_trace::analysis::{FlopRegistry, Operands};
///
/// let registry = FlopRegistry::default().with("sigmoid", |inputs: &Operands<'_>| Some(4 * inputs.numel(0)?));
/// # drop(registry);
/// ```
#[derive(Clone)]
pub struct FlopRegistry {
    models: HashMap<String, Arc<dyn FlopModel>>,
}

impl FlopRegistry {
    /// Returns a registry without formulas.
    pub fn empty() -> FlopRegistry {
        FlopRegistry { models: HashMap::default() }
    }

    /// Adds a formula, replacing that of the same operation.
    pub fn with(mut self, op: impl Into<String>, model: impl FlopModel + 'static) -> FlopRegistry {
        self.models.insert(op.into(), Arc::new(model));
        self
    }

    /// Returns the floating-point operations of an event; `None` without a formula or if an input is missing.
    pub fn flops(&self, event: &Event<'_>) -> Option<u64> {
        let name = event.name();
        let bare = name.strip_prefix("aten::").unwrap_or(name);
        let model = self.models.get(name).or_else(|| self.models.get(bare))?;
        model.flops(&Operands::new(event))
    }
}

impl Default for FlopRegistry {
    fn default() -> FlopRegistry {
        let known = formulas::BUILT_IN.iter();
        let models = known.map(|(op, model)| ((*op).to_owned(), Arc::new(*model) as Arc<dyn FlopModel>));
        FlopRegistry { models: models.collect() }
    }
}

impl fmt::Debug for FlopRegistry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FlopRegistry").field("models", &self.models.len()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::activity::ArgValue;
    use crate::analysis::sample::SampleTrace;

    /// Returns the default registry's result for an operation with these inputs.
    fn flops(op: &str, dims: &str, concrete: &str) -> Option<u64> {
        let args = [("Input Dims", ArgValue::Json(dims)), ("Concrete Inputs", ArgValue::Json(concrete))];
        let events = SampleTrace::default().op_with(op, 0, 1, &args).into_events();
        FlopRegistry::default().flops(&events.get(0).unwrap())
    }

    #[test]
    fn matmul_flops_cover_batches_and_vectors() {
        assert_eq!(flops("aten::mm", "[[4,1568],[1568,10]]", "[]"), Some(2 * 4 * 1568 * 10));
        assert_eq!(flops("addmm", "[[10],[4,1568],[1568,10],[],[]]", "[]"), Some(125_440));
        assert_eq!(flops("aten::bmm", "[[7,2,3],[7,3,4]]", "[]"), Some(7 * 48));
        assert_eq!(flops("aten::baddbmm", "[[7,2,4],[7,2,3],[7,3,4]]", "[]"), Some(7 * 48));
        assert_eq!(flops("matmul", "[[5,1,2,3],[7,3,4]]", "[]"), Some(35 * 48));
        assert_eq!(flops("matmul", "[[3],[3]]", "[]"), Some(6));
        assert_eq!(flops("matmul", "[[3],[7,3,4]]", "[]"), Some(7 * 24));
        assert_eq!(flops("linear", "[[2,5,8],[3,8],[3]]", "[]"), Some(2 * 10 * 8 * 3));
        for wrong in ["[[2,3],[4,5]]", "[[2,3]]", "[[],[]]", "", "[[5,2,3],[7,3,4]]"] {
            assert_eq!(flops("matmul", wrong, "[]"), None, "{wrong}");
        }
    }

    #[test]
    fn convolution_flops_match_torch() {
        let inputs =
            |stride, padding, dilation, groups| format!(r#"["","","","{stride}","{padding}","{dilation}","{groups}"]"#);
        let plain = inputs("[1, 1]", "[0, 0]", "[1, 1]", "1");
        let dims = "[[4,3,16,16],[8,3,3,3],[8],[],[],[],[]]";
        assert_eq!(flops("aten::conv2d", dims, &plain), Some(2 * 4 * 14 * 14 * 9 * 3 * 8));
        let strided = inputs("[2, 1]", "[1, 0]", "[2, 1]", "1");
        assert_eq!(flops("aten::conv2d", dims, &strided), Some(2 * 4 * 7 * 14 * 9 * 3 * 8));
        assert_eq!(flops("aten::conv2d", dims, &inputs("[1, 1]", "same", "[1, 1]", "1")), Some(442_368));
        let grouped = "[[1,8,5,5],[8,1,3,3]]";
        assert_eq!(flops("conv2d", grouped, &inputs("1", "1", "1", "8")), Some(2 * 25 * 9 * 8 * 8 / 8));
        assert_eq!(flops("conv1d", "[[2,3,10],[4,3,3]]", "[]"), Some(2 * 2 * 8 * 3 * 3 * 4));
        assert_eq!(flops("conv3d", "[[1,1,4,4,4],[2,1,2,2,2]]", "[]"), Some(2 * 27 * 8 * 2));
        assert_eq!(flops("conv2d", "[[2,3,10],[4,3,3]]", "[]"), None);
        assert_eq!(flops("conv2d", dims, &inputs("[0, 0]", "[0, 0]", "[1, 1]", "1")), None);
        assert_eq!(flops("conv2d", dims, &inputs("[1, 1]", "[0, 0]", "[1, 1]", "0")), None);
        assert_eq!(flops("conv2d", "[[1,1,2,2],[1,1,3,3]]", &plain), None);
    }

    #[test]
    fn attention_and_elementwise_flops() {
        let dims = "[[2,8,128,64],[2,8,256,64],[2,8,256,32],[],[],[]]";
        assert_eq!(flops("scaled_dot_product_attention", dims, "[]"), Some(2 * 16 * 128 * 256 * (64 + 32)));
        assert_eq!(flops("aten::mul", "[[3,4],[]]", "[]"), Some(12));
        assert_eq!(flops("aten::add", "[[3,4],[3,4],[]]", "[]"), Some(12));
        assert_eq!(flops("aten::relu", "[[3,4]]", "[]"), None);
        assert_eq!(flops("mul", "[[9223372036854775807,3]]", "[]"), None);
    }

    #[test]
    fn span_fields_are_inputs_and_formulas_can_be_added() {
        let args = [
            ("Input Dims", ArgValue::Json("[[1,1,4,4],[1,1,3,3]]")),
            ("stride", ArgValue::U64(1)),
            ("padding", ArgValue::Str("[1, 1]")),
        ];
        let events = SampleTrace::default().op_with("conv2d", 0, 1, &args).into_events();
        let event = events.get(0).unwrap();
        assert_eq!(FlopRegistry::default().flops(&event), Some(2 * 16 * 9));
        let own = FlopRegistry::empty().with("conv2d", |inputs: &Operands<'_>| inputs.numel(1));
        assert_eq!(own.flops(&event), Some(9));
        assert_eq!(FlopRegistry::empty().flops(&event), None);
    }
}

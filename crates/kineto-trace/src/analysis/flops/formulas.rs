//! The built-in formulas; a multiplication and an addition count as one operation each.

use super::operands::{Operands, checked_product};

type Formula = fn(&Operands<'_>) -> Option<u64>;

/// Formulas by the operation's name.
pub(super) const BUILT_IN: &[(&str, Formula)] = &[
    ("mm", |inputs| matmul_flops(inputs, 0, 1)),
    ("addmm", |inputs| matmul_flops(inputs, 1, 2)),
    ("bmm", |inputs| matmul_flops(inputs, 0, 1)),
    ("baddbmm", |inputs| matmul_flops(inputs, 1, 2)),
    ("matmul", |inputs| matmul_flops(inputs, 0, 1)),
    ("linear", linear_flops),
    ("conv1d", |inputs| convolution_flops(inputs, 1)),
    ("conv2d", |inputs| convolution_flops(inputs, 2)),
    ("conv3d", |inputs| convolution_flops(inputs, 3)),
    ("scaled_dot_product_attention", attention_flops),
    ("_scaled_dot_product_flash_attention", attention_flops),
    ("_scaled_dot_product_flash_attention_for_cpu", attention_flops),
    ("_scaled_dot_product_efficient_attention", attention_flops),
    ("_scaled_dot_product_cudnn_attention", attention_flops),
    ("mul", |inputs| inputs.numel(0)),
    ("add", |inputs| inputs.numel(0)),
];

/// 2 M N K for each pair of matrices; dimensions before the last two are broadcast.
fn matmul_flops(inputs: &Operands<'_>, left: usize, right: usize) -> Option<u64> {
    let (left, right) = (inputs.shape(left)?, inputs.shape(right)?);
    // A vector is a row on the left and a column on the right.
    let (batches, rows, inner) = match left.as_slice() {
        [inner] => (&[][..], 1, *inner),
        [batches @ .., rows, inner] => (batches, *rows, *inner),
        [] => return None,
    };
    let (others, depth, columns) = match right.as_slice() {
        [depth] => (&[][..], *depth, 1),
        [others @ .., depth, columns] => (others, *depth, *columns),
        [] => return None,
    };
    if inner != depth {
        return None;
    }
    checked_product(&[2, checked_product(&broadcast_shape(batches, others)?)?, rows, columns, inner])
}

/// Returns the broadcast shape; `None` if the shapes are incompatible.
fn broadcast_shape(a: &[u64], b: &[u64]) -> Option<Vec<u64>> {
    let at = |dims: &[u64], back: usize| dims.len().checked_sub(back).and_then(|at| dims.get(at)).copied().unwrap_or(1);
    let fit = |back| match (at(a, back), at(b, back)) {
        (1, other) | (other, 1) => Some(other),
        (x, y) => (x == y).then_some(x),
    };
    (1..=a.len().max(b.len())).map(fit).collect()
}

/// Multiplies each row of the input by each row of the weight: 2 numel(input) out.
fn linear_flops(inputs: &Operands<'_>) -> Option<u64> {
    let (input, weight) = (inputs.shape(0)?, inputs.shape(1)?);
    match (input.last(), weight.as_slice()) {
        (Some(features), [out, inner]) if features == inner => checked_product(&[2, checked_product(&input)?, *out]),
        _ => None,
    }
}

/// 2 N out(1..) kernel(1..) Cin Cout / groups, over one to three dimensions.
///
/// Inputs: input, weight, bias, stride, padding, dilation, groups.
fn convolution_flops(inputs: &Operands<'_>, dimensions: usize) -> Option<u64> {
    let (input, weight) = (inputs.shape(0)?, inputs.shape(1)?);
    let ([batch, channels, sizes @ ..], [out_channels, _, kernel @ ..]) = (input.as_slice(), weight.as_slice()) else {
        return None;
    };
    if sizes.len() != dimensions || kernel.len() != dimensions {
        return None;
    }
    // A single number applies to all dimensions.
    let each = |list: Option<Vec<u64>>, default: u64, at: usize| match list.as_deref() {
        None => Some(default),
        Some([one]) => Some(*one),
        Some(list) => list.get(at).copied(),
    };
    let is_same = inputs.value(4, "padding").is_some_and(|padding| padding == "same");
    let output = |at: usize| {
        let (size, kernel) = (*sizes.get(at)?, *kernel.get(at)?);
        let stride = each(inputs.integers(3, "stride"), 1, at)?;
        let padding = each(inputs.integers(4, "padding"), 0, at)?;
        let dilation = each(inputs.integers(5, "dilation"), 1, at)?;
        let padded = size.checked_add(padding.checked_mul(2)?)?;
        let reach = dilation.checked_mul(kernel.checked_sub(1)?)?.checked_add(1)?;
        let steps = if is_same { size.checked_sub(1)? } else { padded.checked_sub(reach)? };
        steps.checked_div(stride)?.checked_add(1)
    };
    let outputs: Vec<u64> = (0..dimensions).map(output).collect::<Option<_>>()?;
    let groups = each(inputs.integers(6, "groups"), 1, 0)?;
    let all = [2, *batch, checked_product(&outputs)?, checked_product(kernel)?, *channels, *out_channels];
    checked_product(&all)?.checked_div(groups)
}

/// Queries by keys, and weights by values: 2 B H Lq Lk (E + Ev). As in torch's counter, a causal mask does not halve
/// it.
fn attention_flops(inputs: &Operands<'_>) -> Option<u64> {
    let (query, key, value) = (inputs.shape(0)?, inputs.shape(1)?, inputs.shape(2)?);
    match (query.as_slice(), key.as_slice(), value.as_slice()) {
        ([heads @ .., queries, width], [.., keys, depth], [.., values, out]) if width == depth && keys == values => {
            checked_product(&[2, checked_product(heads)?, *queries, *keys, width.checked_add(*out)?])
        }
        _ => None,
    }
}

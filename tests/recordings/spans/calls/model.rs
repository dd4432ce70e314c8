//! A model whose structs hold their inner layers, and their span last, as candle's do.

use super::scenarios::work;
use tracing::{Span, info_span};

struct Linear {
    _weights: Vec<f32>,
    span: Span,
}

struct Attention {
    query: Linear,
    output: Linear,
    span: Span,
}

pub(super) struct Model {
    attention: Attention,
    head: Linear,
    span: Span,
}

impl Linear {
    fn load() -> Linear {
        let weights = vec![0.0; 8];
        let span = info_span!(target: "linear", "linear");
        Linear { _weights: weights, span }
    }

    fn forward(&self) {
        let _entered = self.span.enter();
        work();
    }
}

impl Attention {
    fn load() -> Attention {
        let (query, output) = (Linear::load(), Linear::load());
        let span = info_span!(target: "attention", "attention");
        Attention { query, output, span }
    }

    fn forward(&self) {
        let _entered = self.span.enter();
        self.query.forward();
        self.output.forward();
    }
}

impl Model {
    pub(super) fn load() -> Model {
        let (attention, head) = (Attention::load(), Linear::load());
        let span = info_span!(target: "model", "model");
        Model { attention, head, span }
    }

    pub(super) fn forward(&self) {
        let _entered = self.span.enter();
        self.attention.forward();
        work();
        self.head.forward();
    }
}

//! Attention between positions, and its gradient.

use super::node_type::{NodeType, Shapes, must, same};
use serde::{Deserialize, Serialize};

/// `qkv, [counter] -> y, lse`; the counter if there is dropout.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Attention {
    pub heads: usize,
    pub kv_heads: usize,
    pub causal: bool,
    pub rotary: bool,
    pub dropout: f64,
    pub stream: u32,
}

/// `dy, qkv, y, lse, [counter] -> dx`
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct AttentionBwd {
    pub forward: Attention,
}

impl NodeType for Attention {
    fn verify(&self, at: &Shapes<'_>) -> Result<(), String> {
        must(at.inputs.len() == 1 + usize::from(self.dropout > 0.0), "a counter belongs to dropout")?;
        self.fits(at.input(0), at.output(0), at.output(1))
    }
}

impl NodeType for AttentionBwd {
    fn verify(&self, at: &Shapes<'_>) -> Result<(), String> {
        must(at.inputs.len() == 4 + usize::from(self.forward.dropout > 0.0), "a counter belongs to dropout")?;
        same(at.input(0), at.input(2))?;
        same(at.input(1), at.output(0))?;
        self.forward.fits(at.input(1), at.input(2), at.input(3))
    }
}

impl Attention {
    /// Checks the shapes of the packed values, the output and the sums of exponentials.
    fn fits(&self, packed: &[usize], y: &[usize], lse: &[usize]) -> Result<(), String> {
        let Self { heads, kv_heads, .. } = *self;
        let ([batch, positions, columns], [_, _, width]) = (packed, y) else {
            return Err("attention takes positions".into());
        };
        must(heads > 0 && kv_heads > 0 && heads.is_multiple_of(kv_heads), "heads share keys and values evenly")?;
        must(width.is_multiple_of(heads), "heads share the features evenly")?;
        let head_dim = width / heads;
        must(!self.rotary || head_dim.is_multiple_of(2), "only pairs of features can be turned")?;
        must(*columns == width + 2 * kv_heads * head_dim, format!("{packed:?} cannot give {y:?}"))?;
        same(&y[..2], &packed[..2])?;
        same(lse, &[*batch, heads, *positions])
    }
}

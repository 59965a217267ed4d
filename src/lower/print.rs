//! The program as text and as Graphviz.

use super::program::{LValueId, Op, Program};
use crate::ir::Phase;
use crate::ops;
use crate::ops::Dir;
use crate::ops::OpKind;
use std::collections::HashMap;
use std::fmt::{self, Write as _};

/// The dimensions of an operation, short: `m=64 n=128 k=64`.
#[must_use]
pub(crate) fn dims(kind: &OpKind) -> String {
    match kind {
        OpKind::Gemm(g) => format!("m={} n={} k={}", g.m, g.n, g.k),
        OpKind::Conv2d(ops::Conv2d { geometry: g, .. })
        | OpKind::Conv2dBwdX(ops::Conv2dBwdX { geometry: g, .. })
        | OpKind::Conv2dBwdW(ops::Conv2dBwdW { geometry: g, .. }) => {
            format!("{}x{}x{}x{} {}x{} -> {}x{}x{}", g.n, g.h, g.w, g.c, g.kernel[0], g.kernel[1], g.ho, g.wo, g.f)
        }
        OpKind::BiasAdd(ops::BiasAdd { rows, cols }) | OpKind::BiasGrad(ops::BiasGrad { rows, cols, .. }) => {
            format!("rows={rows} cols={cols}")
        }
        OpKind::LayerNorm(ops::LayerNorm { rows, cols, .. })
        | OpKind::LayerNormBwd(ops::LayerNormBwd { rows, cols, .. }) => {
            format!("rows={rows} cols={cols}")
        }
        OpKind::BatchNorm(ops::BatchNorm { rows, channels, .. })
        | OpKind::BatchNormEval(ops::BatchNormEval { rows, channels, .. })
        | OpKind::BatchNormBwd(ops::BatchNormBwd { rows, channels, .. }) => {
            format!("rows={rows} channels={channels}")
        }
        OpKind::MaxPool(ops::MaxPool { geometry: g })
        | OpKind::MaxPoolBwd(ops::MaxPoolBwd { geometry: g })
        | OpKind::AvgPool(ops::AvgPool { geometry: g })
        | OpKind::AvgPoolBwd(ops::AvgPoolBwd { geometry: g }) => {
            format!("{}x{}x{}x{} {}x{} -> {}x{}", g.n, g.h, g.w, g.c, g.size[0], g.size[1], g.ho, g.wo)
        }
        OpKind::GlobalAvgPool(ops::GlobalAvgPool { n, hw, c })
        | OpKind::GlobalAvgPoolBwd(ops::GlobalAvgPoolBwd { n, hw, c }) => format!("n={n} hw={hw} c={c}"),
        OpKind::SoftmaxCe(ops::SoftmaxCe { rows, classes, .. })
        | OpKind::SoftmaxCeGrad(ops::SoftmaxCeGrad { rows, classes, .. })
        | OpKind::SoftmaxCeFused(ops::SoftmaxCeFused { rows, classes, .. })
        | OpKind::Accuracy(ops::Accuracy { rows, classes }) => format!("rows={rows} classes={classes}"),
        OpKind::DenseCe(ops::DenseCe { rows, features, classes, .. }) => {
            format!("rows={rows} features={features} classes={classes}")
        }
        OpKind::LossMean(ops::LossMean { rows }) => format!("rows={rows}"),
        OpKind::Transpose(ops::Transpose { n, rows, cols }) => format!("n={n} {rows}x{cols}"),
        OpKind::Fill(ops::Fill { len })
        | OpKind::Act(ops::Act { len, .. })
        | OpKind::ActBwd(ops::ActBwd { len, .. })
        | OpKind::Dropout(ops::Dropout { len, .. })
        | OpKind::DropoutBwd(ops::DropoutBwd { len, .. })
        | OpKind::SignBits(ops::SignBits { len })
        | OpKind::Add(ops::Add { len })
        | OpKind::AddAct(ops::AddAct { len, .. })
        | OpKind::Mse(ops::Mse { len })
        | OpKind::MseGrad(ops::MseGrad { len })
        | OpKind::MseFused(ops::MseFused { len })
        | OpKind::Cast(ops::Cast { len })
        | OpKind::ScaleUpdate(ops::ScaleUpdate { len }) => format!("len={len}"),
        OpKind::AdamStep(ops::AdamStep { len, segments, .. }) | OpKind::SgdStep(ops::SgdStep { len, segments, .. }) => {
            format!("len={len} segments={}", segments.len())
        }
        OpKind::WeightStep(ops::WeightStep { m, n, k, .. }) => format!("m={m} n={n} k={k}"),
        OpKind::BiasStep(ops::BiasStep { rows, cols, .. }) => format!("rows={rows} cols={cols}"),
        OpKind::StepMetrics(ops::StepMetrics { segments }) => format!("segments={}", segments.len()),
        OpKind::UpdateMetrics(ops::UpdateMetrics { segments }) => format!("segments={segments}"),
        OpKind::StepInc | OpKind::BiasCorr { .. } => String::new(),
    }
}

impl Program {
    /// One operation on one line, without its number.
    #[must_use]
    pub fn op_line(&self, op: &Op) -> String {
        let list =
            |dir| op.bound(dir).map(|(slot, v)| format!("{slot}={}", self.value(v).name)).collect::<Vec<_>>().join(" ");
        format!("{:<22} {:<34} {} -> {}", op.kind.name(), dims(&op.kind), list(Dir::In), list(Dir::Out))
    }

    /// The program in Graphviz's language: operations in order, edges where one reads what another wrote.
    #[must_use]
    pub fn to_dot(&self, label: impl Fn(usize, &Op) -> String) -> String {
        let mut out = String::from(
            "digraph program {\n  rankdir=TB;\n  node [shape=box, style=filled, fontname=\"Helvetica\", fontsize=10];\n",
        );
        let mut writer: HashMap<LValueId, usize> = HashMap::new();
        for (index, op) in self.ops.iter().enumerate() {
            let fill = crate::ir::phase_fill(op.phase);
            let _ =
                writeln!(out, "  n{index} [label=\"{}\", fillcolor=\"{fill}\"];", label(index, op).replace('"', "'"));
            for read in op.reads() {
                let mut id = Some(read);
                while let Some(value) = id {
                    if let Some(from) = writer.get(&value) {
                        let _ = writeln!(out, "  n{from} -> n{index};");
                        break;
                    }
                    id = self.value(value).alias.map(|a| a.of);
                }
            }
            for written in op.writes() {
                writer.insert(written, index);
            }
        }
        out.push_str("}\n");
        out
    }
}

impl fmt::Display for Program {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut phase: Option<Phase> = None;
        for (index, op) in self.ops.iter().enumerate() {
            if phase != Some(op.phase) {
                writeln!(f, "-- {}", op.phase.name())?;
                phase = Some(op.phase);
            }
            writeln!(f, "{index:>4}  {}", self.op_line(op))?;
        }
        Ok(())
    }
}

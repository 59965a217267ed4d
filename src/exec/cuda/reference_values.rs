//! The values of one operation on the host, on which plain loops run: drawn at random, and copied to the device and
//! back in its types.

use super::reference_bounds::Judged;
use crate::lower::{LValueId, Op, Program};
use crate::model::{Cell, Rng};
use crate::ops::{self, Dir, OpKind};
use crate::tensor::DType;
use half::{bf16, f16};
use std::collections::BTreeMap;

/// The memory of one root value.
pub(super) enum Host<T> {
    Real(Vec<T>),
    Raw(Vec<u8>),
}

/// A slot that is bound to a value.
#[derive(Clone, Copy)]
pub(super) struct BoundSlot {
    pub(super) index: usize,
    pub(super) name: &'static str,
    pub(super) dir: Dir,
    pub(super) id: LValueId,
}

/// Everything that an operation touches.
pub(super) struct Values<'a, T> {
    pub(super) kind: &'a OpKind,
    pub(super) program: &'a Program,
    pub(super) slots: Vec<BoundSlot>,
    /// By root value.
    pub(super) hosts: BTreeMap<LValueId, Host<T>>,
}

impl<'a, T: Judged> Values<'a, T> {
    /// Outputs are poisoned, and inputs drawn. Values beside an output in a flat vector must not change: they are
    /// zeros, or, beside the segments of an update, numbers from `padding`, which would change if an update wrote to
    /// them too. Beside the gradients that are checked for overflow, they are NaN.
    pub(super) fn drawn(op: &'a Op, program: &'a Program, rng: &mut Rng, padding: &mut Rng) -> Self {
        let is_update = op.kind.flat_update().is_some();
        let slots = op.kind.slots().iter().zip(&op.args).enumerate();
        let slots = slots
            .filter_map(|(index, (slot, arg))| Some(BoundSlot { index, name: slot.name, dir: slot.dir, id: (*arg)? }));
        let mut out = Self { kind: &op.kind, program, slots: slots.collect(), hosts: BTreeMap::new() };
        for slot in &out.slots {
            let (root, _) = program.root(slot.id);
            let value = program.value(root);
            out.hosts.entry(root).or_insert_with(|| {
                if is_real(value.dtype) {
                    let len = value.shape.len();
                    let beside = |_| match &op.kind {
                        _ if is_update => round(padding.range(0.5, 1.5), value.dtype),
                        // Whatever was in the memory of gradients before.
                        OpKind::ScaleUpdate(_) => f64::NAN,
                        _ => 0.0,
                    };
                    Host::Real((0..len).map(beside).map(T::exact).collect())
                } else {
                    Host::Raw(vec![0xff; value.bytes() as usize])
                }
            });
        }
        for is_drawn in [false, true] {
            let slots: Vec<BoundSlot> = out.slots.iter().filter(|s| s.dir.is_read() == is_drawn).copied().collect();
            slots.into_iter().for_each(|slot| out.fill(slot, rng));
        }
        out.copy_bias();
        out
    }

    /// Poisons an output, or draws an input.
    fn fill(&mut self, slot: BoundSlot, rng: &mut Rng) {
        let (root, start) = self.program.root(slot.id);
        let value = self.program.value(slot.id);
        let len = value.shape.len();
        match self.hosts.get_mut(&root) {
            Some(Host::Real(values)) => {
                let stretches = parts(self.kind, slot.name, start, len);
                for i in stretches.into_iter().flat_map(|(from, to)| from..to) {
                    values[i] = if slot.dir.is_read() {
                        T::exact(round(draw(self.kind, slot.name, rng), value.dtype))
                    } else {
                        T::exact(f64::NAN)
                    };
                }
                if matches!(slot.name, "scaler" | "scaler_prev" | "scale" | "skipped") && slot.dir.is_read() {
                    // Only a counter may skip the step: the results of others would be those of no update.
                    let overflowed = f64::from(u8::from(matches!(self.kind, OpKind::StepInc(_))));
                    let set = [1024.0, 5.0, 1.0 / 1024.0, overflowed, 3.0].map(T::exact);
                    let set = if slot.name == "skipped" { &set[4..] } else { &set[..] };
                    values[start..start + len].copy_from_slice(&set[..len]);
                }
            }
            Some(Host::Raw(bytes)) if slot.dir.is_read() => {
                let size = value.dtype.size();
                let drawn = draw_raw(self.kind, slot.name, value.dtype, len, rng);
                bytes[start * size..start * size + drawn.len()].copy_from_slice(&drawn);
            }
            _ => {}
        }
    }

    /// The narrow copy of a bias is a plain copy.
    fn copy_bias(&mut self) {
        let (Some(bias), Some(narrow)) = (self.slot("bias"), self.slot("bias_half")) else { return };
        let len = self.program.value(bias.id).shape.len();
        let dtype = self.program.value(narrow.id).dtype;
        let homes = [bias, narrow].map(|slot| self.program.root(slot.id));
        let (root, start) = homes[0];
        let rounded: Vec<T> = match self.hosts.get(&root) {
            Some(Host::Real(v)) => v[start..start + len].iter().map(|v| T::exact(round(v.f64(), dtype))).collect(),
            _ => Vec::new(),
        };
        for (root, start) in homes {
            if let Some(Host::Real(v)) = self.hosts.get_mut(&root) {
                v[start..start + rounded.len()].copy_from_slice(&rounded);
            }
        }
    }

    /// The slot with this name, if it is bound.
    pub(super) fn slot(&self, name: &str) -> Option<BoundSlot> {
        self.slots.iter().find(|slot| slot.name == name).copied()
    }

    /// The numbers of a slot: reals, or labels.
    pub(super) fn reals(&self, name: &str) -> Option<Vec<T>> {
        let id = self.slot(name)?.id;
        let (root, start) = self.program.root(id);
        let value = self.program.value(id);
        match self.hosts.get(&root) {
            Some(Host::Real(v)) => Some(v[start..start + value.shape.len()].to_vec()),
            // Labels.
            Some(Host::Raw(bytes)) if value.dtype == DType::I32 => {
                let number = |b: &[u8]| T::exact(f64::from(i32::from_le_bytes([b[0], b[1], b[2], b[3]])));
                let words = bytes.chunks_exact(4).map(number);
                Some(words.skip(start).take(value.shape.len()).collect())
            }
            _ => None,
        }
    }

    /// Overwrites the reals of a slot.
    pub(super) fn put(&mut self, name: &str, values: &[T]) {
        let Some(slot) = self.slot(name) else { return };
        let (root, start) = self.program.root(slot.id);
        if let Some(Host::Real(host)) = self.hosts.get_mut(&root) {
            host[start..start + values.len()].copy_from_slice(values);
        }
    }

    /// Like [`Self::put`], only for the ranges that the operation writes.
    pub(super) fn put_parts(&mut self, name: &str, values: &[T]) {
        let Some(slot) = self.slot(name) else { return };
        let (root, start) = self.program.root(slot.id);
        if let Some(Host::Real(host)) = self.hosts.get_mut(&root) {
            for (from, to) in parts(self.kind, name, start, values.len()) {
                host[from..to].copy_from_slice(&values[from - start..to - start]);
            }
        }
    }
}

/// The nearest value of an element type.
pub(super) fn round(value: f64, dtype: DType) -> f64 {
    match dtype {
        DType::F32 => f64::from(value as f32),
        DType::Bf16 => f64::from(bf16::from_f64(value).to_f32()),
        DType::F16 => f64::from(f16::from_f64(value).to_f32()),
        _ => value,
    }
}

pub(super) fn to_bytes<T: Judged>(values: &[T], dtype: DType) -> Vec<u8> {
    match dtype {
        DType::Bf16 => values.iter().flat_map(|v| bf16::from_f64(v.f64()).to_le_bytes()).collect(),
        DType::F16 => values.iter().flat_map(|v| f16::from_f64(v.f64()).to_le_bytes()).collect(),
        _ => values.iter().flat_map(|v| (v.f64() as f32).to_le_bytes()).collect(),
    }
}

pub(super) fn from_bytes(bytes: &[u8], dtype: DType) -> Vec<f64> {
    let halves = |read: fn(u16) -> f64| bytes.chunks_exact(2).map(|b| read(u16::from_le_bytes([b[0], b[1]]))).collect();
    match dtype {
        DType::Bf16 => halves(|b| f64::from(bf16::from_bits(b).to_f32())),
        DType::F16 => halves(|b| f64::from(f16::from_bits(b).to_f32())),
        _ => bytes.chunks_exact(4).map(|b| f64::from(f32::from_le_bytes([b[0], b[1], b[2], b[3]]))).collect(),
    }
}

pub(super) const fn is_real(dtype: DType) -> bool {
    matches!(dtype, DType::F32 | DType::F16 | DType::Bf16)
}

/// A random input of a slot.
fn draw(kind: &OpKind, slot: &str, rng: &mut Rng) -> f64 {
    match (kind, slot) {
        (_, "rstd" | "var_prev" | "running_var" | "v_prev") => rng.range(0.05, 1.5),
        (_, "parts" | "probs" | "corr" | "grad_norm_seg" | "update_max_seg" | "row_loss") => rng.range(0.1, 1.2),
        (_, "hyper") => rng.range(1e-3, 1e-2),
        (_, "gamma") => rng.range(0.5, 1.5),
        // If the weight is large, the error of a step grows from position to position.
        (
            OpKind::Recurrence(ops::Recurrence { geometry: g })
            | OpKind::RecurrenceBwd(ops::RecurrenceBwd { geometry: g }),
            "weight",
        ) => rng.normal() * 0.5 / (g.units as f64).sqrt(),
        (OpKind::RecurrenceBwd(ops::RecurrenceBwd { geometry: g }), "gates") => match g.cell {
            Cell::RnnTanh => rng.range(-1.0, 1.0),
            Cell::RnnRelu => rng.normal(),
            Cell::Gru | Cell::Lstm => rng.range(0.0, 1.0),
        },
        _ => rng.normal(),
    }
}

/// Random whole numbers of a slot.
fn draw_raw(kind: &OpKind, slot: &str, dtype: DType, len: usize, rng: &mut Rng) -> Vec<u8> {
    match (kind, slot) {
        (_, "ticket") => vec![0; len * dtype.size()],
        (
            OpKind::Embedding(ops::Embedding { vocab, .. }) | OpKind::EmbeddingBwd(ops::EmbeddingBwd { vocab, .. }),
            "tokens",
        ) => (0..len).flat_map(|_| (rng.below(*vocab) as i32).to_le_bytes()).collect(),
        (_, "steps") => 97i64.to_le_bytes().to_vec(),
        (
            OpKind::SoftmaxCe(ops::SoftmaxCe { classes, .. })
            | OpKind::SoftmaxCeGrad(ops::SoftmaxCeGrad { classes, .. })
            | OpKind::SoftmaxCeFused(ops::SoftmaxCeFused { classes, .. })
            | OpKind::DenseCe(ops::DenseCe { classes, .. })
            | OpKind::Accuracy(ops::Accuracy { classes, .. }),
            "labels",
        ) => (0..len).flat_map(|_| (rng.below(*classes) as i32).to_le_bytes()).collect(),
        (OpKind::MaxPoolBwd(ops::MaxPoolBwd { geometry: g }), "index") => {
            let places = g.size[0] * g.size[1];
            (0..len).flat_map(|_| (rng.below(places) as u64).to_le_bytes()[..dtype.size()].to_vec()).collect()
        }
        (_, "counter" | "counter_prev") => [7i64, 41].iter().flat_map(|v| v.to_le_bytes()).collect(),
        _ => (0..len * dtype.size()).map(|_| rng.below(256) as u8).collect(),
    }
}

/// The ranges of a value that an operation accesses: the segments for an update, which does not change the padding
/// between them.
fn parts(kind: &OpKind, slot: &str, start: usize, len: usize) -> Vec<(usize, usize)> {
    if let (OpKind::ScaleUpdate(op), "grad") = (kind, slot) {
        return op.segments.iter().map(|s| (start + s.start, start + s.start + s.len)).collect();
    }
    match kind.flat_update() {
        Some(update) if len == update.len && slot != "grad_norm_seg" && slot != "update_max" => {
            update.segments.iter().map(|s| (start + s.start, start + s.start + s.len)).collect()
        }
        _ => vec![(start, start + len)],
    }
}

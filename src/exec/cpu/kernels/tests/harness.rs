//! Runs one operation on separate buffers, with guards around each, poison values in outputs and workspace, and any
//! number of parts.

use crate::exec::cpu::call::{Call, MAX_ARGS, Part};
use crate::exec::cpu::kernels::resolve;
use crate::model::Cell;
use crate::ops::{self, Dir, OpKind};
use crate::select::{Isa, Variant, catalogue};
use std::collections::BTreeMap;
use std::sync::Barrier;

/// Bytes before and after each buffer that no kernel may touch.
const GUARD: usize = 64;
const GUARD_BYTE: u8 = 0xa5;

/// Element types of slots.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    Real,
    I32,
    I64,
    U8,
    U16,
    Work,
}

/// Values by slot name; whole numbers are stored as f64 too.
pub type Values = BTreeMap<&'static str, Vec<f64>>;

/// The instruction sets of this machine.
pub fn isas() -> Vec<Isa> {
    let mut isas = vec![Isa::Portable];
    #[cfg(target_arch = "x86_64")]
    {
        if is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma") {
            isas.push(Isa::Avx2);
        }
        if ["avx512f", "avx512bw", "avx512dq", "avx512vl"].iter().all(|f| has(f)) {
            isas.push(Isa::Avx512);
        }
    }
    isas
}

#[cfg(target_arch = "x86_64")]
fn has(feature: &str) -> bool {
    match feature {
        "avx512f" => is_x86_feature_detected!("avx512f"),
        "avx512bw" => is_x86_feature_detected!("avx512bw"),
        "avx512dq" => is_x86_feature_detected!("avx512dq"),
        _ => is_x86_feature_detected!("avx512vl"),
    }
}

/// Type and length of each slot of an operation; slots that only a GPU's plan binds are left out.
pub fn slots(op: &OpKind) -> Vec<(&'static str, Dir, Kind, usize)> {
    op.slots()
        .iter()
        .take(MAX_ARGS)
        .filter(|slot| slot.name != "skipped")
        .map(|slot| (slot.name, slot.dir, kind(op, slot.name), length(op, slot.name)))
        .collect()
}

fn kind(op: &OpKind, name: &str) -> Kind {
    match (name, op) {
        ("labels" | "tokens", _) => Kind::I32,
        ("counter" | "counter_prev" | "steps", _) => Kind::I64,
        ("mask", _) => Kind::U8,
        (
            "index",
            OpKind::MaxPool(ops::MaxPool { geometry: g }) | OpKind::MaxPoolBwd(ops::MaxPoolBwd { geometry: g }),
        ) => {
            if g.size[0] * g.size[1] > 256 {
                Kind::U16
            } else {
                Kind::U8
            }
        }
        ("work", _) => Kind::Work,
        _ => Kind::Real,
    }
}

fn length(op: &OpKind, name: &str) -> usize {
    if name == "work" {
        return 0;
    }
    match op {
        OpKind::Fill(ops::Fill { len })
        | OpKind::Act(ops::Act { len, .. })
        | OpKind::ActBwd(ops::ActBwd { len, .. })
        | OpKind::Multiply(ops::Multiply { len })
        | OpKind::Scale(ops::Scale { len, .. })
        | OpKind::Add(ops::Add { len }) => *len,
        OpKind::Mse(ops::Mse { len })
        | OpKind::MseGrad(ops::MseGrad { len })
        | OpKind::MseFused(ops::MseFused { len }) => {
            if name == "loss" {
                1
            } else {
                *len
            }
        }
        OpKind::Transpose(ops::Transpose { n, rows, cols }) => n * rows * cols,
        OpKind::Concat(_) | OpKind::Slice(_) => op.slot(name).and_then(|slot| op.extent(slot)).unwrap_or(0),
        OpKind::Dropout(ops::Dropout { len, .. }) | OpKind::DropoutBwd(ops::DropoutBwd { len, .. }) => match name {
            "counter" => 2,
            "mask" => len.div_ceil(8),
            _ => *len,
        },
        OpKind::BiasAdd(ops::BiasAdd { rows, cols }) | OpKind::BiasGrad(ops::BiasGrad { rows, cols, .. }) => match name
        {
            "x" | "y" | "dy" => rows * cols,
            _ => *cols,
        },
        OpKind::BatchNorm(ops::BatchNorm { rows, channels, .. })
        | OpKind::BatchNormEval(ops::BatchNormEval { rows, channels, .. })
        | OpKind::BatchNormBwd(ops::BatchNormBwd { rows, channels, .. }) => match name {
            "x" | "y" | "dy" | "dx" | "saved" => rows * channels,
            _ => *channels,
        },
        OpKind::LayerNorm(ops::LayerNorm { rows, cols, .. })
        | OpKind::LayerNormBwd(ops::LayerNormBwd { rows, cols, .. }) => match name {
            "x" | "y" | "dy" | "dx" => rows * cols,
            "mean" | "rstd" => *rows,
            _ => *cols,
        },
        OpKind::Attention(ops::Attention { geometry: g }) | OpKind::AttentionBwd(ops::AttentionBwd { geometry: g }) => {
            match name {
                "qkv" | "dx" => g.batch * g.positions * (g.heads + 2 * g.kv_heads) * g.head_dim,
                "lse" => g.batch * g.heads * g.positions,
                "counter" => 2,
                _ => g.batch * g.positions * g.heads * g.head_dim,
            }
        }
        OpKind::MaxPool(ops::MaxPool { geometry: g })
        | OpKind::MaxPoolBwd(ops::MaxPoolBwd { geometry: g })
        | OpKind::AvgPool(ops::AvgPool { geometry: g })
        | OpKind::AvgPoolBwd(ops::AvgPoolBwd { geometry: g }) => match name {
            "x" | "dx" => g.n * g.h * g.w * g.c,
            _ => g.n * g.ho * g.wo * g.c,
        },
        OpKind::GlobalAvgPool(ops::GlobalAvgPool { n, hw, c })
        | OpKind::GlobalAvgPoolBwd(ops::GlobalAvgPoolBwd { n, hw, c }) => match name {
            "x" | "dx" => n * hw * c,
            _ => n * c,
        },
        OpKind::ClassifierCe(_)
        | OpKind::Embedding(_)
        | OpKind::EmbeddingBwd(_)
        | OpKind::AddSinusoids(_)
        | OpKind::Take(_)
        | OpKind::TakeBwd(_) => op.slot(name).and_then(|slot| op.extent(slot)).unwrap(),
        OpKind::SoftmaxCe(ops::SoftmaxCe { rows, classes, .. })
        | OpKind::SoftmaxCeGrad(ops::SoftmaxCeGrad { rows, classes, .. })
        | OpKind::SoftmaxCeFused(ops::SoftmaxCeFused { rows, classes, .. })
        | OpKind::Accuracy(ops::Accuracy { rows, classes }) => match name {
            "logits" | "probs" | "dlogits" | "scores" => rows * classes,
            "labels" | "row_loss" => *rows,
            _ => 1,
        },
        OpKind::LossMean(ops::LossMean { rows }) => {
            if name == "loss" {
                1
            } else {
                *rows
            }
        }
        OpKind::PointLoss(ops::PointLoss { len, .. })
        | OpKind::PointLossGrad(ops::PointLossGrad { len, .. })
        | OpKind::PointLossFused(ops::PointLossFused { len, .. })
        | OpKind::BinaryAccuracy(ops::BinaryAccuracy { len }) => match name {
            "loss" | "accuracy" => 1,
            _ => *len,
        },
        OpKind::StepInc { .. } | OpKind::BiasCorr { .. } => 2,
        OpKind::AdamStep(_) | OpKind::SgdStep(_) | OpKind::LionStep(_) => {
            let flat = op.flat_update().unwrap();
            match name {
                "hyper" => flat.options.rates(),
                "corr" => 2,
                "update_max" | "grad_norm_seg" => flat.segments.len(),
                _ => flat.len,
            }
        }
        OpKind::GradNorms(op) => match name {
            "grad" => op.len,
            _ => op.segments.len(),
        },
        OpKind::UpdateRates(op) => match name {
            "steps" => 1,
            "grad_norm_seg" => op.segments,
            "rates" => op.rates(),
            _ => 2,
        },
        OpKind::UpdateMetrics(ops::UpdateMetrics { segments }) => match name {
            "update_max" | "grad_norm" => 1,
            _ => *segments,
        },
        OpKind::Cast { .. }
        | OpKind::ScaleUpdate { .. }
        | OpKind::AddAct { .. }
        | OpKind::SignBits { .. }
        | OpKind::DenseCe { .. }
        | OpKind::GemmNorm { .. }
        | OpKind::GemmNormBwd { .. }
        | OpKind::WeightStep { .. }
        | OpKind::BiasStep { .. }
        | OpKind::StepMetrics { .. } => panic!("a CPU has no kernel for {}", op.name()),
        OpKind::Recurrence(ops::Recurrence { geometry: g })
        | OpKind::RecurrenceBwd(ops::RecurrenceBwd { geometry: g }) => {
            let (rows, wide) = (g.batch * g.positions, g.cell.gates() * g.units);
            let states = if g.last { g.batch } else { rows };
            match name {
                "weight" => g.units * wide,
                "bias" => wide,
                "other" => states * g.units,
                "y" if !g.reverse => states * g.units,
                "y" | "dy" => states * g.units * if g.bidirectional { 2 } else { 1 },
                "inner" | "before" => rows * g.units,
                _ => rows * wide,
            }
        }
        OpKind::Gemm(g) => match name {
            "a" => g.m * g.k,
            "b" => g.k * g.n,
            "bias" => g.n,
            _ => g.m * g.n,
        },
        OpKind::Conv2d(ops::Conv2d { geometry: g, .. })
        | OpKind::Conv2dBwdX(ops::Conv2dBwdX { geometry: g, .. })
        | OpKind::Conv2dBwdW(ops::Conv2dBwdW { geometry: g, .. }) => {
            let x = g.n * g.h * g.w * g.c;
            let weight = g.kernel[0] * g.kernel[1] * (g.c / g.groups) * g.f;
            let y = g.n * g.ho * g.wo * g.f;
            let (a, b, c, bias) = match op {
                OpKind::Conv2d { .. } => (x, weight, y, g.f),
                OpKind::Conv2dBwdX { .. } => (y, weight, x, g.c),
                _ => (x, y, weight, 0),
            };
            match name {
                "a" => a,
                "b" => b,
                "bias" => bias,
                _ => c,
            }
        }
    }
}

/// The output whose memory a `*_prev` slot shares.
fn output_of(prev: &str) -> Option<&'static str> {
    Some(match prev {
        "param_prev" => "param",
        "m_prev" => "m",
        "v_prev" => "v",
        "momentum_prev" => "momentum",
        "db_prev" => "db",
        "dgamma_prev" => "dgamma",
        "dbeta_prev" => "dbeta",
        "mean_prev" => "running_mean",
        "var_prev" => "running_var",
        "counter_prev" => "counter",
        "c_prev" => "c",
        "dweight_prev" => "dweight",
        _ => return None,
    })
}

/// A buffer at a multiple of 64 bytes between two guards.
struct Guarded {
    memory: Vec<u64>,
    start: usize,
    bytes: usize,
}

impl Guarded {
    fn new(bytes: usize) -> Self {
        let mut memory = vec![0u64; (bytes + 2 * GUARD + 64) / 8 + 1];
        let base = memory.as_mut_ptr().cast::<u8>();
        let start = base.align_offset(64) + GUARD;
        // SAFETY: the vector has room for the buffer, its guards and the alignment.
        unsafe { base.add(start - GUARD).write_bytes(GUARD_BYTE, bytes + 2 * GUARD) };
        Self { memory, start, bytes }
    }

    fn pointer(&mut self) -> *mut u8 {
        // SAFETY: the buffer is in the vector.
        unsafe { self.memory.as_mut_ptr().cast::<u8>().add(self.start) }
    }

    fn is_intact(&self) -> bool {
        // SAFETY: both guards are in the vector.
        let bytes = unsafe {
            std::slice::from_raw_parts(
                self.memory.as_ptr().cast::<u8>().add(self.start - GUARD),
                self.bytes + 2 * GUARD,
            )
        };
        let end = GUARD + self.bytes;
        bytes[..GUARD].iter().chain(&bytes[end..]).all(|&byte| byte == GUARD_BYTE)
    }
}

/// How to run an operation.
#[derive(Clone, Debug)]
pub struct How {
    pub variant: Variant,
    pub parts: usize,
    /// Pairs of an output and the input whose memory it shares.
    pub aliases: Vec<(&'static str, &'static str)>,
    /// Slots that are not bound.
    pub unbound: Vec<&'static str>,
}

impl How {
    pub fn new(variant: Variant) -> Self {
        Self { variant, parts: 1, aliases: Vec::new(), unbound: Vec::new() }
    }
}

/// Whether an operation uses a slot of its table.
fn is_used(op: &OpKind, name: &str) -> bool {
    match op {
        OpKind::LayerNorm(ops::LayerNorm { rms, .. }) | OpKind::LayerNormBwd(ops::LayerNormBwd { rms, .. }) => {
            !rms || !["mean", "beta", "dbeta", "dbeta_prev"].contains(&name)
        }
        OpKind::Recurrence(ops::Recurrence { geometry: g }) => match name {
            "other" => g.bidirectional && g.reverse,
            "inner" => matches!(g.cell, Cell::Gru | Cell::Lstm),
            _ => true,
        },
        OpKind::RecurrenceBwd(ops::RecurrenceBwd { geometry: g }) => match name {
            "inner" => matches!(g.cell, Cell::Gru | Cell::Lstm),
            "before" | "dhidden" => g.cell == Cell::Gru,
            _ => true,
        },
        OpKind::EmbeddingBwd(ops::EmbeddingBwd { accumulate, .. }) => *accumulate || name != "dweight_prev",
        OpKind::ClassifierCe(_) if name != "work" && name != "accuracy" => {
            op.slot(name).is_some_and(|slot| op.is_needed(slot))
        }
        _ => true,
    }
}

fn element_size(kind: Kind, reals: usize) -> usize {
    match kind {
        Kind::Real => reals,
        Kind::I64 => 8,
        Kind::I32 => 4,
        Kind::U16 => 2,
        Kind::U8 | Kind::Work => 1,
    }
}

/// The outputs after the operation has run on `inputs`. Reals are returned as f64, which represents every f32 (except
/// for NaN's bits).
pub fn run(op: &OpKind, inputs: &Values, how: &How) -> Values {
    let reals = if how.variant == Variant::RefF64 { 8 } else { 4 };
    let kernel = resolve(op, how.variant, how.parts).expect("a kernel");
    let slots = slots(op);
    let mut buffers: Vec<Option<Guarded>> = Vec::new();
    let mut pointers = [std::ptr::null_mut(); MAX_ARGS];
    let position = |name: &str| slots.iter().position(|slot| slot.0 == name).expect("a slot of that name");
    for (name, _, kind, len) in &slots {
        let bytes = if *kind == Kind::Work {
            catalogue::workspace_bytes(op, how.variant, how.parts)
        } else {
            len * element_size(*kind, reals)
        };
        let bound = !how.unbound.contains(name) && is_used(op, name);
        buffers.push(bound.then(|| Guarded::new(bytes)));
    }
    for (i, buffer) in buffers.iter_mut().enumerate() {
        let Some(buffer) = buffer else { continue };
        let (name, _, kind, _) = slots[i];
        let pointer = buffer.pointer();
        // SAFETY: the buffer has as many bytes. All ones are NaN as a real and -1 as a whole number.
        unsafe { pointer.write_bytes(0xff, buffer.bytes) };
        pointers[i] = pointer;
        if let Some(values) = inputs.get(name) {
            write(pointer, kind, reals, values);
        }
    }
    for (name, values) in inputs {
        if let Some(out) = output_of(name).map(position)
            && !pointers[out].is_null()
        {
            write(pointers[out], slots[out].2, reals, values);
            pointers[position(name)] = pointers[out];
        }
    }
    for (out, on) in &how.aliases {
        pointers[position(out)] = pointers[position(on)];
    }
    let call = Call {
        run: kernel.run,
        op: op.clone(),
        ptr: pointers,
        table: kernel.table,
        phases: kernel.phases,
        parallel: kernel.parallel,
        around: None,
    };
    execute(&call, how.parts);
    for (buffer, slot) in buffers.iter().zip(&slots) {
        assert!(buffer.as_ref().is_none_or(Guarded::is_intact), "{op:?}: {} was overrun", slot.0);
    }
    let mut outputs = Values::new();
    for (i, (name, dir, kind, len)) in slots.iter().enumerate() {
        if *dir == Dir::Out && !pointers[i].is_null() {
            outputs.insert(name, read(pointers[i], *kind, reals, *len));
        }
    }
    outputs
}

/// Runs all parts: on threads if there are two, otherwise one after the other, in varying order.
fn execute(call: &Call, parts: usize) {
    if parts == 2 {
        let barrier = Barrier::new(parts);
        std::thread::scope(|scope| {
            for index in 0..parts {
                let barrier = &barrier;
                scope.spawn(move || {
                    for phase in 0..call.phases {
                        // SAFETY: the buffers are as the operation says.
                        unsafe { (call.run)(call, Part { index, count: parts, phase }) };
                        barrier.wait();
                    }
                });
            }
        });
        return;
    }
    for phase in 0..call.phases {
        for i in 0..parts {
            let index = if phase % 2 == 0 { parts - 1 - i } else { i };
            // SAFETY: the buffers are as the operation says.
            unsafe { (call.run)(call, Part { index, count: parts, phase }) };
        }
    }
}

fn write(to: *mut u8, kind: Kind, reals: usize, values: &[f64]) {
    for (i, &value) in values.iter().enumerate() {
        // SAFETY: the buffer was made for these values.
        unsafe {
            match kind {
                Kind::Real if reals == 8 => to.cast::<f64>().add(i).write(value),
                Kind::Real => to.cast::<f32>().add(i).write(value as f32),
                Kind::I32 => to.cast::<i32>().add(i).write(value as i32),
                Kind::I64 => to.cast::<i64>().add(i).write(value as i64),
                Kind::U16 => to.cast::<u16>().add(i).write(value as u16),
                Kind::U8 | Kind::Work => to.add(i).write(value as u8),
            }
        }
    }
}

fn read(from: *const u8, kind: Kind, reals: usize, len: usize) -> Vec<f64> {
    // SAFETY: the buffer was made for these values.
    let element = |i: usize| unsafe {
        match kind {
            Kind::Real if reals == 8 => from.cast::<f64>().add(i).read(),
            Kind::Real => from.cast::<f32>().add(i).read().into(),
            Kind::I32 => from.cast::<i32>().add(i).read().into(),
            Kind::I64 => from.cast::<i64>().add(i).read() as f64,
            Kind::U16 => from.cast::<u16>().add(i).read().into(),
            Kind::U8 | Kind::Work => from.add(i).read().into(),
        }
    };
    (0..len).map(element).collect()
}

/// Asserts that two sets of outputs are the same bit for bit, NaN being equal to NaN.
pub fn assert_same(what: &str, found: &Values, expected: &Values) {
    for (name, values) in found {
        for (i, (a, b)) in values.iter().zip(&expected[name]).enumerate() {
            let same = a.to_bits() == b.to_bits() || (a.is_nan() && b.is_nan());
            assert!(same, "{what}: {name}[{i}] is {a}, not {b}");
        }
    }
}

/// Asserts that outputs agree to `tolerance` of each tensor's largest magnitude.
pub fn assert_close(what: &str, found: &Values, expected: &Values, tolerance: f64) {
    for (name, values) in found {
        let expected = &expected[name];
        assert_eq!(values.len(), expected.len());
        let largest = expected.iter().filter(|v| v.is_finite()).fold(0.0f64, |max, v| max.max(v.abs()));
        for (i, (a, b)) in values.iter().zip(expected).enumerate() {
            let near = (a - b).abs() <= tolerance * largest + 1e-30 || a == b || (a.is_nan() && b.is_nan());
            assert!(near, "{what}: {name}[{i}] is {a}, not {b} (largest {largest})");
        }
    }
}

//! Every kernel against its reference twin: one operation of a step on fresh random inputs, on the device and by
//! plain loops in f64 that carry a bound for the rounding of every value.
//!
//! Outputs are poisoned before the kernel runs, so that an element that nobody writes shows, and what lies beside the
//! outputs in flat vectors must come out as it went in.

use super::judge::{Judged, flushed, is_product, judge};
use super::{Step, stepped};
use crate::exec::ExecError;
use crate::exec::cpu::call::{Call, MAX_ARGS, Part};
use crate::exec::cpu::kernels::reference;
use crate::exec::cpu::kernels::reference::bounded::Bounded;
use crate::lower::{Dir, LValueId, OpKind, ParamOrder};
use crate::model::Rng;
use crate::ops;
use crate::select::cuda::{Real, real_of};
use crate::tensor::DType;
use half::{bf16, f16};
use std::collections::BTreeMap;

/// What comparing one operation gave.
#[derive(Clone, Debug, PartialEq)]
pub struct Twin {
    pub op: usize,
    pub kernel: String,
    /// The largest part that an error takes of what is allowed.
    pub ratio: f64,
    /// Where that is; empty where there is no error.
    pub at: String,
    /// What is wrong, in words; empty where nothing is.
    pub wrong: String,
}

/// The memory of one root value, on the host.
enum Host<T> {
    Real(Vec<T>),
    Raw(Vec<u8>),
}

/// The nearest value of an element type.
fn round(value: f64, dtype: DType) -> f64 {
    match dtype {
        DType::F32 => f64::from(value as f32),
        DType::Bf16 => f64::from(bf16::from_f64(value).to_f32()),
        DType::F16 => f64::from(f16::from_f64(value).to_f32()),
        _ => value,
    }
}

fn to_bytes<T: Judged>(values: &[T], dtype: DType) -> Vec<u8> {
    match dtype {
        DType::Bf16 => values.iter().flat_map(|v| bf16::from_f64(v.f64()).to_le_bytes()).collect(),
        DType::F16 => values.iter().flat_map(|v| f16::from_f64(v.f64()).to_le_bytes()).collect(),
        _ => values.iter().flat_map(|v| (v.f64() as f32).to_le_bytes()).collect(),
    }
}

fn from_bytes(bytes: &[u8], dtype: DType) -> Vec<f64> {
    let halves = |read: fn(u16) -> f64| bytes.chunks_exact(2).map(|b| read(u16::from_le_bytes([b[0], b[1]]))).collect();
    match dtype {
        DType::Bf16 => halves(|b| f64::from(bf16::from_bits(b).to_f32())),
        DType::F16 => halves(|b| f64::from(f16::from_bits(b).to_f32())),
        _ => bytes.chunks_exact(4).map(|b| f64::from(f32::from_le_bytes([b[0], b[1], b[2], b[3]]))).collect(),
    }
}

const fn is_real(dtype: DType) -> bool {
    matches!(dtype, DType::F32 | DType::F16 | DType::Bf16)
}

/// A random input of a slot.
fn draw(kind: &OpKind, slot: &str, rng: &mut Rng) -> f64 {
    match (kind, slot) {
        (_, "rstd" | "var_prev" | "running_var" | "v_prev") => rng.range(0.05, 1.5),
        (_, "parts" | "probs" | "corr" | "grad_norm_seg" | "update_max_seg" | "row_loss") => rng.range(0.1, 1.2),
        (_, "hyper") => rng.range(1e-3, 1e-2),
        (_, "gamma") => rng.range(0.5, 1.5),
        _ => rng.normal(),
    }
}

/// Random whole numbers of a slot.
fn draw_raw(kind: &OpKind, slot: &str, dtype: DType, len: usize, rng: &mut Rng) -> Vec<u8> {
    match (kind, slot) {
        (_, "ticket") => vec![0; len * dtype.size()],
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

impl Step {
    /// Compares one operation with its reference. The step's values are gone afterwards.
    ///
    /// # Errors
    /// Where the device fails. A difference is no error: it is in the result.
    pub fn compare_with_reference(&mut self, index: usize, seed: u64) -> Result<Twin, ExecError> {
        let program = &self.compiled.plan.program;
        let op = &program.ops[index];
        let real = real_of(program, op, self.compiled.selection.real);
        match real {
            _ if !is_product(&op.kind) => self.compare::<Bounded<24, 24>>(index, seed, None),
            Real::F32 => self.compare::<Bounded<24, 24>>(index, seed, None),
            Real::Tf32 | Real::F16 => self.compare::<Bounded<24, 11>>(index, seed, Some(real)),
            Real::Bf16 => self.compare::<Bounded<24, 8>>(index, seed, Some(real)),
        }
    }

    /// As [`Self::compare_with_reference`], where products round their operands as `coarse` does.
    fn compare<T: Judged>(&mut self, index: usize, seed: u64, coarse: Option<Real>) -> Result<Twin, ExecError> {
        let compiled = std::sync::Arc::clone(&self.compiled);
        let (program, plan) = (&compiled.plan.program, &compiled.plan);
        let op = &program.ops[index];
        let mut rng = Rng::new(seed, index as u64);
        let mut twin = Twin {
            op: index,
            kernel: compiled.selection.choices[index].kernel.clone(),
            ratio: 0.0,
            at: String::new(),
            wrong: String::new(),
        };
        let slots: Vec<(usize, &str, Dir, LValueId)> = op
            .kind
            .slots()
            .iter()
            .zip(&op.args)
            .enumerate()
            .filter_map(|(i, (slot, arg))| Some((i, slot.name, slot.dir, (*arg)?)))
            .collect();
        // Everything that the operation touches, poisoned, then its inputs drawn.
        let is_update = matches!(op.kind, OpKind::AdamStep { .. } | OpKind::SgdStep { .. });
        let mut padding = Rng::new(seed, 0x0FAD_0000 + index as u64);
        let mut hosts: BTreeMap<LValueId, Host<T>> = BTreeMap::new();
        for (_, _, _, id) in &slots {
            let (root, _) = program.root(*id);
            let value = program.value(root);
            hosts.entry(root).or_insert_with(|| {
                if is_real(value.dtype) {
                    // What is written is poisoned below. What lies beside it stays: zeros, or, beside the segments of an
                    // update, numbers that change where an update takes them too.
                    let len = value.shape.len();
                    let beside = |_| if is_update { round(padding.range(0.5, 1.5), value.dtype) } else { 0.0 };
                    Host::Real((0..len).map(beside).map(T::exact).collect())
                } else {
                    Host::Raw(vec![0xff; value.bytes() as usize])
                }
            });
        }
        for wanted in [Dir::Out, Dir::In] {
            for (_, slot, dir, id) in slots.iter().filter(|s| s.2 == wanted) {
                let (root, start) = program.root(*id);
                let value = program.value(*id);
                let len = value.shape.len();
                match hosts.get_mut(&root) {
                    Some(Host::Real(values)) => {
                        let stretches = parts(&op.kind, slot, start, len);
                        for i in stretches.into_iter().flat_map(|(from, to)| from..to) {
                            values[i] = match dir {
                                Dir::In => T::exact(round(draw(&op.kind, slot, &mut rng), value.dtype)),
                                _ => T::exact(f64::NAN),
                            };
                        }
                        if matches!(*slot, "scaler" | "scaler_prev" | "scale" | "skipped") && *dir == Dir::In {
                            let set = [1024.0, 5.0, 1.0 / 1024.0, 0.0, 3.0].map(T::exact);
                            let set = if *slot == "skipped" { &set[4..] } else { &set[..] };
                            values[start..start + len].copy_from_slice(&set[..len]);
                        }
                    }
                    Some(Host::Raw(bytes)) if *dir == Dir::In => {
                        let size = value.dtype.size();
                        let drawn = draw_raw(&op.kind, slot, value.dtype, len, &mut rng);
                        bytes[start * size..start * size + drawn.len()].copy_from_slice(&drawn);
                    }
                    _ => {}
                }
            }
        }
        // The narrow copy of a bias is a copy.
        let slot =
            |name: &str| slots.iter().find(|s| s.1 == name).map(|s| (program.root(s.3), program.value(s.3).clone()));
        if let (Some(((root, start), bias)), Some(((copy, from), narrow))) = (slot("bias"), slot("bias_half")) {
            let len = bias.shape.len();
            let rounded: Vec<T> = match hosts.get(&root) {
                Some(Host::Real(v)) => {
                    v[start..start + len].iter().map(|v| T::exact(round(v.f64(), narrow.dtype))).collect()
                }
                _ => Vec::new(),
            };
            for (root, start) in [(root, start), (copy, from)] {
                if let Some(Host::Real(v)) = hosts.get_mut(&root) {
                    v[start..start + rounded.len()].copy_from_slice(&rounded);
                }
            }
        }
        for (root, host) in &hosts {
            let Some(place) = plan.place(*root) else { continue };
            let bytes = match host {
                Host::Real(values) => to_bytes(values, program.value(*root).dtype),
                Host::Raw(bytes) => bytes.clone(),
            };
            self.write_bytes(self.env.address(plan, place), &bytes)?;
        }
        if let Some(shadow) = &self.shadow {
            shadow.stale.store(false, std::sync::atomic::Ordering::Release);
        }
        self.run_ops(index, index + 1)?;
        self.synchronize()?;
        let filters = filter_slot(&op.kind).and_then(|slot| {
            let id = op.arg(slot)?;
            let param = program.value(id).param?;
            Some((slot, program.params[param.0 as usize].order))
        });
        reference(&op.kind, &slots, program, &mut hosts, filters);
        let mut worst = Vec::new();
        for (root, host) in &hosts {
            let Some(place) = plan.place(*root) else { continue };
            let value = program.value(*root);
            let mut bytes = vec![0; value.bytes() as usize];
            self.read_bytes(self.env.address(plan, place), &mut bytes)?;
            match host {
                Host::Real(expected) => {
                    let mut found = from_bytes(&bytes, value.dtype);
                    let is_parts =
                        slots.iter().any(|s| s.1 == "parts" && s.2 == Dir::Out && program.root(s.3).0 == *root);
                    let folded = stepped::totals(expected).to_vec();
                    // How a kernel spreads parts is its own affair.
                    let expected = if is_parts { &folded } else { expected };
                    if is_parts {
                        found = stepped::totals(&found.iter().map(|v| T::exact(*v)).collect::<Vec<T>>())
                            .map(T::f64)
                            .to_vec();
                    }
                    let judged = judge(&found, expected, value.dtype, coarse, flushed(&op.kind));
                    let text = format!("{} {}", value.name, judged.text);
                    if judged.ratio > 1.0 {
                        worst.push(text.clone());
                    }
                    if judged.ratio > twin.ratio {
                        (twin.ratio, twin.at) = (judged.ratio, text);
                    }
                }
                Host::Raw(expected) => {
                    if let Some(at) = bytes.iter().zip(expected).position(|(f, e)| f != e) {
                        worst.push(format!(
                            "{} differs at byte {at}: {:#x}, expected {:#x}",
                            value.name, bytes[at], expected[at]
                        ));
                    }
                }
            }
        }
        twin.wrong = worst.join("; ");
        Ok(twin)
    }
}

/// The stretches of a value that an operation touches: the segments for an update, which leaves the padding between
/// them alone.
fn parts(kind: &OpKind, slot: &str, start: usize, len: usize) -> Vec<(usize, usize)> {
    match kind {
        OpKind::AdamStep(ops::AdamStep { segments, len: flat, .. })
        | OpKind::SgdStep(ops::SgdStep { segments, len: flat, .. })
            if len == *flat && slot != "grad_norm_seg" && slot != "update_max" =>
        {
            segments.iter().map(|s| (start + s.start, start + s.start + s.len)).collect()
        }
        _ => vec![(start, start + len)],
    }
}

/// The slot that holds filters, which lie differently on a CPU.
const fn filter_slot(kind: &OpKind) -> Option<&'static str> {
    match kind {
        OpKind::Conv2d { .. } | OpKind::Conv2dBwdX { .. } => Some("b"),
        OpKind::Conv2dBwdW { .. } => Some("c"),
        _ => None,
    }
}

/// Runs the reference on the host's copies, and puts what came out where the device would have put it.
fn reference<T: Judged>(
    kind: &OpKind,
    slots: &[(usize, &str, Dir, LValueId)],
    program: &crate::lower::Program,
    hosts: &mut BTreeMap<LValueId, Host<T>>,
    filters: Option<(&str, ParamOrder)>,
) {
    let reals = |hosts: &BTreeMap<LValueId, Host<T>>, name: &str| -> Option<Vec<T>> {
        let (_, _, _, id) = slots.iter().find(|s| s.1 == name)?;
        let (root, start) = program.root(*id);
        match hosts.get(&root) {
            Some(Host::Real(v)) => Some(v[start..start + program.value(*id).shape.len()].to_vec()),
            // Labels.
            Some(Host::Raw(bytes)) if program.value(*id).dtype == DType::I32 => {
                let number = |b: &[u8]| T::exact(f64::from(i32::from_le_bytes([b[0], b[1], b[2], b[3]])));
                let words = bytes.chunks_exact(4).map(number);
                Some(words.skip(start).take(program.value(*id).shape.len()).collect())
            }
            _ => None,
        }
    };
    let scaler = reals(hosts, "scaler").or_else(|| reals(hosts, "scaler_prev"));
    let scale = reals(hosts, "scale").map_or(T::exact(1.0), |s| s[0]);
    if let OpKind::ScaleUpdate { .. } = kind {
        let grads = reals(hosts, "grad").unwrap_or_default();
        let [s, count, skipped] = scaler.map_or([1.0, 0.0, 0.0], |s| [s[0], s[1], s[4]].map(T::f64));
        let overflow = grads.iter().any(|g| !g.f64().is_finite());
        let next = if overflow {
            [(s * 0.5).max(1.0), 0.0, 1.0 / s, 1.0, skipped + 1.0]
        } else {
            [s, count + 1.0, 1.0 / s, 0.0, skipped]
        };
        put(hosts, slots, program, "scaler", &next.map(T::exact));
        return;
    }
    if let Some(results) = stepped::reference(kind, &|slot| reals(hosts, slot)) {
        for (slot, values) in results {
            put(hosts, slots, program, slot, &values);
        }
        return;
    }
    if let OpKind::AddAct(ops::AddAct { act, act_grad, .. }) = kind {
        let [a, b, saved] = ["a", "b", "saved"].map(|s| reals(hosts, s).unwrap_or_default());
        let sum = |i: usize| act.map_or(a[i] + b[i], |f| (a[i] + b[i]).act(f));
        let y: Vec<T> = (0..a.len()).map(|i| act_grad.map_or(sum(i), |f| sum(i) * saved[i].act_grad(f))).collect();
        put(hosts, slots, program, "y", &y);
        return;
    }
    // The reference adds no residual: it leaves the activation, and both follow here.
    let residual = reals(hosts, "residual");
    let (kind, after) = match (kind, &residual) {
        (OpKind::BatchNorm(ops::BatchNorm { rows, channels, eps, momentum, act }), Some(_)) => {
            let (rows, channels, eps, momentum) = (*rows, *channels, *eps, *momentum);
            (&OpKind::BatchNorm(ops::BatchNorm { rows, channels, eps, momentum, act: None }), *act)
        }
        _ => (kind, None),
    };
    // Buffers of the reference's own: filters in its order, gradients with their scale taken off.
    let mut own: Vec<(usize, &str, Dir, LValueId, Vec<T>)> = Vec::new();
    let permute = |slot: &str, values: Vec<T>, to_cpu: bool| -> Vec<T> {
        match filters {
            Some((name, ParamOrder::Ohwi { f, c, kh, kw })) if name == slot || (name == "c" && slot == "c_prev") => {
                let (device, cpu) = (ParamOrder::Ohwi { f, c, kh, kw }, ParamOrder::Hwio { f, c, kh, kw });
                let (from, to) = if to_cpu { (device, cpu) } else { (cpu, device) };
                to.to_stored(&from.to_logical(&values)).into_owned()
            }
            _ => values,
        }
    };
    let mut call = Call {
        run: reference::resolve::<T>().run,
        op: kind.clone(),
        ptr: [std::ptr::null_mut(); MAX_ARGS],
        table: Box::default(),
        phases: 1,
        parallel: false,
        around: None,
    };
    for &(index, slot, dir, id) in slots.iter().filter(|s| s.0 < MAX_ARGS) {
        let (root, start) = program.root(id);
        let value = program.value(id);
        match hosts.get_mut(&root) {
            Some(Host::Raw(bytes)) => call.ptr[index] = bytes[start * value.dtype.size()..].as_mut_ptr(),
            Some(Host::Real(_)) => {
                let mut values = permute(slot, reals(hosts, slot).unwrap_or_default(), true);
                if slot == "grad"
                    && let Some(scaler) = &scaler
                {
                    values.iter_mut().for_each(|v| *v = *v * scaler[2]);
                }
                own.push((index, slot, dir, id, values));
            }
            None => {}
        }
    }
    // What is updated or accumulated in place starts from the value before.
    for (out, prev) in [("c", "c_prev"), ("db", "db_prev"), ("dgamma", "dgamma_prev"), ("dbeta", "dbeta_prev")] {
        let before = own.iter().find(|b| b.1 == prev).map(|b| b.4.clone());
        if let (Some(before), Some(target)) = (before, own.iter_mut().find(|b| b.1 == out)) {
            target.4 = before;
        }
    }
    for buffer in &mut own {
        call.ptr[buffer.0] = buffer.4.as_mut_ptr().cast();
    }
    // SAFETY: every bound slot points at as many elements as the program's verifier demands, and nobody else touches
    // them.
    unsafe { (call.run)(&call, Part::WHOLE) };
    let results: Vec<(&str, Vec<T>)> =
        own.into_iter().filter(|b| b.2 == Dir::Out).map(|(_, slot, _, _, v)| (slot, permute(slot, v, false))).collect();
    for (slot, values) in &results {
        let mut values = values.clone();
        if matches!(*slot, "dlogits" | "dy") {
            values.iter_mut().for_each(|v| *v = *v * scale);
        }
        if let Some(residual) = residual.as_ref().filter(|_| *slot == "y") {
            let act = |v: T| after.map_or(v, |f| v.act(f));
            values.iter_mut().zip(residual).for_each(|(v, r)| *v = act(*v + *r));
        }
        put_parts(hosts, slots, program, kind, slot, &values);
    }
    let find = |name: &str| results.iter().find(|r| r.0 == name).map(|r| r.1.clone());
    if let Some(max) = find("update_max") {
        put(hosts, slots, program, "total_max", &[max.iter().copied().fold(T::ZERO, T::larger)]);
    }
    if let Some(norms) = find("grad_norm_seg") {
        put(hosts, slots, program, "grad_norm", &[stepped::root_of_squares(&norms)]);
    }
    if let Some(params) = find("param") {
        put_parts(hosts, slots, program, kind, "shadow", &params);
    }
}

fn put<T: Judged>(
    hosts: &mut BTreeMap<LValueId, Host<T>>,
    slots: &[(usize, &str, Dir, LValueId)],
    program: &crate::lower::Program,
    name: &str,
    values: &[T],
) {
    let Some((_, _, _, id)) = slots.iter().find(|s| s.1 == name) else { return };
    let (root, start) = program.root(*id);
    if let Some(Host::Real(host)) = hosts.get_mut(&root) {
        host[start..start + values.len()].copy_from_slice(values);
    }
}

/// As [`put`], for the stretches alone that the operation writes.
fn put_parts<T: Judged>(
    hosts: &mut BTreeMap<LValueId, Host<T>>,
    slots: &[(usize, &str, Dir, LValueId)],
    program: &crate::lower::Program,
    kind: &OpKind,
    name: &str,
    values: &[T],
) {
    let Some((_, _, _, id)) = slots.iter().find(|s| s.1 == name) else { return };
    let (root, start) = program.root(*id);
    if let Some(Host::Real(host)) = hosts.get_mut(&root) {
        for (from, to) in parts(kind, name, start, values.len()) {
            host[from..to].copy_from_slice(&values[from - start..to - start]);
        }
    }
}

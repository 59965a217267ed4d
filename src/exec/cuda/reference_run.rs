//! Runs one operation with plain loops on the host's values, and stores the results where the device would have stored
//! them.

use super::reference_bounds::Judged;
use super::reference_updates;
use super::reference_values::{BoundSlot, Host, Values};
use crate::exec::cpu::call::{Call, MAX_ARGS, Part};
use crate::exec::cpu::kernels::reference;
use crate::lower::{Op, ParamOrder, Program};
use crate::ops::{self, Dir, OpKind};

/// The slot that contains filters, with their order on the device, which differs from that on a CPU.
type Filters = Option<(&'static str, ParamOrder)>;

/// The filters of an operation.
pub(super) fn filters_of(op: &Op, program: &Program) -> Filters {
    let slot = filter_slot(&op.kind)?;
    let param = program.value(op.arg(slot)?).param?;
    Some((slot, program.params[param.0 as usize].order))
}

/// The slot that contains filters, whose order in memory differs from that on a CPU.
const fn filter_slot(kind: &OpKind) -> Option<&'static str> {
    match kind {
        OpKind::Conv2d { .. } | OpKind::Conv2dBwdX { .. } => Some("b"),
        OpKind::Conv2dBwdW { .. } => Some("c"),
        _ => None,
    }
}

/// Filters in the order of a CPU from that of the device, or back; the values of other slots unchanged.
fn permuted<T: Judged>(filters: Filters, slot: &str, values: Vec<T>, to_cpu: bool) -> Vec<T> {
    match filters {
        Some((name, ParamOrder::Ohwi { f, c, kh, kw })) if name == slot || (name == "c" && slot == "c_prev") => {
            let (device, cpu) = (ParamOrder::Ohwi { f, c, kh, kw }, ParamOrder::Hwio { f, c, kh, kw });
            let (from, to) = if to_cpu { (device, cpu) } else { (cpu, device) };
            to.to_stored(&from.to_logical(&values)).into_owned()
        }
        _ => values,
    }
}

/// Runs the reference of an operation.
pub(super) fn run<T: Judged>(values: &mut Values<'_, T>, filters: Filters) {
    let kind = values.kind;
    if let OpKind::ScaleUpdate { .. } = kind {
        return update_scale(values);
    }
    if let Some(results) = reference_updates::reference(kind, &|slot| values.reals(slot)) {
        for (slot, reals) in results {
            values.put(slot, &reals);
        }
        return;
    }
    if let OpKind::AddAct(ops::AddAct { act, act_grad, .. }) = kind {
        let [a, b, saved] = ["a", "b", "saved"].map(|s| values.reals(s).unwrap_or_default());
        let sum = |i: usize| act.map_or(a[i] + b[i], |f| (a[i] + b[i]).act(f));
        let y: Vec<T> = (0..a.len()).map(|i| act_grad.map_or(sum(i), |f| sum(i) * saved[i].act_grad(f))).collect();
        return values.put("y", &y);
    }
    run_loops(values, filters);
}

/// The next scale of the loss.
fn update_scale<T: Judged>(values: &mut Values<'_, T>) {
    let scaler = values.reals("scaler").or_else(|| values.reals("scaler_prev"));
    let grads = values.reals("grad").unwrap_or_default();
    let OpKind::ScaleUpdate(ops::ScaleUpdate { segments, .. }) = values.kind else { return };
    let mut of_parameters = segments.iter().flat_map(|s| &grads[s.start..s.start + s.len]);
    let [s, count, skipped] = scaler.map_or([1.0, 0.0, 0.0], |s| [s[0], s[1], s[4]].map(T::f64));
    let overflow = of_parameters.any(|g| !g.f64().is_finite());
    let next = if overflow {
        [(s * 0.5).max(1.0), 0.0, 1.0 / s, 1.0, skipped + 1.0]
    } else {
        [s, count + 1.0, 1.0 / s, 0.0, skipped]
    };
    values.put("scaler", &next.map(T::exact));
}

/// Runs the reference kernel of a CPU, including what only a GPU's kernel does before and after it.
fn run_loops<T: Judged>(values: &mut Values<'_, T>, filters: Filters) {
    // The reference adds no residual and leaves the activation after it out, so that both are computed here.
    let residual = values.reals("residual");
    let (kind, after) = match (values.kind, &residual) {
        (OpKind::BatchNorm(ops::BatchNorm { rows, channels, eps, momentum, act }), Some(_)) => {
            let (rows, channels, eps, momentum) = (*rows, *channels, *eps, *momentum);
            (OpKind::BatchNorm(ops::BatchNorm { rows, channels, eps, momentum, act: None }), *act)
        }
        (kind, _) => (kind.clone(), None),
    };
    let scale = values.reals("scale").map_or(T::exact(1.0), |s| s[0]);
    let results = call(values, kind, filters);
    for (slot, reals) in &results {
        let mut reals = reals.clone();
        if matches!(*slot, "dlogits" | "dy") {
            reals.iter_mut().for_each(|v| *v = *v * scale);
        }
        if let Some(residual) = residual.as_ref().filter(|_| matches!(*slot, "y" | "dx")) {
            let act = |v: T| after.map_or(v, |f| v.act(f));
            reals.iter_mut().zip(residual).for_each(|(v, r)| *v = act(*v + *r));
        }
        values.put_parts(slot, &reals);
    }
    let find = |name: &str| results.iter().find(|r| r.0 == name).map(|r| r.1.clone());
    if let Some(max) = find("update_max") {
        values.put("total_max", &[max.iter().copied().fold(T::ZERO, T::larger)]);
    }
    if let Some(norms) = find("grad_norm_seg") {
        values.put("grad_norm", &[reference_updates::root_of_squares(&norms)]);
    }
    if let Some(params) = find("param") {
        values.put_parts("shadow", &params);
    }
}

/// Slots that are accumulated in place, with the slots of their previous values.
const ACCUMULATED: [(&str, &str); 5] = [
    ("c", "c_prev"),
    ("db", "db_prev"),
    ("dgamma", "dgamma_prev"),
    ("dbeta", "dbeta_prev"),
    ("dweight", "dweight_prev"),
];

/// Calls the reference kernel on separate buffers (filters in its order, gradients unscaled), and returns what it wrote
/// by slot.
fn call<T: Judged>(values: &mut Values<'_, T>, kind: OpKind, filters: Filters) -> Vec<(&'static str, Vec<T>)> {
    let scaler = values.reals("scaler").or_else(|| values.reals("scaler_prev"));
    let mut own: Vec<(BoundSlot, Vec<T>)> = Vec::new();
    let mut call = Call {
        run: reference::resolve::<T>().run,
        op: kind,
        ptr: [std::ptr::null_mut(); MAX_ARGS],
        table: Box::default(),
        phases: 1,
        parallel: false,
        around: None,
    };
    for slot in values.slots.clone().into_iter().filter(|slot| slot.index < MAX_ARGS) {
        let (root, start) = values.program.root(slot.id);
        let size = values.program.value(slot.id).dtype.size();
        match values.hosts.get_mut(&root) {
            Some(Host::Raw(bytes)) => call.ptr[slot.index] = bytes[start * size..].as_mut_ptr(),
            Some(Host::Real(_)) => {
                let mut reals = permuted(filters, slot.name, values.reals(slot.name).unwrap_or_default(), true);
                if slot.name == "grad"
                    && let Some(scaler) = &scaler
                {
                    reals.iter_mut().for_each(|v| *v = *v * scaler[2]);
                }
                own.push((slot, reals));
            }
            None => {}
        }
    }
    // Values that are updated or accumulated in place start from their previous value.
    for (out, prev) in ACCUMULATED {
        let before = own.iter().find(|b| b.0.name == prev).map(|b| b.1.clone());
        if let (Some(before), Some(target)) = (before, own.iter_mut().find(|b| b.0.name == out)) {
            target.1 = before;
        }
    }
    for (slot, reals) in &mut own {
        call.ptr[slot.index] = reals.as_mut_ptr().cast();
    }
    // SAFETY: every bound slot points at as many elements as the program's verifier demands, and nobody else touches
    // them.
    unsafe { (call.run)(&call, Part::WHOLE) };
    let written = own.into_iter().filter(|(slot, _)| slot.dir == Dir::Out);
    written.map(|(slot, reals)| (slot.name, permuted(filters, slot.name, reals, false))).collect()
}

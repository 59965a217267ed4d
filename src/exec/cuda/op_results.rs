//! The results of one operation on random inputs, by which candidates for it are compared.

use super::timing::OpTimer;
use super::transfers::Transfers;
use crate::exec::error::ExecError;
use crate::model::Rng;
use crate::ops::{self, Dir, OpKind};
use crate::tensor::DType;
use half::{bf16, f16};
use std::sync::Arc;

/// The value of an operation's slot after it ran.
pub struct SlotValue {
    pub name: &'static str,
    pub dtype: DType,
    pub bytes: Vec<u8>,
}

impl SlotValue {
    /// The length of the difference to another value of the same slot, divided by the length of this one; infinite if
    /// an element of either is not finite. NaN never occurs.
    #[must_use]
    pub fn relative_difference(&self, other: &Self) -> f64 {
        let (mut difference, mut length) = (0.0f64, 0.0f64);
        for (a, b) in reals(&self.bytes, self.dtype).zip(reals(&other.bytes, other.dtype)) {
            difference += (a - b).powi(2);
            length += a.powi(2);
        }
        if self.bytes.len() != other.bytes.len() || !difference.is_finite() || !length.is_finite() {
            return f64::INFINITY;
        }
        if difference == 0.0 { 0.0 } else { (difference / length).sqrt() }
    }
}

/// The elements of a value.
fn reals(bytes: &[u8], dtype: DType) -> impl Iterator<Item = f64> {
    bytes.chunks_exact(dtype.size()).map(move |b| match (dtype, b) {
        (DType::Bf16, &[low, high]) => bf16::from_le_bytes([low, high]).to_f64(),
        (DType::F16, &[low, high]) => f16::from_le_bytes([low, high]).to_f64(),
        (_, &[a, b, c, d]) => f64::from(f32::from_le_bytes([a, b, c, d])),
        _ => f64::NAN,
    })
}

/// The number of random elements of a value, which then recur. A prime, so that rows of a matrix differ.
const PERIOD: usize = 65_521;

/// Random elements between -1.7 and 1.7, whose variance is about one; those of `lse` are what that of such scores is.
fn drawn(kind: &OpKind, slot: &str, (len, dtype): (usize, DType), rng: &mut Rng) -> Vec<u8> {
    let fixed = match (kind, slot) {
        (OpKind::AttentionBwd(ops::AttentionBwd { geometry }), "lse") => Some((geometry.positions as f64).ln() + 0.5),
        _ => None,
    };
    let mut bytes = Vec::with_capacity(len);
    while bytes.len() < len.min(PERIOD * dtype.size()) {
        let value = fixed.unwrap_or_else(|| 3.4 * rng.uniform() - 1.7);
        match dtype {
            DType::Bf16 => bytes.extend(bf16::from_f64(value).to_le_bytes()),
            DType::F16 => bytes.extend(f16::from_f64(value).to_le_bytes()),
            _ => bytes.extend((value as f32).to_le_bytes()),
        }
    }
    while bytes.len() < len {
        bytes.extend_from_within(..bytes.len().min(len - bytes.len()));
    }
    bytes
}

impl OpTimer {
    /// Runs an operation on random inputs, which depend only on `seed`, and returns its outputs.
    ///
    /// # Errors
    /// If a launch or a copy fails.
    pub fn results(&self, op: usize, seed: u64) -> Result<Vec<SlotValue>, ExecError> {
        let plan = &self.ops.compiled.plan;
        let operation = &plan.program.ops[op];
        let addresses = self.ops.env.row(plan, op);
        let transfers = Transfers::new(Arc::clone(&self.ops.gpu));
        let values = |dir: Dir| {
            let slots = operation.kind.slots().iter().zip(&operation.args).zip(addresses);
            slots.filter(move |((slot, _), _)| slot.dir.is_among(dir)).filter_map(|((slot, value), address)| {
                let value = plan.program.value((*value)?);
                let is_real = matches!(value.dtype, DType::F32 | DType::F16 | DType::Bf16);
                (is_real && address != 0).then_some((slot.name, value.dtype, value.bytes() as usize, address))
            })
        };
        for (number, (name, dtype, len, address)) in (0u64..).zip(values(Dir::In)) {
            let bytes = drawn(&operation.kind, name, (len, dtype), &mut Rng::new(seed, number));
            transfers.write_directly(address, &bytes)?;
        }
        self.ops.put_op(op)?;
        let mut out = Vec::new();
        for (name, dtype, len, address) in values(Dir::Out) {
            let mut bytes = vec![0; len];
            transfers.read(address, &mut bytes)?;
            out.push(SlotValue { name, dtype, bytes });
        }
        Ok(out)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::Scalar;

    fn value(elements: &[f32], dtype: DType) -> SlotValue {
        let bytes = match dtype {
            DType::Bf16 => elements.iter().flat_map(|v| bf16::from_f32(*v).to_le_bytes()).collect(),
            DType::F16 => elements.iter().flat_map(|v| f16::from_f32(*v).to_le_bytes()).collect(),
            _ => elements.iter().flat_map(|v| v.to_le_bytes()).collect(),
        };
        SlotValue { name: "y", dtype, bytes }
    }

    #[test]
    fn differences_are_relative_to_the_length() {
        for dtype in [DType::F32, DType::Bf16, DType::F16] {
            let own = value(&[3.0, 4.0, 0.0], dtype);
            assert_eq!(own.relative_difference(&value(&[3.0, 4.0, 0.0], dtype)), 0.0);
            assert_eq!(own.relative_difference(&value(&[3.0, 4.0, 0.5], dtype)), 0.1);
            // Exchanged elements, an element that is missing, and values that are not finite.
            assert!(own.relative_difference(&value(&[4.0, 3.0, 0.0], dtype)) > 0.2);
            assert_eq!(own.relative_difference(&value(&[3.0, 4.0], dtype)), f64::INFINITY);
            assert_eq!(own.relative_difference(&value(&[3.0, f32::NAN, 0.0], dtype)), f64::INFINITY);
            assert_eq!(own.relative_difference(&value(&[3.0, f32::INFINITY, 0.0], dtype)), f64::INFINITY);
            assert_eq!(value(&[0.0], dtype).relative_difference(&value(&[1.0], dtype)), f64::INFINITY);
        }
    }

    #[test]
    fn random_inputs_have_unit_variance_and_depend_only_on_the_seed() {
        let kind = OpKind::Scale(ops::Scale { len: 4096, factor: Scalar::new(1.0) });
        for dtype in [DType::F32, DType::Bf16, DType::F16] {
            let of = |seed| drawn(&kind, "x", (4096 * dtype.size(), dtype), &mut Rng::new(seed, 0));
            let bytes = of(1);
            assert_eq!(bytes, of(1));
            assert_ne!(bytes, of(2));
            let variance = reals(&bytes, dtype).map(|x| x * x).sum::<f64>() / 4096.0;
            assert!((0.9..1.03).contains(&variance), "{variance}");
        }
    }
}

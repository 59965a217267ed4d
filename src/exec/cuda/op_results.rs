//! The results of one operation on random inputs, by which candidates for it are compared.

use super::reference_values::{from_bytes, is_real};
use super::timing::OpTimer;
use super::transfers::Transfers;
use crate::exec::error::ExecError;
use crate::model::Rng;
use crate::ops::{self, Dir, OpKind};
use crate::tensor::DType;
use half::{bf16, f16};
use std::sync::Arc;

/// The elements of a group in which results are compared: few, so that a part of a matrix that is wrong is seen.
const GROUP: usize = 32;

/// The value of an operation's slot after it ran.
#[derive(Clone, Debug)]
pub struct SlotValue {
    pub name: &'static str,
    pub dtype: DType,
    pub bytes: Vec<u8>,
}

impl SlotValue {
    /// The largest difference to another value of the same slot: in groups of 32 elements, the length of the
    /// difference, divided by the length of this value's group, or by a twentieth of that of a usual group if it is
    /// shorter. For `lse`, which is a logarithm, the largest absolute difference. Infinite if the sizes differ or an
    /// element of either is not finite; NaN never occurs.
    #[must_use]
    pub fn largest_difference(&self, other: &Self) -> f64 {
        let [own, other] = [self, other].map(|value| from_bytes(&value.bytes, value.dtype));
        if own.len() != other.len() || !own.iter().chain(&other).all(|x| x.is_finite()) {
            return f64::INFINITY;
        }
        if self.name == "lse" {
            return own.iter().zip(&other).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
        }
        let square = own.iter().map(|a| a * a).sum::<f64>() / own.len().max(1) as f64;
        let ratio = |(own, other): (&[f64], &[f64])| {
            let difference = own.iter().zip(other).map(|(a, b)| (a - b).powi(2)).sum::<f64>();
            let length = own.iter().map(|a| a * a).sum::<f64>().max(own.len() as f64 * square / 400.0);
            if difference == 0.0 { 0.0 } else { (difference / length).sqrt() }
        };
        own.chunks(GROUP).zip(other.chunks(GROUP)).map(ratio).fold(0.0, f64::max)
    }
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
    /// Writes random tokens of the vocabulary for an operation of an embedding. The gradient of an embedding takes much
    /// longer if all tokens are the same, as in memory that nothing has written.
    ///
    /// # Errors
    /// If the copy fails.
    pub(super) fn draw_tokens(&self, op: usize) -> Result<(), ExecError> {
        let plan = &self.ops.compiled.plan;
        let kind = &plan.program.ops[op].kind;
        let &(OpKind::Embedding(ops::Embedding { rows, vocab, .. })
        | OpKind::EmbeddingBwd(ops::EmbeddingBwd { rows, vocab, .. })) = kind
        else {
            return Ok(());
        };
        let Some(slot) = kind.slot("tokens") else { return Ok(()) };
        let mut rng = Rng::new(0, 0);
        let bytes: Vec<u8> = (0..rows).flat_map(|_| ((rng.uniform() * vocab as f64) as i32).to_le_bytes()).collect();
        Transfers::new(Arc::clone(&self.ops.gpu)).write_directly(self.ops.env.row(plan, op)[slot], &bytes)?;
        Ok(())
    }

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
                (is_real(value.dtype) && address != 0).then_some((
                    slot.name,
                    value.dtype,
                    value.bytes() as usize,
                    address,
                ))
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
    fn differences_are_relative_to_groups() {
        for dtype in [DType::F32, DType::Bf16, DType::F16] {
            let own = value(&[3.0, 4.0, 0.0], dtype);
            assert_eq!(own.largest_difference(&value(&[3.0, 4.0, 0.0], dtype)), 0.0);
            assert_eq!(own.largest_difference(&value(&[3.0, 4.0, 0.5], dtype)), 0.1);
            // Exchanged elements, an element that is missing, and values that are not finite.
            assert!(own.largest_difference(&value(&[4.0, 3.0, 0.0], dtype)) > 0.2);
            assert_eq!(own.largest_difference(&value(&[3.0, 4.0], dtype)), f64::INFINITY);
            assert_eq!(own.largest_difference(&value(&[3.0, f32::NAN, 0.0], dtype)), f64::INFINITY);
            assert_eq!(own.largest_difference(&value(&[3.0, f32::INFINITY, 0.0], dtype)), f64::INFINITY);
            assert_eq!(value(&[0.0], dtype).largest_difference(&value(&[1.0], dtype)), f64::INFINITY);
            // The last row of many, which is smaller than the others.
            let rows = |last: f32| {
                let elements: Vec<f32> = (0..3200).map(|i| if i < 3168 { 1.0 } else { last }).collect();
                value(&elements, dtype)
            };
            assert!(rows(0.125).largest_difference(&rows(-0.125)) > 1.9);
            // Rounding of values that are nearly zero is no difference.
            assert!(rows(0.0).largest_difference(&rows(0.001)) < 0.03);
        }
    }

    #[test]
    fn logarithms_differ_absolutely() {
        let lse = |x: f32| SlotValue { name: "lse", ..value(&[x, 7.0], DType::F32) };
        assert_eq!(lse(6.0).largest_difference(&lse(6.5)), 0.5);
    }

    #[test]
    fn random_inputs_have_unit_variance_and_depend_only_on_the_seed() {
        let kind = OpKind::Scale(ops::Scale { len: 4096, factor: Scalar::new(1.0) });
        for dtype in [DType::F32, DType::Bf16, DType::F16] {
            let of = |seed| drawn(&kind, "x", (4096 * dtype.size(), dtype), &mut Rng::new(seed, 0));
            let bytes = of(1);
            assert_eq!(bytes, of(1));
            assert_ne!(bytes, of(2));
            let variance = from_bytes(&bytes, dtype).iter().map(|x| x * x).sum::<f64>() / 4096.0;
            assert!((0.9..1.03).contains(&variance), "{variance}");
        }
    }
}

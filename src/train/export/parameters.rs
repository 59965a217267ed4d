//! The parameters that an export writes.

use super::ExportError;
use crate::model::{Model, init_values};
use crate::tensor::{HostTensor, Shape};

/// The tensor of a parameter, with its shape checked.
pub(super) fn weight<'a>(
    weights: &'a [(String, HostTensor)],
    name: &str,
    shape: &Shape,
) -> Result<&'a HostTensor, ExportError> {
    let init = format!("init.{name}");
    let found = weights.iter().find(|(n, _)| n == name).or_else(|| weights.iter().find(|(n, _)| *n == init));
    let (_, tensor) = found.ok_or_else(|| ExportError::Missing(name.to_owned()))?;
    if tensor.shape != *shape {
        let (found, expected) = (tensor.shape.clone(), shape.clone());
        return Err(ExportError::WrongShape { name: name.to_owned(), found, expected });
    }
    Ok(tensor)
}

/// The initial parameters of a model under this seed.
///
/// # Errors
/// Never for a checked model.
pub fn initial_weights(model: &Model, seed: u64) -> Result<Vec<(String, HostTensor)>, ExportError> {
    let params = model.params.iter().enumerate();
    let tensors = params
        .map(|(index, p)| Ok((p.name.clone(), HostTensor::from_slice(p.shape.clone(), &init_values(p, index, seed))?)));
    tensors.collect()
}

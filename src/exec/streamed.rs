//! Copies values of a step to and from files without a second copy in memory.

use super::backend::MemoryOf;
use super::layout::to_logical;
use crate::exec::error::ExecError;
use crate::exec::step::Step;
use crate::lower::{LValueId, Layout, ParamOrder};
use crate::model::ParamId;
use crate::tensor::zero_bytes;
use crate::tensor::{DType, Element, HostTensor};
use std::borrow::Cow;
use std::io::{self, Read, Write};

impl Step {
    /// Writes the contents of a [`Self::snapshot`].
    ///
    /// # Errors
    /// If the device fails, or `out` cannot be written.
    pub fn write_survivors(&mut self, out: &mut impl Write) -> io::Result<()> {
        let mut turn = self.store().turn();
        if let Some(memory) = turn.host_bytes() {
            return out.write_all(memory);
        }
        out.write_all(&self.snapshot().map_err(io::Error::other)?)
    }

    /// Restores what [`Self::write_survivors`] wrote.
    ///
    /// # Errors
    /// If the device fails, or `from` ends early.
    pub fn read_survivors(&mut self, from: &mut impl Read) -> io::Result<()> {
        let mut turn = self.store().turn();
        if let Some(memory) = turn.host_bytes() {
            return from.read_exact(memory);
        }
        let mut saved = zero_bytes(self.store().layout().bytes() as usize);
        from.read_exact(&mut saved)?;
        self.restore(&saved).map_err(io::Error::other)
    }

    /// Lets `draw` write a parameter's initial values in logical order: directly to their memory, if that is on the
    /// host and in this order.
    ///
    /// # Errors
    /// As [`Self::set_param`].
    pub fn draw_param(&mut self, id: ParamId, draw: impl FnOnce(&mut [f32])) -> Result<(), ExecError> {
        let slot = &self.compiled().plan.program.params[id.0 as usize];
        let (value, order) = (slot.value, slot.order);
        if self.capabilities().memory == MemoryOf::Host && order == ParamOrder::Plain {
            return self.fill(value, draw);
        }
        let mut values = vec![0.0; self.compiled().plan.program.value(value).shape.len()];
        draw(&mut values);
        self.set_param(id, &values)
    }

    /// Writes a parameter or running statistic, row-major in its logical shape.
    ///
    /// # Errors
    /// If `out` cannot be written.
    pub fn write_param(&self, id: ParamId, out: &mut dyn Write) -> io::Result<()> {
        let slot = &self.compiled().plan.program.params[id.0 as usize];
        let stored = self.stored::<f32>(slot.value).map_err(io::Error::other)?;
        out.write_all(bytemuck::cast_slice(&slot.order.as_logical(&stored)))
    }

    /// Sets a value from a tensor as returned by [`Self::tensor`].
    ///
    /// # Errors
    /// As for [`Self::stored`], and if type or number of elements differ.
    pub fn set_tensor(&mut self, id: LValueId, tensor: &HostTensor) -> Result<(), ExecError> {
        match tensor.dtype {
            DType::I64 => self.put_ordered::<i64>(id, tensor),
            _ => self.put_ordered::<f32>(id, tensor),
        }
    }

    fn put_ordered<T: Element>(&mut self, id: LValueId, tensor: &HostTensor) -> Result<(), ExecError> {
        let value = self.compiled().plan.program.value(id);
        let (name, expected, found) = (value.name.clone(), value.shape.len(), tensor.shape.len());
        if tensor.dtype != T::DTYPE {
            return Err(ExecError::NoValue(format!("{name} ({})", tensor.dtype)));
        }
        if expected != found {
            return Err(ExecError::Size { name, expected, found });
        }
        let params = &self.compiled().plan.program.params;
        let order = value.param.and_then(|p| params.get(p.0 as usize)).map(|slot| slot.order).unwrap_or_default();
        let bytes = tensor.bytes();
        let place = |out: &mut [T]| match order {
            ParamOrder::Plain => bytemuck::cast_slice_mut(out).copy_from_slice(bytes),
            order => {
                let read = |at: usize| bytemuck::pod_read_unaligned(&bytes[at * size_of::<T>()..][..size_of::<T>()]);
                out.iter_mut().enumerate().for_each(|(i, v)| *v = read(order.logical(i)));
            }
        };
        self.fill(id, place)
    }

    /// The type of the elements that [`Self::tensor`] returns: half widths are converted.
    #[must_use]
    pub fn tensor_dtype(&self, id: LValueId) -> DType {
        match self.compiled().plan.program.value(id).dtype {
            DType::F16 | DType::Bf16 => DType::F32,
            other => other,
        }
    }

    /// Writes the bytes that [`Self::tensor`] returns.
    ///
    /// # Errors
    /// If the value has no place, or `out` cannot be written.
    pub fn write_tensor(&self, id: LValueId, out: &mut dyn Write) -> io::Result<()> {
        match self.tensor_dtype(id) {
            DType::F64 => self.write_ordered::<f64>(id, out),
            DType::F32 | DType::F16 | DType::Bf16 => self.write_ordered::<f32>(id, out),
            DType::I64 => self.write_ordered::<i64>(id, out),
            DType::I32 => self.write_ordered::<i32>(id, out),
            DType::U16 => self.write_ordered::<u16>(id, out),
            DType::U8 => self.write_ordered::<u8>(id, out),
        }
    }

    fn write_ordered<T: Element + Default>(&self, id: LValueId, out: &mut dyn Write) -> io::Result<()> {
        let stored = self.stored::<T>(id).map_err(io::Error::other)?;
        out.write_all(bytemuck::cast_slice(&self.ordered(id, &stored)))
    }

    /// A value's elements in logical order, from those in memory.
    pub(super) fn ordered<'a, T: Element + Default>(&self, id: LValueId, stored: &'a [T]) -> Cow<'a, [T]> {
        let compiled = self.compiled();
        let value = compiled.plan.program.value(id);
        let param = value.param.map(|p| p.0 as usize);
        let whole = param.filter(|p| compiled.model.params[*p].shape.len() == stored.len());
        match (whole.and_then(|p| compiled.program.params.get(p)), value.layout) {
            (Some(slot), _) => slot.order.as_logical(stored),
            (None, Layout::Plain) => Cow::Borrowed(stored),
            (None, layout) => Cow::Owned(to_logical(stored, layout)),
        }
    }
}

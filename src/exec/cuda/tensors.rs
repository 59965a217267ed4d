//! Reading and writing a step's values from outside. Real values in half width are converted on the way.

use super::Step;
use super::memory::{Event, Pinned};
use super::step::gpu_error;
use crate::exec::ExecError;
use crate::exec::step::located;
use crate::lower::LValueId;
use crate::tensor::{DType, Element};
use cudarc::driver::result;
use half::{bf16, f16};
use std::sync::atomic::Ordering;

/// The values that the host reads after every step, fetched by one copy.
pub(super) struct Mirror {
    from: u64,
    memory: Pinned,
    pub(super) fresh: bool,
}

/// Where the host prepares a value while the device may still be copying the one before.
pub(super) struct Stage {
    memory: Pinned,
    copied: Event,
}

impl Step {
    /// Copies bytes from the device; waits for everything before.
    pub(super) fn read_bytes(&self, address: u64, out: &mut [u8]) -> Result<(), ExecError> {
        self.gpu.enter().map_err(gpu_error)?;
        // SAFETY: the caller asks for bytes inside the arena, and the copy is waited for.
        unsafe { result::memcpy_dtoh_async(out, address, self.gpu.stream()) }
            .map_err(|e| gpu_error(super::failed("cuMemcpyDtoHAsync", e)))?;
        self.gpu.synchronize().map_err(gpu_error)
    }

    /// Copies bytes to the device, behind everything before; they may change once this returns.
    pub(super) fn write_bytes(&self, address: u64, bytes: &[u8]) -> Result<(), ExecError> {
        self.stage(address, bytes.len(), |out| out.copy_from_slice(bytes))
    }

    /// Lets `fill` prepare `len` bytes in pinned memory and copies them to the device without waiting.
    pub(super) fn stage(&self, address: u64, len: usize, fill: impl FnOnce(&mut [u8])) -> Result<(), ExecError> {
        self.gpu.enter().map_err(gpu_error)?;
        if let Some(mirror) = self.mirror.borrow_mut().as_mut() {
            mirror.fresh = false;
        }
        let mut stages = self.stages.borrow_mut();
        let queue = stages.entry(len).or_default();
        let mut stage = match queue.pop_front() {
            Some(oldest) if queue.len() + 1 >= 2 => {
                oldest.copied.wait().map_err(gpu_error)?;
                oldest
            }
            other => {
                queue.extend(other);
                let memory = Pinned::new(len).map_err(gpu_error)?;
                Stage { memory, copied: Event::new(false).map_err(gpu_error)? }
            }
        };
        fill(stage.memory.bytes_mut());
        // SAFETY: the target lies inside the arena; the source stays untouched until the event behind the copy was waited for.
        unsafe { result::memcpy_htod_async(address, stage.memory.bytes(), self.gpu.stream()) }
            .map_err(|e| gpu_error(super::failed("cuMemcpyHtoDAsync", e)))?;
        stage.copied.record(self.gpu.stream()).map_err(gpu_error)?;
        queue.push_back(stage);
        Ok(())
    }

    /// Tells which values the host reads after every step, so that one copy fetches them all.
    ///
    /// # Errors
    /// Where memory is short.
    pub fn watch(&mut self, ids: &[LValueId]) -> Result<(), ExecError> {
        /// More than this is not fetched at once.
        const MAX_BYTES: u64 = 64 << 10;
        let plan = &self.compiled.plan;
        let extents = ids.iter().filter_map(|id| Some((plan.place(*id)?.offset, plan.program.value(*id).bytes())));
        let (from, to) = extents.fold((u64::MAX, 0), |(a, b), (offset, bytes)| (a.min(offset), b.max(offset + bytes)));
        if from < to && to - from <= MAX_BYTES {
            let memory = Pinned::new((to - from) as usize).map_err(gpu_error)?;
            *self.mirror.borrow_mut() = Some(Mirror { from, memory, fresh: false });
        }
        Ok(())
    }

    /// Bytes of the arena from the mirror of watched values, where they all lie in it.
    pub(super) fn mirrored(&self, offset: u64, out: &mut [u8]) -> Result<bool, ExecError> {
        let mut mirror = self.mirror.borrow_mut();
        let Some(mirror) = mirror.as_mut() else { return Ok(false) };
        let size = mirror.memory.bytes().len() as u64;
        if offset < mirror.from || offset + out.len() as u64 > mirror.from + size {
            return Ok(false);
        }
        if !mirror.fresh {
            let address = self.env.memory.base() + mirror.from;
            self.read_bytes(address, mirror.memory.bytes_mut())?;
            mirror.fresh = true;
        }
        let start = (offset - mirror.from) as usize;
        out.copy_from_slice(&mirror.memory.bytes()[start..start + out.len()]);
        Ok(true)
    }

    /// A value's elements as they lie in memory; waits for the device.
    ///
    /// # Errors
    /// Where the value has no place or holds another type, or the device failed.
    pub fn stored<T: Element>(&self, id: LValueId) -> Result<Vec<T>, ExecError> {
        let (place, value) = located(&self.compiled, id)?;
        let mut bytes = vec![0u8; value.bytes() as usize];
        if !self.mirrored(place.offset, &mut bytes)? {
            self.read_bytes(self.env.address(&self.compiled.plan, place), &mut bytes)?;
        }
        if value.dtype == T::DTYPE {
            return Ok(bytemuck::pod_collect_to_vec(&bytes));
        }
        let wide: Vec<f32> = match (value.dtype, T::DTYPE) {
            (DType::Bf16, DType::F32) => bytemuck::pod_collect_to_vec::<u8, u16>(&bytes)
                .into_iter()
                .map(|b| bf16::from_bits(b).to_f32())
                .collect(),
            (DType::F16, DType::F32) => bytemuck::pod_collect_to_vec::<u8, u16>(&bytes)
                .into_iter()
                .map(|b| f16::from_bits(b).to_f32())
                .collect(),
            _ => return Err(ExecError::NoValue(format!("{} ({})", value.name, value.dtype))),
        };
        Ok(bytemuck::cast_slice(&wide).to_vec())
    }

    /// Overwrites a value once, with elements in memory order: large ones take no detour through pinned memory, which takes longer to get than to fill.
    ///
    /// # Errors
    /// As [`Self::stored`].
    pub fn put_once<T: Element>(&mut self, id: LValueId, values: &[T]) -> Result<(), ExecError> {
        /// What is smaller than this is staged like any other value.
        const LARGE: usize = 1 << 20;
        let (place, value) = located(&self.compiled, id)?;
        let bytes: &[u8] = bytemuck::cast_slice(values);
        if value.dtype != T::DTYPE || bytes.len() < LARGE || bytes.len() as u64 != value.bytes() {
            return self.fill(id, |out: &mut [T]| out.copy_from_slice(values));
        }
        let address = self.env.address(&self.compiled.plan, place);
        self.is_changed(id);
        self.gpu.enter().map_err(gpu_error)?;
        // SAFETY: the target lies inside the arena and has this size; the copy is waited for.
        unsafe { result::memcpy_htod_async(address, bytes, self.gpu.stream()) }
            .map_err(|e| gpu_error(super::failed("cuMemcpyHtoDAsync", e)))?;
        self.gpu.synchronize().map_err(gpu_error)
    }

    /// Notes that the host overwrites a value: copies of it are old.
    fn is_changed(&self, id: LValueId) {
        if let Some(mirror) = self.mirror.borrow_mut().as_mut() {
            mirror.fresh = false;
        }
        let program = &self.compiled.plan.program;
        if let Some(shadow) = &self.shadow
            && program.value(program.root(id).0).name == "params"
        {
            shadow.stale.store(true, Ordering::Release);
        }
    }

    /// Lets `fill` prepare a value's elements, which are then copied to the device without waiting for it.
    ///
    /// # Errors
    /// As [`Self::stored`].
    pub fn fill<T: Element>(&mut self, id: LValueId, fill: impl FnOnce(&mut [T])) -> Result<(), ExecError> {
        let (place, value) = located(&self.compiled, id)?;
        let (dtype, len, name) = (value.dtype, value.shape.len(), value.name.clone());
        let address = self.env.address(&self.compiled.plan, place);
        self.is_changed(id);
        if dtype == T::DTYPE {
            return self.stage(address, len * dtype.size(), |out| match bytemuck::try_cast_slice_mut(out) {
                Ok(values) => fill(values),
                // Pinned memory begins at a page.
                Err(_) => log::error!("staging memory is not aligned"),
            });
        }
        if T::DTYPE != DType::F32 || !matches!(dtype, DType::Bf16 | DType::F16) {
            return Err(ExecError::NoValue(format!("{name} ({dtype})")));
        }
        let mut wide = vec![T::zeroed(); len];
        fill(&mut wide);
        let wide: &[f32] = bytemuck::cast_slice(&wide);
        self.stage(address, len * 2, |out| {
            for (out, v) in out.chunks_exact_mut(2).zip(wide) {
                let bits =
                    if dtype == DType::Bf16 { bf16::from_f32(*v).to_bits() } else { f16::from_f32(*v).to_bits() };
                out.copy_from_slice(&bits.to_le_bytes());
            }
        })
    }
}

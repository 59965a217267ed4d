//! The highest rates of a GPU, which a step is compared with.

use super::error::{CudaError, failed};
use super::memory::{DeviceMemory, Event};
use crate::exec::cpu::Floor;
use crate::exec::cuda::gpu::Gpu;
use crate::exec::error::ExecError;
use crate::select::cuda::Real;
use cudarc::driver::{result, sys};
use serde::Serialize;

/// The highest rates of one GPU for one precision.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct GpuCeilings {
    /// The least time of a launch inside a graph that waits for the preceding one, as measured on an H200 with
    /// programmatic dependent launch.
    pub launch_us: f64,
    /// The capacity of the second-level cache, and the largest number of bytes that it delivers to all multiprocessors
    /// in a microsecond.
    pub cache_bytes: u64,
    pub cache_bytes_per_us: f64,
    /// Bytes read and written in a microsecond: measured with a large copy on the device, or computed from the memory's
    /// clock and width, whichever is more.
    pub bytes_per_us: f64,
    /// Floating-point operations of products in a microsecond, computed from the device's clock and the units of a
    /// multiprocessor of its generation.
    pub flops_per_us: f64,
}

/// The size of the copy that is timed, in bytes.
const COPY_BYTES: usize = 1 << 30;
const LAUNCH_US: f64 = 0.8;
/// The largest number of bytes that a multiprocessor receives from the second-level cache in a cycle, from the vendor's
/// architecture papers.
const CACHE_BYTES_A_CYCLE: f64 = 64.0;

impl GpuCeilings {
    /// Measures the bandwidth and computes the other rates.
    ///
    /// # Errors
    /// If the device fails or has no free memory.
    pub fn measure(gpu: &Gpu, real: Real) -> Result<Self, ExecError> {
        let bandwidth = || -> Result<f64, CudaError> {
            gpu.enter()?;
            let bytes = COPY_BYTES.min(gpu.memory()?.0 as usize / 4).max(1 << 20);
            let (from, to) = (DeviceMemory::zeroed(bytes, gpu.stream())?, DeviceMemory::zeroed(bytes, gpu.stream())?);
            let (start, end) = (Event::new(true)?, Event::new(true)?);
            let mut best = f64::INFINITY;
            for _ in 0..6 {
                start.record(gpu.stream())?;
                // SAFETY: both allocations have this many bytes.
                unsafe { result::memcpy_dtod_async(to.base(), from.base(), bytes, gpu.stream()) }
                    .map_err(|e| failed("cuMemcpyDtoDAsync", e))?;
                end.record(gpu.stream())?;
                end.wait()?;
                best = best.min(start.until_us(&end)?);
            }
            Ok(2.0 * bytes as f64 / best)
        };
        let of = |which| gpu.attribute(which).map(f64::from);
        use sys::CUdevice_attribute as Attribute;
        let clock_khz = of(Attribute::CU_DEVICE_ATTRIBUTE_CLOCK_RATE)?;
        let memory_khz = of(Attribute::CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE)?;
        let bus_bits = of(Attribute::CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH)?;
        // Twice in each cycle.
        let bytes_per_us = bandwidth()?.max(2.0 * memory_khz / 1e3 * bus_bits / 8.0);
        let cache_bytes = of(Attribute::CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE)? as u64;
        let info = gpu.info();
        let multiprocessors = f64::from(info.multiprocessors);
        let cache_bytes_per_us = CACHE_BYTES_A_CYCLE * multiprocessors * clock_khz / 1e3;
        // Operations of one multiprocessor in a cycle, dense, from the vendor's architecture papers.
        let per_cycle = match (real, info.capability.0) {
            (Real::F32, _) => 256.0,
            (Real::Tf32, 8) => 1024.0,
            (Real::Tf32, _) => 2048.0,
            (_, 8) => 2048.0,
            _ => 4096.0,
        };
        let flops_per_us = per_cycle * multiprocessors * clock_khz / 1e3;
        Ok(Self { launch_us: LAUNCH_US, cache_bytes, cache_bytes_per_us, bytes_per_us, flops_per_us })
    }

    /// The least time of an operation.
    #[must_use]
    pub fn floor(&self, flops: u64, bytes: u64) -> Floor {
        let all = [
            (self.launch_us, "launch"),
            (bytes as f64 / self.cache_bytes_per_us, "cache"),
            // Data that preceding operations have left in the cache do not come from memory.
            (bytes.saturating_sub(self.cache_bytes) as f64 / self.bytes_per_us, "memory"),
            (flops as f64 / self.flops_per_us, "arithmetic"),
        ];
        let (us, bound) = all.into_iter().fold((0.0, "launch"), |best, next| if next.0 > best.0 { next } else { best });
        Floor { us, bound }
    }
}

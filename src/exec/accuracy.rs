//! How far the functions that a step computes are from their exact values, over all inputs.
//!
//! The exact values are those of `f64` functions, whose relative error is about 2^-46: more than enough to judge
//! results of 24 bits.

use super::cpu::kernels::functions::{Numbers, evaluate};
use super::cpu::{detect_isa, usable_cores};
use super::cuda::{Gpu, GpuFunctions};
use crate::exec::error::ExecError;
use crate::exec::function::Function;
use crate::select::Isa;
use serde::{Deserialize, Serialize};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// Bit patterns of an `f32`.
const PATTERNS: u64 = 1 << 32;

/// What computes a function.
#[derive(Clone)]
pub enum Unit {
    Cpu(Isa),
    Gpu(Arc<Gpu>),
}

impl Unit {
    /// The instruction sets of this machine's processor that kernels are compiled for.
    #[must_use]
    pub fn cpu() -> Vec<Self> {
        let best = detect_isa();
        [Isa::Portable, Isa::Avx2, Isa::Avx512].into_iter().filter(|isa| *isa <= best).map(Self::Cpu).collect()
    }

    /// The name in reports.
    #[must_use]
    pub fn name(&self) -> String {
        match self {
            Self::Cpu(isa) => isa.name().to_owned(),
            Self::Gpu(gpu) => gpu.info().name.clone(),
        }
    }
}

/// How far results are from exact values.
#[derive(Clone, Copy, Debug, Default, PartialEq, Deserialize, Serialize)]
pub struct Accuracy {
    /// The number of inputs that were tested.
    pub inputs: u64,
    /// The largest error in units in the last place of the exact result, among those that are normal numbers, and its
    /// input.
    pub units: f64,
    pub units_at: f32,
    /// The largest error relative to the exact result, among those that are normal numbers, and its input.
    pub relative: f64,
    pub relative_at: f32,
    /// The largest absolute error, among exact results up to 2, and its input. This is the relevant error where a
    /// function crosses zero.
    pub absolute: f64,
    pub absolute_at: f32,
    /// The largest error of results below the normal numbers, in multiples of the smallest of them.
    pub denormal_units: f64,
    /// Results that are NaN although the exact one is a number, or the other way round; also wrong infinities.
    pub wrong: u64,
    /// The input of one of them.
    pub wrong_at: Option<u32>,
}

/// The distance between neighbouring `f32` numbers of the size of `exact`.
fn unit(exact: f64) -> f64 {
    // For zero and denormal numbers, the distance is that of the smallest normal numbers.
    libm::ldexp(1.0, libm::frexp(exact.abs().max(f64::from(f32::MIN_POSITIVE))).1 - 24)
}

impl Accuracy {
    fn take(&mut self, x: f32, found: f32, exact: f64) {
        const LARGEST: f64 = f32::MAX as f64;
        self.inputs += 1;
        let (size, found) = (exact.abs(), f64::from(found));
        // At the end of the range, rounding decides between the largest number and infinity.
        let near_end = |v: f64| v.abs() >= LARGEST * (1.0 - 1e-6) && v.is_sign_negative() == exact.is_sign_negative();
        if exact.is_nan() || found.is_nan() || size > LARGEST || found.is_infinite() {
            // Comparisons with NaN are false.
            let agree = (exact.is_nan() && found.is_nan()) || (near_end(exact) && near_end(found));
            if !agree {
                self.wrong += 1;
                self.wrong_at.get_or_insert(x.to_bits());
            }
            return;
        }
        let error = (found - exact).abs();
        if size <= 2.0 && error > self.absolute {
            (self.absolute, self.absolute_at) = (error, x);
        }
        let units = error / unit(exact);
        if size < f64::from(f32::MIN_POSITIVE) {
            self.denormal_units = self.denormal_units.max(units);
            return;
        }
        if units > self.units {
            (self.units, self.units_at) = (units, x);
        }
        if error / size > self.relative {
            (self.relative, self.relative_at) = (error / size, x);
        }
    }

    /// Whether two units have the same errors; the inputs that are named may differ.
    #[must_use]
    pub fn is_same(&self, other: &Self) -> bool {
        let of = |a: &Self| (a.inputs, a.units, a.relative, a.absolute, a.denormal_units, a.wrong);
        of(self) == of(other)
    }

    fn merge(&mut self, other: &Self) {
        self.inputs += other.inputs;
        if other.units > self.units {
            (self.units, self.units_at) = (other.units, other.units_at);
        }
        if other.relative > self.relative {
            (self.relative, self.relative_at) = (other.relative, other.relative_at);
        }
        if other.absolute > self.absolute {
            (self.absolute, self.absolute_at) = (other.absolute, other.absolute_at);
        }
        self.denormal_units = self.denormal_units.max(other.denormal_units);
        self.wrong += other.wrong;
        self.wrong_at = self.wrong_at.or(other.wrong_at);
    }
}

/// Which inputs of a function are tested.
pub struct Survey<'a> {
    /// The distance between tested bit patterns; at least 1.
    pub every: u64,
    /// Receives the share of the work that is done, from several threads.
    pub progress: &'a (dyn Fn(f64) + Sync),
}

impl Survey<'_> {
    /// The accuracy of a function on each of `units`. Threads share the inputs. Results do not depend on the number of
    /// threads, except for which of several inputs with the same error is named.
    ///
    /// # Errors
    /// If a device fails, or the system refuses to start a thread.
    pub fn measure(&self, function: Function, units: &[Unit]) -> Result<Vec<Accuracy>, ExecError> {
        let count = PATTERNS.div_ceil(self.every.max(1));
        let gpus: Vec<Option<Mutex<GpuFunctions>>> =
            units.iter().map(|u| gpu_part(u, function)).collect::<Result<_, _>>()?;
        let chunk = if gpus.iter().any(Option::is_some) { GpuFunctions::LEN } else { 1 << 16 };
        let len = chunk as u64;
        let (next, ended) = (AtomicU64::new(0), AtomicBool::new(false));
        let inputs = Chunks { count, chunks: count.div_ceil(len), len, next, ended };
        let all: Mutex<(Vec<Accuracy>, Option<ExecError>)> = Mutex::new((vec![Accuracy::default(); units.len()], None));
        let work = || {
            let mut own = vec![Accuracy::default(); units.len()];
            let failed = self.work(function, units, &gpus, &inputs, &mut own).err();
            let mut all = all.lock().unwrap_or_else(PoisonError::into_inner);
            all.0.iter_mut().zip(&own).for_each(|(all, own)| all.merge(own));
            if failed.is_some() {
                inputs.ended.store(true, Ordering::Relaxed);
                all.1 = failed;
            }
        };
        std::thread::scope(|scope| {
            for index in 1..usable_cores().min(inputs.chunks as usize).max(1) {
                let name = format!("stepgraph-functions-{index}");
                // If the system refuses to start a thread, the other threads do its work.
                if let Err(why) = std::thread::Builder::new().name(name).spawn_scoped(scope, work) {
                    log::warn!("a thread could not be started: {why}");
                }
            }
            work();
        });
        let (found, failed) = all.into_inner().unwrap_or_else(PoisonError::into_inner);
        failed.map_or(Ok(found), Err)
    }

    /// Takes chunks of inputs until none are left.
    fn work(
        &self,
        function: Function,
        units: &[Unit],
        gpus: &[Option<Mutex<GpuFunctions>>],
        inputs: &Chunks,
        own: &mut [Accuracy],
    ) -> Result<(), ExecError> {
        let &Chunks { count, chunks, len, ref next, ref ended } = inputs;
        let (mut x, mut y) = (Numbers::new(len as usize), Numbers::new(len as usize));
        let mut exact = vec![0.0; len as usize];
        loop {
            let chunk = next.fetch_add(1, Ordering::Relaxed);
            if chunk >= chunks || ended.load(Ordering::Relaxed) {
                return Ok(());
            }
            let used = (count - chunk * len).min(len) as usize;
            for (i, x) in x.as_mut_slice().iter_mut().enumerate() {
                // The elements after the last input contain inputs that were already tested.
                let index = (chunk * len + i as u64) % count;
                *x = f32::from_bits((index * self.every) as u32);
            }
            for (x, exact) in x.as_slice()[..used].iter().zip(&mut exact) {
                *exact = function.exact(f64::from(*x));
            }
            for ((unit, gpu), own) in units.iter().zip(gpus).zip(own.iter_mut()) {
                match (unit, gpu) {
                    (Unit::Cpu(isa), _) => evaluate(function, *isa, &x, &mut y),
                    (_, Some(gpu)) => {
                        let mut gpu = gpu.lock().unwrap_or_else(PoisonError::into_inner);
                        gpu.evaluate(x.as_slice(), y.as_mut_slice())?;
                    }
                    (Unit::Gpu(_), None) => {}
                }
                let meets = |x: f32| function.meets(x) && (gpu.is_none() || GpuFunctions::meets(function, x));
                let results = x.as_slice().iter().zip(y.as_slice()).zip(&exact).take(used);
                results.filter(|((x, _), _)| meets(**x)).for_each(|((x, y), exact)| own.take(*x, *y, *exact));
            }
            (self.progress)((chunk + 1) as f64 / chunks as f64);
        }
    }
}

/// The inputs that threads share, in chunks that each takes one by one.
struct Chunks {
    /// All inputs.
    count: u64,
    chunks: u64,
    /// Inputs of a chunk.
    len: u64,
    /// The next chunk that no thread has claimed.
    next: AtomicU64,
    /// Whether a thread has failed.
    ended: AtomicBool,
}

/// The GPU's kernel and memory for a function; `None` for a CPU.
fn gpu_part(unit: &Unit, function: Function) -> Result<Option<Mutex<GpuFunctions>>, ExecError> {
    match unit {
        Unit::Cpu(_) => Ok(None),
        Unit::Gpu(gpu) => {
            let made = GpuFunctions::new(gpu, function)?;
            Ok(Some(Mutex::new(made)))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_are_counted_in_units_of_the_exact_result() {
        let mut found = Accuracy::default();
        found.take(1.0, 1.0 + f32::EPSILON, 1.0);
        assert_eq!((found.units, found.relative), (1.0, f64::from(f32::EPSILON)));
        found.take(2.0, 1e-45, 0.0);
        assert_eq!((found.denormal_units, found.units), (f64::from(1e-45f32) / libm::ldexp(1.0, -149), 1.0));
        found.take(3.0, f32::INFINITY, 1e39);
        found.take(3.0, f32::NAN, f64::NAN);
        assert_eq!((found.wrong, found.inputs), (0, 4));
        found.take(4.0, f32::INFINITY, 1.0);
        found.take(5.0, f32::NAN, 1.0);
        found.take(6.0, 1.0, f64::NAN);
        found.take(7.0, f32::NEG_INFINITY, 1e39);
        assert_eq!((found.wrong, found.wrong_at), (4, Some(4.0f32.to_bits())));
    }
}

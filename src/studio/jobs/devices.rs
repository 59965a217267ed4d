//! The devices that a network can be planned for and trained on. A separate thread looks for them, because opening a
//! GPU takes a moment, and the window must not wait.

use crate::exec::cpu::{cpu_name, default_threads, host_target};
use crate::exec::cuda;
use crate::lower::Program;
use crate::select::{Target, Tuning};
use crate::studio::commands::choices::{DeviceChoice, FirstKernels};
use crate::train::{remembered_times, threads_for_step};
use crossbeam_channel::{Receiver, bounded};
use std::sync::Arc;
use std::time::Duration;

/// A device.
#[derive(Clone, Debug)]
pub struct Machine {
    pub choice: DeviceChoice,
    /// A short name for the bar.
    pub name: String,
    /// The processor or card, and further information.
    pub about: String,
    pub target: Target,
    /// Whether the environment sets the kernels of its steps, so that the window's setting does not apply.
    pub has_set_kernels: bool,
    /// Kernel times that are remembered for this CPU.
    pub tuning: Option<Arc<Tuning>>,
}

impl Machine {
    /// This machine's CPU.
    #[must_use]
    pub fn cpu(tuning: Option<Arc<Tuning>>) -> Self {
        let target = host_target(default_threads());
        let about = cpu_name().unwrap_or_else(|| "This machine's processor".into());
        Self { choice: DeviceChoice::Cpu, name: target.name.clone(), about, target, has_set_kernels: false, tuning }
    }

    /// The same device with the best number of threads for a training step, if it is a CPU. `program` is the step as it
    /// was rewritten for a CPU.
    #[must_use]
    pub fn suited(self: &Arc<Self>, program: &Program) -> Arc<Self> {
        let Some(cpu) = self.target.as_cpu() else { return Arc::clone(self) };
        let threads = threads_for_step(program);
        let about = format!("{}; {threads}", cpu_name().unwrap_or_else(|| "This machine's processor".into()));
        if cpu.threads == threads.count && self.about == about {
            return Arc::clone(self);
        }
        let target = host_target(threads.count);
        let tuning = match cpu.threads == threads.count {
            true => self.tuning.clone(),
            false => remembered_times(&target).unwrap_or_default(),
        };
        let (choice, name, has_set_kernels) = (self.choice, target.name.clone(), false);
        Arc::new(Self { choice, name, about, target, has_set_kernels, tuning })
    }

    fn gpu(gpu: &cuda::Gpu) -> Self {
        let info = gpu.info();
        let gib = info.memory_bytes as f64 / f64::from(1u32 << 30);
        let (major, minor) = info.capability;
        Self {
            choice: DeviceChoice::Gpu(info.ordinal),
            name: format!("cuda:{}, {}", info.ordinal, info.name),
            about: format!("{}, compute capability {major}.{minor}, {gib:.0} GiB", info.name),
            target: gpu.target(),
            has_set_kernels: std::env::var_os("STEPGRAPH_KERNELS").is_some(),
            tuning: None,
        }
    }

    fn absent() -> Self {
        let target = cuda::absent_gpu();
        Self {
            choice: DeviceChoice::Absent,
            name: format!("{}, plan only", target.name),
            about: "The step on this GPU, which this machine does not have: kernels, memory, estimated times".into(),
            target,
            has_set_kernels: false,
            tuning: None,
        }
    }

    /// Whether its runs may start with several kinds of kernels.
    #[must_use]
    pub fn has_kinds_of_kernels(&self) -> bool {
        self.target.as_cuda().is_some() && !self.has_set_kernels
    }

    /// The same device with the kernels that runs start with.
    fn starting_with(self: &Arc<Self>, first: FirstKernels) -> Arc<Self> {
        if !self.has_kinds_of_kernels() || self.target.kernels == first.kernels() {
            return Arc::clone(self);
        }
        let mut other = Self::clone(self);
        other.target.kernels = first.kernels();
        Arc::new(other)
    }

    /// True if a run can be trained on it here.
    #[must_use]
    pub fn trains(&self) -> bool {
        self.choice != DeviceChoice::Absent
    }
}

/// The result of the search.
struct Found {
    gpus: Vec<Machine>,
    why_none: String,
}

/// The known devices, and the one in use.
pub struct Devices {
    /// The CPU first.
    list: Vec<Arc<Machine>>,
    current: Arc<Machine>,
    /// Why there is no GPU; `None` while this is not known, and if there is one.
    pub why_no_gpu: Option<String>,
    /// Why no GPU can run the network on screen; `None` if a GPU can. The CPU is then used, unless the user chose a
    /// GPU.
    pub cpu_only: Option<String>,
    search: Option<Receiver<Found>>,
}

/// How long a closing window waits for the search for GPUs.
const PATIENCE: Duration = Duration::from_secs(3);

impl Drop for Devices {
    /// If the program ended while a library is loaded, the library's memory could disappear, and the program could
    /// crash.
    fn drop(&mut self) {
        if let Some(search) = self.search.take() {
            let _ = search.recv_timeout(PATIENCE);
        }
    }
}

impl Devices {
    /// The CPU, and a thread that looks for GPUs; `wake` is called when it is done.
    ///
    /// # Errors
    /// If the system refuses to start a thread.
    pub fn new(tuning: Option<Arc<Tuning>>, wake: impl Fn() + Send + 'static) -> std::io::Result<Self> {
        let (outbox, search) = bounded(1);
        let look = move || {
            let probe = cuda::probe();
            let opened: Vec<_> = probe.devices.iter().map(|d| cuda::usable(d.ordinal)).collect();
            let why = opened.iter().find_map(|o| o.as_ref().err().map(ToString::to_string)).unwrap_or(probe.why_none);
            let gpus: Vec<Machine> = opened.into_iter().flatten().map(|gpu| Machine::gpu(&gpu)).collect();
            if outbox.send(Found { why_none: if gpus.is_empty() { why } else { String::new() }, gpus }).is_ok() {
                wake();
            }
        };
        std::thread::Builder::new().name("stepgraph-devices".into()).spawn(look)?;
        let cpu = Arc::new(Machine::cpu(tuning));
        let list = vec![Arc::clone(&cpu), Arc::new(Machine::absent())];
        Ok(Self { list, current: cpu, why_no_gpu: None, cpu_only: None, search: Some(search) })
    }

    /// Replaces the CPU by one that is adapted to the network on screen.
    pub fn suit(&mut self, machine: &Arc<Machine>) {
        if machine.choice != DeviceChoice::Cpu {
            return;
        }
        self.list[0] = Arc::clone(machine);
        if self.current.choice == DeviceChoice::Cpu {
            self.current = Arc::clone(machine);
        }
    }

    /// Every device, the CPU first.
    #[must_use]
    pub fn list(&self) -> &[Arc<Machine>] {
        &self.list
    }

    /// The device in use.
    #[must_use]
    pub const fn current(&self) -> &Arc<Machine> {
        &self.current
    }

    /// The device in use, or the CPU if that device does not exist.
    #[must_use]
    pub fn here(&self) -> Arc<Machine> {
        Arc::clone(if self.current.trains() { &self.current } else { &self.list[0] })
    }

    /// Whether the device in use has kernels of this kind, and others are in use.
    #[must_use]
    pub fn may_start_with(&self, first: FirstKernels) -> bool {
        self.current.has_kinds_of_kernels() && self.current.target.kernels != first.kernels()
    }

    /// Receives the result of the search, and chooses by `choice` and `first`; returns true if the device in use or its
    /// kernels change.
    pub fn poll(&mut self, choice: DeviceChoice, first: FirstKernels) -> bool {
        if let Some(found) = self.search.as_ref().and_then(|s| s.try_recv().ok()) {
            self.search = None;
            self.why_no_gpu = (!found.why_none.is_empty()).then_some(found.why_none);
            self.list.splice(1..1, found.gpus.into_iter().map(Arc::new));
        }
        let first_gpu = || self.list.iter().find(|m| matches!(m.choice, DeviceChoice::Gpu(_)));
        let wanted = match choice {
            DeviceChoice::Auto => first_gpu().filter(|_| self.cpu_only.is_none()),
            other => self.list.iter().find(|m| m.choice == other),
        };
        // A GPU that existed last time and does not exist now is replaced by the CPU.
        let wanted = wanted.unwrap_or(&self.list[0]);
        let has_kernels = !wanted.has_kinds_of_kernels() || self.current.target.kernels == first.kernels();
        let changed = wanted.choice != self.current.choice || !has_kernels;
        if changed {
            self.current = wanted.starting_with(first);
        }
        changed
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::select::Kernels;

    #[test]
    fn the_cpu_replaces_a_missing_device_until_another_is_found() {
        let (outbox, search) = bounded(1);
        let poll = |devices: &mut Devices, choice| devices.poll(choice, FirstKernels::AtOnce);
        let mut devices = Devices::new(None, || {}).unwrap();
        devices.search = Some(search);
        assert!(!poll(&mut devices, DeviceChoice::Gpu(0)) && devices.current().choice == DeviceChoice::Cpu);
        assert!(poll(&mut devices, DeviceChoice::Absent) && !devices.current().trains());
        assert!(poll(&mut devices, DeviceChoice::Auto) && devices.current().trains());
        let gpu = Machine { choice: DeviceChoice::Gpu(0), ..Machine::absent() };
        outbox.send(Found { gpus: vec![gpu], why_none: String::new() }).unwrap();
        assert!(poll(&mut devices, DeviceChoice::Auto) && devices.current().choice == DeviceChoice::Gpu(0));
        assert!(!poll(&mut devices, DeviceChoice::Gpu(0)) && devices.list().len() == 3);
        devices.cpu_only = Some("embedding of L0:Embedding has no GPU kernel yet: use --device cpu".into());
        assert!(poll(&mut devices, DeviceChoice::Auto) && devices.current().choice == DeviceChoice::Cpu);
        devices.cpu_only = None;
        assert!(poll(&mut devices, DeviceChoice::Auto) && devices.current().choice == DeviceChoice::Gpu(0));
        assert!(poll(&mut devices, DeviceChoice::Cpu) && devices.why_no_gpu.is_none());
    }

    #[test]
    fn the_kernels_of_a_gpu_follow_the_setting_unless_the_environment_sets_them() {
        let mut devices = Devices::new(None, || {}).unwrap();
        assert!(!devices.may_start_with(FirstKernels::Fastest) && !devices.may_start_with(FirstKernels::AtOnce));
        let kernels = |devices: &Devices| devices.current().target.kernels;
        let mut poll = |first| devices.poll(DeviceChoice::Absent, first).then(|| kernels(&devices));
        assert_eq!(poll(FirstKernels::AtOnce), Some(Kernels::FirstGeneral));
        assert_eq!(poll(FirstKernels::AtOnce), None);
        assert_eq!(poll(FirstKernels::Fastest), Some(Kernels::Specialised));
        assert_eq!(poll(FirstKernels::AtOnce), Some(Kernels::FirstGeneral));
        assert!(devices.may_start_with(FirstKernels::Fastest) && !devices.may_start_with(FirstKernels::AtOnce));
        let set = Machine { choice: DeviceChoice::Gpu(0), has_set_kernels: true, ..Machine::absent() };
        devices.list.push(Arc::new(set));
        assert!(devices.poll(DeviceChoice::Gpu(0), FirstKernels::AtOnce));
        assert_eq!(kernels(&devices), Kernels::Specialised);
        assert!(!devices.poll(DeviceChoice::Gpu(0), FirstKernels::AtOnce));
        assert!(!devices.may_start_with(FirstKernels::AtOnce) && !devices.may_start_with(FirstKernels::Fastest));
    }

    #[test]
    fn the_number_of_threads_suits_the_network() {
        let bundled = crate::model::BUNDLED.iter().find(|b| b.name == "digits-mlp").unwrap();
        let model = crate::model::check(&crate::model::read_preset(bundled.text).unwrap()).model.unwrap();
        let mut devices = Devices::new(None, || {}).unwrap();
        let program = crate::compile::cpu_program(&model).unwrap();
        let machine = devices.current().suited(&program);
        let wanted = threads_for_step(&program);
        assert_eq!(wanted, crate::train::threads_for(&model));
        assert_eq!(machine.target.as_cpu().unwrap().threads, wanted.count);
        assert!(machine.about.ends_with(&wanted.to_string()), "{}", machine.about);
        devices.suit(&machine);
        assert!(Arc::ptr_eq(devices.current(), &machine) && Arc::ptr_eq(&devices.list()[0], &machine));
        assert!(Arc::ptr_eq(&machine.suited(&program), &machine));
        let absent = Arc::new(Machine::absent());
        assert!(Arc::ptr_eq(&absent.suited(&program), &absent));
        devices.suit(&absent);
        assert!(Arc::ptr_eq(devices.current(), &machine));
    }
}

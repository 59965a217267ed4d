//! The properties of every operation.

use super::geometry::Epilogue;
use super::slots::Slot;
use super::update::{FlatUpdate, RuleText, UpdateSlots};

/// The capacity of a second-level cache, in bytes.
const CACHED_BYTES: u64 = 1 << 20;

/// What is known about an operation without running it. All code that handles operations of any kind uses this trait,
/// so that a new operation is described in one place. Slots are given by their index in [`Operation::slots`].
pub trait Operation {
    /// The name, as in listings.
    fn name(&self) -> &'static str;

    /// The prefix of the ids of its kernels.
    fn kernel_name(&self) -> &'static str {
        self.name()
    }

    /// What is fused into it, as shown in the ids of kernels.
    fn epilogue(&self) -> Epilogue {
        Epilogue::default()
    }

    /// The arguments in the order in which kernels see their pointers.
    fn slots(&self) -> &'static [Slot];

    /// The elements that a slot holds; `None` for scratch memory.
    fn extent(&self, slot: usize) -> Option<usize>;

    /// Whether a slot must be bound.
    fn is_needed(&self, slot: usize) -> bool;

    /// The dimensions as short text: `m=64 n=128 k=64`.
    fn dims(&self) -> String;

    /// Floating-point operations: a multiplication and an addition count separately; a transcendental function counts
    /// as one.
    fn flops(&self) -> u64;

    /// The least number of floating-point operations if a fused multiply-add counts as two. For operations that are not
    /// products, it is half the usual count, because two of those operations may be one instruction.
    fn least_flops(&self) -> u64 {
        self.flops() / 2
    }

    /// Like [`Operation::least_flops`], for libraries that may work on tiles.
    fn least_flops_with_tiles(&self) -> u64 {
        self.least_flops()
    }

    /// The bytes that it must read and write if each of its arguments is accessed once, with reals of `elem` bytes and
    /// every optional output bound. An operation overrides it if not all required arguments are such reals, or if some
    /// are accessed in part or more than once.
    fn bytes_moved(&self, elem: usize) -> u64 {
        let needed = (0..self.slots().len()).filter(|&slot| self.is_needed(slot));
        (needed.filter_map(|slot| self.extent(slot)).sum::<usize>() * elem) as u64
    }

    /// The bytes that it must access of an argument of `len` elements of `elem` bytes.
    fn least_bytes(&self, slot: usize, len: usize, elem: usize) -> u64 {
        let _ = slot;
        (len * elem) as u64
    }

    /// The pairs of slots, read and written, that may share memory; the first suitable pair is used.
    fn in_place(&self) -> &'static [(usize, usize)] {
        &[]
    }

    /// The floats of scratch memory that the fast kernel of a CPU needs. Products have a separate plan, which depends
    /// on the processor.
    fn scratch_floats(&self) -> usize {
        0
    }

    /// Picoseconds of its arithmetic on one core, as measured with AVX-512; 0 if memory always takes longer.
    fn work_ps(&self) -> usize {
        0
    }

    /// An estimate of the time on one core, in nanoseconds: the larger of the times of memory (160 bytes in a
    /// nanosecond from the second-level cache, 64 from beyond) and of arithmetic.
    fn work_ns(&self) -> u64 {
        let bytes = self.bytes_moved(size_of::<f32>());
        let memory = if bytes <= CACHED_BYTES { bytes / 160 } else { bytes / 64 };
        memory.max(self.work_ps() as u64 / 1_000)
    }

    /// Whether only plans for GPUs contain such operations.
    fn is_for_gpus(&self) -> bool {
        false
    }

    /// Whether a GPU has kernels for it. A network with an operation that has none runs on the CPU.
    fn has_gpu_kernel(&self) -> bool {
        true
    }

    /// Its fields that are whole numbers but not sizes.
    fn whole_constants(&self) -> &'static [&'static str] {
        &[]
    }

    /// The slot of a weight that a product reads.
    fn weight(&self) -> Option<usize> {
        None
    }

    /// Whether a slot holds activations or their gradients.
    fn is_activation(&self, slot: usize) -> bool {
        self.slots()[slot].activation
    }

    /// The slots of what it updates, if it is an optimizer.
    fn update(&self) -> Option<UpdateSlots> {
        None
    }

    /// What it updates, if it is an optimizer over the flat parameters.
    fn flat_update(&self) -> Option<FlatUpdate<'_>> {
        None
    }

    /// The rule by which it updates, if it is an optimizer.
    fn rule(&self) -> Option<RuleText> {
        None
    }

    /// The number of pairs of partial metrics, if it computes a gradient and updates its parameter; zero for all other
    /// operations.
    fn step_parts(&self) -> usize {
        0
    }
}

/// Whether JSON leaves a number out.
#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde hands out references")]
pub(super) const fn is_zero(number: &usize) -> bool {
    *number == 0
}

impl dyn Operation + '_ {
    /// The position of a slot by name.
    #[must_use]
    pub fn slot(&self, name: &str) -> Option<usize> {
        self.slots().iter().position(|s| s.name == name)
    }

    /// The stem of a kernel's id: the operation with what is fused into it, such as `gemm_bias_relu`.
    #[must_use]
    pub fn stem(&self) -> String {
        let (mut stem, epilogue) = (self.kernel_name().to_owned(), self.epilogue());
        if epilogue.bias {
            stem.push_str("_bias");
        }
        if let Some(act) = epilogue.act {
            stem.push('_');
            stem.push_str(act.name());
        }
        if let Some(act) = epilogue.act_grad {
            stem.push('_');
            stem.push_str(act.backward_name());
        }
        stem
    }
}

/// Declares an operation by a table: its type, its slots (see [`slots!`](super::slots::slots)), its name, and its
/// properties for [`Operation`], one in each row. Properties with a default may be left out.
///
/// ```text
/// operation! {
///     /// `y = a + b`, in place on `a`.
///     pub struct Add { pub len: usize }
///     slots add(op) { A: in activation [op.len], B: in activation [op.len], Y: out activation [op.len] }
///     "add" => {
///         dims: dims!(op: len),
///         flops: op.len as u64,
///         in_place: &[(add::A, add::Y), (add::B, add::Y)],
///     }
/// }
/// ```
///
/// An operation whose type cannot be copied, or which uses the slots of another one, declares these separately and then
/// uses `operation! { Concat: concat, "concat", |op| { .. } }`.
macro_rules! operation {
    (
        $(#[$doc:meta])*
        pub struct $Op:ident { $($(#[$attribute:meta])* pub $field:ident: $Field:ty),* $(,)? }
        slots $table:ident($op:ident) { $($slots:tt)+ }
        $name:expr => { $($row:ident $(($($arg:ident),+))?: $answer:expr,)* }
    ) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
        pub struct $Op {
            $($(#[$attribute])* pub $field: $Field),*
        }

        crate::ops::slots::slots! { pub mod $table($op: $Op) { $($slots)+ } }

        operation! { $Op: $table, $name, |$op| { $($row $(($($arg),+))?: $answer,)* } }
    };
    ($Op:ident: $table:ident, $name:expr, |$op:ident| {
        $($row:ident $(($($arg:ident),+))?: $answer:expr,)+
    }) => {
        impl Operation for $Op {
            crate::ops::slots::table!($table);

            operation!(@fn name -> &'static str; |$op| $name);
            $(operation!(@$row |$op $($(, $arg)+)?| $answer);)+
        }
    };
    (@fn $name:ident -> $Answer:ty; |$op:ident $(, $arg:ident)*| $answer:expr) => {
        fn $name(&self $(, $arg: usize)*) -> $Answer {
            let $op = self;
            let _ = $op;
            $answer
        }
    };
    (@kernel_name $($row:tt)+) => { operation!(@fn kernel_name -> &'static str; $($row)+); };
    (@epilogue $($row:tt)+) => { operation!(@fn epilogue -> crate::ops::Epilogue; $($row)+); };
    (@dims $($row:tt)+) => { operation!(@fn dims -> String; $($row)+); };
    (@flops $($row:tt)+) => { operation!(@fn flops -> u64; $($row)+); };
    (@least_flops $($row:tt)+) => { operation!(@fn least_flops -> u64; $($row)+); };
    (@least_flops_with_tiles $($row:tt)+) => { operation!(@fn least_flops_with_tiles -> u64; $($row)+); };
    (@bytes_moved $($row:tt)+) => { operation!(@fn bytes_moved -> u64; $($row)+); };
    (@least_bytes $($row:tt)+) => { operation!(@fn least_bytes -> u64; $($row)+); };
    (@in_place $($row:tt)+) => { operation!(@fn in_place -> &'static [(usize, usize)]; $($row)+); };
    (@scratch_floats $($row:tt)+) => { operation!(@fn scratch_floats -> usize; $($row)+); };
    (@work_ps $($row:tt)+) => { operation!(@fn work_ps -> usize; $($row)+); };
    (@is_for_gpus $($row:tt)+) => { operation!(@fn is_for_gpus -> bool; $($row)+); };
    (@has_gpu_kernel $($row:tt)+) => { operation!(@fn has_gpu_kernel -> bool; $($row)+); };
    (@whole_constants $($row:tt)+) => { operation!(@fn whole_constants -> &'static [&'static str]; $($row)+); };
    (@weight $($row:tt)+) => { operation!(@fn weight -> Option<usize>; $($row)+); };
    (@is_activation $($row:tt)+) => { operation!(@fn is_activation -> bool; $($row)+); };
    (@rule $($row:tt)+) => { operation!(@fn rule -> Option<crate::ops::RuleText>; $($row)+); };
    (@update $($row:tt)+) => { operation!(@fn update -> Option<crate::ops::UpdateSlots>; $($row)+); };
    (@step_parts $($row:tt)+) => { operation!(@fn step_parts -> usize; $($row)+); };
}
pub(super) use operation;

/// `dims!(op: rows cols)` is `rows=3 cols=5`, by the fields of an operation.
macro_rules! dims {
    ($op:ident: $($field:ident)+) => {
        [$(format!(concat!(stringify!($field), "={}"), $op.$field)),+].join(" ")
    };
}
pub(super) use dims;

//! The source of one compilation: the kernels of one operation, phase by phase, or those of several operations that
//! share a launch.

use super::plant;
use crate::select::cuda::{KernelFamily, KernelFile, KernelSpec};
use crate::tensor::Fnv;
use std::borrow::Cow;
use std::fmt::Write;
use std::sync::OnceLock;

/// The start of every source: the slots of the operations, then the code that the kernels share.
const SLOTS: &str = include_str!("../../../kernels/slots.cuh");
const PRELUDE: &str = include_str!("../../../kernels/prelude.cuh");

// Each text is in the program only once: a literal in a function might be duplicated for each of its uses.
static GEMM: &str = include_str!("../../../kernels/gemm.cu");
static CONV: &str = include_str!("../../../kernels/conv.cu");
static NORM: &str = include_str!("../../../kernels/norm.cu");
static POOL: &str = include_str!("../../../kernels/pool.cu");
static ELEMENTWISE: &str = include_str!("../../../kernels/elementwise.cu");
static JOINED: &str = include_str!("../../../kernels/joined.cu");
static SEQUENCE: &str = include_str!("../../../kernels/sequence.cu");
static ATTENTION: &str = include_str!("../../../kernels/attention.cu");
static RECURRENT: &str = include_str!("../../../kernels/recurrent.cu");
static ATTENTION_MMA: &str = include_str!("../../../kernels/attention_mma.cu");
static ATTENTION_WGMMA: &str = include_str!("../../../kernels/attention_wgmma.cu");
static LOSS: &str = include_str!("../../../kernels/loss.cu");
static OPTIMIZER: &str = include_str!("../../../kernels/optimizer.cu");
static RATES: &str = include_str!("../../../kernels/rates.cu");
static FEED: &str = include_str!("../../../kernels/feed.cu");
static CLEAR: &str = include_str!("../../../kernels/clear.cu");

/// The text of a file of kernels.
fn text_of(file: KernelFile) -> &'static str {
    match file {
        KernelFile::Gemm => GEMM,
        KernelFile::Conv => CONV,
        KernelFile::Norm => NORM,
        KernelFile::Pool => POOL,
        KernelFile::Elementwise => ELEMENTWISE,
        KernelFile::Joined => JOINED,
        KernelFile::Sequence => SEQUENCE,
        KernelFile::Attention => ATTENTION,
        KernelFile::Recurrent => RECURRENT,
        KernelFile::AttentionMma => ATTENTION_MMA,
        KernelFile::AttentionWgmma => ATTENTION_WGMMA,
        KernelFile::Loss => LOSS,
        KernelFile::Optimizer => OPTIMIZER,
        KernelFile::Rates => RATES,
        KernelFile::Feed => FEED,
        KernelFile::Clear => CLEAR,
    }
}

/// The kernels' source files, by name.
#[must_use]
pub fn sources() -> [(&'static str, &'static str); KernelFile::ALL.len()] {
    KernelFile::ALL.map(|file| (file.name(), text_of(file)))
}

/// A number that changes whenever a kernel's source changes.
#[must_use]
pub fn source_hash() -> u64 {
    sources().iter().fold(Fnv::of(PRELUDE.as_bytes()) ^ Fnv::of(SLOTS.as_bytes()).rotate_left(3), |h, (_, text)| {
        h.rotate_left(7) ^ Fnv::of(text.as_bytes())
    })
}

/// The text of a file as it is compiled: the slots, the shared code, then [`KernelFile::ALL`].
fn file_text(number: usize) -> Cow<'static, str> {
    match number {
        0 => Cow::Borrowed(SLOTS),
        1 => plant::text("prelude.cuh", PRELUDE),
        _ => {
            let file = KernelFile::ALL[number - 2];
            plant::text(file.name(), text_of(file))
        }
    }
}

/// Length in bytes and checksum of each file, as it is compiled.
fn file_sums() -> &'static [(usize, u64)] {
    static SUMS: OnceLock<Vec<(usize, u64)>> = OnceLock::new();
    SUMS.get_or_init(|| {
        let sum = |number| {
            let text = file_text(number);
            (text.len(), Fnv::of(text.as_bytes()))
        };
        (0..KernelFile::ALL.len() + 2).map(sum).collect()
    })
}

/// The largest number of phases of an operation.
const MAX_PHASES: usize = 3;

/// What a source reports about itself: phases, threads, scratch bytes, then blocks and shared memory of each phase.
pub(super) const META_LEN: usize = 3 + 2 * MAX_PHASES;

/// What a general member reports about itself: its blocks depend on the numbers of a launch, from which a kernel
/// computes them. That kernel is never a cluster, even if `__global__` is redefined by declarations.
const GENERAL_FACTS: &str = "extern \"C\" __constant__ long long meta[9] = \
     {member0::Op::PHASES, member0::Op::THREADS, 0, \
     0, member0::Op::smem(0), 0, member0::Op::smem(1), 0, member0::Op::smem(2)};\n\
     extern \"C\" __attribute__((global)) void geometry(const __grid_constant__ Args a, long long* out) {\n\
     for (int phase = 0; phase < member0::Op::PHASES; ++phase) {\n\
     out[3 + 2 * phase] = member0::Op::blocks_for(a, phase);\n\
     out[4 + 2 * phase] = member0::Op::smem(phase);\n}\n}\n";

/// The input of the run-time compiler: one kernel, or several that share a launch.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct KernelSource {
    members: Vec<KernelSpec>,
}

impl From<KernelSpec> for KernelSource {
    fn from(spec: KernelSpec) -> Self {
        Self { members: vec![spec.compiled()] }
    }
}

impl FromIterator<KernelSpec> for KernelSource {
    fn from_iter<T: IntoIterator<Item = KernelSpec>>(members: T) -> Self {
        Self { members: members.into_iter().map(KernelSpec::compiled).collect() }
    }
}

impl KernelSource {
    /// The name of a phase's kernel, as profilers and graphs show it: the templates of the types, and the phase.
    pub(super) fn entry_name(&self, phase: usize) -> String {
        format!("{}_{phase}", self.members.iter().map(|spec| spec.template).collect::<Vec<_>>().join("_and_"))
    }

    /// The C++ types of its members.
    #[must_use]
    pub fn types(&self) -> String {
        self.members.iter().map(KernelSpec::ty).collect::<Vec<_>>().join(" and ")
    }

    /// Whether it takes longer to compile than most others; convolutions do.
    pub(super) fn is_slow_to_compile(&self) -> bool {
        self.members.iter().any(|spec| spec.file == KernelFile::Conv)
    }

    /// Whether it is a general member of its family.
    pub(super) fn is_general(&self) -> bool {
        self.members.iter().any(KernelSpec::is_general)
    }

    /// Whether its machine code works for every size of its operations.
    pub(super) fn is_for_any_size(&self) -> bool {
        let has_no_size = |spec: &KernelSpec| {
            KernelFamily::of(spec.template).is_some_and(|family| family.fixed.starts_with("nothing"))
        };
        self.members.iter().all(|spec| spec.is_general() || has_no_size(spec))
    }

    /// Whether graphs that do not hold it launch it: it clears memory for libraries.
    pub(super) fn stays_in_graphs(&self) -> bool {
        self.members.iter().any(|spec| spec.file == KernelFile::Clear)
    }

    /// Whether the blocks of its launches wait for each other.
    pub(super) fn blocks_meet(&self) -> bool {
        self.members.iter().any(|spec| spec.blocks_meet)
    }

    /// Whether one of its members uses all of a multiprocessor's cache as shared memory.
    pub(super) fn prefers_shared_memory(&self) -> bool {
        self.members.iter().any(|spec| spec.prefers_shared_memory)
    }

    /// The C++ text.
    #[must_use]
    pub fn text(&self) -> String {
        let mut text: String = self.files().map(file_text).collect();
        text.push_str(&self.instances());
        text
    }

    /// The identity of the source among all sources, including those of other versions of the program: checksums of the
    /// files at its start, and everything that follows them.
    pub(super) fn key(&self) -> String {
        let sum = |number: usize| {
            let (bytes, sum) = file_sums()[number];
            format!("{bytes} bytes, {sum:016x}\n")
        };
        let mut key: String = self.files().map(sum).collect();
        key.push_str(&self.instances());
        key
    }

    /// The files at its start, by number.
    fn files(&self) -> impl Iterator<Item = usize> {
        let needed =
            |file: KernelFile| self.members.iter().any(|spec| spec.file == file || spec.file.base() == Some(file));
        let families = KernelFile::ALL.into_iter().enumerate().filter(move |(_, file)| needed(*file));
        [0, 1].into_iter().chain(families.map(|(number, _)| number + 2))
    }

    /// What follows the files: the types of the members, and the kernels that run them.
    fn instances(&self) -> String {
        let mut text = String::new();
        for (index, spec) in self.members.iter().enumerate() {
            // The declarations of several members must not have the same names, and neither may the types that refer to
            // them.
            let (declarations, ty) = (&spec.declarations, spec.ty());
            append(&mut text, format_args!("namespace member{index} {{\n{declarations}\nusing Op = {ty};\n}}\n"));
        }
        match &self.members[..] {
            [spec] => self.add_phases(&mut text, spec),
            _ => self.add_shared_launch(&mut text),
        }
        text
    }

    /// A kernel of one operation for each of its phases.
    fn add_phases(&self, text: &mut String, spec: &KernelSpec) {
        let start = start_of(spec, "a");
        for phase in 0..MAX_PHASES {
            let body = format!(
                "if constexpr (member0::Op::PHASES > {phase}) {{\n\
                 if constexpr (!Begins<member0::Op>::VALUE) {start};\n\
                 member0::Op::run<{phase}>(a, blockIdx.x, smem);\n}}\n"
            );
            // A separate kernel may declare how many of its blocks must fit a multiprocessor.
            let bounds = "member0::Op::THREADS, MinBlocks<member0::Op>::VALUE";
            self.add_entry(text, phase, bounds, "Args a", &body);
        }
        if spec.is_general() {
            text.push_str(GENERAL_FACTS);
            return;
        }
        text.push_str(
            "extern \"C\" __constant__ long long meta[9] = \
             {member0::Op::PHASES, member0::Op::THREADS, member0::Op::WORK, \
             member0::Op::blocks(0), member0::Op::smem(0), member0::Op::blocks(1), member0::Op::smem(1), \
             member0::Op::blocks(2), member0::Op::smem(2)};\n",
        );
    }

    /// A kernel for each phase whose blocks are divided among the operations that have this phase.
    fn add_shared_launch(&self, text: &mut String) {
        append(text, format_args!("struct Members {{ Args a[{}]; }};\n", self.members.len()));
        let [mut phases, mut threads] = ["1", "0"].map(String::from);
        // Two blocks of at most 256 threads must fit a multiprocessor, which leaves enough registers for the members,
        // except for members whose blocks each occupy a multiprocessor.
        let mut fit = String::from("2");
        for index in self.types_alike().map(|(index, ..)| index) {
            phases = format!("max_i({phases}, member{index}::Op::PHASES)");
            threads = format!("max_i({threads}, member{index}::Op::THREADS)");
            fit = format!("(MinBlocks<member{index}::Op>::VALUE == 1 ? 1 : {fit})");
        }
        append(text, format_args!("constexpr int PHASES = {phases}, THREADS = {threads};\n"));
        append(text, format_args!("constexpr int BLOCKS = THREADS > 256 ? 1 : {fit};\n"));
        for phase in 0..MAX_PHASES {
            let shares = self.types_alike().map(|(index, spec, count)| share_of(spec, index, count, phase));
            let body = format!("int block = blockIdx.x;\n{}", shares.collect::<String>());
            self.add_entry(text, phase, "THREADS, BLOCKS", "Members m", &body);
        }
        self.add_shared_facts(text);
    }

    /// What a shared launch reports about itself. The blocks of general members depend on the numbers of a launch, from
    /// which a kernel computes them.
    fn add_shared_facts(&self, text: &mut String) {
        let blocks = |phase| {
            let of = |(index, spec, count)| blocks_of(spec, index, count, phase);
            format!("0{}", self.types_alike().map(of).collect::<String>())
        };
        let smem = |phase| {
            let of = |(index, ..): (usize, _, _)| if_phase(index, phase, "smem", &phase.to_string());
            self.types_alike().map(of).fold(String::from("0"), |most, bytes| format!("max_i({most}, {bytes})"))
        };
        let known = |phase| if self.is_general() { String::from("0") } else { blocks(phase) };
        let facts: Vec<String> = (0..MAX_PHASES).map(|phase| format!("{}, {}", known(phase), smem(phase))).collect();
        let facts = facts.join(", ");
        append(text, format_args!("extern \"C\" __constant__ long long meta[9] = {{PHASES, THREADS, 0, {facts}}};\n"));
        if self.is_general() {
            text.push_str(
                "extern \"C\" __attribute__((global)) void geometry(const __grid_constant__ Members m, \
                 long long* out) {\n",
            );
            for phase in 0..MAX_PHASES {
                let (at, of) = (3 + 2 * phase, 4 + 2 * phase);
                append(text, format_args!("out[{at}] = {};\nout[{of}] = {};\n", blocks(phase), smem(phase)));
            }
            text.push_str("}\n");
        }
    }

    /// The members of each type, which are compiled once: the index of the first one, the type, and their number.
    fn types_alike(&self) -> impl Iterator<Item = (usize, &KernelSpec, usize)> {
        let mut index = 0;
        self.members.chunk_by(|a, b| a == b).map(move |alike| {
            let first = index;
            index += alike.len();
            (first, &alike[0], alike.len())
        })
    }

    /// The function that is launched for a phase.
    fn add_entry(&self, text: &mut String, phase: usize, bounds: &str, argument: &str, body: &str) {
        let name = self.entry_name(phase);
        append(
            text,
            format_args!(
                "extern \"C\" __global__ void __launch_bounds__({bounds}) \
                 {name}(const __grid_constant__ {argument}) {{\n\
                 extern __shared__ __align__(128) char smem[];\n{body}}}\n"
            ),
        );
    }
}

/// A function of a member's type for a phase; zero if the member does not have this phase.
fn if_phase(index: usize, phase: usize, function: &str, arguments: &str) -> String {
    let call = format!("member{index}::Op::{function}({arguments})");
    // Every member has the first phase.
    if phase == 0 { call } else { format!("(member{index}::Op::PHASES > {phase} ? {call} : 0)") }
}

/// The blocks in a phase of `count` members of one type, the first of which has this index, as a term of a sum.
fn blocks_of(spec: &KernelSpec, index: usize, count: usize, phase: usize) -> String {
    let known = if_phase(index, phase, "blocks", &phase.to_string());
    match count {
        _ if spec.is_general() => {
            let of =
                |member| format!(" + {}", if_phase(member, phase, "blocks_for", &format!("m.a[{member}], {phase}")));
            (index..index + count).map(of).collect()
        }
        1 => format!(" + {known}"),
        _ => format!(" + {count} * {known}"),
    }
}

/// The part of a phase of a shared launch that `count` members of one type have, the first of which has this index.
fn share_of(spec: &KernelSpec, index: usize, count: usize, phase: usize) -> String {
    let args = if count == 1 { format!("m.a[{index}]") } else { format!("m.a[{index} + which]") };
    let start = start_of(spec, &args);
    let idle = format!(
        "if constexpr (member{index}::Op::THREADS < THREADS) \
         {{ if (threadIdx.x >= member{index}::Op::THREADS) return; }}\n"
    );
    let run = format!(
        "if constexpr (!Begins<member{index}::Op>::VALUE) {start};\n\
         member{index}::Op::run<{phase}>({args}, block, smem);\nreturn;\n"
    );
    let share = if spec.is_general() {
        format!(
            "for (int which = 0; which < {count}; ++which) {{\n\
             const int own = member{index}::Op::blocks_for(m.a[{index} + which], {phase});\n\
             if (block < own) {{\n{idle}{run}}}\nblock -= own;\n}}\n"
        )
    } else {
        let each = format!("member{index}::Op::blocks({phase})");
        let (all, which) = match count {
            1 => (each, String::new()),
            _ => {
                (format!("{count} * {each}"), format!("const int which = block / {each};\nblock -= which * {each};\n"))
            }
        };
        format!("if (block < {all}) {{\n{idle}{which}{run}}}\nblock -= {all};\n")
    };
    // Every member has the first phase.
    if phase == 0 { share } else { format!("if constexpr (member{index}::Op::PHASES > {phase}) {{\n{share}}}\n") }
}

/// The start of kernels that do not call `begin` themselves: it reads the flags of the launch if these may be set;
/// other kernels omit this.
fn start_of(spec: &KernelSpec, args: &str) -> String {
    if spec.pdl.reads_flags { format!("begin({args})") } else { "wait_for_launch()".to_owned() }
}

/// Adds formatted text, which cannot fail in memory.
fn append(text: &mut String, more: std::fmt::Arguments<'_>) {
    let _ = text.write_fmt(more);
}

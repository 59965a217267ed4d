//! The definition of a custom kernel: the C++ type that the run-time compiler instantiates, and what the executor must
//! know about it before it is compiled.
//!
//! Selection fills in a [`KernelSpec`], and the executor reads its fields. No code searches the source text to find out
//! what a kernel does.

use crate::select::target::Kernels;

/// A file of kernels in `kernels/`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum KernelFile {
    Gemm,
    Conv,
    Norm,
    Pool,
    Elementwise,
    Joined,
    Sequence,
    Attention,
    Recurrent,
    /// Attention on tensor cores.
    AttentionMma,
    /// Attention on the matrix instructions of warpgroups.
    AttentionWgmma,
    Loss,
    Optimizer,
    Rates,
    /// The data feed, which gathers the batches of steps.
    Feed,
    /// Clears memory.
    Clear,
}

impl KernelFile {
    /// All of them, in the order in which a source contains them.
    pub const ALL: [Self; 16] = [
        Self::Gemm,
        Self::Conv,
        Self::Norm,
        Self::Pool,
        Self::Elementwise,
        Self::Joined,
        Self::Sequence,
        Self::Attention,
        Self::Recurrent,
        Self::AttentionMma,
        Self::AttentionWgmma,
        Self::Loss,
        Self::Optimizer,
        Self::Rates,
        Self::Feed,
        Self::Clear,
    ];

    /// Its name on disk.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Gemm => "gemm.cu",
            Self::Conv => "conv.cu",
            Self::Norm => "norm.cu",
            Self::Pool => "pool.cu",
            Self::Elementwise => "elementwise.cu",
            Self::Joined => "joined.cu",
            Self::Sequence => "sequence.cu",
            Self::Attention => "attention.cu",
            Self::Recurrent => "recurrent.cu",
            Self::AttentionMma => "attention_mma.cu",
            Self::AttentionWgmma => "attention_wgmma.cu",
            Self::Loss => "loss.cu",
            Self::Optimizer => "optimizer.cu",
            Self::Rates => "rates.cu",
            Self::Feed => "feed.cu",
            Self::Clear => "clear.cu",
        }
    }

    /// The file whose types it uses; a source contains it first.
    #[must_use]
    pub const fn base(self) -> Option<Self> {
        match self {
            Self::AttentionMma | Self::AttentionWgmma => Some(Self::Attention),
            _ => None,
        }
    }
}

/// How a kernel takes part in programmatic dependent launch (PDL), by which a launch starts before the preceding one
/// has ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Pdl {
    /// It begins with code that reads the flags of its launch; other kernels begin by waiting for the preceding launch.
    /// Kernels that declare `BEGINS` in their class do neither, and wait themselves where they must.
    pub reads_flags: bool,
    /// It can load inputs while the preceding launch still runs.
    pub fetches_early: bool,
    /// Blocks of the next launch fit beside its own blocks, for all sizes. A kernel that streams through a whole image
    /// fills the GPU, and blocks that wait there take space from those that work. Only kernels that read flags can let
    /// the next one start.
    pub leaves_room: bool,
}

/// A table that a general member reads from memory.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Table {
    pub words: Vec<u32>,
    /// The number that the executor replaces by the address of the words.
    pub number: usize,
}

/// The general member of a family that does the same as a specialised one, bit for bit.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct GeneralMember {
    /// The template's arguments, with `ANY` for numbers that are read.
    pub arguments: String,
    /// The arguments of a member for a wider class, which reads the same numbers and gives the same results, more
    /// slowly; none if there is no such class.
    pub wider: Option<String>,
    /// Declarations that the arguments refer to, as in a [`KernelSpec`].
    pub declarations: String,
    /// The numbers that it reads from the arguments of its launch, in order.
    pub numbers: Vec<u64>,
    /// The table that it reads from memory. Usually empty.
    pub table: Table,
    /// As in a [`KernelSpec`].
    pub cluster_blocks: usize,
}

impl GeneralMember {
    /// A general member without declarations, table and clusters.
    #[must_use]
    pub const fn new(arguments: String, numbers: Vec<u64>) -> Self {
        Self {
            arguments,
            wider: None,
            declarations: String::new(),
            numbers,
            table: Table { words: Vec::new(), number: 0 },
            cluster_blocks: 1,
        }
    }

    /// The same with the arguments of a member for a wider class.
    #[must_use]
    pub fn with_wider(mut self, arguments: String) -> Self {
        self.wider = (arguments != self.arguments).then_some(arguments);
        self
    }

    /// The same with a table whose address is a further number; unchanged if there are no words.
    #[must_use]
    pub fn with_last_table(mut self, words: Vec<u32>) -> Self {
        if !words.is_empty() {
            self.table = Table { words, number: self.numbers.len() };
            self.numbers.push(0);
        }
        self
    }
}

/// Which member of its family a kernel is.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Member {
    /// Compiled for the sizes of its operation, with the general member if there is one.
    Specialised { general: Option<Box<GeneralMember>> },
    /// Reads these numbers from the arguments of its launch, and this table from memory. A member with the arguments
    /// `wider` can stand in for it.
    General { numbers: Vec<u64>, table: Table, wider: Option<String> },
}

/// The declaration by which the kernels of a source run in clusters of this number of blocks.
fn declared_cluster(blocks: usize) -> String {
    let cluster = format!("__attribute__((global)) __cluster_dims__({blocks}, 1, 1)");
    format!("#undef __global__\n#define __global__ {cluster}\n")
}

/// A custom kernel before it is compiled.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct KernelSpec {
    pub file: KernelFile,
    /// The C++ class template that is instantiated, such as `GemmDirect`.
    pub template: &'static str,
    /// The template's arguments, separated by commas; empty for a class that is not a template.
    pub arguments: String,
    /// Declarations that the arguments refer to, without a line feed at the end; usually empty.
    pub declarations: String,
    /// The number of blocks of a cluster. If there are several, they belong together and share a launch with no other
    /// operation.
    pub cluster_blocks: usize,
    /// Whether blocks wait for each other, so that all of them must be resident at once. Such a launch is a cooperative
    /// one, which the driver refuses if they do not fit, and belongs to no other operation.
    pub blocks_meet: bool,
    /// Whether multiprocessors should give their whole cache to shared memory. A sequence of small products runs faster
    /// if no multiprocessor must change the division of its memory from one launch to the next; kernels that stream
    /// through the first-level cache would run slower with this, so that the choice is left to the driver.
    pub prefers_shared_memory: bool,
    pub pdl: Pdl,
    pub member: Member,
}

impl KernelSpec {
    /// A kernel without clusters that waits for the preceding launch.
    #[must_use]
    pub fn new(file: KernelFile, template: &'static str, arguments: String) -> Self {
        Self {
            file,
            template,
            arguments,
            declarations: String::new(),
            cluster_blocks: 1,
            blocks_meet: false,
            prefers_shared_memory: false,
            pdl: Pdl::default(),
            member: Member::Specialised { general: None },
        }
    }

    /// This kernel with the general member of its family: the template's arguments, with `ANY` for numbers that are
    /// read, and these numbers.
    #[must_use]
    pub fn with_general(self, arguments: String, numbers: Vec<u64>) -> Self {
        self.with_general_member(GeneralMember::new(arguments, numbers))
    }

    /// This kernel with the general member of its family.
    #[must_use]
    pub fn with_general_member(self, general: GeneralMember) -> Self {
        Self { member: Member::Specialised { general: Some(Box::new(general)) }, ..self }
    }

    /// Whether its family has a general member that does the same.
    #[must_use]
    pub const fn has_general(&self) -> bool {
        matches!(self.member, Member::General { .. } | Member::Specialised { general: Some(_) })
    }

    /// This kernel in clusters of `own` blocks, and the general member of its family in clusters of `general` blocks.
    #[must_use]
    pub fn in_clusters(mut self, own: usize, general: usize) -> Self {
        self.declarations.insert_str(0, &declared_cluster(own));
        self.cluster_blocks = own;
        if let Member::Specialised { general: Some(member) } = &mut self.member {
            member.declarations.insert_str(0, &declared_cluster(general));
            member.cluster_blocks = general;
        }
        self
    }

    /// The requested member of its family, if it exists; otherwise this one.
    #[must_use]
    pub fn of(self, kernels: Kernels) -> Self {
        match (kernels, self.member) {
            (wanted, Member::Specialised { general: Some(general) }) if wanted.are_general() => {
                let GeneralMember { arguments, wider, declarations, numbers, table, cluster_blocks } = *general;
                let member = Member::General { numbers, table, wider };
                let found = Self { arguments, declarations, cluster_blocks, member, ..self };
                if wanted == Kernels::Widest { found.wider().unwrap_or(found) } else { found }
            }
            (_, member) => Self { member, ..self },
        }
    }

    /// The general member for a wider class that gives the same results, if this is a general one and there is such a
    /// class.
    #[must_use]
    pub fn wider(&self) -> Option<Self> {
        let Member::General { numbers, table, wider: Some(arguments) } = &self.member else { return None };
        let member = Member::General { numbers: numbers.clone(), table: table.clone(), wider: None };
        Some(Self { arguments: arguments.clone(), member, ..self.clone() })
    }

    /// What is compiled: members that differ only in their numbers have the same code.
    #[must_use]
    pub fn compiled(mut self) -> Self {
        match &mut self.member {
            Member::Specialised { general } => *general = None,
            Member::General { numbers, table, wider } => {
                numbers.clear();
                *table = Table::default();
                *wider = None;
            }
        }
        self
    }

    /// Whether it reads its sizes from the arguments of its launch.
    #[must_use]
    pub const fn is_general(&self) -> bool {
        matches!(self.member, Member::General { .. })
    }

    /// Whether its launch belongs to no other operation: its blocks need each other, or it divides the registers of a
    /// launch with its own number of threads among them.
    #[must_use]
    pub fn is_alone(&self) -> bool {
        self.cluster_blocks > 1 || self.blocks_meet || self.file == KernelFile::AttentionWgmma
    }

    /// The numbers that it reads from the arguments of its launch.
    #[must_use]
    pub fn numbers(&self) -> &[u64] {
        match &self.member {
            Member::Specialised { .. } => &[],
            Member::General { numbers, .. } => numbers,
        }
    }

    /// The table that it reads from memory, if there is one.
    #[must_use]
    pub fn table(&self) -> Option<&Table> {
        match &self.member {
            Member::General { table, .. } if !table.words.is_empty() => Some(table),
            _ => None,
        }
    }

    /// This kernel with these PDL properties.
    #[must_use]
    pub fn with_pdl(self, pdl: Pdl) -> Self {
        Self { pdl, ..self }
    }

    /// The C++ type, such as `Act<float, RELU, 8192>`.
    #[must_use]
    pub fn ty(&self) -> String {
        if self.arguments.is_empty() {
            self.template.to_owned()
        } else {
            format!("{}<{}>", self.template, self.arguments)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn general_members_are_compiled_once_for_all_their_numbers() {
        let act = |len: u64| {
            let spec = KernelSpec::new(KernelFile::Elementwise, "Act", format!("float, RELU, {len}"));
            spec.with_general("float, RELU, ANY".into(), vec![len])
        };
        let [small, large] = [8, 9].map(|len| act(len).of(Kernels::General));
        assert_eq!(
            (small.ty().as_str(), small.numbers(), large.numbers()),
            ("Act<float, RELU, ANY>", &[8][..], &[9][..])
        );
        assert!(small != large && small.compiled() == large.compiled());
        assert_eq!(act(8).of(Kernels::Specialised), act(8));
        assert!(act(8).compiled() != act(9).compiled());
        // A family without a general member returns its specialised ones.
        let clear = KernelSpec::new(KernelFile::Clear, "Clear", String::new());
        assert_eq!(clear.clone().of(Kernels::General), clear);
    }

    #[test]
    fn types_are_written_as_the_compiler_reads_them() {
        let clear = KernelSpec::new(KernelFile::Clear, "Clear", String::new());
        assert_eq!((clear.ty().as_str(), clear.file.name()), ("Clear", "clear.cu"));
        assert_eq!(KernelSpec::new(KernelFile::Pool, "AvgPool", "float, 2".into()).ty(), "AvgPool<float, 2>");
    }

    #[test]
    fn kernels_that_need_a_whole_launch_share_none() {
        let of = |file: KernelFile| KernelSpec::new(file, "Some", String::new());
        assert!(!of(KernelFile::Attention).is_alone() && of(KernelFile::AttentionWgmma).is_alone());
        assert!(of(KernelFile::Norm).in_clusters(2, 2).is_alone());
        assert!(KernelSpec { blocks_meet: true, ..of(KernelFile::Recurrent) }.is_alone());
    }
}

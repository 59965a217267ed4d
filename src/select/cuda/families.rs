//! The families of custom kernels: for each template, what a member is compiled for, and which numbers a general member
//! reads from the arguments of its launch instead.
//!
//! The members of a family add in the same order, so that their results are bitwise equal. A family without numbers has
//! only specialised members: it is compiled for every new size.

use super::spec::KernelFile::{
    self, Attention, AttentionMma, AttentionWgmma, Clear, Conv, Elementwise, Feed, Gemm, Joined, Loss, Norm, Optimizer,
    Pool, Rates, Recurrent, Sequence,
};

/// A family of custom kernels: one template of a file in `kernels/`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KernelFamily {
    pub template: &'static str,
    pub file: KernelFile,
    /// What every member is compiled for.
    pub fixed: &'static str,
    /// What a specialised member is also compiled for, and a general member reads, in the order of its numbers; empty
    /// if there are no general members.
    pub numbers: &'static [&'static str],
}

const fn family(
    file: KernelFile,
    template: &'static str,
    fixed: &'static str,
    numbers: &'static [&'static str],
) -> KernelFamily {
    KernelFamily { template, file, fixed, numbers }
}

/// What families without general members are compiled for.
const SIZES: &str = "everything";
/// What general members of products are compiled for.
const PRODUCT: &str = "type, which factor is transposed, tile, kinds of what follows, one phase or two, vectors";
/// What they read; the last number is the address of constants if an update follows.
const PRODUCT_NUMBERS: &[&str] = &["rows", "columns", "depth", "splits", "functions or constants of the rule"];
/// What general members over arrays are compiled for.
const ARRAY: &str = "type, two classes of length";

/// What general members of batch normalisations are compiled for, and what they read.
const NORM: &str = "type, whether there is a derivative, tile, threads, vectors, classes of rows a thread";
const BATCH_NORM: [&str; 6] = ["rows", "channels", "rows of a chunk", "epsilon", "momentum", "function"];
/// What those of their gradients read.
const BATCH_NORM_BWD: &[&str] = &["rows", "channels", "rows of a chunk", "function"];
/// What general members of normalisations of rows are compiled for.
const ROW_NORM: &str = "type, whether rows are centred, threads, vectors, classes of columns a thread";
/// What general members that copy rows are compiled for.
const ROWS: &str = "type, vectors";
/// What general members of gradients of embeddings read.
const TABLE: &[&str] = &["rows", "vocabulary", "units"];
/// What general members of attention are compiled for, and what they read.
const ATTEND: &str = "type, features of a head, causal or not, rotary or not, dropout or not, tiles";
const ATTEND_ON: &str = "type, features of a head, scale, causal or not, number of multiprocessors";
const SAMPLES: &[&str] = &[
    "samples",
    "positions",
    "heads",
    "heads of keys and values",
    "threshold",
    "scale",
    "stream",
    "features of a head",
    "factor of the scores",
];
/// What general members of recurrences are compiled for, and what they read.
const WALK: &str = "type, cell, threads, their weights and samples";
const GRID: &str = "type, cell, whether products use matrix instructions, tile, classes of sizes, vectors";
const WALK_NUMBERS: [&str; 5] =
    ["samples", "positions", "units", "direction, one or both, last state or all", "units of a block"];
const HELD_NUMBERS: &[&str] = WALK_NUMBERS.split_at(4).0;
/// What general members of concatenations read: zeros for values that are missing.
const WIDTHS: &[&str] = &[
    "rows",
    "first width",
    "second width",
    "third width",
    "fourth width",
    "fifth width",
    "sixth width",
    "seventh width",
    "eighth width",
];
/// What general members of functions of an output and its target are compiled for.
const POINTS: &str = "type, function, threads, loads under way";
/// What general members of poolings are compiled for, and what they read.
const WINDOW: &str = "type, a usual window, whether it may reach beyond the image, whether windows overlap, vectors";
const IMAGES: &[&str] = &[
    "samples",
    "rows",
    "columns",
    "channels",
    "rows of the output",
    "columns of the output",
    "window and stride",
    "padding",
];

/// What general members of convolutions read. The window is the rows and columns of the kernel and of the padding, 16
/// bits each; strides and dilations have 12 bits each, and the functions of the epilogue follow them.
const CONV: [&str; 11] = [
    "samples",
    "rows",
    "columns",
    "channels",
    "filters",
    "rows of the output",
    "columns of the output",
    "window",
    "groups",
    "splits, or warps that share a sum",
    "strides, dilations and functions",
];

/// What those for images of few channels are compiled for, and what they read.
const THIN: &str =
    "type, filters of a tile, weights of a filter, lines of a warp, kinds of what follows, any stride, vectors";
const CONV_THIN: [&str; 11] = {
    let mut names = CONV;
    (names[8], names[9]) = ("groups and rows of a unit", "splits, or blocks");
    names
};

/// All of them.
pub const FAMILIES: [KernelFamily; 88] = [
    family(Gemm, "GemmSimt", PRODUCT, PRODUCT_NUMBERS),
    family(Gemm, "GemmMma", PRODUCT, PRODUCT_NUMBERS),
    family(Gemm, "GemmDirect", SIZES, &[]),
    family(
        Conv,
        "ConvGemm",
        "type, product, tile, kinds of what follows, any stride, vectors, one phase or two",
        &CONV,
    ),
    family(
        Conv,
        "ConvSliced",
        "product, tile, warps, steps of a warp, kinds of what follows, any stride, vectors",
        &CONV,
    ),
    family(Conv, "ConvWgmmaBwdW", SIZES, &[]),
    family(Conv, "ConvTapsBwdW", SIZES, &[]),
    family(Conv, "ConvThinBwdW", THIN, &CONV_THIN),
    family(Conv, "ConvThinForward", THIN, &CONV_THIN),
    family(Conv, "ConvDirect", "type, product, kinds of what follows, any stride, vectors", &CONV),
    family(Conv, "ConvDirectBwdW", "type, any stride, weights a thread, vectors, one phase or two", &CONV),
    family(Norm, "BatchNormSmall", NORM, &BATCH_NORM),
    family(Norm, "BatchNormCluster", NORM, &BATCH_NORM),
    family(Norm, "BatchNorm", NORM, &BATCH_NORM),
    family(Norm, "BatchNormEval", NORM, &["rows", "channels", "rows of a chunk", "epsilon", "function"]),
    family(Norm, "BatchNormBwdSmall", NORM, BATCH_NORM_BWD),
    family(Norm, "BatchNormBwdCluster", NORM, BATCH_NORM_BWD),
    family(Norm, "BatchNormBwd", NORM, BATCH_NORM_BWD),
    family(Norm, "LayerNorm", ROW_NORM, &["rows", "columns", "epsilon"]),
    family(Norm, "LayerNormBwd", ROW_NORM, &["rows", "columns", "rows of a chunk"]),
    family(Norm, "LayerNormBwdApart", ROW_NORM, &["rows", "columns"]),
    family(Pool, "MaxPool", WINDOW, IMAGES),
    family(Pool, "MaxPoolBwd", WINDOW, IMAGES),
    family(Pool, "AvgPool", WINDOW, IMAGES),
    family(Pool, "AvgPoolBwd", WINDOW, IMAGES),
    family(
        Pool,
        "GlobalAvgPool",
        "type, one phase or two, lanes, vectors",
        &["samples", "pixels", "channels", "chunks"],
    ),
    family(Pool, "GlobalAvgPoolBwd", "type, two classes of size, vectors", &["samples", "pixels", "channels"]),
    family(Elementwise, "Fill", ARRAY, &["length"]),
    family(Elementwise, "Copy", ARRAY, &["length"]),
    family(Elementwise, "Cast", ARRAY, &["length"]),
    family(Elementwise, "Widen", ARRAY, &["length"]),
    family(Elementwise, "Act", "type, function, two classes of length", &["length"]),
    family(Elementwise, "ActBwd", "type, function, two classes of length", &["length"]),
    family(Elementwise, "AddAct", "type, functions, two classes of length", &["length"]),
    family(Elementwise, "Add", ARRAY, &["length"]),
    family(Elementwise, "Multiply", ARRAY, &["length"]),
    family(Elementwise, "Scale", ARRAY, &["length", "factor"]),
    family(Elementwise, "BiasAdd", ARRAY, &["length", "columns"]),
    family(
        Elementwise,
        "BiasGrad",
        "type, sum or total, one phase or two, vectors, whether columns stay zero",
        &["rows", "columns", "chunks", "first zero", "end of zeros"],
    ),
    family(Elementwise, "Transpose", "type, vectors, two classes of size", &["samples", "rows", "columns"]),
    family(Elementwise, "Dropout", "type", &["length", "threshold", "scale", "stream"]),
    family(Elementwise, "DropoutBwd", ARRAY, &["length", "scale"]),
    family(Elementwise, "SignBits", ARRAY, &["length"]),
    family(Elementwise, "StepInc", "nothing", &[]),
    family(Elementwise, "BiasCorr", "nothing", &["beta1", "beta2"]),
    family(Elementwise, "LossMean", "two classes of rows", &["rows"]),
    family(Elementwise, "Accuracy", "type, two classes of size", &["rows", "classes"]),
    family(
        Elementwise,
        "BiasStep",
        "type, kind of rule, columns of a lane",
        &["rows", "columns", "constants of the rule"],
    ),
    family(Elementwise, "UpdateMetrics", "nothing", &["segments"]),
    family(Joined, "Concat", "type, number of values, vectors", WIDTHS),
    family(Joined, "Slice", ROWS, &["rows", "columns", "from", "width"]),
    family(Sequence, "Embedding", ROWS, &["rows", "vocabulary", "units", "positions"]),
    family(Sequence, "EmbeddingBwd", "type, sum or total, vectors", TABLE),
    family(Sequence, "EmbeddingBwdRows", "type, sum or total, vectors, rows of a block", TABLE),
    family(Sequence, "AddSinusoids", "type", &["samples", "positions", "columns"]),
    family(Sequence, "Take", ROWS, &["samples", "positions", "columns", "position"]),
    family(Sequence, "TakeBwd", ROWS, &["samples", "positions", "columns", "position"]),
    family(Attention, "Attention", ATTEND, SAMPLES),
    family(
        Attention,
        "AttentionBwd",
        "type, features of a head, causal or not, rotary or not, dropout or not, tiles, one phase or two",
        SAMPLES,
    ),
    family(Recurrent, "Recurrence", SIZES, &[]),
    family(Recurrent, "RecurrenceBwd", SIZES, &[]),
    family(Recurrent, "RecurrenceHeld", WALK, HELD_NUMBERS),
    family(Recurrent, "RecurrenceHeldBwd", WALK, HELD_NUMBERS),
    family(Recurrent, "RecurrenceGrid", GRID, &WALK_NUMBERS),
    family(Recurrent, "RecurrenceGridBwd", GRID, &WALK_NUMBERS),
    family(AttentionMma, "AttentionMma", ATTEND, SAMPLES),
    family(AttentionMma, "AttentionMmaBwd", ATTEND, SAMPLES),
    family(AttentionWgmma, "AttentionWgmma", ATTEND_ON, SAMPLES),
    family(AttentionWgmma, "AttentionWgmmaBwd", ATTEND_ON, SAMPLES),
    family(Loss, "SoftmaxCe", "type, smoothed or not, lanes, vectors", &["rows", "classes", "smoothing"]),
    family(
        Loss,
        "SoftmaxCeGrad",
        "type, smoothed or not, vectors, two classes of size",
        &["rows", "classes", "smoothing"],
    ),
    family(
        Loss,
        "SoftmaxCeFused",
        "type, smoothed or not, threads, lanes, vectors",
        &["rows", "classes", "blocks", "smoothing"],
    ),
    family(
        Loss,
        "DenseCe",
        "type, classes rounded up, smoothed or not, whether there is a derivative, threads, their rows and features",
        &["rows", "features", "scale", "smoothing", "classes", "function"],
    ),
    family(Loss, "Mse", "type, threads, loads under way", &["length", "blocks"]),
    family(Loss, "MseGrad", "type, threads, loads under way", &["length", "blocks"]),
    family(Loss, "MseFused", "type, threads, loads under way", &["length", "blocks"]),
    family(Loss, "PointLoss", POINTS, &["length", "blocks", "delta"]),
    family(Loss, "PointLossGrad", POINTS, &["length", "blocks", "delta"]),
    family(Loss, "PointLossFused", POINTS, &["length", "blocks", "delta"]),
    family(Loss, "BinaryAccuracy", "type, threads", &["length"]),
    family(Optimizer, "Update", "type, kind of rule, threads, ways to sum, kinds of segments", &["table of segments"]),
    family(Optimizer, "ScaleUpdate", "one block or several", &["length", "blocks", "table of segments"]),
    family(Optimizer, "StepMetrics", "threads, loads under way", &["segments and units", "table of segments"]),
    family(Optimizer, "ClosingMetrics", SIZES, &[]),
    family(Rates, "GradNorms", "nothing", &["table of segments", "run", "batches"]),
    family(
        Rates,
        "UpdateRates",
        "schedule, whether it clips, whether it accumulates",
        &["warmup", "last", "every", "factor", "limit", "segments", "batches"],
    ),
    family(Feed, "Feed", "types, order, vectors", &["sample and target", "batch and samples", "watched and left"]),
    family(Clear, "Clear", "nothing: its size is an argument", &[]),
];

impl KernelFamily {
    /// The family of a template.
    #[must_use]
    pub fn of(template: &str) -> Option<&'static Self> {
        FAMILIES.iter().find(|family| family.template == template)
    }

    /// Numbers of a launch with their names: `rows 64, classes 10`.
    #[must_use]
    pub fn named(&self, numbers: &[u64]) -> String {
        let names = self.numbers.iter().zip(numbers);
        names.map(|(name, number)| format!("{name} {number}")).collect::<Vec<_>>().join(", ")
    }
}

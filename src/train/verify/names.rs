//! The names of the checks, as reports show them and as docs/verify.md lists them.

pub(super) const PLAN: &str = "plan";
pub(super) const GRADIENT: &str = "gradient against central differences (f64)";
pub(super) const FAST: &str = "fast kernels against reference (f64)";
pub(super) const LOSS_SCALE: &str = "loss scale";
pub(super) const UPDATE: &str = "update direction";
pub(super) const EACH_KERNEL: &str = "each kernel against its reference (f64)";
pub(super) const GPU_KERNELS: &str = "kernels against their references (f64)";
pub(super) const WARM_UP: &str = "warm-up leaves no trace";
pub(super) const EAGER_AGAINST_REPLAY: &str = "eager against replay";
pub(super) const THREADS: &str = "threads do not change results";
pub(super) const LEDGER: &str = "pointer ledger";
pub(super) const GRAPH_NODES: &str = "graph nodes";
pub(super) const FAULT: &str = "an injected fault is caught";
pub(super) const ENDURANCE: &str = "endurance and determinism";
pub(super) const RUN: &str = "a run's batches and log";
pub(super) const EVALUATION: &str = "an evaluation against plain loops (f64)";
pub(super) const RESUMED: &str = "a resumed run";

/// Every check, in the order in which they run.
pub const CHECKS: [&str; 17] = [
    PLAN,
    GRADIENT,
    FAST,
    LOSS_SCALE,
    UPDATE,
    EACH_KERNEL,
    GPU_KERNELS,
    WARM_UP,
    EAGER_AGAINST_REPLAY,
    THREADS,
    LEDGER,
    GRAPH_NODES,
    FAULT,
    ENDURANCE,
    RUN,
    EVALUATION,
    RESUMED,
];

/// Those of a step on a GPU only.
pub const GPU_CHECKS: [&str; 2] = [GPU_KERNELS, GRAPH_NODES];

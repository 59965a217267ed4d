//! The columns of the step graph: the columns of each level, the text of a cell, and the sort order.

use crate::studio::view_models::format;
use crate::studio::view_models::levels::{Level, LevelRow};
use crate::studio::view_models::measured::Measured;
use crate::tensor::Bytes;
use std::cmp::Ordering;

/// A column of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Column {
    Phase,
    Index,
    Layer,
    Name,
    Kernel,
    Shapes,
    Dtypes,
    Flops,
    Bytes,
    Estimate,
    Measured,
    Floor,
    Roofline,
    Phases,
    Threads,
    Detail,
}

impl Column {
    /// The columns of a level, in order.
    #[must_use]
    pub const fn of(level: Level) -> &'static [Self] {
        use Column::{
            Bytes, Detail, Dtypes, Estimate, Floor, Flops, Index, Kernel, Layer, Measured, Name, Phase, Phases,
            Roofline, Shapes, Threads,
        };
        match level {
            Level::Ir => &[Phase, Index, Layer, Name, Kernel, Shapes, Dtypes, Detail],
            Level::Lowered => &[Phase, Index, Layer, Name, Kernel, Shapes, Dtypes, Flops, Bytes, Detail],
            Level::Selected => &[
                Phase, Index, Layer, Name, Kernel, Measured, Floor, Roofline, Estimate, Flops, Bytes, Shapes, Dtypes,
                Detail,
            ],
            Level::Recorded => &[Phase, Index, Layer, Kernel, Phases, Threads, Measured, Bytes, Detail],
        }
    }

    /// The title of the column.
    #[must_use]
    pub const fn title(self, level: Level) -> &'static str {
        match (self, level) {
            (Self::Phase, _) => "",
            (Self::Index, _) => "#",
            (Self::Layer, _) => "Layer",
            (Self::Name, Level::Ir) => "Node",
            (Self::Name, _) => "Op",
            (Self::Kernel, Level::Ir) => "Output",
            (Self::Kernel, Level::Lowered) => "Rewritten to",
            (Self::Kernel, _) => "Kernel",
            (Self::Shapes, _) => "Shapes",
            (Self::Dtypes, _) => "Types",
            (Self::Flops, _) => "FLOPs",
            (Self::Bytes, _) => "Bytes",
            (Self::Estimate, _) => "Estimate",
            (Self::Measured, _) => "Measured",
            (Self::Floor, _) => "Least time",
            (Self::Roofline, _) => "Efficiency",
            (Self::Phases, _) => "Phases",
            (Self::Threads, _) => "Threads",
            (Self::Detail, Level::Ir) => "Inputs",
            (Self::Detail, Level::Lowered) => "Dimensions",
            (Self::Detail, Level::Selected) => "Rejected candidates",
            (Self::Detail, Level::Recorded) => "Arena offsets",
        }
    }

    /// The meaning of the column, with its unit.
    #[must_use]
    pub const fn about(self) -> &'static str {
        match self {
            Self::Phase => "Phase of the step: F forward, L loss, B backward, O optimizer, M metric",
            Self::Index => "Place in the order of execution",
            Self::Layer => "The layer that it belongs to",
            Self::Name => "The node or operation",
            Self::Kernel => "The kernel that runs it, the outputs of a node, or the rewritten operation",
            Self::Shapes => "First input and first output, with the batch",
            Self::Dtypes => "Element types of the arguments",
            Self::Flops => "Floating-point operations, multiplications and additions counted each",
            Self::Bytes => "The least number of bytes that are read and written",
            Self::Estimate => "Estimated time, used only to compare kernels",
            Self::Measured => "Median time of the operation alone on this machine; use Measure operations",
            Self::Floor => "The least time by this machine's highest rates; use Measure operations",
            Self::Roofline => "Least time divided by measured time, at most 100%; use Measure operations",
            Self::Phases => "Parts of the call; all threads wait for each other between two of them",
            Self::Threads => "Threads that share the call",
            Self::Detail => "Inputs, dimensions, rejected candidates or arena offsets, depending on the level",
        }
    }

    /// The width in points; `None` takes the remaining width.
    #[must_use]
    pub const fn width(self) -> Option<f32> {
        Some(match self {
            Self::Phase => 24.0,
            Self::Index => 36.0,
            Self::Layer => 104.0,
            Self::Name => 112.0,
            Self::Kernel => return None,
            // As wide as its texts, if they are known.
            Self::Shapes => 176.0,
            Self::Dtypes => 56.0,
            Self::Flops | Self::Bytes => 72.0,
            Self::Estimate | Self::Measured | Self::Floor | Self::Roofline => 76.0,
            Self::Phases | Self::Threads => 60.0,
            Self::Detail => 280.0,
        })
    }

    /// True for numbers, which are aligned to the right.
    #[must_use]
    pub const fn is_number(self) -> bool {
        matches!(
            self,
            Self::Flops
                | Self::Bytes
                | Self::Estimate
                | Self::Measured
                | Self::Floor
                | Self::Roofline
                | Self::Phases
                | Self::Threads
        )
    }

    /// The number of a cell, if the column has numbers and it is known.
    #[must_use]
    pub fn number(self, row: &LevelRow, measured: Option<&Measured>) -> Option<f64> {
        match self {
            Self::Phase => Some(f64::from(row.phase as u8)),
            Self::Index => Some(row.index as f64),
            Self::Flops => row.cost.flops.map(|v| v as f64),
            Self::Bytes => row.cost.bytes.map(|v| v as f64),
            Self::Estimate => row.cost.us,
            Self::Measured => measured?.op_us(row.index),
            Self::Floor => measured?.floor(row.index).map(|f| f.us),
            Self::Roofline => measured?.roofline(row.index),
            Self::Phases => row.shares.map(|s| s.phases as f64),
            Self::Threads => row.shares.map(|s| s.threads as f64),
            _ => None,
        }
    }

    /// The text of a cell and its exact value for the tooltip.
    #[must_use]
    pub fn text(self, row: &LevelRow, measured: Option<&Measured>) -> (String, String) {
        let own = |text: &str| (text.lines().next().unwrap_or_default().to_owned(), text.to_owned());
        match self {
            Self::Phase => (String::new(), row.phase.name().into()),
            Self::Index => own(&row.index.to_string()),
            Self::Layer => own(&row.layer),
            Self::Name => own(row.name),
            Self::Kernel => own(&row.kernel),
            Self::Shapes => own(&row.shapes),
            Self::Dtypes => own(&row.dtypes),
            Self::Detail => own(&row.detail),
            _ => match (self, self.number(row, measured)) {
                (_, None) => ("–".into(), self.about().into()),
                (Self::Flops, Some(v)) => (format::count(v), format!("{} FLOP", format::exact(v as u64))),
                (Self::Bytes, Some(v)) => {
                    (Bytes(v as u64).to_string(), format!("{} bytes moved at least", format::exact(v as u64)))
                }
                (Self::Roofline, Some(v)) => (format::percent(v), format!("{:.1}% roofline efficiency", v * 100.0)),
                (Self::Floor, Some(v)) => {
                    let bound = measured.and_then(|m| m.floor(row.index)).map_or("", |f| f.bound);
                    (format::micros(v), format!("{v:.3} µs, set by {bound}"))
                }
                (Self::Phases | Self::Threads, Some(v)) => (format!("{v}"), self.about().into()),
                (_, Some(v)) => (format::micros(v), format!("{v:.3} µs")),
            },
        }
    }

    /// The order of two rows by this column; unknown values are last.
    #[must_use]
    pub fn order(self, a: &LevelRow, b: &LevelRow, measured: Option<&Measured>) -> Ordering {
        match (self.number(a, measured), self.number(b, measured)) {
            (Some(x), Some(y)) => x.total_cmp(&y),
            (Some(_), None) => Ordering::Less,
            (None, Some(_)) => Ordering::Greater,
            (None, None) => match self {
                Self::Layer => (a.path.is_none(), &a.path).cmp(&(b.path.is_none(), &b.path)),
                Self::Name => a.name.cmp(b.name),
                Self::Kernel => a.kernel.cmp(&b.kernel),
                Self::Shapes => a.shapes.cmp(&b.shapes),
                Self::Dtypes => a.dtypes.cmp(&b.dtypes),
                _ => a.detail.cmp(&b.detail),
            },
        }
    }
}

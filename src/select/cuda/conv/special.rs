//! Kernels for common convolutions: stride 1 with small windows, few input channels, small images.

use super::*;

/// The largest number of warps that share a sum.
const MOST_SLICES: usize = 18;
/// The largest number of steps of a sum that warps share.
const MOST_STEPS: usize = 60;
/// Bytes of shared memory that are left beside the stages of `ConvTaps` and `ConvWgmma`, and beside the lines of x of
/// `ConvThin`.
const BESIDE_STAGES: usize = 8_448;
const BESIDE_LINES: usize = 32_448;

/// What a block of `ConvThin` processes at a time: a tile of filters for some rows of y, whose rows of x with their
/// padding have this many bytes; with the number of weights of a filter, and the usual largest number of positions.
pub(super) struct ThinUnit {
    filters: usize,
    pub(super) rows: usize,
    pub(super) row_bytes: usize,
    weights: usize,
    most: usize,
}

impl Problem<'_> {
    /// Whether the taps of a gradient of the weight are shifts of the same lines: 3x3, stride and dilation 1, no
    /// groups; and copies of 16 bytes are possible.
    fn taps_are_shifts(&self) -> bool {
        let (g, width) = (self.g, 16 / self.real.size());
        self.kind == Kind::BackwardW
            && self.tensor
            && g.groups == 1
            && g.kernel == [3, 3]
            && g.stride == [1, 1]
            && g.dilation == [1, 1]
            && g.c.is_multiple_of(width)
            && g.f.is_multiple_of(width)
    }

    /// Rows of y of a unit of `ConvTaps` with the least work: at most `lines` lines of y, in multiples of `multiple`,
    /// and `stages` stages in shared memory. A line takes `bytes[0]` of dy and `bytes[1]` of x.
    fn unit_rows(&self, lines: usize, multiple: usize, stages: usize, bytes: [usize; 2]) -> Option<usize> {
        let g = self.g;
        let (wide, pitch) = (g.wo.next_multiple_of(8), g.wo.next_multiple_of(8) + 2);
        let fits = |rows: usize| {
            let x_lines = ((rows + 2) * pitch).next_multiple_of(8);
            rows * wide <= lines.max(wide)
                && (rows * wide).is_multiple_of(multiple)
                && stages * (rows * wide * bytes[0] + x_lines * bytes[1]) + BESIDE_STAGES <= self.shared_bytes
        };
        // Products, and copies with about a quarter of their weight.
        let work = |rows: usize| g.ho.div_ceil(rows) * (4 * rows * wide + (rows + 2) * pitch);
        (1..=g.ho.next_multiple_of(2)).filter(|&rows| fits(rows)).min_by_key(|&rows| work(rows))
    }

    /// The time of a gradient of the weight by `ConvTaps`: products at `rate` operations in a microsecond, and writing
    /// and reading the splits.
    fn taps_us(&self, rows: usize, channels: usize, splits: usize, rate: f64) -> f64 {
        let g = self.g;
        let tiles = g.f.div_ceil(64) * g.c.div_ceil(channels);
        let units = g.n * g.ho.div_ceil(rows);
        let waves = (tiles * splits).div_ceil(self.multiprocessors) * self.multiprocessors;
        // The work of a block, on all multiprocessors at once.
        let each = units.div_ceil(splits) * rows * g.wo.next_multiple_of(8) * 64 * channels * 9 * 2;
        let second = if splits > 1 { LAUNCH_US + (2 * splits * self.results() * 4) as f64 / 9e6 } else { 0.0 };
        ((each * waves) as f64 / rate).max(self.memory_us()) + second + LAUNCH_US + 1.0
    }

    /// The gradient of the weight of all taps at once with the matrix instructions of warpgroups, which only Hopper
    /// has.
    pub(super) fn wgmma(&self, capability: (u32, u32)) -> Option<CustomKernel> {
        if !self.taps_are_shifts() || capability != (9, 0) || self.real.size() != 2 {
            return None;
        }
        let g = self.g;
        let rows = self.unit_rows(128, 16, 3, [128, 128])?;
        let splits = self.stretches(g.f.div_ceil(64) * g.c.div_ceil(64), g.n * g.ho.div_ceil(rows));
        let (number, geometry) = self.types();
        Some(CustomKernel {
            tail: format!("{}_wgmma_64x576x{rows}_k{splits}_v0", self.real.name()),
            spec: spec("ConvWgmmaBwdW", format!("{number}, {geometry}, {rows}, {splits}, {}", self.accumulate)),
            work_bytes: self.work_bytes(splits),
            cost_us: self.taps_us(rows, 64, splits, 620e6),
        })
    }

    /// The gradient of the weight of all taps at once with TF32 factors.
    pub(super) fn taps(&self) -> Option<CustomKernel> {
        if !self.taps_are_shifts() || self.real != Real::Tf32 {
            return None;
        }
        let g = self.g;
        let channels = if g.c.next_multiple_of(32) < g.c.next_multiple_of(64) { 32 } else { 64 };
        let rows = self.unit_rows(64, if channels == 32 { 16 } else { 8 }, 3, [288, (channels + 8) * 4])?;
        let splits = self.stretches(g.f.div_ceil(64) * g.c.div_ceil(channels), g.n * g.ho.div_ceil(rows));
        let (_, geometry) = self.types();
        Some(CustomKernel {
            tail: format!("tf32_taps_64x{}x{rows}_k{splits}_v0", channels * 9),
            spec: spec("ConvTapsBwdW", format!("{geometry}, {rows}, {channels}, 3, {splits}, {}", self.accumulate)),
            work_bytes: self.work_bytes(splits),
            cost_us: self.taps_us(rows, channels, splits, 175e6),
        })
    }

    /// The kernels for images of few channels, on tensor cores.
    pub(super) fn thin(&self) -> Option<CustomKernel> {
        let g = self.g;
        let (elem, weights) = (self.real.size(), g.kernel[0] * g.kernel[1] * g.c);
        let backward = self.kind == Kind::BackwardW;
        if !self.tensor || g.groups != 1 || self.kind == Kind::BackwardX || weights > if backward { 40 } else { 32 } {
            return None;
        }
        let filters = [64, 32, 16].into_iter().find(|&f| g.f.is_multiple_of(f) && (backward || f > 16))?;
        // Positions of a unit: in the gradient of the weight a thread holds at most 64 words of dy, or 32 if that
        // allows two blocks on a multiprocessor.
        let words = if elem == 4 && filters == 64 { 32 } else { 64 };
        let most = if backward { words * 32 * 8 * 4 / (filters * elem) } else { 400 };
        let rows = (1..=g.ho)
            .rev()
            .find(|&rows| rows * g.wo <= most && g.ho.is_multiple_of(rows))
            .filter(|&rows| rows * g.wo * 3 > most);
        let rows = rows.unwrap_or((most / g.wo).clamp(1, g.ho));
        // Rows of x including their padding, twice.
        let x_rows = (rows - 1) * g.stride[0] + (g.kernel[0] - 1) * g.dilation[0] + 1;
        let pitch = (g.w + 2 * g.padding[1] + (g.kernel[1] - 1) * g.dilation[1] + g.stride[1]) * g.c + 32;
        if 2 * x_rows * pitch * elem + BESIDE_LINES > self.shared_bytes || (backward && rows * g.wo > 2 * most) {
            return None;
        }
        let unit = ThinUnit { filters, rows, row_bytes: x_rows * pitch * elem, weights, most };
        let tiles = g.f / filters;
        if backward {
            let blocks = if words == 32 { 2 * self.multiprocessors } else { self.multiprocessors };
            self.thin_gradient(&unit, blocks.div_ceil(tiles))
        } else {
            Some(self.thin_forward(&unit, (2 * self.multiprocessors).div_ceil(tiles)))
        }
    }

    /// The gradient of the weight of an image of few channels, in at most `wanted` parts of the units.
    fn thin_gradient(&self, unit: &ThinUnit, wanted: usize) -> Option<CustomKernel> {
        let ThinUnit { filters, rows, weights, most, .. } = *unit;
        let (g, elem) = (self.g, self.real.size());
        let units = g.n * g.ho.div_ceil(rows);
        let splits = units.div_ceil(units.div_ceil(wanted.min(units).max(1)));
        if splits < 2 {
            return None;
        }
        let (number, geometry) = self.types();
        let kernel = CustomKernel {
            tail: format!("{}_thin_{filters}x{rows}_k{splits}_v0", self.real.name()),
            spec: spec(
                "ConvThinBwdW",
                format!("{number}, {geometry}, {filters}, {rows}, {splits}, {}", self.accumulate),
            ),
            work_bytes: self.work_bytes(splits),
            cost_us: 2.0 * LAUNCH_US + 0.6 + 1.05 * self.memory_us(),
        };
        // Chunks of 32 bytes of positions for each of eight warps. General members are compiled for few numbers of them
        // and of tiles of weights.
        let chunks = |lines: usize| lines.div_ceil(256 / elem).next_power_of_two();
        let (held, tiles) = (chunks(rows * g.wo), [2, 4, 5].into_iter().find(|tiles| tiles * 8 >= weights)?);
        let any = |geometry: &str, tiles: usize, held: usize| {
            format!("{number}, {geometry}, {filters}, (int)ANY, ANY, {}, {tiles}, {held}", self.accumulate)
        };
        let [own, wider] = self.any_geometry([copy_width(g.w * g.c, elem), 1, 1, self.added(splits)], false);
        let arguments = [any(&own, tiles, held), any(&wider, 5, held.max(chunks(most)))];
        Some(self.with_general_thin(kernel, (splits, unit), arguments))
    }

    /// The forward pass of an image of few channels, by at most `wanted` blocks for each tile of filters.
    fn thin_forward(&self, unit: &ThinUnit, wanted: usize) -> CustomKernel {
        let ThinUnit { filters, rows, weights, .. } = *unit;
        let g = self.g;
        let blocks = wanted.min(g.n * g.ho.div_ceil(rows));
        let (number, geometry) = self.types();
        let own = epilogue_type(&self.epilogue);
        let kernel = CustomKernel {
            tail: format!("{}_thin_{filters}x{rows}_v0", self.real.name()),
            spec: spec("ConvThinForward", format!("{number}, {geometry}, {filters}, {rows}, {blocks}, {own}")),
            work_bytes: 0,
            cost_us: LAUNCH_US + 0.6 + 0.95 * self.memory_us(),
        };
        let (elem, end) = (self.real.size(), self.any_end());
        let any =
            |geometry: &str, steps: usize| format!("{number}, {geometry}, {filters}, (int)ANY, ANY, {end}, {steps}");
        let [own, wider] = self.any_geometry([copy_width(g.w * g.c, elem), 1, 1, 1], false);
        let arguments = [any(&own, weights.div_ceil(32 / elem).next_power_of_two()), any(&wider, elem)];
        self.with_general_thin(kernel, (blocks, unit), arguments)
    }

    /// The kernel whose warps share a sum, for small problems without tensor cores.
    pub(super) fn sliced(&self) -> Option<CustomKernel> {
        let g = self.g;
        if self.tensor || self.kind == Kind::BackwardW || self.real.size() != 4 {
            return None;
        }
        let (group_c, group_f) = (g.c / g.groups, g.f / g.groups);
        let (tile, rows, cols, classes, sum, kind) = if self.kind == Kind::Forward {
            ([16, 32], g.n * g.ho * g.wo, group_f, 1, g.kernel[0] * g.kernel[1] * group_c, "CONV_FORWARD")
        } else {
            let taps = |axis: usize| g.kernel[axis].div_ceil(g.stride[axis] / gcd(g.stride[axis], g.dilation[axis]));
            let rows = g.n * g.h.div_ceil(g.stride[0]) * g.w.div_ceil(g.stride[1]);
            ([32, 16], rows, group_c, g.stride[0] * g.stride[1], taps(0) * taps(1) * group_f, "CONV_BACKWARD_X")
        };
        let blocks = g.groups * classes * rows.div_ceil(tile[0]) * cols.div_ceil(tile[1]);
        let steps = sum.div_ceil(16);
        if !(2..=MOST_STEPS).contains(&steps) || blocks > 2 * self.multiprocessors {
            return None;
        }
        let (room, each) = (self.sliced_steps(tile), steps.div_ceil(MOST_SLICES));
        let slices = steps.div_ceil(each);
        if slices * each > room {
            return None;
        }
        let (_, geometry) = self.types();
        let [high, wide] = tile;
        let arguments = |geometry: &str, slices: usize, end: &str| {
            format!("{kind}, {geometry}, {high}, {wide}, {slices}, {each}, {end}")
        };
        let kernel = CustomKernel {
            tail: format!("{}_sliced_{high}x{wide}_s{slices}_v0", self.real.name()),
            spec: spec("ConvSliced", arguments(&geometry, slices, &epilogue_type(&self.epilogue))),
            work_bytes: 0,
            cost_us: LAUNCH_US + 1.0 + blocks.div_ceil(self.multiprocessors) as f64 * (0.4 + 0.35 * each as f64),
        };
        // General members have a few numbers of warps, some of which may have no work.
        let [own, wider] = self.any_product(1);
        let (end, most) = (self.any_end(), MOST_SLICES.min(room / each));
        let own_slices = slices.next_multiple_of(MOST_SLICES / 3).min(most);
        let any = [arguments(&own, own_slices, &end), arguments(&wider, most, &end)];
        Some(self.with_general(kernel, slices, any))
    }

    /// The steps of a sum for which the warps of a block have shared memory: all of them are copied at once.
    fn sliced_steps(&self, [high, wide]: [usize; 2]) -> usize {
        // Sixteen floats of each line of both factors. The second one of a gradient has its depth in rows, padded by
        // eight floats.
        let second = if self.kind == Kind::Forward { wide * 64 } else { 16 * (wide + 8) * 4 };
        let table = high * 32;
        (self.shared_bytes - table) / (high * 64 + second)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::select::Kernels;
    use crate::select::target::Target;

    #[test]
    fn the_warps_of_a_sliced_sum_fit_into_shared_memory() {
        for capability in [(9, 0), (8, 0), (8, 6)] {
            let gpu = CudaFacts { capability, ..Target::h200().as_cuda().unwrap() };
            let mut most = 0;
            for channels in 1..=120 {
                let geometry = ConvGeometry {
                    h: 4,
                    w: 4,
                    c: channels,
                    f: channels,
                    kernel: [3, 3],
                    padding: [1, 1],
                    ho: 4,
                    wo: 4,
                    ..ConvGeometry::UNIT
                };
                let epilogue = Epilogue::default();
                let forward = OpKind::Conv2d(ops::Conv2d { geometry, epilogue });
                let gradient = OpKind::Conv2dBwdX(ops::Conv2dBwdX { geometry, epilogue });
                let all = [forward, gradient].into_iter().flat_map(|kind| kernels(&kind, Real::F32, &gpu));
                for kernel in all.filter(|kernel| kernel.spec.template == "ConvSliced") {
                    for member in [Kernels::Specialised, Kernels::General, Kernels::Widest] {
                        let text = kernel.spec.clone().of(member).arguments;
                        let of_block = text.split(">, ").nth(1).unwrap();
                        let numbers: Vec<usize> = of_block.split(", ").map_while(|n| n.parse().ok()).collect();
                        let [high, wide, warps, each] = numbers[..] else { panic!("{text}") };
                        let is_forward = text.starts_with("CONV_FORWARD");
                        let stage = 64 * high + if is_forward { 64 * wide } else { 64 * (wide + 8) };
                        assert!(warps * each * stage + 32 * high <= gpu.shared_bytes(), "{capability:?}: {text}");
                        most = most.max(warps * each);
                    }
                }
            }
            // Shared memory for 27 steps of a gradient at least, and for 72 of a forward pass at most.
            assert!((25..=72).contains(&most), "{capability:?}: {most} steps");
        }
    }
}

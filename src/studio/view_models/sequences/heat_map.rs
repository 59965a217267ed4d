//! Values as a map of colours, reduced to a size that can be drawn at once.

/// The largest number of cells on a side.
const MOST: usize = 512;

/// A masked value, which has no colour.
pub const MASKED: u8 = 0;

/// A map as it is drawn: each cell shows one value, or the one of largest magnitude in a block of values.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HeatMap {
    /// The number of values in a row, and of rows.
    pub columns: usize,
    pub rows: usize,
    /// The number of cells in a row of the drawing, and of its rows.
    pub width: usize,
    pub height: usize,
    /// [`MASKED`], or 1 for -1, 128 for 0, and 255 for 1.
    pub shades: Vec<u8>,
}

impl HeatMap {
    /// The map of values from -1 to 1, row by row; `None` for those that are masked.
    #[must_use]
    pub fn new(columns: usize, rows: usize, value: impl Fn(usize, usize) -> Option<f32>) -> Self {
        let (width, height) = (columns.min(MOST), rows.min(MOST));
        let mut shades = Vec::with_capacity(width * height);
        for y in 0..height {
            for x in 0..width {
                let mut largest: Option<f32> = None;
                for row in block(y, height, rows) {
                    for column in block(x, width, columns) {
                        let found = value(row, column).filter(|v| largest.is_none_or(|most| v.abs() > most.abs()));
                        largest = found.or(largest);
                    }
                }
                shades.push(largest.map_or(MASKED, shade));
            }
        }
        Self { columns, rows, width, height, shades }
    }

    /// The value at a position from 0 to 1 across and down: its column and its row.
    #[must_use]
    pub fn cell(&self, across: f32, down: f32) -> Option<[usize; 2]> {
        let at = |share: f32, count: usize| {
            let place = (share * count as f32).floor();
            (place >= 0.0 && place < count as f32).then_some(place as usize)
        };
        Some([at(across, self.columns)?, at(down, self.rows)?])
    }
}

/// The values that a cell shows.
const fn block(at: usize, cells: usize, values: usize) -> std::ops::Range<usize> {
    at * values / cells..(at + 1) * values / cells
}

/// A value from -1 to 1 as a shade.
fn shade(value: f32) -> u8 {
    if value.is_nan() { 255 } else { (128.0 + 127.0 * value.clamp(-1.0, 1.0)).round() as u8 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_maps_are_drawn_value_by_value_and_large_ones_by_the_largest_of_a_block() {
        let small = HeatMap::new(3, 2, |row, column| (column != 2).then_some(column as f32 - row as f32));
        assert_eq!((small.width, small.height, &small.shades[..]), (3, 2, &[128, 255, MASKED, 1, 128, MASKED][..]));
        // One value among a million is visible, on either side of 0.
        let large = HeatMap::new(1024, 1024, |row, column| Some(if (row, column) == (77, 1001) { -1.0 } else { 0.1 }));
        assert_eq!((large.width, large.height), (512, 512));
        let seen: Vec<usize> = (0..large.shades.len()).filter(|i| large.shades[*i] == 1).collect();
        assert_eq!(seen, [38 * 512 + 500]);
        assert_eq!(large.cell(0.9999, 0.0), Some([1023, 0]));
        assert_eq!((large.cell(1.0, 0.5), large.cell(-0.1, 0.5)), (None, None));
    }

    #[test]
    fn every_value_belongs_to_one_cell() {
        for values in [1, 7, 511, 512, 513, 1000] {
            let cells = values.min(MOST);
            let all: Vec<usize> = (0..cells).flat_map(|at| block(at, cells, values)).collect();
            assert_eq!(all, (0..values).collect::<Vec<_>>());
        }
        assert_eq!(HeatMap::new(0, 0, |_, _| None), HeatMap::default());
    }
}

//! Samples as pictures: a row of them is one texture, made when it becomes visible.

use crate::data::Dataset;
use crate::studio::view_models::data::Picture;
use egui::{Color32, ColorImage, Context, Pos2, Rect, TextureHandle, TextureOptions, Ui, Vec2};
use std::collections::HashMap;

/// The largest number of textures; beyond it all are dropped and the visible ones are made again.
const KEPT: usize = 256;

/// The textures of rows that were visible.
#[derive(Default)]
pub struct Strips {
    rows: HashMap<usize, TextureHandle>,
    made_for: (u64, usize),
}

impl Strips {
    /// Sets what the rows show; textures of another list or for another number of columns are dropped.
    pub fn begin(&mut self, generation: u64, columns: usize) {
        if self.made_for != (generation, columns) || self.rows.len() > KEPT {
            self.rows.clear();
            self.made_for = (generation, columns);
        }
    }

    /// The texture of a row of pictures side by side, `columns` of them as given to [`Self::begin`].
    pub fn row(
        &mut self,
        ctx: &Context,
        row: usize,
        set: &Dataset,
        picture: &Picture,
        indices: impl Iterator<Item = u32>,
    ) -> &TextureHandle {
        let columns = self.made_for.1.max(1);
        self.rows.entry(row).or_insert_with(|| {
            let (w, h) = (picture.width, picture.height);
            let mut image = ColorImage::filled([w * columns, h], Color32::BLACK);
            for (column, index) in indices.take(columns).enumerate() {
                let rgb = picture.rgb(set.input_slice(picture.input, index as usize));
                for (i, p) in rgb.chunks_exact(3).enumerate() {
                    image.pixels[i / w * w * columns + column * w + i % w] = Color32::from_rgb(p[0], p[1], p[2]);
                }
            }
            ctx.load_texture("samples", image, TextureOptions::NEAREST)
        })
    }
}

/// The part of a row's texture that belongs to a column.
#[must_use]
pub fn column_uv(column: usize, columns: usize) -> Rect {
    let n = columns.max(1) as f32;
    Rect::from_min_max(Pos2::new(column as f32 / n, 0.0), Pos2::new((column + 1) as f32 / n, 1.0))
}

/// The size at which a picture is drawn in a square of `side` points, with its own aspect ratio.
#[must_use]
fn fitted(picture: &Picture, side: f32) -> Vec2 {
    let (w, h) = (picture.width as f32, picture.height as f32);
    Vec2::new(w, h) * (side / w.max(h))
}

/// Draws a column of a row's texture into a square.
pub fn picture_ui(ui: &Ui, texture: &TextureHandle, picture: &Picture, square: Rect, column: usize, columns: usize) {
    let rect = Rect::from_center_size(square.center(), fitted(picture, square.width().min(square.height())));
    ui.painter().image(texture.id(), rect, column_uv(column, columns), Color32::WHITE);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::{InputSamples, Preprocessing, Target};

    #[test]
    fn rows_are_made_once_and_hold_every_column() {
        let target = Target::classes(vec![0; 3], vec!["a".into()]);
        let set = Dataset {
            name: "t".into(),
            inputs: InputSamples::only([1, 1, 2], vec![0.0, 1.0, 1.0, 0.0, 1.0, 1.0]),
            target,
            feature_names: Vec::new(),
            notes: Vec::new(),
            preprocessing: Preprocessing::default(),
        };
        let picture = Picture { input: 0, channels: 1, height: 1, width: 2, low: 0.0, high: 1.0 };
        let ctx = Context::default();
        let mut strips = Strips::default();
        strips.begin(1, 2);
        assert_eq!(strips.row(&ctx, 0, &set, &picture, [0, 1].into_iter()).size(), [4, 1]);
        let id = strips.row(&ctx, 0, &set, &picture, [2].into_iter()).id();
        strips.begin(1, 2);
        assert_eq!(strips.row(&ctx, 0, &set, &picture, [2].into_iter()).id(), id);
        strips.begin(2, 2);
        assert!(strips.rows.is_empty());
        assert_eq!(column_uv(1, 4), Rect::from_min_max(Pos2::new(0.25, 0.0), Pos2::new(0.5, 1.0)));
        assert_eq!(fitted(&picture, 40.0), Vec2::new(40.0, 20.0));
    }
}

//! The weights of the first layer as pictures.

use crate::model::{Model, ParamId};
use crate::studio::view_models::data::Picture;
use crate::tensor::HostTensor;

/// The largest number of filters that are drawn.
const FILTERS: usize = 96;

/// Weights drawn as pictures; negative and positive values have the two colours of the scale around 0.
#[derive(Clone, Debug, PartialEq)]
pub struct Filters {
    /// The parameter and the meaning of the pictures.
    pub title: String,
    pub height: usize,
    pub width: usize,
    /// The largest magnitude, which has the full colour.
    pub scale: f32,
    /// Each picture's values, row by row.
    pub pictures: Vec<Vec<f32>>,
    /// The total number of pictures; `pictures` contains the first of them.
    pub total: usize,
}

/// The pictures of a weight; `None` if it cannot be drawn.
pub(super) fn filters(
    model: &Model,
    weight: &HostTensor,
    id: Option<ParamId>,
    shape: Option<Picture>,
) -> Option<Filters> {
    let values = weight.to_vec::<f32>().ok()?;
    let name = &model.param(id?).name;
    let mut out = match weight.shape.0[..] {
        [filters, channels, h, w] => Filters {
            title: format!("{name}: {filters} filters of {channels} × {h} × {w}"),
            height: h,
            width: w,
            scale: 0.0,
            pictures: values.chunks_exact(h * w).take(FILTERS).map(<[f32]>::to_vec).collect(),
            total: filters * channels,
        },
        [inputs, units] => {
            let p = shape.filter(|p| p.channels * p.height * p.width == inputs)?;
            // A column is a unit; if there are several channels, their mean is drawn.
            let area = p.height * p.width;
            let of = |unit: usize, i: usize| {
                (0..p.channels).map(|c| values[(c * area + i) * units + unit]).sum::<f32>() / p.channels as f32
            };
            Filters {
                title: format!("{name}: the weights of {units} units on {} × {} values", p.height, p.width),
                height: p.height,
                width: p.width,
                scale: 0.0,
                pictures: (0..units.min(FILTERS)).map(|u| (0..area).map(|i| of(u, i)).collect()).collect(),
                total: units,
            }
        }
        _ => return None,
    };
    let largest = out.pictures.iter().flatten().fold(0.0f32, |m, v| m.max(v.abs()));
    out.scale = largest.max(1e-12);
    Some(out)
}

//! A picture of curves: as SVG, which is text, and as PNG, which is made from it.

use crate::tensor::scientific;
use crate::train::runs::{Curves, Quantity};
use std::fmt::Write as _;

/// The horizontal axis.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Across {
    /// The step.
    #[default]
    Step,
    /// Running time, in seconds.
    Time,
}

/// What a picture shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PlotOptions {
    pub quantity: Quantity,
    pub across: Across,
    /// Whether the vertical axis is logarithmic.
    pub log: bool,
}

impl Default for PlotOptions {
    fn default() -> Self {
        Self { quantity: Quantity::Loss, across: Across::Step, log: false }
    }
}

/// Colours that colour-blind users can distinguish on white (Okabe and Ito 2008).
pub const LINE_COLORS: [[u8; 3]; 8] = [
    [0x00, 0x72, 0xB2],
    [0xD5, 0x5E, 0x00],
    [0x00, 0x9E, 0x73],
    [0xCC, 0x79, 0xA7],
    [0xE6, 0x9F, 0x00],
    [0x56, 0xB4, 0xE9],
    [0x66, 0x66, 0x66],
    [0x00, 0x00, 0x00],
];

const WIDTH: f64 = 960.0;
const HEIGHT: f64 = 540.0;
/// The part of the picture that curves are drawn in, by its edges.
const AREA: Area = Area { left: 72.0, right: WIDTH - 24.0, top: 56.0, bottom: HEIGHT - 56.0 };
/// The smallest value on a logarithmic axis.
const FLOOR: f64 = 1e-12;
/// The weight of the past in the smoothed curve.
const SMOOTHING: f64 = 0.95;

struct Area {
    left: f64,
    right: f64,
    top: f64,
    bottom: f64,
}

impl Area {
    const fn width(&self) -> f64 {
        self.right - self.left
    }
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

/// The name of a quantity on an axis, with its unit.
#[must_use]
const fn axis_title(quantity: Quantity) -> &'static str {
    match quantity {
        Quantity::Loss => "Loss",
        Quantity::Accuracy => "Accuracy",
        Quantity::UpdateMax => "Largest change of a parameter",
        Quantity::GradNorm => "Length of the gradient",
        Quantity::Lr => "Learning rate",
        Quantity::LossScale => "Loss scale",
        Quantity::StepUs => "Step time, µs",
        Quantity::FeedUs => "Time to bring the batch, µs",
    }
}

/// The smallest of 1, 2 and 5 times a power of ten that is not below `wanted`.
fn round_step(wanted: f64) -> f64 {
    let power = 10f64.powf(wanted.log10().floor());
    [1.0, 2.0, 5.0, 10.0].map(|m| m * power).into_iter().find(|s| *s >= wanted * (1.0 - 1e-9)).unwrap_or(power)
}

fn tick(value: f64) -> String {
    let a = value.abs();
    if value == 0.0 {
        return "0".into();
    }
    if a >= 1e9 {
        return scientific(value, 2);
    }
    if a >= 1e6 {
        return format!("{} M", value / 1e6);
    }
    if a >= 1e4 {
        return format!("{} k", value / 1e3);
    }
    if a < 1e-3 {
        return format!("{value:.0e}");
    }
    let digits = (3 - a.log10().floor() as i32).clamp(0, 6) as usize;
    let text = format!("{value:.digits$}");
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.').to_owned() } else { text }
}

/// An axis with its scale.
struct Axis {
    low: f64,
    high: f64,
    log: bool,
    from: f64,
    to: f64,
}

impl Axis {
    fn new(low: f64, high: f64, log: bool, from: f64, to: f64) -> Self {
        let scale = |v: f64| if log { v.max(FLOOR).log10() } else { v };
        let (mut low, mut high) = (scale(low), scale(high));
        if !(high - low).is_normal() {
            let half = if log { 0.5 } else { (low.abs() * 0.1).max(0.5) };
            (low, high) = (low - half, high + half);
        }
        Self { low, high, log, from, to }
    }

    /// The position of a value in the picture.
    fn at(&self, value: f64) -> f64 {
        let v = if self.log { value.max(FLOOR).log10() } else { value };
        self.from + (v - self.low) / (self.high - self.low) * (self.to - self.from)
    }

    fn marks(&self) -> Vec<f64> {
        if self.log {
            /// The number of powers of ten between marks: the smallest for which there are few enough marks.
            const APART: [i32; 5] = [1, 2, 5, 10, 20];
            const MOST: f64 = 12.0;
            let span = self.high - self.low;
            let apart = APART.into_iter().find(|n| span / f64::from(*n) <= MOST).unwrap_or(50);
            let powers = (self.low.ceil() as i32..=self.high.floor() as i32).filter(|p| p.rem_euclid(apart) == 0);
            let mut marks: Vec<f64> = powers.map(|p| 10f64.powi(p)).collect();
            if marks.len() < 3 {
                let lower = self.low.floor() as i32..=self.high.floor() as i32;
                marks = lower.flat_map(|p| [1.0, 2.0, 5.0].map(|m| m * 10f64.powi(p))).collect();
                marks.retain(|m| (self.low..=self.high).contains(&m.log10()));
            }
            return marks;
        }
        let step = round_step((self.high - self.low) / 7.0);
        let (first, last) = ((self.low / step - 1e-9).ceil() as i64, (self.high / step + 1e-9).floor() as i64);
        (first..=last.min(first + 32)).map(|i| i as f64 * step).collect()
    }
}

/// At most two points for each column of pixels: the smallest and the largest value in it.
fn folded(points: &[[f64; 2]], columns: usize) -> Vec<[f64; 2]> {
    if points.len() <= 2 * columns {
        return points.to_vec();
    }
    let width = points.len().div_ceil(columns);
    let mut out = Vec::with_capacity(2 * columns);
    for part in points.chunks(width) {
        let by = |a: &&[f64; 2], b: &&[f64; 2]| a[1].total_cmp(&b[1]);
        let (Some(low), Some(high)) = (part.iter().min_by(by), part.iter().max_by(by)) else { continue };
        let mut pair = [*low, *high];
        pair.sort_by(|a, b| a[0].total_cmp(&b[0]));
        out.extend(pair);
    }
    out
}

/// A line of the picture.
struct Line {
    name: String,
    raw: Vec<[f64; 2]>,
    smooth: Vec<[f64; 2]>,
    held_out: Vec<[f64; 2]>,
    /// The name of the samples of those metrics.
    dashed: &'static str,
}

impl Line {
    fn new(name: &str, curves: &Curves, options: PlotOptions) -> Self {
        let x = |index: usize| match options.across {
            Across::Step => (curves.before + index as u64 + 1) as f64,
            Across::Time => curves.ms(index) * 1e-3,
        };
        let (mut state, mut weight) = (0.0, 0.0);
        let (mut raw, mut smooth) = (Vec::new(), Vec::new());
        for (index, v) in curves.values(options.quantity).iter().enumerate().filter(|(_, v)| v.is_finite()) {
            let v = f64::from(*v);
            state = SMOOTHING * state + (1.0 - SMOOTHING) * v;
            weight = SMOOTHING * weight + (1.0 - SMOOTHING);
            raw.push([x(index), v]);
            smooth.push([x(index), state / weight]);
        }
        let held_out = |value: fn(&crate::train::runs::EvaluationPoint) -> f64| {
            let across = |e: &crate::train::runs::EvaluationPoint| match options.across {
                Across::Step => e.step as f64,
                Across::Time => e.ms * 1e-3,
            };
            curves.evaluations.iter().map(|e| [across(e), value(e)]).filter(|p| p[1].is_finite()).collect()
        };
        let held_out = match options.quantity {
            Quantity::Loss => held_out(|e| e.loss),
            Quantity::Accuracy => held_out(|e| e.accuracy),
            _ => Vec::new(),
        };
        let dashed = match curves.maybe_trained {
            true => " (dashed: on samples that may have been trained on)",
            false => " (dashed: held-out)",
        };
        Self { name: name.to_owned(), raw, smooth, held_out, dashed }
    }
}

/// The curves of runs in one picture, as SVG on white. The raw curve is faint behind the smoothed one; held-out metrics
/// are dots joined by dashes.
#[must_use]
pub fn plot_svg(runs: &[(&str, &Curves)], options: PlotOptions) -> String {
    let lines: Vec<Line> = runs.iter().map(|(name, curves)| Line::new(name, curves, options)).collect();
    let bounds = |axis: usize| {
        let values = lines.iter().flat_map(|l| l.raw.iter().chain(&l.held_out)).map(|p| p[axis]);
        let sound = values.filter(|v| !(axis == 1 && options.log && *v <= 0.0));
        sound.fold(None, |acc: Option<(f64, f64)>, v| Some(acc.map_or((v, v), |(a, b)| (a.min(v), b.max(v)))))
    };
    let (x_low, x_high) = bounds(0).unwrap_or((0.0, 1.0));
    let (mut y_low, mut y_high) = bounds(1).unwrap_or((0.0, 1.0));
    if options.quantity == Quantity::Accuracy {
        (y_low, y_high) = (0.0, 1.0);
    }
    let x = Axis::new(x_low.min(0.0), x_high, false, AREA.left, AREA.right);
    let y = Axis::new(y_low, y_high, options.log, AREA.bottom, AREA.top);
    let mut out = String::new();
    let _ = writeln!(
        out,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{WIDTH}\" height=\"{HEIGHT}\" viewBox=\"0 0 {WIDTH} \
         {HEIGHT}\" \
         font-family=\"Inter, sans-serif\" font-size=\"13\">\n\
         <rect width=\"100%\" height=\"100%\" fill=\"#ffffff\"/>"
    );
    axes(&mut out, &x, &y, options);
    for (index, line) in lines.iter().enumerate() {
        let [r, g, b] = LINE_COLORS[index % LINE_COLORS.len()];
        let color = format!("#{r:02x}{g:02x}{b:02x}");
        curve(&mut out, line, &color, &x, &y);
        legend(&mut out, index, lines.len(), line, &color);
    }
    out.push_str("</svg>\n");
    out
}

/// Marks with their numbers, and the titles of both axes.
fn axes(out: &mut String, x: &Axis, y: &Axis, options: PlotOptions) {
    let Area { left, top, .. } = AREA;
    for mark in y.marks() {
        let at = y.at(mark);
        let _ = writeln!(
            out,
            "<line x1=\"{left}\" x2=\"{}\" y1=\"{at:.1}\" y2=\"{at:.1}\" stroke=\"#d9dad8\"/>\
             <text x=\"{}\" y=\"{:.1}\" text-anchor=\"end\" fill=\"#1d1f22\">{}</text>",
            AREA.right,
            AREA.left - 8.0,
            at + 4.5,
            tick(mark)
        );
    }
    for mark in x.marks() {
        let at = x.at(mark);
        let _ = writeln!(
            out,
            "<line x1=\"{at:.1}\" x2=\"{at:.1}\" y1=\"{top}\" y2=\"{}\" stroke=\"#d9dad8\"/>\
             <text x=\"{at:.1}\" y=\"{}\" text-anchor=\"middle\" fill=\"#1d1f22\">{}</text>",
            AREA.bottom,
            AREA.bottom + 18.0,
            tick(mark)
        );
    }
    let across = if options.across == Across::Step { "Step" } else { "Running time, s" };
    let _ = writeln!(
        out,
        "<text x=\"{}\" y=\"{}\" text-anchor=\"middle\" fill=\"#5c6168\">{across}</text>\n\
         <text x=\"{left}\" y=\"24\" font-size=\"15\" fill=\"#1d1f22\">{}</text>",
        f64::midpoint(AREA.left, AREA.right),
        HEIGHT - 16.0,
        axis_title(options.quantity)
    );
}

/// A run's curve: raw, smoothed, and its held-out metrics.
fn curve(out: &mut String, line: &Line, color: &str, x: &Axis, y: &Axis) {
    let path = |points: &[[f64; 2]]| {
        let shown = folded(points, AREA.width() as usize);
        shown.iter().map(|p| format!("{:.1},{:.1}", x.at(p[0]), y.at(p[1]))).collect::<Vec<_>>().join(" ")
    };
    let _ = writeln!(
        out,
        "<polyline points=\"{}\" fill=\"none\" stroke=\"{color}\" stroke-width=\"1\" stroke-opacity=\"0.35\"/>\n\
         <polyline points=\"{}\" fill=\"none\" stroke=\"{color}\" stroke-width=\"2\" stroke-linejoin=\"round\"/>",
        path(&line.raw),
        path(&line.smooth)
    );
    if line.held_out.is_empty() {
        return;
    }
    let _ = writeln!(
        out,
        "<polyline points=\"{}\" fill=\"none\" stroke=\"{color}\" stroke-width=\"1.5\" stroke-dasharray=\"6 4\"/>",
        path(&line.held_out)
    );
    for p in folded(&line.held_out, 24) {
        let _ = writeln!(out, "<circle cx=\"{:.1}\" cy=\"{:.1}\" r=\"3\" fill=\"{color}\"/>", x.at(p[0]), y.at(p[1]));
    }
}

/// The name of a line above the picture; names share the width.
fn legend(out: &mut String, index: usize, count: usize, line: &Line, color: &str) {
    let width = (AREA.width() / count.max(1) as f64).min(320.0);
    let at = AREA.left + width * index as f64;
    let most = ((width - 40.0) / 7.0).max(4.0) as usize;
    let held_out = if line.held_out.is_empty() { "" } else { line.dashed };
    let mut name: String = line.name.chars().take(most).collect();
    if name.len() < line.name.len() {
        name.push('…');
    } else if name.chars().count() + held_out.len() <= most {
        name.push_str(held_out);
    }
    let _ = writeln!(
        out,
        "<line x1=\"{at:.1}\" x2=\"{:.1}\" y1=\"40\" y2=\"40\" stroke=\"{color}\" stroke-width=\"3\"/><text \
         x=\"{:.1}\" y=\"44.5\" fill=\"#1d1f22\">{}</text>",
        at + 20.0,
        at + 28.0,
        escape(&name)
    );
}

/// A picture in SVG as the bytes of a PNG file, at twice its size; `None` if it is not valid SVG.
#[must_use]
pub fn svg_to_png(svg: &str) -> Option<Vec<u8>> {
    const SCALE: f32 = 2.0;
    let mut options = resvg::usvg::Options { font_family: "Inter".into(), ..Default::default() };
    options.fontdb_mut().load_font_data(include_bytes!("../../../assets/fonts/Inter-Regular.otf").to_vec());
    let tree = resvg::usvg::Tree::from_str(svg, &options).ok()?;
    let size = tree.size();
    let mut canvas = resvg::tiny_skia::Pixmap::new((size.width() * SCALE) as u32, (size.height() * SCALE) as u32)?;
    resvg::render(&tree, resvg::tiny_skia::Transform::from_scale(SCALE, SCALE), &mut canvas.as_mut());
    canvas.encode_png().ok()
}

#[cfg(test)]
mod tests {
    use super::super::tests::curves;
    use super::*;

    #[test]
    fn marks_are_few_and_short_over_any_range() {
        let axis = Axis::new(1e-12, 1e30, true, 400.0, 40.0);
        let labels: Vec<String> = axis.marks().into_iter().map(tick).collect();
        assert_eq!(labels, ["1e-10", "1e-5", "1", "100 k", "1e10", "1e15", "1e20", "1e25", "1e30"]);
        assert_eq!(tick(7.718_234_8e27), "7.72e27");
    }

    #[test]
    fn a_picture_has_every_line_and_its_name() {
        let curves = curves();
        let runs = [("first & only", &curves), ("second", &curves)];
        let svg = plot_svg(&runs, PlotOptions::default());
        assert!(svg.contains("first &amp; only") && svg.contains(">second"));
        assert_eq!(svg.matches("stroke-opacity=\"0.35\"").count(), 2);
        assert!(svg.contains("stroke-dasharray") && svg.contains(">Step<"));
        let by_time = PlotOptions { across: Across::Time, log: true, quantity: Quantity::StepUs };
        assert!(plot_svg(&runs, by_time).contains("Running time, s"));
        // Without curves the picture is empty, which is not an error.
        assert!(plot_svg(&[("none", &Curves::default())], PlotOptions::default()).ends_with("</svg>\n"));
    }

    #[test]
    fn the_png_shows_lines_and_letters() {
        let curves = curves();
        let png = svg_to_png(&plot_svg(&[("run", &curves)], PlotOptions::default())).unwrap();
        let picture = image::load_from_memory(&png).unwrap().to_rgb8();
        assert_eq!(picture.dimensions(), (1920, 1080));
        let [r, g, b] = LINE_COLORS[0];
        assert!(picture.pixels().filter(|p| p.0 == [r, g, b]).count() > 500);
        // The title is at the top left: dark pixels there are letters.
        let letters = (144..400).flat_map(|x| (20..56).map(move |y| (x, y)));
        assert!(letters.filter(|(x, y)| picture.get_pixel(*x, *y).0[0] < 90).count() > 100);
        assert_eq!(svg_to_png("<svg"), None);
    }

    #[test]
    fn a_million_points_become_a_small_picture_that_keeps_its_peaks() {
        let mut points: Vec<[f64; 2]> = (0..1_000_000).map(|i| [f64::from(i), 1.0]).collect();
        points[123_456][1] = 9.0;
        let shown = folded(&points, 800);
        assert!(shown.len() <= 1600 && shown.iter().any(|p| p[1] == 9.0));
        assert!(shown.windows(2).all(|w| w[0][0] <= w[1][0]));
    }

    #[test]
    fn marks_are_round() {
        assert_eq!(
            Axis::new(0.0, 1.0, false, 0.0, 1.0).marks().into_iter().map(tick).collect::<Vec<_>>().join(" "),
            "0 0.2 0.4 0.6 0.8 1"
        );
        assert_eq!(
            Axis::new(0.01, 2.0, true, 0.0, 1.0).marks().into_iter().map(tick).collect::<Vec<_>>().join(" "),
            "0.01 0.1 1"
        );
        assert_eq!([20_000.0, 2e6, 0.000_1].map(tick), ["20 k", "2 M", "1e-4"]);
    }
}

//! The arena as a picture: the horizontal axis is time, the vertical axis the address; each rectangle is a buffer.

use super::BindingPlan;
use crate::ir::Role;
use crate::tensor::Bytes;
use std::fmt::Write as _;

/// Colours of roles that colour-blind users can distinguish (Okabe and Ito 2008), the same in every view.
pub struct RoleColor;

impl RoleColor {
    /// Red, green and blue of a role.
    #[must_use]
    pub const fn rgb(role: Role) -> [u8; 3] {
        match role {
            Role::Input => [0x56, 0xB4, 0xE9],
            Role::Param => [0x00, 0x72, 0xB2],
            Role::State => [0xCC, 0x79, 0xA7],
            Role::Grad => [0xD5, 0x5E, 0x00],
            Role::Activation => [0x00, 0x9E, 0x73],
            Role::Workspace => [0xF0, 0xE4, 0x42],
            Role::Metric => [0x99, 0x99, 0x99],
        }
    }
}

/// The size of the picture, and the first column and row of the arena in it.
const WIDTH: f64 = 1200.0;
const HEIGHT: f64 = 640.0;
const LEFT: f64 = 80.0;
const TOP: f64 = 48.0;

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

/// The arena of a plan as an SVG document; each rectangle has its data as a tooltip.
#[must_use]
pub fn arena_svg(plan: &BindingPlan, title: &str) -> String {
    let mut out = String::new();
    let head = format!(
        "{}: arena {}, lower bound {}, unshared {}",
        escape(title),
        Bytes(plan.arena_bytes),
        Bytes(plan.lower_bound_bytes),
        Bytes(plan.unshared_bytes)
    );
    let _ = writeln!(
        out,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" font-family=\"sans-serif\" \
         font-size=\"12\">"
    );
    let _ = writeln!(
        out,
        "<rect width=\"100%\" height=\"100%\" fill=\"#ffffff\"/>\n<text x=\"{LEFT}\" y=\"24\" \
         font-size=\"15\">{head}</text>"
    );
    rectangles(&mut out, plan);
    legend(&mut out);
    let _ =
        writeln!(out, "<text x=\"{LEFT}\" y=\"{}\">operation 0 to {}</text>", HEIGHT - 38.0, plan.program.ops.len());
    let _ = writeln!(
        out,
        "<text x=\"8\" y=\"{}\">0 B</text>\n<text x=\"8\" y=\"{}\">{}</text>",
        HEIGHT - 56.0,
        TOP + 12.0,
        Bytes(plan.arena_bytes)
    );
    out.push_str("</svg>\n");
    out
}

/// One rectangle for each buffer of the arena: its live range horizontally, its bytes vertically.
fn rectangles(out: &mut String, plan: &BindingPlan) {
    let ops = plan.program.ops.len().max(1) as f64;
    let bytes = plan.arena_bytes.max(1) as f64;
    let (sx, sy) = ((WIDTH - LEFT - 16.0) / ops, (HEIGHT - TOP - 56.0) / bytes);
    for b in plan.buffers.iter().filter(|b| !b.is_external()) {
        let [r, g, bl] = RoleColor::rgb(b.role);
        let (x, w) = (LEFT + b.live[0] as f64 * sx, (b.live[1] - b.live[0]) as f64 * sx);
        let h = b.bytes as f64 * sy;
        let y = HEIGHT - 56.0 - b.offset as f64 * sy - h;
        let tip = format!(
            "{} ({}) {}{} {}, offset {}, ops {}..{}",
            escape(&b.name),
            b.role.name(),
            b.dtype,
            b.shape,
            Bytes(b.bytes),
            b.offset,
            b.live[0],
            b.live[1]
        );
        let _ = writeln!(
            out,
            "<rect x=\"{x:.2}\" y=\"{y:.2}\" width=\"{w:.2}\" height=\"{h:.2}\" fill=\"#{r:02x}{g:02x}{bl:02x}\" \
             stroke=\"#ffffff\" stroke-width=\"0.5\"><title>{tip}</title></rect>"
        );
    }
}

/// The color of each role.
fn legend(out: &mut String) {
    for (i, role) in Role::ALL.into_iter().enumerate() {
        let [r, g, b] = RoleColor::rgb(role);
        let x = LEFT + i as f64 * 110.0;
        let _ = writeln!(
            out,
            "<rect x=\"{x}\" y=\"{}\" width=\"12\" height=\"12\" fill=\"#{r:02x}{g:02x}{b:02x}\"/>",
            HEIGHT - 24.0
        );
        let _ = writeln!(out, "<text x=\"{}\" y=\"{}\">{}</text>", x + 16.0, HEIGHT - 14.0, role.name());
    }
}
